//! Which package may use which: `apps -> libs -> xok -> abi <- kernel-core <- kernel`.

use crate::workspace::Package;

/// What each package may use of ours. What is not listed may use nothing.
const ALLOWED: &[(&str, &[&str])] = &[
    ("kernel", &["kernel-core", "lockfree", "code", "abi", "image"]),
    ("kernel-core", &["code", "abi", "image"]),
    ("libs/xok", &["lockfree", "abi", "image"]),
    ("libs/lockfree", &["abi"]),
    (
        "libs/exos",
        &["xok", "xio", "xnet", "unix", "callsites", "door", "strace", "lockfree", "abi", "image"],
    ),
    ("libs/xio", &["lockfree", "abi"]),
    ("libs/xnet", &["xok", "xio", "abi"]),
    ("libs/vdso", &["abi"]),
    ("libs/unix", &["abi"]),
    ("libs/callsites", &[]),
    ("libs/door", &["abi"]),
    ("libs/strace", &[]),
    ("apps/", &["xok", "xio", "xnet", "unix", "exos", "lockfree", "abi", "image"]),
    ("tests/", &["xok", "xio", "xnet", "unix", "door", "code", "abi", "image"]),
    ("code", &[]),
    ("xtask", &["code", "kernel-core", "xio", "unix", "abi", "image"]),
];

/// Packages that use nobody's code but the project's: the boundary, and what decides.
const PURE: [&str; 4] = ["abi", "image", "code", "kernel-core"];

/// Complains of each dependency that the rule does not allow, and of each foreign one that the
/// workspace's or the package's manifest gives no reason for.
pub fn check(packages: &[Package], root: &str) -> Vec<String> {
    let ours: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut complaints = Vec::new();
    for package in packages {
        let path = format!("{}/Cargo.toml", package.directory);
        let allowed = allowed(package);
        for dependency in dependencies(&package.manifest) {
            if ours.contains(&dependency.name.as_str()) {
                if !allowed.contains(&dependency.name.as_str()) {
                    let name = &dependency.name;
                    complaints.push(format!("{path}: {} must not use {name}", package.name));
                }
            } else if PURE.contains(&package.name.as_str()) {
                let name = &dependency.name;
                complaints
                    .push(format!("{path}: {} uses {name}: it is to stand alone", package.name));
            } else if !dependency.has_reason && !has_reason(root, &dependency.name) {
                complaints.push(format!(
                    "{path}: {}: a comment line above must say why",
                    dependency.name
                ));
            }
        }
    }
    complaints
}

fn allowed(package: &Package) -> &'static [&'static str] {
    let matches = |(place, _): &&(&str, &[&str])| {
        package.name == *place
            || package.directory == *place
            || (place.ends_with('/') && package.directory.starts_with(place))
    };
    ALLOWED.iter().find(matches).map_or(&[], |(_, allowed)| allowed)
}

struct Dependency {
    name: String,
    has_reason: bool,
}

/// The dependencies of a manifest of ours: every table whose name ends in `dependencies]`.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut inside = false;
    let mut comment = false;
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]");
        } else if let Some((name, _)) = line.split_once('=').filter(|_| inside) {
            let name = name.trim().split('.').next().unwrap_or("").trim_matches('"');
            if !line.starts_with([' ', '#']) {
                found.push(Dependency { name: name.to_string(), has_reason: comment });
            }
        }
        comment = line.starts_with('#');
    }
    found
}

fn has_reason(root: &str, name: &str) -> bool {
    let found = dependencies(root);
    found.iter().any(|dependency| dependency.name == name && dependency.has_reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, directory: &str, manifest: &str) -> Package {
        Package {
            name: name.into(),
            directory: directory.into(),
            manifest: manifest.into(),
            on_host: true,
            is_program: false,
        }
    }

    fn complaints_of(name: &str, directory: &str, manifest: &str) -> Vec<String> {
        let others = ["abi", "kernel-core", "xok", "exos"];
        let mut packages: Vec<_> =
            others.into_iter().filter(|&o| o != name).map(|o| package(o, o, "")).collect();
        packages.push(package(name, directory, manifest));
        check(&packages, "[workspace.dependencies]\n# Because.\ngood = \"1\"\nbad = \"1\"\n")
    }

    #[test]
    fn arrows_point_one_way() {
        let uses = |what: &str| format!("[dependencies]\n{what}.workspace = true\n");
        assert!(complaints_of("init", "apps/init", &uses("xok")).is_empty());
        assert!(complaints_of("kernel-core", "kernel/core", &uses("abi")).is_empty());
        assert_eq!(complaints_of("kernel-core", "kernel/core", &uses("xok")).len(), 1);
        assert_eq!(complaints_of("xok", "libs/xok", &uses("exos")).len(), 1);
        assert_eq!(complaints_of("abi", "abi", &uses("xok")).len(), 1);
        let hidden = "[target.'cfg(unix)'.dev-dependencies]\nkernel-core = { path = \"..\" }\n";
        assert_eq!(complaints_of("xok", "libs/xok", hidden).len(), 1);
    }

    #[test]
    fn foreign_packages_need_a_reason() {
        let uses = |what: &str| format!("[dependencies]\n{what}\n");
        assert_eq!(complaints_of("exos", "libs/exos", &uses("bad.workspace = true")).len(), 1);
        assert!(complaints_of("exos", "libs/exos", &uses("good.workspace = true")).is_empty());
        assert!(complaints_of("exos", "libs/exos", &uses("# Why.\nbad = \"1\"")).is_empty());
        assert_eq!(complaints_of("abi", "abi", &uses("good.workspace = true")).len(), 1);
    }
}
