//! Exact numbers under other allocators, preloaded and linked.

use crate::harness::{check_with, skip};
use std::path::Path;

/// Where Debian keeps them; the packages are libgoogle-perftools4, libjemalloc2 and libmimalloc2.0.
pub const ALLOCATORS: [(&str, &str); 4] = [
    ("tcmalloc", "libtcmalloc.so.4"),
    ("tcmalloc_minimal", "libtcmalloc_minimal.so.4"),
    ("jemalloc", "libjemalloc.so.2"),
    ("mimalloc", "libmimalloc.so.2"),
];

/// Programs whose known numbers do not depend on how glibc treats a case that the standard leaves
/// open.
const PROGRAMS: [&str; 6] =
    ["peak.c", "leaks.c", "temporary.c", "proxies.cpp", "usable.c", "cross_thread.c"];

/// Where an allocator is, if it is installed.
pub fn library(file: &str) -> Option<String> {
    let path = format!("/usr/lib/{}-linux-gnu/{file}", std::env::consts::ARCH);
    Path::new(&path).exists().then_some(path)
}

fn preloaded(allocator: &str) {
    let (name, file) = ALLOCATORS.iter().find(|(name, _)| *name == allocator).expect("known");
    let Some(path) = library(file) else {
        return skip(&format!("{file} is not installed"));
    };
    for program in PROGRAMS {
        let variant = format!("{program}-preloaded-{name}");
        check_with(program, &variant, &[], &[("LD_PRELOAD", &path)]);
    }
}

fn linked(allocator: &str) {
    let (name, file) = ALLOCATORS.iter().find(|(name, _)| *name == allocator).expect("known");
    let Some(path) = library(file) else {
        return skip(&format!("{file} is not installed"));
    };
    for program in PROGRAMS {
        let variant = format!("{program}-linked-{name}");
        check_with(program, &variant, &["-Wl,--no-as-needed", &path], &[]);
    }
}

#[test]
fn tcmalloc_preloaded() {
    preloaded("tcmalloc");
}

#[test]
fn tcmalloc_minimal_preloaded() {
    preloaded("tcmalloc_minimal");
}

#[test]
fn jemalloc_preloaded() {
    preloaded("jemalloc");
}

#[test]
fn mimalloc_preloaded() {
    preloaded("mimalloc");
}

#[test]
fn tcmalloc_linked() {
    linked("tcmalloc");
}

#[test]
fn tcmalloc_minimal_linked() {
    linked("tcmalloc_minimal");
}

#[test]
fn jemalloc_linked() {
    linked("jemalloc");
}

#[test]
fn mimalloc_linked() {
    linked("mimalloc");
}

#[test]
fn extended_interface_of_jemalloc() {
    let Some(path) = library("libjemalloc.so.2") else {
        return skip("libjemalloc.so.2 is not installed");
    };
    check_with("extended.c", "extended-jemalloc", &[&path], &[]);
}
