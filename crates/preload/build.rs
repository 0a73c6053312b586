//! Links the library against nothing: no DT_NEEDED, no symbol versions, so one file serves every
//! libc.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-nostdlib");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libheaptide.so");
    // Before the constructors of all others: none of them has made a thread yet, and what they
    // allocate is recorded where the executable has an allocator of its own.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rerun-if-changed=build.rs");
}
