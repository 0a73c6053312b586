//! Says which of the two crates the shared sources are.

fn main() {
    println!("cargo:rustc-check-cfg=cfg(embedded)");
    println!("cargo:rustc-cfg=embedded");
    println!("cargo:rerun-if-changed=build.rs");
}
