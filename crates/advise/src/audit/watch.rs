//! Supervision: whether a failure would be noticed.

use super::facts::AuditFacts;
use super::{AuditReport, FindingCode, word};

pub(super) fn rules(facts: &AuditFacts, report: &mut AuditReport) {
    for array in facts.arrays.iter().filter(|array| array.redundant()) {
        match array.scrubbed {
            Some(true) => {}
            Some(false) => {
                let evidence = "none since the kernel started it, none in wattle's history, and no schedule".to_owned();
                let cost = "a bad sector is found when a rebuild needs it".to_owned();
                let fix = match &array.running {
                    Some(running) => {
                        format!("echo check > /sys/block/{}/md/sync_action; each month", running.node)
                    }
                    None => array.order(&format!("wattle check {}; each month", word(&array.name))),
                };
                report.find(FindingCode::NeverScrubbed, &array.name, [evidence, cost, fix]);
            }
            None => report.unknown(
                format!("{}: whether it was ever checked", array.name),
                "its superblocks do not say, wattle has no history of it here, and a kernel forgets with the next start",
            ),
        }
        let mismatches = array.running.as_ref().and_then(|running| running.mismatches);
        if let (Some(sectors @ 1..), Some(running)) = (mismatches, &array.running) {
            let evidence = format!("mismatch_cnt is {sectors}");
            let cost = format!("{sectors} sectors of which it is not known what is right");
            let fix = format!(
                "find out where: serve it with wattle, `wattle check {}`; then `wattle repair`. The kernel: echo repair > \
                 /sys/block/{}/md/sync_action",
                word(&array.name),
                running.node
            );
            report.find(FindingCode::Mismatches, &array.name, [evidence, cost, fix]);
        }
    }
    let watched = facts.arrays.iter().any(|array| array.redundant() && array.running.is_some());
    match facts.system.as_ref().map(|system| system.alerts) {
        Some(Some(false)) if watched => {
            let evidence = "no mdadm.conf names a MAILADDR or a PROGRAM".to_owned();
            let cost = "the first failure is noticed together with the second".to_owned();
            let fix = "echo 'MAILADDR root' >> /etc/mdadm/mdadm.conf, and try it: mdadm --monitor --scan --test --oneshot";
            report.find(FindingCode::NoAlerts, "mdadm.conf", [evidence, cost, fix.to_owned()]);
        }
        Some(None) if watched => report.unknown("alerts", "mdadm.conf cannot be read, or there is no /etc"),
        Some(_) => {}
        None => report.unknown(
            "alerts",
            "only members were looked at; the system they are in says it (`wattle audit` there)",
        ),
    }
}
