//! The message about functions without names: affected modules, their share, and a remedy.

use std::path::Path;

use heaptide_analysis::files::packages::package_of;
use heaptide_analysis::model::Recording;
use heaptide_analysis::symbols::is_another_build;
use heaptide_analysis::views::unnamed::{Unnamed, unnamed};
use heaptide_render::shared::quantity::percent;

/// There is a message if stacks without names have at least this fraction of the bytes.
const PART: u64 = 20;
/// The most modules to name.
const MODULES: usize = 3;

/// Returns the message for a recording at `path`; `None` if its stacks have names.
pub fn line(recording: &Recording, path: &Path) -> Option<String> {
    let (all, total_bytes) = unnamed(recording);
    let bytes: u64 = all.iter().map(|unnamed| unnamed.bytes).sum();
    if bytes == 0 || bytes < total_bytes / PART {
        return None;
    }
    let most = &all[..all.len().min(MODULES)];
    let mut names: Vec<_> = most.iter().map(name).collect();
    if all.len() > MODULES {
        names.push("others");
    }
    let (share, names) = (percent(bytes, total_bytes), names.join(", "));
    let build_id = most.first().map_or(&[][..], |first| build_id(recording, first));
    let modules = recording.processes.iter().flat_map(|process| &process.tables.modules);
    let modules: Vec<&str> = modules.map(|module| &*module.path).collect();
    let help = help(most, build_id, &modules, path);
    Some(format!("no names for {share} of the bytes, in {names}: {help}"))
}

/// Returns the recorded build-id of a module; empty if it has none.
fn build_id<'a>(recording: &'a Recording, unnamed: &Unnamed) -> &'a [u8] {
    let mut modules = recording.processes.iter().flat_map(|process| &process.tables.modules);
    let module = modules.find(|module| Some(&module.path) == unnamed.module.as_ref());
    module.map_or(&[], |module| &module.build_id)
}

fn name(unnamed: &Unnamed) -> &str {
    match &unnamed.module {
        Some(path) => path.rsplit('/').next().unwrap_or(path),
        None => "code of a JIT compiler",
    }
}

/// Returns the packages with these names, each once.
fn debug_packages(packages: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = Vec::new();
    for name in packages.map(|package| format!("{package}-dbgsym")) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(" ")
}

/// Returns how a runtime writes the names of the code that it compiles, by the paths of the modules
/// in the process.
fn perf_map(modules: &[&str]) -> &'static str {
    let has = |part: &str| {
        modules.iter().any(|path| path.rsplit('/').next().unwrap_or(path).contains(part))
    };
    if has("libjvm") {
        "run it with `java -XX:+PreserveFramePointer -XX:+UnlockDiagnosticVMOptions \
         -XX:+DumpPerfMapAtExit`"
    } else if has("node") {
        "run it with `node --perf-basic-prof`"
    } else if has("python") {
        "run it with `python3 -X perf`"
    } else {
        "use an option or an agent of the runtime that writes /tmp/perf-PID.map"
    }
}

/// Returns how to get names: the remedy for the module with most bytes, and packages for the
/// others, too. `build_id` is the recorded one of the first module.
fn help(unnamed: &[Unnamed], build_id: &[u8], modules: &[&str], recording: &Path) -> String {
    let shown = recording.display();
    let Some(module) = unnamed.first().and_then(|first| first.module.as_deref()) else {
        return perf_map(modules).to_owned();
    };
    if !Path::new(module).exists() {
        return format!(
            "its file is not here; run `heaptide seal --sysroot DIR {shown}` with the root \
             directory that it is in"
        );
    }
    if is_another_build(Path::new(module), build_id) {
        return format!(
            "its file was replaced by another build after the program loaded it; run `heaptide \
             seal --symbols DIR {shown}` with a copy of the recorded build in that directory"
        );
    }
    let of = |unnamed: &Unnamed| package_of(Path::new(unnamed.module.as_deref()?));
    let Some(first) = unnamed.first().and_then(of) else {
        return format!(
            "build it with -g and do not strip it, or run `heaptide seal --symbols DIR {shown}` \
             with its debug files"
        );
    };
    let others = unnamed[1..].iter().filter_map(of);
    let packages = debug_packages(std::iter::once(first).chain(others));
    format!(
        "install {packages} and run `heaptide seal {shown}`, or run `heaptide seal \
         --debuginfod=URL {shown}`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo test` links its programs with a build-id; another one was recorded.
    #[test]
    fn a_file_of_another_build_needs_the_recorded_one() {
        let path = std::env::current_exe().expect("a path");
        let module = Some(path.to_str().expect("UTF-8").to_owned());
        let unnamed = [Unnamed { module, bytes: 1 }];
        let text = help(&unnamed, &[1, 2, 3], &[], Path::new("a.heaptide"));
        assert!(text.starts_with("its file was replaced by another build"), "{text}");
        assert!(help(&unnamed, &[], &[], Path::new("a.heaptide")).starts_with("build it with -g"));
    }

    #[test]
    fn each_package_is_listed_once() {
        let packages = ["g++-12", "binutils", "g++-12"].map(str::to_owned);
        assert_eq!(debug_packages(packages.into_iter()), "g++-12-dbgsym binutils-dbgsym");
    }
}
