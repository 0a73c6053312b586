//! Links the library without dependencies: no DT_NEEDED and no symbol versions, so that one file
//! works with every libc.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-nostdlib");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libheaptide.so");
    // Run before the constructors of all other libraries: no thread has been started yet, and if
    // the executable has its own allocator, their allocations are recorded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // The bounds of sections are no exports.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,start-stop-visibility=hidden");
    // Each segment begins with a page, so that the places of data in their pages do not change with
    // the size of the code: which lines share a set of a cache depends on them. lld knows it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,separate-loadable-segments");
    println!("cargo:rerun-if-changed=build.rs");
}
