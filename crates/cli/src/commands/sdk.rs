//! `heaptide sdk`: installs headers, libraries and sources for programs into one directory.
//!
//! A list with a fingerprint of each written file stays there. A file that is not in the list, or
//! was changed since, is not overwritten.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use heaptide_analysis::files::input;
use heaptide_analysis::text::of_path;
use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_command::{output, values};

use crate::library;

/// `heaptide sdk`.
#[derive(Args, Debug)]
#[command(after_help = SDK_EXAMPLE)]
pub struct SdkOptions {
    /// Directory to install to, created if missing [default: list the files]
    #[arg(value_name = "DIR", value_parser = values::directory())]
    pub directory: Option<PathBuf>,
}

const SDK_EXAMPLE: &str = "\
Example:
  heaptide sdk ~/heaptide && export PKG_CONFIG_PATH=~/heaptide/lib/pkgconfig
  cc app.c $(pkg-config --cflags --libs heaptide)";

/// Headers, monitors, the Rust crate and the Python package: path in the directory, and content.
static FILES: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/sdk_files.rs"));

/// The path of the list of written files: per line a fingerprint and a path.
const LIST: &str = "share/heaptide/files";
/// The maximum size of a file that can be ours, in bytes. The library, the largest, is far smaller.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The path for pkg-config.
const PKG_CONFIG: &str = "lib/pkgconfig/heaptide.pc";
/// The path for pkg-config, with the headers for programs written for other tools.
const PKG_CONFIG_COMPAT: &str = "lib/pkgconfig/heaptide-compat.pc";

/// Linker scripts in place of the libraries of other tools, for programs that are linked with
/// these: with `-L DIR/lib/compat -L DIR/lib`.
const COMPAT: [(&str, &str); 4] = [
    ("lib/compat/libcaliper.so", "INPUT(-lheaptide)\n"),
    ("lib/compat/libmalloc_tag.so", "INPUT(-lheaptide)\n"),
    (
        "lib/compat/libPerfToolsAllocMonitor.so",
        "/* Nothing: include/compat/PerfTools/AllocMonitor has all. */\n",
    ),
    (
        "lib/compat/dummyMallocProfiler.so",
        "/* Nothing: include/compat/mallocProfiler.h has all. */\n",
    ),
];

/// Links to the library with the names of preload libraries of other tools, and their target.
const LINKS: [&str; 4] = [
    "lib/compat/libPerfToolsAllocMonitorPreload.so",
    "lib/compat/libPerfToolsMaxMemoryPreload.so",
    "lib/compat/mallocProfiler.so",
    "lib/compat/mallocProfilerOFF.so",
];
const LINK_TARGET: &str = "../libheaptide.so";

/// Installs the files, or lists them.
pub fn sdk(options: &SdkOptions) -> Outcome {
    let files = files();
    let Some(directory) = &options.directory else {
        let links = LINKS.iter().copied();
        let mut paths: Vec<&str> = files.keys().map(String::as_str).chain(links).collect();
        paths.sort_unstable();
        output::print(|out| paths.iter().try_for_each(|path| writeln!(out, "DIR/{path}")))?;
        return Ok(());
    };
    let directory =
        std::path::absolute(directory).map_err(|e| Error::file(directory, "resolve it", e))?;
    let ours = written_before(&directory);
    let foreign = |path: &&String| {
        let there = fs::symlink_metadata(directory.join(path)).is_ok();
        there && !is_ours(&directory.join(path), &files[*path], ours.get(*path))
    };
    let foreign_link = |path: &&&str| {
        let there = directory.join(path);
        fs::symlink_metadata(&there).is_ok()
            && !fs::read_link(&there).is_ok_and(|target| target == Path::new(LINK_TARGET))
    };
    let foreign_file = files.keys().find(foreign).map(String::as_str);
    if let Some(path) = foreign_file.or(LINKS.iter().find(foreign_link).copied()) {
        let shown = directory.join(path);
        return Err(Error::new(format!(
            "{}: exists and was not written by `heaptide sdk`, or was modified since; \
             choose another directory or remove it",
            shown.display()
        ))
        .into());
    }
    // The list is written first, so that the next run recognizes the files of an interrupted one.
    let now = files.iter().map(|(path, bytes)| (path.as_str(), library::fingerprint(bytes)));
    let before = ours.iter().flat_map(|(path, prints)| prints.iter().map(|&p| (path.as_str(), p)));
    write_list(&directory, now.clone().chain(before))?;
    for (path, bytes) in &files {
        write(&directory.join(path), bytes)?;
    }
    LINKS.iter().try_for_each(|path| link(&directory.join(path)))?;
    write_list(&directory, now)?;
    let (count, shown) = (files.len() + LINKS.len(), of_path(&directory));
    output::print_text(|out| writeln!(out, "installed {count} files in {shown}"))?;
    Ok(())
}

/// Returns all files by path.
fn files() -> BTreeMap<String, Vec<u8>> {
    let carried = FILES.iter().map(|&(path, bytes)| (path.to_owned(), bytes.to_vec()));
    let mut files: BTreeMap<String, Vec<u8>> = carried.collect();
    files.insert(format!("lib/{}", library::NAME), library::CARRIED.to_vec());
    files.insert(PKG_CONFIG.to_owned(), pkg_config().into_bytes());
    files.insert(PKG_CONFIG_COMPAT.to_owned(), pkg_config_compat().into_bytes());
    files.extend(COMPAT.map(|(path, script)| (path.to_owned(), script.as_bytes().to_vec())));
    files
}

/// Returns the text for pkg-config. The library is linked even if no object refers to it
/// (`--no-as-needed`), so that its `malloc` precedes that of other libraries.
fn pkg_config() -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         includedir=${{prefix}}/include\n\
         libdir=${{prefix}}/lib\n\
         \n\
         Name: heaptide\n\
         Description: {}\n\
         Version: {}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -Wl,-rpath,${{libdir}} -Wl,--push-state,--no-as-needed -lheaptide \
         -Wl,--pop-state\n",
        env!("CARGO_PKG_DESCRIPTION"),
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns the text for pkg-config, for programs written for other tools.
fn pkg_config_compat() -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         includedir=${{prefix}}/include\n\
         \n\
         Name: heaptide-compat\n\
         Description: Interfaces of other allocation profilers\n\
         Version: {}\n\
         Requires: heaptide\n\
         Cflags: -I${{includedir}}/compat\n",
        env!("CARGO_PKG_VERSION")
    )
}

fn write_list<'a>(
    directory: &Path,
    files: impl Iterator<Item = (&'a str, u64)>,
) -> Result<(), Error> {
    let lines: String = files.map(|(path, print)| format!("{print:016x} {path}\n")).collect();
    write(&directory.join(LIST), lines.as_bytes())
}

/// Returns the files that earlier runs wrote here: fingerprints by path.
fn written_before(directory: &Path) -> BTreeMap<String, Vec<u64>> {
    let list = input::read(&directory.join(LIST), FILE_BYTES_MAX).unwrap_or_default();
    let list = String::from_utf8_lossy(&list);
    let mut before: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (print, path) in list.lines().filter_map(|line| line.split_once(' ')) {
        if let Ok(print) = u64::from_str_radix(print, 16) {
            before.entry(path.to_owned()).or_default().push(print);
        }
    }
    before
}

/// Returns whether a file has the content to be written, or one that an earlier run wrote.
fn is_ours(file: &Path, bytes: &[u8], before: Option<&Vec<u64>>) -> bool {
    input::read(file, FILE_BYTES_MAX).is_ok_and(|there| {
        let print = library::fingerprint(&there);
        there == bytes || before.is_some_and(|before| before.contains(&print))
    })
}

/// Creates a link to the library, unless it is there.
fn link(path: &Path) -> Result<(), Error> {
    match std::os::unix::fs::symlink(LINK_TARGET, path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(Error::file(path, "create the link", e))
        }
        _ => Ok(()),
    }
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), Error> {
    if let Some(parent) = file.parent() {
        fs::create_dir_all(parent).map_err(|e| Error::file(parent, "create the directory", e))?;
    }
    // Replaced in one step, since a program may have the library loaded.
    let mut draft = file.as_os_str().to_owned();
    draft.push(format!(".{}.new", std::process::id()));
    let written = fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, file));
    written.map_err(|e| {
        let _ = fs::remove_file(&draft); // may not exist
        Error::file(file, "write it", e)
    })
}
