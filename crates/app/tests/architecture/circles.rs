//! Imports inside a crate run one way between its top-level modules: no module needs another one
//! that needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source::{Source, root, sources};

/// Edges between the top-level modules of a crate, and where each is made.
type Imports = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

#[test]
fn no_import_goes_in_a_circle() {
    let mut circles = Vec::new();
    for name in crates() {
        let imports = imports(&name);
        for circle in circles_of(&imports) {
            let edges = imports.iter().filter(|(from, _)| circle.contains(*from)).flat_map(|(from, to)| {
                let inside = to.iter().filter(|(to, _)| circle.contains(*to));
                inside.map(move |(to, places)| format!("    {from} -> {to}: {places:?}\n"))
            });
            circles.push(format!("{name}: {circle:?}\n{}", edges.collect::<String>()));
        }
    }
    assert!(circles.is_empty(), "modules import each other in circles:\n{}", circles.concat());
}

/// The crates of the workspace.
fn crates() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("crates")).expect("crates/ is there");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn imports(name: &str) -> Imports {
    let directory = format!("crates/{name}/src");
    let sources = sources(&directory);
    let root_file = sources.iter().find(|source| {
        let path = source.path.strip_prefix(&directory).expect("below the crate");
        path == Path::new("lib.rs") || path == Path::new("main.rs")
    });
    let root_code = root_file.expect("a crate has a root").product_code();
    let modules = declared(&root_code);
    let reexports = reexports(&root_code, &modules);
    let mut imports = Imports::new();
    for source in &sources {
        let module = module_path(source, &directory);
        let Some(from) = module.first().filter(|first| modules.contains(*first)) else { continue };
        if module.last().is_some_and(|last| last == "tests") {
            continue;
        }
        for path in paths(&source.product_code(), &module) {
            let Some(first) = path.first() else { continue };
            let to = if modules.contains(first) { Some(first) } else { reexports.get(first) };
            if let Some(to) = to.filter(|to| *to != from) {
                let places = imports.entry(from.clone()).or_default().entry(to.clone()).or_default();
                places.insert(format!("{} ({})", source.path.display(), path.join("::")));
            }
        }
    }
    imports
}

/// The modules that a crate's root declares.
fn declared(code: &str) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    let mut words = words(code).peekable();
    while let Some(word) = words.next() {
        if word == "mod"
            && let Some(name) = words.next()
            && words.peek() == Some(&";")
        {
            modules.insert(name.to_owned());
        }
    }
    modules
}

/// What the root offers under a name of its own, and the module it comes from.
fn reexports(code: &str, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let statements = code.split(';').filter_map(|statement| statement.split("pub use ").nth(1));
    let mut names = BTreeMap::new();
    for statement in statements {
        let path: Vec<&str> =
            words(statement).filter(|word| !matches!(*word, "crate" | "self" | "::")).collect();
        let Some(module) = path.first().filter(|first| modules.contains(**first)) else { continue };
        for name in &path[1..] {
            names.insert((*name).to_owned(), (*module).to_owned());
        }
    }
    names
}

fn module_path(source: &Source, directory: &str) -> Vec<String> {
    let path = source.path.strip_prefix(directory).expect("below the crate").with_extension("");
    let mut module: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

/// Every path that begins with `crate` or `super`, from the crate's root; groups are one path for
/// each of their first level.
fn paths(code: &str, module: &[String]) -> Vec<Vec<String>> {
    let words: Vec<&str> = words(code).collect();
    let mut paths = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let begins = at == 0 || words[at - 1] != "::";
        let ups = words[at..].iter().step_by(2).take_while(|word| **word == "super").count();
        let (mut prefix, begin) = match words[at] {
            "crate" if begins => (Vec::new(), at + 2),
            "super" if begins && ups <= module.len() => (module[..module.len() - ups].to_vec(), at + 2 * ups),
            _ => {
                at += 1;
                continue;
            }
        };
        at += 1;
        if words.get(begin - 1) != Some(&"::") {
            continue;
        }
        match words.get(begin) {
            Some(&"{") => {
                for item in group(&words[begin + 1..]) {
                    let mut path = prefix.clone();
                    path.push(item.to_owned());
                    paths.push(path);
                }
            }
            Some(first) => {
                prefix.push((*first).to_owned());
                paths.push(prefix);
            }
            None => {}
        }
    }
    paths
}

/// The first words of the items of a group whose `{` was read.
fn group<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let (mut items, mut depth, mut first) = (Vec::new(), 0, true);
    for word in words {
        match *word {
            "}" if depth == 0 => break,
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 0 => first = true,
            word if first => {
                items.push(word);
                first = false;
            }
            _ => {}
        }
    }
    items
}

/// Identifiers, `::`, and every other character that is not white space.
fn words(code: &str) -> impl Iterator<Item = &str> {
    let mut rest = code;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let length = if is_name(first) {
            rest.find(|c| !is_name(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (word, tail) = rest.split_at(length);
        rest = tail;
        Some(word)
    })
}

/// Sets of modules each of which reaches all others of its set.
fn circles_of(imports: &Imports) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|module| (module, reach(imports, module))).collect();
    let mut circles = Vec::new();
    for (module, others) in &reached {
        let circle: BTreeSet<String> = others
            .iter()
            .filter(|other| reached.get(**other).is_some_and(|back| back.contains(*module)))
            .map(|other| (*other).clone())
            .collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

fn reach<'a>(imports: &'a Imports, from: &str) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&String> = imports.get(from).into_iter().flat_map(BTreeMap::keys).collect();
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(imports.get(next).into_iter().flat_map(BTreeMap::keys));
        }
    }
    found
}

#[test]
fn a_circle_is_found() {
    let code = "use crate::b::{self, X}; use super::c; use crate::{d::{e, f}, g as h};";
    let found = paths(code, &["a".to_owned()]);
    assert_eq!(found, [["b"], ["c"], ["d"], ["g"]].map(|path| path.map(str::to_owned).to_vec()));
    let edge = |to: &str| BTreeMap::from([(to.to_owned(), BTreeSet::new())]);
    let imports = Imports::from([
        ("a".to_owned(), edge("b")),
        ("b".to_owned(), edge("c")),
        ("c".to_owned(), edge("b")),
    ]);
    let circle: BTreeSet<String> = ["b", "c"].map(str::to_owned).into();
    assert_eq!(circles_of(&imports), [circle]);
}
