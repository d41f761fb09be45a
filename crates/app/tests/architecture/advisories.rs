//! Nothing that wattle is made of has a known fault that a later version mends.
//!
//! `contrib/advisories.tsv` is the list of the day in its first line; `scripts/supply advisories`
//! makes it anew.

use std::fs;

use semver::{Version, VersionReq};

use super::source::root;

/// An advisory that is looked past, and why it does not concern wattle.
const LOOKED_PAST: [(&str, &str); 0] = [];

struct Advisory<'a> {
    package: &'a str,
    id: &'a str,
    kind: &'a str,
    /// Versions without the fault: those that mend it, and those from before it.
    sound: Vec<VersionReq>,
    title: &'a str,
}

impl<'a> Advisory<'a> {
    fn parse(line: &'a str) -> Self {
        let fields: Vec<_> = line.split('\t').collect();
        let [package, id, kind, patched, unaffected, title] = fields[..] else {
            panic!("contrib/advisories.tsv: six fields are expected: {line}");
        };
        let ranges = [patched, unaffected].into_iter().flat_map(|ranges| ranges.split("; "));
        let sound = ranges.filter(|range| !range.is_empty()).map(|range| {
            VersionReq::parse(range)
                .unwrap_or_else(|error| panic!("contrib/advisories.tsv: {range}: {error}"))
        });
        Self { package, id, kind, sound: sound.collect(), title }
    }

    fn concerns(&self, package: &str, version: &Version) -> bool {
        self.package == package && !self.sound.iter().any(|range| range.matches(version))
    }
}

/// Packages of a Cargo.lock that come from a registry.
fn locked(lock: &str) -> Vec<(&str, Version)> {
    let packages = lock.split("[[package]]").filter(|package| package.contains("\nsource = "));
    packages
        .map(|package| {
            let field = |key: &str| {
                let value = package.lines().find_map(|line| line.strip_prefix(key)?.strip_suffix('"'));
                value.expect("Cargo.lock gives names and versions")
            };
            (field("name = \""), Version::parse(field("version = \"")).expect("cargo wrote it"))
        })
        .collect()
}

/// What is found, one line each.
fn found(list: &str, lock: &str) -> Vec<String> {
    let advisories: Vec<_> =
        list.lines().filter(|line| !line.starts_with('#')).map(Advisory::parse).collect();
    assert!(advisories.len() > 1000, "contrib/advisories.tsv is cut short");
    let packages = locked(lock);
    let looked_past = |advisory: &Advisory<'_>| LOOKED_PAST.iter().any(|(id, _)| *id == advisory.id);
    let concerned = |advisory: &Advisory<'_>| {
        let versions = packages.iter().filter(|(package, version)| advisory.concerns(package, version));
        versions.map(|(_, version)| version.to_string()).collect::<Vec<_>>()
    };
    advisories
        .iter()
        .filter(|advisory| !looked_past(advisory))
        .flat_map(|advisory| {
            let line = |version| {
                format!(
                    "{} {version}: {} ({}): {}",
                    advisory.package, advisory.id, advisory.kind, advisory.title
                )
            };
            concerned(advisory).into_iter().map(line)
        })
        .collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn no_dependency_has_a_known_fault() {
    let found = found(&read("contrib/advisories.tsv"), &read("Cargo.lock"));
    assert!(found.is_empty(), "update these, or say why they do not matter:\n{}", found.join("\n"));
}

#[test]
fn an_old_version_of_a_crate_is_found() {
    let package =
        |version: &str| format!("[[package]]\nname = \"bytes\"\nversion = \"{version}\"\nsource = \"r\"\n");
    let list = read("contrib/advisories.tsv");
    let found = |version: &str| found(&list, &package(version));
    assert_eq!(
        found("1.11.0"),
        ["bytes 1.11.0: RUSTSEC-2026-0007 (vulnerability): Integer overflow in `BytesMut::reserve`"]
    );
    assert_eq!([found("1.11.1"), found("1.2.0")], [vec![], vec![]] as [Vec<String>; 2]);
}
