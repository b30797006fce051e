//! Links a shared object: one segment, Linux's symbol names and version.

fn main() {
    println!("cargo:rerun-if-changed=link.ld");
    println!("cargo:rerun-if-changed=symbols.map");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        let directory = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        for word in [
            "--no-pie".to_string(),
            "-shared".to_string(),
            "-Bsymbolic".to_string(),
            "--hash-style=both".to_string(),
            "-soname=linux-vdso.so.1".to_string(),
            format!("--version-script={directory}/symbols.map"),
            format!("-T{directory}/link.ld"),
        ] {
            println!("cargo:rustc-link-arg-bins={word}");
        }
    }
}
