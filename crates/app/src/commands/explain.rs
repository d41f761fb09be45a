//! `wattle explain`: what an error code means.

use serde::Serialize;
use wattle_control::{Code, Kind, Problem};

use crate::cli::ExplainArgs;
use crate::output::{self, SCHEMA_VERSION, text};

/// Width of explanations: readable on any terminal.
const COLUMNS: usize = 96;

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    codes: Vec<CodeReport>,
}

#[derive(Serialize)]
struct CodeReport {
    code: String,
    title: &'static str,
    exit_status: u8,
    explanation: &'static str,
}

/// # Errors
/// There is no such code.
pub fn run(args: &ExplainArgs) -> Result<(), Problem> {
    let codes = match &args.code {
        Some(code) => vec![parse(code)?],
        None => Code::ALL.to_vec(),
    };
    if args.json.json {
        let codes = codes.into_iter().map(report).collect();
        return output::print_json(&Report { schema_version: SCHEMA_VERSION, codes });
    }
    match codes[..] {
        [code] => output::print(&explanation(code)),
        _ => output::print(&list(&codes)),
    }
}

fn parse(text: &str) -> Result<Code, Problem> {
    Code::parse(text).ok_or_else(|| {
        Problem::new(
            Code::Usage,
            format!("`{text}` is not an error code"),
            "codes look like WTL-0049",
            "`wattle explain` lists them",
        )
    })
}

fn report(code: Code) -> CodeReport {
    let exit_status = code.kind().exit_code();
    CodeReport { code: code.id(), title: code.title(), exit_status, explanation: code.explanation() }
}

fn explanation(code: Code) -> String {
    let ends = match code.kind() {
        Kind::Failed => "failed",
        Kind::Usage => "usage",
        Kind::Refused => "refused by a safety check",
    };
    let status = code.kind().exit_code();
    format!("{code}: {}\n\n{}\nExit status {status}: {ends}.\n", code.title(), wrap(code.explanation()))
}

fn list(codes: &[Code]) -> String {
    let rows: Vec<_> = codes.iter().map(|code| vec![code.id(), code.title().to_owned()]).collect();
    text::table("", &rows)
}

fn wrap(sentences: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in sentences.split_whitespace() {
        let len = word.chars().count();
        if column > 0 && column + 1 + len > COLUMNS {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += len;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_explained_in_lines_that_fit() {
        for &code in Code::ALL {
            let text = explanation(code);
            assert!(text.starts_with(&format!("{code}: ")));
            assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        }
        assert_eq!(list(Code::ALL).lines().count(), Code::ALL.len());
    }
}
