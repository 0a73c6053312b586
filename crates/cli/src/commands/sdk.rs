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

/// Installs the files, or lists them.
pub fn sdk(options: &SdkOptions) -> Outcome {
    let files = files();
    let Some(directory) = &options.directory else {
        output::print(|out| files.keys().try_for_each(|path| writeln!(out, "DIR/{path}")))?;
        return Ok(());
    };
    let directory =
        std::path::absolute(directory).map_err(|e| Error::file(directory, "resolve it", e))?;
    let ours = written_before(&directory);
    let foreign = |path: &&String| {
        let there = fs::symlink_metadata(directory.join(path)).is_ok();
        there && !is_ours(&directory.join(path), &files[*path], ours.get(*path))
    };
    if let Some(path) = files.keys().find(foreign) {
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
    write_list(&directory, now)?;
    let (count, shown) = (files.len(), of_path(&directory));
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
