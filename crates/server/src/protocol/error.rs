//! Problems as they go over the control socket and stand in reports.

use serde::{Deserialize, Serialize};
use wattle_control::{Code, Problem};

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
    /// The error as it came over a socket. A code of a newer server that this client does not know
    /// is a failure of the server.
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
    fn a_problem_survives_the_socket() {
        let problem =
            Problem::new(Code::DirtyDegraded, "a", "b", "c").of_member("m").forced_by(Check::DirtyDegraded);
        assert_eq!(Problem::from(ErrorReport::from(&problem)), problem);
        let newer = ErrorReport { code: "WTL-9999".to_owned(), ..ErrorReport::from(&problem) };
        assert_eq!(Problem::from(newer).code, Code::ServerFailed);
    }
}
