//! Exact numbers under other allocators: preloaded, linked, and part of the executable.

use crate::harness::{check_with, programs};
use heaptide_fixtures::skips::skip;
use std::path::Path;

/// The allocators' libraries, of any version.
pub const ALLOCATORS: [&str; 4] =
    ["libtcmalloc", "libtcmalloc_minimal", "libjemalloc", "libmimalloc"];

/// Their directories on Debian and other systems.
const DIRECTORIES: [&str; 3] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// Programs whose known numbers do not depend on behaviour that the C standard leaves open.
const PROGRAMS: [&str; 6] =
    ["peak.c", "leaks.c", "temporary.c", "proxies.cpp", "usable.c", "cross_thread.c"];

/// Returns the newest version of an allocator's library. Without one the test is skipped.
pub fn library(name: &str) -> Option<String> {
    let start = format!("{name}.so.");
    let files = DIRECTORIES.iter().flat_map(std::fs::read_dir).flatten().flatten();
    let paths = files.filter_map(|file| {
        let is_it = file.file_name().to_str()?.starts_with(&start);
        is_it.then(|| file.path().to_str().map(str::to_owned)).flatten()
    });
    let newest = paths.max();
    if newest.is_none() {
        skip(name);
    }
    newest
}

fn preloaded(allocator: &str) {
    let Some(path) = library(allocator) else { return };
    for program in PROGRAMS {
        let variant = format!("{program}-preloaded-{allocator}");
        check_with(program, &variant, &[], &[("LD_PRELOAD", &path)]);
    }
}

fn linked(allocator: &str) {
    let Some(path) = library(allocator) else { return };
    for program in PROGRAMS {
        let variant = format!("{program}-linked-{allocator}");
        check_with(program, &variant, &["-Wl,--no-as-needed", &path], &[]);
    }
}

/// The executable contains the allocator and exports the functions that libraries use: they are
/// intercepted by patching.
fn in_the_executable(allocator: &str) {
    let archives = DIRECTORIES.map(|directory| format!("{directory}/{allocator}.a"));
    let Some(archive) = archives.iter().find(|archive| Path::new(archive).exists()) else {
        return skip(&format!("{allocator}.a"));
    };
    let whole = ["-Wl,--whole-archive", archive, "-Wl,--no-whole-archive"];
    for program in PROGRAMS {
        let variant = format!("{program}-static-{allocator}");
        check_with(
            program,
            &variant,
            &[&whole[..], &["-lstdc++", "-lm", "-pthread"]].concat(),
            &[],
        );
    }
}

#[test]
fn tcmalloc_in_the_executable() {
    in_the_executable("libtcmalloc_minimal");
}

#[test]
fn jemalloc_in_the_executable() {
    in_the_executable("libjemalloc");
}

#[test]
fn tcmalloc_preloaded() {
    preloaded("libtcmalloc");
}

#[test]
fn tcmalloc_minimal_preloaded() {
    preloaded("libtcmalloc_minimal");
}

#[test]
fn jemalloc_preloaded() {
    preloaded("libjemalloc");
}

#[test]
fn mimalloc_preloaded() {
    preloaded("libmimalloc");
}

#[test]
fn tcmalloc_linked() {
    linked("libtcmalloc");
}

#[test]
fn tcmalloc_minimal_linked() {
    linked("libtcmalloc_minimal");
}

#[test]
fn jemalloc_linked() {
    linked("libjemalloc");
}

#[test]
fn mimalloc_linked() {
    linked("libmimalloc");
}

#[test]
fn extended_interface_of_jemalloc() {
    let Some(path) = library("libjemalloc") else { return };
    check_with("extended.c", "extended-jemalloc", &[&path], &[]);
}

/// Allocators of the process that are also called by names of their own.
const RENAMED: [(&str, &str); 2] =
    [("libmimalloc", "-DNAME=mi_"), ("libtcmalloc_minimal", "-DNAME=tc_")];

#[test]
fn own_names_of_the_allocator() {
    for (allocator, name) in RENAMED {
        let Some(path) = library(allocator) else { continue };
        check_with("renamed.c", &format!("renamed-{allocator}"), &[&path, name], &[]);
    }
}

/// The allocator is intercepted in place, since a pointer refers to another name of its `free`.
#[test]
fn names_of_the_c_library_beside_own_names() {
    let pointer = programs().join("renamed_pointer.c");
    let pointer = pointer.to_str().expect("a path in UTF-8");
    for (allocator, name) in RENAMED {
        let Some(path) = library(allocator) else { continue };
        for program in PROGRAMS {
            let variant = format!("{program}-renamed-{allocator}");
            check_with(program, &variant, &[pointer, &path, name], &[]);
        }
    }
}

/// A heap that is destroyed frees its blocks without a call for each.
#[test]
fn heaps_of_mimalloc_are_destroyed() {
    let Some(path) = library("libmimalloc") else { return };
    check_with("destroyed_heaps.c", "destroyed_heaps-linked", &[&path], &[]);
    let loaded = format!("-DLOADED=\"{path}\"");
    check_with("destroyed_heaps.c", "destroyed_heaps-loaded", &[&loaded], &[]);
}

#[test]
fn own_functions_of_mimalloc() {
    let Some(path) = library("libmimalloc") else { return };
    check_with("renamed_heaps.c", "renamed_heaps-mimalloc", &[&path], &[]);
}
