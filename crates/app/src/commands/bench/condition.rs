//! What an array is in while it is measured, if it is not as it should be.

use serde::Serialize;
use wattle_control::events::action_word;
use wattle_engine::ArrayStatus;
use wattle_engine::units::Sector;
use wattle_server::protocol::report::ArrayReport;

/// Whether all of an array was there, and what else kept it busy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Condition {
    pub slots: usize,
    /// Of these, without a member that is in sync.
    pub degraded: usize,
    /// Parity or copies are known to be right everywhere.
    pub synced: bool,
    /// resync, recovery, check or repair: what ran beside the load.
    pub background: Option<String>,
}

impl Condition {
    /// Of an array of this process.
    pub fn of_status(status: &ArrayStatus) -> Self {
        let running = status.sync.as_ref().filter(|sync| !sync.paused);
        Self {
            slots: status.members.len(),
            degraded: status.degraded,
            synced: status.synced_below == Sector::MAX,
            background: running.map(|sync| action_word(sync.action).to_owned()),
        }
    }

    /// Of an array that is served.
    pub fn of_report(report: &ArrayReport) -> Self {
        let running = report.sync.as_ref().filter(|_| !report.paused);
        Self {
            slots: report.members.len(),
            degraded: report.degraded,
            synced: report.synced,
            background: running.map(|sync| sync.action.clone()),
        }
    }

    /// The worst of what it was before and after.
    pub fn and(self, later: Self) -> Self {
        Self {
            slots: self.slots,
            degraded: self.degraded.max(later.degraded),
            synced: self.synced && later.synced,
            background: self.background.or(later.background),
        }
    }

    /// What has to be known about the figures; `None` of an array that is as it should be.
    pub fn warning(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.degraded > 0 {
            parts.push(format!("{} of {} members not in sync", self.degraded, self.slots));
        }
        if let Some(background) = &self.background {
            parts.push(format!("a {background} ran beside the load"));
        } else if !self.synced {
            parts.push("parity or copies not known to be right".to_owned());
        }
        (!parts.is_empty()).then(|| format!("NOT as it should be: {}; figures are of that", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_as_it_should_be_is_said() {
        let good = Condition { slots: 4, degraded: 0, synced: true, background: None };
        assert_eq!(good.warning(), None);
        let missing = Condition { degraded: 1, ..good.clone() };
        let check = Condition { background: Some("check".to_owned()), ..good.clone() };
        for (condition, words) in [
            (missing.clone(), "1 of 4 members not in sync"),
            (check.clone(), "a check ran beside"),
            (good.clone().and(check), "a check ran beside"),
            (missing.and(good.clone()), "1 of 4"),
            (Condition { synced: false, ..good }, "not known to be right"),
        ] {
            let warning = condition.warning().expect("it is not as it should be");
            assert!(warning.contains(words), "{warning}");
        }
    }
}
