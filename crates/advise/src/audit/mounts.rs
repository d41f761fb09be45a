//! Mount options: what is dangerous, and what recipes of another time left behind.

use super::facts::{AuditFacts, MountFacts};
use super::{AuditReport, FindingCode};

/// Options that Linux does not have any more: of which file system, and what became of it. XFS's
/// are those that Documentation/admin-guide/xfs.rst lists as removed, each of which makes a mount
/// fail; ext4 ignores its own.
const OBSOLETE: [(&str, &str, &str); 16] = [
    (
        "xfs",
        "osyncisdsync",
        "removed in Linux 4.0, which refuses to mount with it; O_SYNC means what it says",
    ),
    (
        "xfs",
        "osyncisosync",
        "removed in Linux 4.0, which refuses to mount with it; O_SYNC means what it says",
    ),
    (
        "xfs",
        "ihashsize",
        "removed in Linux 4.0, which refuses to mount with it; there is nothing left that it could size",
    ),
    ("xfs", "irixsgid", "removed in Linux 4.0, which refuses to mount with it"),
    ("xfs", "delaylog", "removed in Linux 4.0, which refuses to mount with it; it is what XFS always does"),
    ("xfs", "nodelaylog", "removed in Linux 4.0, which refuses to mount with it"),
    ("xfs", "barrier", "removed in Linux 4.19, which refuses to mount with it; it is what XFS always does"),
    ("xfs", "nobarrier", "removed in Linux 4.19, which refuses to mount with it"),
    ("xfs", "ikeep", "removed in Linux 6.18, which refuses to mount with it"),
    ("xfs", "noikeep", "removed in Linux 6.18, which refuses to mount with it; it is what XFS always does"),
    ("xfs", "attr2", "removed in Linux 6.18, which refuses to mount with it; it is what XFS always does"),
    ("xfs", "noattr2", "removed in Linux 6.18, which refuses to mount with it"),
    ("ext", "nobh", "the kernel ignores it, with a line in its log"),
    ("ext", "bh", "the kernel ignores it, with a line in its log"),
    ("ext", "oldalloc", "the kernel ignores it, with a line in its log"),
    ("ext", "orlov", "the kernel ignores it, with a line in its log"),
];

/// What is so without being said.
const DEFAULTS: [(&str, &str); 4] =
    [("xfs", "logbufs=8"), ("xfs", "logbsize=32k"), ("ext", "barrier=1"), ("ext", "data=ordered")];

pub(super) fn rules(facts: &AuditFacts, report: &mut AuditReport) {
    let Some(system) = &facts.system else {
        let why = "only members were looked at; the system they are in says it (`wattle audit` there)";
        report.unknown("mount options", why);
        return;
    };
    if system.mounts.is_empty() {
        let why = "/proc/mounts and /etc/fstab cannot be read, or name no XFS, ext or btrfs";
        report.unknown("mount options", why);
    }
    system.mounts.iter().for_each(|mount| rules_of(mount, report));
}

fn family(kind: &str) -> &str {
    if matches!(kind, "ext2" | "ext3" | "ext4") { "ext" } else { kind }
}

fn rules_of(mount: &MountFacts, report: &mut AuditReport) {
    let family = family(&mount.kind);
    for option in &mount.options {
        let evidence = format!("{} mounts {} ({}) with {option}", mount.stated_in, mount.source, mount.kind);
        let fix = format!("take `{option}` out of the options of {} in /etc/fstab", mount.at);
        let name = option.split_once('=').map_or(option.as_str(), |(name, _)| name);
        if matches!(option.as_str(), "nobarrier" | "barrier=0") && matches!(family, "ext" | "xfs" | "btrfs") {
            let cost = "a power cut may damage the file system".to_owned();
            report.find(FindingCode::NoBarrier, &mount.at, [evidence.clone(), cost, fix.clone()]);
        }
        if option == "data=writeback" && family == "ext" {
            let cost = "files may hold what was deleted, or nothing, after a crash".to_owned();
            report.find(FindingCode::Writeback, &mount.at, [evidence.clone(), cost, fix.clone()]);
        }
        let obsolete = OBSOLETE.iter().find(|(of, known, _)| *of == family && *known == name);
        // What the kernel lists it does have; there the list says what was asked of it.
        if let Some((_, _, became)) = obsolete.filter(|_| mount.stated_in != "/proc/mounts") {
            report.find(
                FindingCode::ObsoleteOption,
                &mount.at,
                [evidence.clone(), (*became).to_owned(), fix.clone()],
            );
        }
        let said = |(of, known): &&(&str, &str)| *of == family && known == option;
        let redundant = option == "nodiratime" && mount.options.iter().any(|other| other == "noatime");
        if mount.stated_in != "/proc/mounts" && (DEFAULTS.iter().any(|default| said(&default)) || redundant) {
            let cost = match redundant {
                true => "nothing: noatime says it of directories too",
                false => "nothing: it is so anyhow",
            };
            report.find(FindingCode::DefaultOption, &mount.at, [evidence, cost.to_owned(), fix]);
        }
    }
}
