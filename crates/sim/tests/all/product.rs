//! Planted bugs are in the simulator and in tests, and nowhere else.

use std::process::Command;

/// The features that a build with these arguments has, a line for each crate and feature.
fn features(arguments: &[&str]) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| env!("CARGO").to_owned());
    let output = Command::new(cargo)
        .args(["tree", "--offline", "--locked", "--edges", "features,normal,build", "--prefix", "none"])
        .args(arguments)
        .current_dir(root)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

/// Both ways in which the product is built: by name, and by `cargo build` in the root.
#[test]
fn the_product_has_no_planted_bugs() {
    for arguments in [&["-p", "wattle-app"][..], &[]] {
        let features = features(arguments);
        assert!(features.contains("wattle-engine"), "{arguments:?} is no build of the product: {features}");
        assert!(!features.contains("planted"), "{arguments:?} has planted bugs: {features}");
    }
    assert!(features(&["-p", "wattle-sim"]).contains("wattle-rt feature \"planted\""));
}
