//! The words of comments, documents and messages.

use std::path::Path;

use crate::source::{Source, root, sources};

/// The subject of a sentence is a thing: these words make persons of things.
const PERSONS: [&str; 11] =
    ["he", "him", "his", "she", "who", "whoever", "whom", "nobody", "somebody", "anybody", "everybody"];

/// Columns of a line of a comment.
const COLUMNS_MAX: usize = 100;

/// Lines of code of a file: past this it is looked at again.
const LINES_MAX: usize = 600;

/// Comments that may speak of persons: of operators, of authors, of people with drives.
const PERSONS_IN_COMMENTS: usize = 40;

/// String literals of the products that may, of which there is none today: a message that needs one
/// of these words is looked at first.
const PERSONS_IN_LITERALS: usize = 2;

/// Lines of documents that may.
const PERSONS_IN_DOCUMENTS: usize = 15;

fn speaks_of_persons(text: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric()).any(|word| PERSONS.contains(&word.to_lowercase().as_str()))
}

#[test]
fn comments_speak_of_things() {
    let mut found = Vec::new();
    for source in sources("crates").iter().chain(&sources("fuzz")) {
        for (line, _) in source.comments.iter().filter(|(_, text)| speaks_of_persons(text)) {
            found.push(format!("{}:{line}", source.path.display()));
        }
    }
    assert!(found.len() <= PERSONS_IN_COMMENTS, "{} comments:\n{}", found.len(), found.join("\n"));
}

#[test]
fn messages_speak_of_things() {
    let mut found = Vec::new();
    let is_product = |source: &&Source| source.path.iter().any(|part| part == Path::new("src"));
    for source in sources("crates").iter().filter(is_product) {
        for (line, _) in source.literals.iter().filter(|(_, text)| speaks_of_persons(text)) {
            found.push(format!("{}:{line}", source.path.display()));
        }
    }
    assert!(found.len() <= PERSONS_IN_LITERALS, "{} literals:\n{}", found.len(), found.join("\n"));
}

#[test]
fn documents_speak_of_things() {
    let root = root();
    let mut documents: Vec<_> = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"]
        .map(|name| root.join(name))
        .into();
    let pages = std::fs::read_dir(root.join("docs")).expect("docs/ is there");
    documents.extend(pages.map(|page| page.expect("an entry").path()));
    let mut found = Vec::new();
    for document in documents.iter().filter(|path| path.extension() == Some("md".as_ref())) {
        let text = std::fs::read_to_string(document).expect("a document is readable");
        for (line, _) in text.lines().enumerate().filter(|(_, line)| speaks_of_persons(line)) {
            let name = document.strip_prefix(&root).expect("below the root").display();
            found.push(format!("{name}:{}", line + 1));
        }
    }
    assert!(found.len() <= PERSONS_IN_DOCUMENTS, "{} lines:\n{}", found.len(), found.join("\n"));
}

#[test]
fn comments_end_within_their_columns() {
    let mut found = Vec::new();
    for source in sources("crates").iter().chain(&sources("fuzz")) {
        let lines: Vec<&str> = source.text.lines().collect();
        let long = source.comments.iter().filter(|(line, text)| {
            // A link cannot be broken.
            lines[line - 1].chars().count() > COLUMNS_MAX && !text.contains("://")
        });
        found.extend(long.map(|(line, _)| format!("{}:{line}", source.path.display())));
    }
    assert!(found.is_empty(), "comments past column {COLUMNS_MAX}:\n{}", found.join("\n"));
}

#[test]
fn files_stay_small() {
    let is_code = |line: &&str| !line.trim().is_empty();
    let mut found = Vec::new();
    for source in sources("crates") {
        let lines = source.code.lines().filter(is_code).count();
        if lines > LINES_MAX {
            found.push(format!("{}: {lines} lines of code", source.path.display()));
        }
    }
    assert!(found.is_empty(), "files past {LINES_MAX} lines of code:\n{}", found.join("\n"));
}

#[test]
fn modules_with_files_of_their_own_are_directories() {
    let mut found = Vec::new();
    for source in sources("crates") {
        let beside = root().join(source.path.with_extension(""));
        let is_root = source.path.ends_with("src/lib.rs") || source.path.ends_with("src/main.rs");
        if !is_root && source.path.iter().any(|part| part == Path::new("src")) && beside.is_dir() {
            found.push(format!("{} stands beside its directory", source.path.display()));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
