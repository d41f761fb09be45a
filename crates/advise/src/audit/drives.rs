//! Drives: how long they try, what they are made of, whether one holds the others back.

use super::facts::{ArrayFacts, AuditFacts, DeviceFacts, ErrorRecovery};
use super::{AuditReport, FindingCode};

/// How long a desktop drive may try, and a little more: what the kernel should wait for one that
/// cannot be told.
const DESKTOP_SECONDS: u64 = 180;

/// Operations below which an average says nothing.
const OPERATIONS_TELLING: u64 = 1000;

/// So many times slower than the median of the others is no chance.
const SLOWER: u64 = 3;

/// Beginnings of models whose makers said in April 2020 that they are shingled and manage that by
/// themselves: Western Digital's list (Red, Blue, Black), Seagate's statement (Barracuda, Desktop),
/// Toshiba's list (P300, L200, MQ04). There are others.
const SHINGLED: [&str; 18] = [
    "WDC WD20EFAX",
    "WDC WD30EFAX",
    "WDC WD40EFAX",
    "WDC WD60EFAX",
    "WDC WD20EZAZ",
    "WDC WD60EZAZ",
    "WDC WD10SPZX",
    "WDC WD20SPZX",
    "WDC WD10SPSX",
    "ST2000DM008",
    "ST4000DM004",
    "ST5000DM000",
    "ST8000DM004",
    "TOSHIBA HDWD240",
    "TOSHIBA HDWD260",
    "TOSHIBA HDWL110",
    "TOSHIBA HDWL120",
    "TOSHIBA MQ04",
];

pub(super) fn rules(facts: &AuditFacts, report: &mut AuditReport) {
    if facts.system.is_none() {
        let what = "drives: error recovery, recording, discards, speed";
        report.unknown(
            what,
            "only members were looked at; the system they are in says it (`wattle audit` there)",
        );
        return;
    }
    for array in &facts.arrays {
        let drives = facts.drives_of(array);
        if drives.len() < array.active().count() {
            report
                .unknown(format!("{}: its drives", array.name), "members of it are volumes of other layers");
        }
        let unknown =
            |drive: &&&DeviceFacts| is_rotational(drive).is_none() || takes_discards(drive).is_none();
        let unknown: Vec<_> = drives.iter().filter(unknown).map(|drive| &drive.name[..]).collect();
        if !unknown.is_empty() {
            let what = format!("{}: what kind of drives these are: {}", array.name, unknown.join(", "));
            report.unknown(what, "/sys/block/NAME/queue does not say");
        }
        kinds(array, &drives, report);
        slow(array, &drives, report);
        discards(facts, array, &drives, report);
        if array.parities() > 0 {
            drives.iter().for_each(|drive| shingled(array, drive, report));
        }
        if array.redundant() {
            recovery(array, &drives, report);
        }
    }
}

fn is_rotational(drive: &DeviceFacts) -> Option<bool> {
    drive.queue.as_ref()?.rotational
}

fn takes_discards(drive: &DeviceFacts) -> Option<bool> {
    drive.queue.as_ref()?.discard
}

fn kinds(array: &ArrayFacts, drives: &[&DeviceFacts], report: &mut AuditReport) {
    let with_heads: Vec<_> = drives.iter().filter(|drive| is_rotational(drive) == Some(true)).collect();
    let without = drives.iter().filter(|drive| is_rotational(drive) == Some(false)).count();
    if with_heads.is_empty() || without == 0 {
        return;
    }
    let names: Vec<_> = with_heads.iter().map(|drive| &drive.name[..]).collect();
    let evidence = format!("{without} of its drives are SSDs, {} are not", names.join(", "));
    let cost = "every write waits for the head of the slowest".to_owned();
    let fix = match array.level.as_str() {
        // Only this level heeds the mark.
        "raid1" => {
            "replace it by an SSD, or mark it write-mostly (echo writemostly > md/dev-…/state)".to_owned()
        }
        _ => array.replace(with_heads[0], Some("an SSD")),
    };
    report.find(FindingCode::UnequalDrives, &array.name, [evidence, cost, fix]);
}

/// Microseconds that an operation took on average.
fn pace(drive: &DeviceFacts) -> Option<u64> {
    let (operations, milliseconds) = drive.drive.as_ref()?.work?;
    (operations >= OPERATIONS_TELLING).then(|| milliseconds.saturating_mul(1000) / operations)
}

fn slow(array: &ArrayFacts, drives: &[&DeviceFacts], report: &mut AuditReport) {
    let mut paces: Vec<_> = drives.iter().filter_map(|drive| Some((pace(drive)?, *drive))).collect();
    if paces.len() < drives.len() || paces.len() < 3 {
        report.unknown(
            format!("{}: whether a member is slower than the others", array.name),
            format!("fewer than 3 drives with counters of {OPERATIONS_TELLING} operations or more"),
        );
        return;
    }
    paces.sort_by_key(|(pace, _)| *pace);
    let (median, (slowest, drive)) = (paces[(paces.len() - 1) / 2].0, paces[paces.len() - 1]);
    if slowest < median.max(1).saturating_mul(SLOWER) {
        return;
    }
    let evidence =
        format!("an operation took {slowest} us on average, {median} us on the median of the others");
    let cost = format!("{} writes at the pace of this drive", array.name);
    let fix = format!(
        "look at its cable and `smartctl -a /dev/{}`; then {}",
        drive.name,
        array.replace(drive, None)
    );
    report.find(FindingCode::SlowMember, &drive.name, [evidence, cost, fix]);
}

fn discards(facts: &AuditFacts, array: &ArrayFacts, drives: &[&DeviceFacts], report: &mut AuditReport) {
    let with: Vec<_> = drives.iter().filter(|drive| takes_discards(drive) == Some(true)).collect();
    let without: Vec<_> = drives.iter().filter(|drive| takes_discards(drive) == Some(false)).collect();
    if let (Some(without), false) = (without.first(), with.is_empty()) {
        let evidence = format!("{} takes discards and {} does not", with[0].name, without.name);
        let cost = "no discard reaches the drives that could use it".to_owned();
        let fix = array.replace(without, Some("a drive like the others"));
        report.find(FindingCode::DiscardDiffers, &array.name, [evidence, cost, fix]);
        return;
    }
    let flash = facts.is_flash(array) == Some(true) && !with.is_empty();
    let passed = facts.system.as_ref().and_then(|system| system.parity_discard);
    if flash && array.parities() > 0 && passed == Some(false) {
        let evidence = "raid456.devices_handle_discard_safely is N".to_owned();
        let cost = "SSDs never learn what is free, and write slower the fuller they seem".to_owned();
        let fix = "if all of them return zeros after a discard: options raid456 devices_handle_discard_safely=Y in /etc/modprobe.d";
        report.find(FindingCode::NoParityDiscard, &array.name, [evidence, cost, fix.to_owned()]);
    }
}

fn shingled(array: &ArrayFacts, drive: &DeviceFacts, report: &mut AuditReport) {
    let zoned =
        drive.queue.as_ref().and_then(|queue| queue.zoned.as_deref()).filter(|zoned| *zoned != "none");
    let model = drive.drive.as_ref().and_then(|drive| drive.model.as_deref()).unwrap_or_default();
    // Kernels give the maker or not.
    let known = SHINGLED.iter().any(|known| {
        model.starts_with(known) || known.split_once(' ').is_some_and(|(_, short)| model.starts_with(short))
    });
    let evidence = match zoned {
        Some(zoned) => format!("the kernel says that it is {zoned}"),
        None if known => format!("it is a {model}, which its maker lists as shingled"),
        None => return,
    };
    let cost = format!("rebuilds of {} take days, and pauses of it look like failures", array.name);
    let fix = array.replace(drive, Some("a drive that is not shingled"));
    report.find(FindingCode::Shingled, &drive.name, [evidence, cost, fix]);
}

fn recovery(array: &ArrayFacts, drives: &[&DeviceFacts], report: &mut AuditReport) {
    let (mut unknown, mut no_timeout) = (Vec::new(), Vec::new());
    for drive in drives {
        // What has no head does not try for minutes.
        if is_rotational(drive) == Some(false) {
            continue;
        }
        let Some(timeout) = drive.drive.as_ref().and_then(|drive| drive.timeout_seconds) else {
            no_timeout.push(&drive.name[..]);
            continue;
        };
        if timeout >= DESKTOP_SECONDS {
            continue;
        }
        let recovery = drive.drive.as_ref().and_then(|drive| drive.recovery);
        let evidence = match recovery {
            None => {
                unknown.push(&drive.name[..]);
                continue;
            }
            Some(ErrorRecovery::Limited(tenths)) if tenths / 10 < timeout => continue,
            Some(ErrorRecovery::Limited(tenths)) => {
                format!("it tries for {}.{} s and the kernel waits {timeout} s", tenths / 10, tenths % 10)
            }
            Some(ErrorRecovery::Off) => format!("its time limit is off, and the kernel waits {timeout} s"),
            Some(ErrorRecovery::Unsupported) => {
                format!("it has no time limit, and the kernel waits {timeout} s")
            }
        };
        let cost = format!("one bad sector, and {} loses the whole drive", array.name);
        let fix = match recovery {
            Some(ErrorRecovery::Unsupported) => {
                format!("at every start: echo {DESKTOP_SECONDS} > /sys/block/{}/device/timeout", drive.name)
            }
            _ => format!("at every start: smartctl -l scterc,70,70 /dev/{}", drive.name),
        };
        report.find(FindingCode::ErrorRecovery, &drive.name, [evidence, cost, fix]);
    }
    if !no_timeout.is_empty() {
        let what = format!("how long the kernel waits for these: {}", no_timeout.join(", "));
        report.unknown(what, "/sys/block/NAME/device/timeout is not there");
    }
    if !unknown.is_empty() {
        report.unknown(
            format!("how long these try to read a bad sector: {}", unknown.join(", ")),
            "only the drives say: put `smartctl -j -l scterc /dev/NAME` into SYSROOT/smart/NAME.json",
        );
    }
}
