//! Passes the native programs' linker script when built for the bare machine.

fn main() {
    println!("cargo:rerun-if-changed=../../libs/xok/native.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        let directory = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo:rustc-link-arg-bins=-T{directory}/../../libs/xok/native.ld");
        println!("cargo:rustc-link-arg-bins=--no-pie");
    }
}
