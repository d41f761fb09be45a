//! Problems for people and for programs.

use serde::{Deserialize, Serialize};
use wattle_control::{Code, Problem};

use super::style::Style;
use super::text::printable;

/// `error[WTL-0042]: what`, then why and what next, each on lines of their own.
pub fn render(problem: &Problem, style: Style) -> String {
    let head = style.red(&format!("error[{}]", problem.code));
    let mut text = format!("{head}: {}\n", printable(&problem.what));
    for (label, sentence) in [("why", &problem.why), ("next", &problem.next)] {
        if !sentence.is_empty() {
            text.push_str(&format!("  {}: {}\n", style.bold(label), printable(sentence)));
        }
    }
    text
}

/// A problem in JSON: in reports, and on the control socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// `WTL-0042`.
    pub code: String,
    /// The member it is about.
    #[serde(default)]
    pub member: Option<String>,
    /// What is wrong.
    pub what: String,
    /// Why that is a problem.
    pub why: String,
    /// What to do.
    pub next: String,
    /// The check that overrides it.
    #[serde(default)]
    pub force: Option<String>,
}

impl From<&Problem> for ErrorReport {
    fn from(problem: &Problem) -> Self {
        Self {
            code: problem.code.id(),
            member: problem.member.clone(),
            what: problem.what.clone(),
            why: problem.why.clone(),
            next: problem.next.clone(),
            force: problem.force.map(|check| check.name().to_owned()),
        }
    }
}

impl From<ErrorReport> for Problem {
    /// As it came over a socket. A code of a newer server that this client does not know is a failure of the server.
    fn from(report: ErrorReport) -> Self {
        let code = Code::parse(&report.code).unwrap_or(Code::ServerFailed);
        let mut problem = Self::new(code, report.what, report.why, report.next);
        problem.member = report.member;
        problem.force = report.force.and_then(|name| name.parse().ok());
        problem
    }
}

#[cfg(test)]
mod tests {
    use wattle_control::Check;

    use super::*;

    #[test]
    fn an_error_says_what_why_and_what_next() {
        let problem = Problem::new(Code::Locked, "a.img: it is in use", "two owners", "stop the other");
        let text = "error[WTL-0026]: a.img: it is in use\n  why: two owners\n  next: stop the other\n";
        assert_eq!(render(&problem, Style::PLAIN), text);
    }

    #[test]
    fn a_problem_survives_the_socket() {
        let problem =
            Problem::new(Code::DirtyDegraded, "a", "b", "c").of_member("m").forced_by(Check::DirtyDegraded);
        assert_eq!(Problem::from(ErrorReport::from(&problem)), problem);
        let newer = ErrorReport { code: "WTL-9999".to_owned(), ..ErrorReport::from(&problem) };
        assert_eq!(Problem::from(newer).code, Code::ServerFailed);
    }
}
