//! One name, one type: a public type's name is not another type's too, anywhere in the workspace.

use std::collections::BTreeMap;

use crate::source::sources;

/// Names that several types have, and why that is so.
const AGREED: &[(&str, &str)] = &[
    ("FuzzTarget", "each crate's list of decoders is of its own entries, which are alike"),
    ("Header", "each format's own; the module says of what: bitmap, log, area, overlay, snapshot"),
    ("Inode", "each file system's own; the module says of which: ext, xfs"),
    ("Superblock", "each format's own; the module says of what: md, ext, xfs, btrfs, dm"),
];

#[test]
fn public_types_have_names_of_their_own() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources("crates") {
        if !source.path.iter().any(|part| part == "src") {
            continue;
        }
        for (number, line) in source.code.lines().enumerate() {
            if let Some(name) = public_type(line) {
                let place = format!("{}:{}", source.path.display(), number + 1);
                places.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    let shared: Vec<String> = places
        .iter()
        .filter(|(name, places)| places.len() > 1 && !AGREED.iter().any(|(agreed, _)| agreed == name))
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    assert!(shared.is_empty(), "names of several types:\n{}", shared.join("\n"));
}

fn public_type(line: &str) -> Option<&str> {
    let item = line.trim_start().strip_prefix("pub ")?;
    let (kind, rest) = item.split_once(' ')?;
    let is_type = matches!(kind, "struct" | "enum" | "trait" | "type" | "union");
    is_type.then(|| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next())?
}
