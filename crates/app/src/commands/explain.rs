//! `wattle explain`: what the code of an error or of a finding means.

use serde::Serialize;
use wattle_advise::audit;
use wattle_control::{Code, FailureKind, Problem};
use wattle_server::protocol::SCHEMA_VERSION;

use crate::cli::ExplainArgs;
use crate::output::{self, text};

/// Width of explanations: readable on any terminal.
const COLUMNS: usize = 96;

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    codes: Vec<CodeReport>,
    /// Of audits.
    findings: Vec<FindingReport>,
}

#[derive(Serialize)]
struct CodeReport {
    code: String,
    title: &'static str,
    exit_status: u8,
    explanation: &'static str,
}

#[derive(Serialize)]
struct FindingReport {
    code: String,
    title: &'static str,
    severity: &'static str,
    explanation: &'static str,
}

/// A code of either family.
#[derive(Debug, Clone, Copy)]
pub enum Any {
    Error(Code),
    Finding(audit::FindingCode),
}

impl Any {
    fn all() -> Vec<Self> {
        let findings = audit::FindingCode::ALL.iter().map(|code| Self::Finding(*code));
        Code::ALL.iter().map(|code| Self::Error(*code)).chain(findings).collect()
    }

    pub fn parse(text: &str) -> Option<Self> {
        Code::parse(text).map(Self::Error).or_else(|| audit::FindingCode::parse(text).map(Self::Finding))
    }

    fn id(self) -> String {
        match self {
            Self::Error(code) => code.id(),
            Self::Finding(code) => code.id(),
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Error(code) => code.title(),
            Self::Finding(code) => code.title(),
        }
    }
}

/// # Errors
/// There is no such code.
pub fn run(args: &ExplainArgs) -> Result<(), Problem> {
    let codes = match &args.code {
        Some(code) => vec![parse(code)?],
        None => Any::all(),
    };
    if args.json.json {
        return output::print_json(&document(&codes));
    }
    match codes[..] {
        [code] => output::print_fitted(&explanation(code)),
        _ => output::print_fitted(&list(&codes)),
    }
}

fn parse(text: &str) -> Result<Any, Problem> {
    Any::parse(text).ok_or_else(|| {
        Problem::new(
            Code::Usage,
            format!("`{text}` is not a code"),
            "codes of errors look like WTL-0049, those of an audit's findings like AUD-104",
            "`wattle explain` lists them",
        )
    })
}

fn document(codes: &[Any]) -> Report {
    let mut document = Report { schema_version: SCHEMA_VERSION, codes: Vec::new(), findings: Vec::new() };
    for code in codes {
        match *code {
            Any::Error(code) => document.codes.push(report(code)),
            Any::Finding(code) => document.findings.push(FindingReport {
                code: code.id(),
                title: code.title(),
                severity: code.severity().name(),
                explanation: code.explanation(),
            }),
        }
    }
    document
}

fn report(code: Code) -> CodeReport {
    let exit_status = code.kind().exit_code();
    CodeReport { code: code.id(), title: code.title(), exit_status, explanation: code.explanation() }
}

fn explanation(code: Any) -> String {
    let (text, last) = match code {
        Any::Error(code) => (code.explanation(), ends(code.kind())),
        Any::Finding(code) => (code.explanation(), format!("Severity: {}.", code.severity())),
    };
    format!("{}: {}\n\n{}\n{last}\n", code.id(), code.title(), wrap(text))
}

fn ends(kind: FailureKind) -> String {
    let ends = match kind {
        FailureKind::Failed => "failed",
        FailureKind::Usage => "usage",
        FailureKind::Refused => "refused by a safety check",
    };
    format!("Exit status {}: {ends}.", kind.exit_code())
}

fn list(codes: &[Any]) -> String {
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
        for code in Any::all() {
            let text = explanation(code);
            assert!(text.starts_with(&format!("{}: ", code.id())));
            assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        }
        assert_eq!(list(&Any::all()).lines().count(), Any::all().len());
    }
}
