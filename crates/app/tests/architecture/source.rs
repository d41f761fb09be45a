//! The workspace's Rust sources, taken apart into code and comments.

use std::fs;
use std::path::{Path, PathBuf};

/// One source file.
pub struct Source {
    /// Relative to the root of the workspace.
    pub path: PathBuf,
    /// The text as it is.
    pub text: String,
    /// The code alone: comments are gone, strings are empty, lines are where they were.
    pub code: String,
    /// Comments by line, from 1: what follows `//`, `///` or `//!`.
    pub comments: Vec<(usize, String)>,
    /// String literals by line, from 1, as they are written.
    pub literals: Vec<(usize, String)>,
}

impl Source {
    fn read(root: &Path, path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("a source file is readable");
        let Apart { code, comments, literals } = take_apart(&text);
        let path = path.strip_prefix(root).expect("below the root").to_owned();
        Self { path, text, code, comments, literals }
    }

    /// The code without what is only built for tests.
    pub fn product_code(&self) -> String {
        let mut rest = self.code.as_str();
        let mut out = String::new();
        while let Some(at) = rest.find("#[cfg(test)]") {
            out.push_str(&rest[..at]);
            let item = &rest[at + "#[cfg(test)]".len()..];
            rest = &item[item_length(item)..];
        }
        out + rest
    }
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// All Rust sources below a directory of the workspace.
pub fn sources(directory: &str) -> Vec<Source> {
    let root = root();
    let mut files = Vec::new();
    collect(&root.join(directory), &mut files);
    files.sort();
    files.iter().map(|path| Source::read(&root, path)).collect()
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// How long the first item of `code` is: up to its `;`, or to the end of its block.
fn item_length(code: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b';' if depth == 0 => return at + 1,
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// What [`take_apart`] finds.
#[derive(Default)]
struct Apart {
    code: String,
    comments: Vec<(usize, String)>,
    literals: Vec<(usize, String)>,
}

/// Code, comments and strings apart. Enough of Rust's grammar for that: strings, raw strings,
/// characters, lifetimes, nested comments.
fn take_apart(text: &str) -> Apart {
    let Apart { mut code, mut comments, mut literals } = Apart::default();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let length = token_length(rest);
        let token = &rest[..length];
        if token.starts_with("//") {
            comments.push((line, token.trim_start_matches(['/', '!']).to_owned()));
        } else if token.starts_with("/*") || (length > 1 && token.ends_with(['"', '#'])) {
            if !token.starts_with("/*") {
                code.push_str("\"\"");
                literals.push((line, token.to_owned()));
            }
            code.extend(token.chars().filter(|c| *c == '\n'));
        } else {
            code.push(first);
        }
        line += token.matches('\n').count();
        rest = &rest[length..];
    }
    Apart { code, comments, literals }
}

/// How long the comment, the string or the character is with which `rest` begins; 1 character of
/// anything else.
fn token_length(rest: &str) -> usize {
    let first = rest.chars().next().map_or(0, char::len_utf8);
    let to_end = |at: Option<usize>, more: usize| at.map_or(rest.len(), |at| at + more);
    if rest.starts_with("//") {
        return to_end(rest.find('\n'), 0);
    }
    if rest.starts_with("/*") {
        return to_end(rest.find("*/"), 2);
    }
    if let Some(hashes) = raw_string(rest) {
        let end = format!("\"{}", "#".repeat(hashes));
        let begin = hashes + 2;
        return to_end(rest[begin..].find(&end), begin + end.len());
    }
    if rest.starts_with('"') {
        let mut escaped = false;
        for (at, c) in rest.char_indices().skip(1) {
            match c {
                '"' if !escaped => return at + 1,
                '\\' => escaped = !escaped,
                _ => escaped = false,
            }
        }
        return rest.len();
    }
    if rest.starts_with("'\"'") || rest.starts_with("'/'") {
        return 3;
    }
    if rest.starts_with("'\\\"'") {
        return 4;
    }
    first
}

/// The number of `#` of the raw string that begins here.
fn raw_string(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some(hashes)
}

#[test]
fn code_and_comments_are_told_apart() {
    let text = "let a = \"// no\"; // yes\nlet b = r#\"\"x\" // no\"#; /* // no\n */ let c = '\"';\n/// it's\nfn f<'a>() {}";
    let Apart { code, comments, literals } = take_apart(text);
    assert_eq!(literals, [(1, "\"// no\"".to_owned()), (2, "r#\"\"x\" // no\"#".to_owned())]);
    assert_eq!(comments, [(1, " yes".to_owned()), (4, " it's".to_owned())]);
    assert_eq!(code, "let a = \"\"; \nlet b = \"\"; \n let c = ';\n\nfn f<'a>() {}");
}
