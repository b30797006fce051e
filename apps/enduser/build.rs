//! Links the program as a native one.

fn main() {
    let directory = env!("CARGO_MANIFEST_DIR");
    println!("cargo:rerun-if-changed={directory}/../../libs/xok/native.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none") {
        println!("cargo:rustc-link-arg-bins=-T{directory}/../../libs/xok/native.ld");
        println!("cargo:rustc-link-arg-bins=--no-pie");
    }
}
