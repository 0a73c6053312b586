//! Links the library against nothing: no DT_NEEDED, no symbol versions, so one file serves every
//! libc.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-nostdlib");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libheaptide.so");
    println!("cargo:rerun-if-changed=build.rs");
}
