//! Which room uses which: the list in ARCHITECTURE.md is the one that Cargo has.

use std::collections::BTreeMap;
use std::process::Command;

type Edges = BTreeMap<String, Vec<String>>;

fn room(package: &str) -> Option<String> {
    package.strip_prefix("wattle-").map(str::to_owned)
}

/// Edges between rooms as Cargo has them; those that only tests use are free.
fn edges_in_cargo() -> Edges {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs: it runs this test");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .filter_map(|package| {
            let dependencies = package["dependencies"].as_array()?;
            let mut uses: Vec<String> = dependencies
                .iter()
                .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
                .filter_map(|dependency| room(dependency["name"].as_str()?))
                .collect();
            uses.sort();
            Some((room(package["name"].as_str()?)?, uses))
        })
        .collect()
}

fn edges_in_the_document() -> Edges {
    let document = include_str!("../../../../ARCHITECTURE.md");
    let list = document.split("<!-- edges").nth(1).and_then(|rest| rest.split("<!-- /edges -->").next());
    list.expect("ARCHITECTURE.md has a list of edges")
        .lines()
        .filter(|line| line.starts_with("- "))
        .map(|line| {
            let mut names = line.split('`').skip(1).step_by(2).map(str::to_owned);
            (names.next().expect("a room"), names.collect())
        })
        .collect()
}

#[test]
fn the_edges_between_rooms_are_those_that_are_drawn() {
    let drawn = edges_in_the_document();
    assert!(drawn.len() >= 9, "the list was not understood: {drawn:?}");
    assert_eq!(edges_in_cargo(), drawn);
}
