//! Detects the program's own code, which its developers can change.

use super::known::{Role, known};
use crate::model::{CodeKind, Frame, Process};

/// Directories in which systems, language tools and package managers install files.
const SYSTEM: [&str; 9] = [
    "/usr/",
    "/lib/",
    "/lib32/",
    "/lib64/",
    "/bin/",
    "/sbin/",
    "/nix/store/",
    "/gnu/store/",
    "/snap/",
];
/// Parts of the paths of directories for libraries of a language, and of their sources.
const LIBRARIES: [&str; 9] = [
    "/rustc/",
    "/.cargo/registry/",
    "/.cargo/git/",
    "/.rustup/",
    "/rustlib/",
    "/site-packages/",
    "/dist-packages/",
    "/node_modules/",
    "/vendor/",
];

/// Returns whether a frame belongs to the program itself: it matches `--own`, or is in a module
/// that is the executable or outside the directories of systems and package managers, its source is
/// not that of a library, and it is not a wrapper, container or runtime.
pub fn is_own(process: &Process, frame: &Frame) -> bool {
    if frame.is_scope() {
        return true;
    }
    let module = frame.module.map(|id| process.tables.modules[id.0 as usize].path.as_str());
    let (function, file) = (frame.function.as_deref(), frame.file.as_deref());
    if process.attribution.names(function, module, file) {
        return true;
    }
    // The source file of generated code is known only for scripts.
    if frame.code == CodeKind::Python || frame.module.is_none() {
        return file.is_some_and(is_own_script);
    }
    let role = |function| known().role(function);
    module.is_some_and(|module| is_own_module(module, &process.identity.program))
        && !file.is_some_and(is_of_library)
        && function.is_none_or(|function| role(function) == Role::Owner)
}

fn is_own_module(module: &str, program: &str) -> bool {
    let name = module.rsplit('/').next().unwrap_or(module);
    let is_system = SYSTEM.iter().any(|prefix| module.starts_with(prefix));
    let is_librarys = LIBRARIES.iter().any(|part| module.contains(part));
    // Modules without a path belong to the kernel.
    module.starts_with('/')
        && !known().is_runtime(name)
        && (module == program || !is_system && !is_librarys)
}

/// Returns whether a script belongs to the program: it is outside the interpreter's library and
/// installed packages.
fn is_own_script(file: &str) -> bool {
    let is_of_interpreter = file.starts_with("node:")
        || file.starts_with('<') && file != "<string>" && file != "<stdin>";
    let in_library = file.split_once("/lib/python").is_some_and(|(_, rest)| {
        rest.split_once('/').is_some_and(|(version, _)| {
            version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        })
    });
    !is_of_interpreter && !in_library && !is_of_library(file)
}

fn is_of_library(source: &str) -> bool {
    source.starts_with("/usr/include/") || LIBRARIES.iter().any(|part| source.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_code_is_own_outside_of_libraries() {
        let own = ["/srv/app/main.py", "app.py", "<string>", "/srv/lib/pythonic/x.py"];
        let others = [
            "/usr/lib/python3.11/json/decoder.py",
            "/opt/py/lib/python3.12/asyncio/base_events.py",
            "/srv/venv/lib/python3.9/site-packages/flask/app.py",
            "/usr/lib/python3/dist-packages/yaml/__init__.py",
            "<frozen importlib._bootstrap>",
            "node:internal/modules/cjs/loader",
            "/srv/app/node_modules/express/lib/router.js",
        ];
        assert!(own.into_iter().all(is_own_script));
        assert!(!others.into_iter().any(is_own_script));
    }
}
