//! `wattle status --smart`: what the drives below members say of themselves.
//!
//! This process asks, with its own rights: a server may have none to send a drive anything but
//! reads and writes. What cannot be asked is said with the reason, and is no reason to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use wattle_control::Problem;
use wattle_operate::smart::{DriveHealth, SmartSettings, ask_all, drive_below};
use wattle_server::protocol::report::ArrayReport;

use crate::output::Screen;
use crate::output::text::printable;

/// An operator waits for it.
const TIME_MAX: Duration = Duration::from_secs(10);

/// What drives said, and which drive is below which member.
pub struct AskedDrives {
    below: BTreeMap<String, String>,
    told: BTreeMap<String, Result<DriveHealth, Problem>>,
}

/// The same of a member, in JSON.
#[derive(Serialize)]
pub struct MemberDrive<'a> {
    member: &'a str,
    /// The drive; absent where the member lies on none of this machine.
    drive: Option<&'a str>,
    health: Option<&'a DriveHealth>,
    /// Why the drive did not answer.
    error: Option<String>,
}

/// Members, replacements and spares.
fn names(array: &ArrayReport) -> impl Iterator<Item = &str> {
    let members = array.members.iter().chain(&array.replacements);
    let spares = array.spares.iter().map(|spare| spare.member.as_str());
    members.filter_map(|member| member.member.as_deref()).chain(spares)
}

impl AskedDrives {
    /// Asks the drives below these arrays.
    pub fn below<'a>(arrays: impl Iterator<Item = &'a ArrayReport>) -> Self {
        let below: BTreeMap<_, _> = arrays
            .flat_map(names)
            .filter_map(|member| Some((member.to_owned(), drive_below(member)?)))
            .collect();
        let drives: BTreeSet<String> = below.values().cloned().collect();
        let settings = SmartSettings { time_max: TIME_MAX, ..SmartSettings::default() };
        Self { below, told: ask_all(&settings, &drives) }
    }

    /// For programs.
    pub fn report<'a>(&'a self, array: &'a ArrayReport) -> Vec<MemberDrive<'a>> {
        let of = |member: &'a str| {
            let drive = self.below.get(member);
            let told = drive.and_then(|drive| self.told.get(drive));
            MemberDrive {
                member,
                drive: drive.map(String::as_str),
                health: told.and_then(|told| told.as_ref().ok()),
                error: told.and_then(|told| Some(told.as_ref().err()?.why.clone())),
            }
        };
        names(array).map(of).collect()
    }

    /// For people, a line for each member with a drive. What keeps all drives from answering is one
    /// line.
    pub fn lines(&self, array: &ArrayReport, screen: Screen) -> Vec<String> {
        let of_member = |member| Some((member, self.told.get(self.below.get(member)?)?));
        let all: Vec<_> = names(array).filter_map(of_member).collect();
        let reasons: BTreeSet<&str> =
            all.iter().filter_map(|(_, told)| Some(told.as_ref().err()?.why.as_str())).collect();
        let none = all.iter().all(|(_, told)| told.is_err());
        match (all.first(), reasons.len()) {
            (None, _) => vec!["SMART: no member lies on a drive of this machine".to_owned()],
            (Some((_, Err(problem))), 1) if none => {
                vec![printable(&format!("SMART: no drive answers: {}; {}", problem.why, problem.next))]
            }
            _ => all.iter().map(|(member, told)| line(member, told, screen)).collect(),
        }
    }
}

fn line(member: &str, told: &Result<DriveHealth, Problem>, screen: Screen) -> String {
    let health = match told {
        Ok(health) => health,
        Err(problem) => return printable(&format!("{member}: SMART: no answer: {}", problem.why)),
    };
    let verdict = match health.is_healthy {
        Some(true) => "passed".to_owned(),
        Some(false) => screen.style.red("the drive says that it fails: replace it"),
        None => "no verdict".to_owned(),
    };
    let mut parts = vec![verdict];
    parts.extend(health.temperature_celsius.map(|celsius| format!("{celsius} C")));
    let counts = [
        ("reallocated", health.reallocated),
        ("pending", health.pending),
        ("offline uncorrectable", health.offline_uncorrectable),
        ("uncorrected errors", health.uncorrected_errors),
    ];
    parts.extend(
        counts.iter().filter_map(|(name, count)| count.filter(|n| *n > 0).map(|n| format!("{n} {name}"))),
    );
    parts.extend(health.used_percent.map(|used| format!("{used} % of its life used")));
    format!("{}: SMART {}", printable(member), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use wattle_control::Code;
    use wattle_control::units::Units;
    use wattle_server::fixtures::array;

    use super::*;
    use crate::output::Style;

    const PLAIN: Screen = Screen { units: Units::Iec, style: Style::PLAIN, style_err: Style::PLAIN };

    fn asked(told: &[(&str, Result<DriveHealth, Problem>)]) -> AskedDrives {
        let drive = |member: &str| format!("/dev/of-{member}");
        AskedDrives {
            below: told.iter().map(|(member, _)| ((*member).to_owned(), drive(member))).collect(),
            told: told.iter().map(|(member, told)| (drive(member), told.clone())).collect(),
        }
    }

    fn error(why: &str) -> Result<DriveHealth, Problem> {
        Err(Problem::new(Code::DriveNotAsked, "/dev/x could not be asked", why, "do something"))
    }

    #[test]
    fn a_drive_that_fails_stands_beside_those_that_do_not_and_those_that_do_not_answer() {
        let data = array("data", "raid1", &["a", "b", "c", "d"]);
        let good =
            DriveHealth { is_healthy: Some(true), temperature_celsius: Some(35), ..DriveHealth::default() };
        let bad = DriveHealth { is_healthy: Some(false), pending: Some(8), ..DriveHealth::default() };
        let asked = asked(&[("a", Ok(good)), ("b", Ok(bad)), ("c", error("it sleeps"))]);
        let lines = asked.lines(&data, PLAIN);
        assert_eq!(
            lines,
            [
                "a: SMART passed, 35 C",
                "b: SMART the drive says that it fails: replace it, 8 pending",
                "c: SMART: no answer: it sleeps",
            ]
        );
        let json = serde_json::to_value(asked.report(&data)).unwrap();
        assert_eq!(
            (&json[1]["drive"], &json[1]["health"]["is_healthy"]),
            (&"/dev/of-b".into(), &false.into())
        );
        assert_eq!((&json[2]["error"], &json[3]["drive"]), (&"it sleeps".into(), &serde_json::Value::Null));
    }

    #[test]
    fn what_keeps_every_drive_from_answering_is_said_once() {
        let data = array("data", "raid1", &["a", "b"]);
        let gone = || error("smartctl: No such file or directory");
        let lines = asked(&[("a", gone()), ("b", gone())]).lines(&data, PLAIN);
        assert_eq!(lines, ["SMART: no drive answers: smartctl: No such file or directory; do something"]);
        let lines = asked(&[]).lines(&data, PLAIN);
        assert_eq!(lines, ["SMART: no member lies on a drive of this machine"]);
    }
}
