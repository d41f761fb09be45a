//! Redundancy: whether an array has what it says, and gets it back.

use super::facts::{ArrayFacts, AuditFacts, MemberRole, Sync};
use super::{AuditReport, FindingCode, Size, word};

/// The command that says what helps where no command can be given.
const WHY: &str = "wattle why MEMBER... says what helps";

pub(super) fn rules(facts: &AuditFacts, report: &mut AuditReport) {
    for array in &facts.arrays {
        state(array, report);
        members(facts, array, report);
        if array.redundant() {
            if !array.is_out_of_reach() {
                protection(array, report);
            }
            shared_drives(facts, array, report);
        }
        sizes(facts, array, report);
    }
    for group in &facts.groups {
        let missing = group.physical.iter().filter(|physical| physical.device.is_none()).count();
        if missing > 0 {
            let evidence = format!("{missing} of {} are not there", group.physical.len());
            let cost = "volumes with extents on them cannot be used, or only in part".to_owned();
            let fix =
                format!("find them; what is lost for good: vgreduce --removemissing {}", word(&group.name));
            report.find(FindingCode::MissingVolume, &group.name, [evidence, cost, fix]);
        }
    }
}

fn state(array: &ArrayFacts, report: &mut AuditReport) {
    let name = word(&array.name);
    if let Some(why) = &array.refused {
        let fix = format!("wattle why MEMBER... says what helps with {name}");
        let cost = "what is on it cannot be used".to_owned();
        report.find(FindingCode::Refused, &array.name, [why.clone(), cost, fix]);
    }
    if array.missing > 0 && array.redundant() {
        let evidence = format!("{} of {} members are missing or not whole", array.missing, array.slots);
        let left = array.parities().saturating_sub(array.missing);
        let cost = match (array.parities(), left) {
            _ if array.is_out_of_reach() => "nothing can be read until enough of them are back".to_owned(),
            (0, _) => "what has no other copy is lost with the next failure".to_owned(),
            (_, 0) => "the next failure loses everything".to_owned(),
            _ => format!("{left} further failure is survived"),
        };
        let fix = match array.is_out_of_reach() {
            true => WHY.to_owned(),
            false => array.add("DEVICE"),
        };
        report.find(FindingCode::Degraded, &array.name, [evidence, cost, fix]);
        if array.sync == Some(Sync::Dirty)
            && array.parities() > 0
            && array.log != Some(true)
            && array.running.is_none()
        {
            let evidence = format!("dirty, with {} of {} members missing", array.missing, array.slots);
            let cost = "blocks of the missing member may come out wrong, without an error".to_owned();
            let fix =
                "find the missing member; --force=dirty-degraded goes on without, at that risk".to_owned();
            report.find(FindingCode::DirtyDegraded, &array.name, [evidence, cost, fix]);
        }
    }
    let pending = match array.sync {
        Some(Sync::Unsynced) => Some("a resync is not finished"),
        // Of one that runs this only says that it is being written.
        Some(Sync::Dirty) if array.running.is_none() && array.missing == 0 => {
            Some("it was not stopped cleanly, or never synchronised")
        }
        _ => None,
    };
    if let Some(evidence) = pending.filter(|_| array.redundant()) {
        let evidence = evidence.to_owned();
        let cost = "a failure before it is gives wrong data wherever they differ".to_owned();
        let fix = format!("wattle serve, or mdadm --assemble, and let it finish: wattle status {name}");
        report.find(FindingCode::Unsynced, &array.name, [evidence, cost, fix]);
    }
    if array.metadata == "0.90" || array.metadata == "0.91" {
        let evidence = format!("its superblocks are {}", array.metadata);
        let cost = "no more than 2 TiB of each member, no record of a rebuild or of bad sectors".to_owned();
        let fix = "mdadm --assemble --update=metadata, once, with the array stopped".to_owned();
        report.find(FindingCode::OldMetadata, &array.name, [evidence, cost, fix]);
    }
}

fn members(facts: &AuditFacts, array: &ArrayFacts, report: &mut AuditReport) {
    for member in &array.members {
        let device = &facts.devices[member.device];
        let name = &device.name;
        let unused = match &member.role {
            MemberRole::Active | MemberRole::Spare | MemberRole::Journal => None,
            MemberRole::Failed(why) => Some((why, array.renew(device))),
            MemberRole::Behind(why) => Some((why, array.add(&array.path(device)))),
            // To add it would write over what may be nowhere else.
            MemberRole::Unused(why) => Some((why, WHY.to_owned())),
        };
        if let Some((why, fix)) = unused {
            let cost = format!("it is no redundancy of {} as it is", array.name);
            report.find(FindingCode::UnusedMember, name, [why.clone(), cost, fix]);
        }
        if member.bad_sectors > 0 {
            let evidence = format!("{} sectors, in its bad-block log", member.bad_sectors);
            let cost = "no redundancy there: another failure loses these".to_owned();
            let fix = array.replace(device, None);
            report.find(FindingCode::BadBlocks, name, [evidence, cost, fix]);
        }
    }
}

fn protection(array: &ArrayFacts, report: &mut AuditReport) {
    let node = array.node();
    if array.bitmap.is_none() {
        report.unknown(format!("{}: whether it has a bitmap", array.name), "nothing there says so");
    }
    if array.bitmap == Some(false) && array.log != Some(true) {
        let size = array.members.iter().filter_map(|member| member.used).max();
        let evidence = "its superblocks name no bitmap".to_owned();
        let cost = match size {
            Some(size) => format!(
                "a crash costs a resync of {} on each member, {} at 100 MB/s",
                Size(size),
                time(size / 100_000_000)
            ),
            None => "a crash costs a resync of everything".to_owned(),
        };
        report.find(
            FindingCode::NoBitmap,
            &array.name,
            [evidence, cost, format!("mdadm --grow --bitmap=internal {node}")],
        );
    }
    if array.parities() > 0 && array.log == Some(false) {
        let evidence = "no partial parity log and no journal".to_owned();
        let cost =
            "a crash, and a failure before the resync is done, may damage blocks that were not being written";
        let with_journal = "a journal device (mdadm --create --write-journal), or a battery";
        let fix = match array.takes_partial_parity_log() {
            // The log takes the bitmap's place. Where it is refused all the same, the bitmap comes
            // back.
            true => format!(
                "mdadm --grow --bitmap=none {node} && (mdadm --grow --consistency-policy=ppl {node} || mdadm --grow \
                 --bitmap=internal {node}); or {with_journal}"
            ),
            false => with_journal.to_owned(),
        };
        report.find(FindingCode::WriteHole, &array.name, [evidence, cost.to_owned(), fix]);
    }
    if !array.members.iter().any(|member| member.role == MemberRole::Spare) {
        let evidence = format!("{} members, none of them a spare", array.slots);
        let cost = "a rebuild starts when an operator starts it".to_owned();
        report.find(FindingCode::NoSpare, &array.name, [evidence, cost, array.add("DEVICE")]);
    }
}

/// Seconds as hours or minutes.
fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

fn shared_drives(facts: &AuditFacts, array: &ArrayFacts, report: &mut AuditReport) {
    let active: Vec<_> =
        array.active().filter_map(|member| Some((member.device, facts.drive(member.device)?))).collect();
    for (at, (device, drive)) in active.iter().enumerate() {
        let Some((first, _)) = active[..at].iter().find(|(_, other)| other == drive) else { continue };
        let name = &facts.devices[*drive].name;
        let evidence =
            format!("{} and {} are both on {name}", facts.devices[*first].name, facts.devices[*device].name);
        let cost = format!("{name} failing is two failures of {}, and both wait for its head", array.name);
        let fix = array.replace(&facts.devices[*device], Some("on another drive"));
        report.find(FindingCode::SharedDrive, &array.name, [evidence, cost, fix]);
        return;
    }
}

/// What members have and the smallest does not. RAID 0 and linear use all of each.
fn sizes(facts: &AuditFacts, array: &ArrayFacts, report: &mut AuditReport) {
    if !array.redundant() {
        return;
    }
    let wasted = array.active().filter_map(|member| {
        let device = &facts.devices[member.device];
        let room = device.size.saturating_sub(member.start?);
        Some((room.saturating_sub(member.used?), device))
    });
    let wasted: Vec<_> = wasted.collect();
    let Some((least, _)) = wasted.iter().min_by_key(|(bytes, _)| *bytes) else { return };
    let Some((most, largest)) = wasted.iter().max_by_key(|(bytes, _)| *bytes) else { return };
    let sum = wasted.iter().map(|(bytes, _)| bytes - least).fold(0, u64::saturating_add);
    // A percent is how much drives of one size from two makers differ.
    if most - least <= largest.size / 100 {
        return;
    }
    let evidence =
        format!("{} of {} are beyond what the smallest member has", Size(most - least), largest.name);
    let cost = format!("{} of drives that hold nothing", Size(sum));
    let fix = "arrays of equal partitions, and one volume group of them".to_owned();
    report.find(FindingCode::WastedSpace, &array.name, [evidence, cost, fix]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Finding;
    use crate::audit::facts::{ArrayMember, DeviceFacts, DeviceOrigin, KernelArray, Queue, SystemFacts};
    use crate::limits::Scheme;

    /// An array of whole members, called sda and so on.
    fn array(level: &str, scheme: Scheme, slots: u32) -> AuditFacts {
        let device = |ix: usize| DeviceFacts {
            name: format!("sd{}", char::from(b'a' + ix as u8)),
            size: 1 << 30,
            origin: DeviceOrigin::Drive,
            file_system: None,
            queue: None,
            drive: None,
        };
        let member = |device: usize| ArrayMember {
            device,
            role: MemberRole::Active,
            start: Some(1 << 20),
            used: Some(1 << 29),
            bad_sectors: 0,
        };
        let array = ArrayFacts {
            name: "data".to_owned(),
            level: level.to_owned(),
            scheme,
            chunk: 0,
            data_drives: 1,
            slots,
            missing: 0,
            members: (0..slots as usize).map(member).collect(),
            metadata: "1.2".to_owned(),
            bitmap: Some(true),
            log: Some(false),
            sync: Some(Sync::Clean),
            refused: None,
            scrubbed: None,
            running: None,
            served: false,
        };
        let devices = (0..slots as usize).map(device).collect();
        AuditFacts { devices, arrays: vec![array], ..AuditFacts::default() }
    }

    const RAID5: Scheme = Scheme::Parity { parities: 1 };

    fn found(facts: &AuditFacts, code: FindingCode) -> Option<Finding> {
        crate::audit::audit(facts).findings.into_iter().find(|finding| finding.code == code)
    }

    fn fix(facts: &AuditFacts, code: FindingCode) -> String {
        found(facts, code).unwrap().fix
    }

    fn is_run_by_a_kernel(facts: &mut AuditFacts) {
        facts.arrays[0].running = Some(KernelArray { node: "md0".to_owned(), ..KernelArray::default() });
    }

    /// Nothing fills a new member of a RAID 0, and only RAID 1 heeds write-mostly.
    #[test]
    fn what_is_advised_for_a_drive_is_what_its_level_can_do() {
        let fixes = |level: &str, scheme: Scheme| {
            let mut facts = array(level, scheme, 4);
            facts.system = Some(SystemFacts::default());
            is_run_by_a_kernel(&mut facts);
            for (ix, device) in facts.devices.iter_mut().enumerate() {
                let (rotational, discard) = (Some(ix == 0), Some(ix > 0));
                device.queue = Some(Queue { rotational, discard, ..Queue::default() });
            }
            [FindingCode::DiscardDiffers, FindingCode::UnequalDrives].map(|code| fix(&facts, code))
        };
        let mirrored = Scheme::Mirrored { copies: 2, far: false };
        for (level, scheme) in [("raid5", RAID5), ("raid10", mirrored)] {
            let fixes = fixes(level, scheme);
            assert!(fixes.iter().all(|fix| fix.contains("--replace /dev/sda --with NEW")), "{fixes:?}");
        }
        assert!(fixes("raid1", mirrored)[1].contains("write-mostly"));
        let striped = fixes("raid0", Scheme::Striped);
        let copies = |fix: &String| {
            fix.starts_with("copy what is on data")
                && fix.contains("in the place of /dev/sda")
                && !fix.contains("mdadm")
        };
        assert!(striped.iter().all(copies), "{striped:?}");
    }

    #[test]
    fn sectors_recorded_as_lost_are_found() {
        let mut facts = array("raid1", Scheme::Mirrored { copies: 2, far: false }, 2);
        facts.arrays[0].members[0].bad_sectors = 8;
        let found = found(&facts, FindingCode::BadBlocks).unwrap();
        assert_eq!(
            (found.subject.as_str(), found.evidence.as_str()),
            ("sda", "8 sectors, in its bad-block log")
        );
    }

    /// What is added is written over.
    #[test]
    fn only_a_member_without_anything_of_its_own_is_to_be_added() {
        let why = || "why".to_owned();
        for (role, alone, in_a_kernel) in [
            (
                MemberRole::Behind(why()),
                "serve it, then wattle add data sdb",
                "mdadm /dev/md0 --add /dev/sdb",
            ),
            (
                MemberRole::Failed(why()),
                "serve it, then wattle add data NEW",
                "mdadm /dev/md0 --remove /dev/sdb && mdadm /dev/md0 --add NEW",
            ),
            (MemberRole::Unused(why()), WHY, WHY),
        ] {
            let mut facts = array("raid1", Scheme::Mirrored { copies: 2, far: false }, 2);
            (facts.arrays[0].members[1].role, facts.arrays[0].missing) = (role, 1);
            assert_eq!(fix(&facts, FindingCode::UnusedMember), alone);
            facts.arrays[0].served = true;
            let served = alone.trim_start_matches("serve it, then ");
            assert_eq!(fix(&facts, FindingCode::UnusedMember), served);
            is_run_by_a_kernel(&mut facts);
            assert_eq!(fix(&facts, FindingCode::UnusedMember), in_a_kernel);
        }
    }

    #[test]
    fn of_what_lacks_too_much_nothing_is_said_to_be_left() {
        let mirror = |copies| Scheme::Mirrored { copies, far: false };
        for (scheme, slots, missing, refused, lost) in [
            (RAID5, 3, 1, false, false),
            (RAID5, 3, 2, false, true),
            (Scheme::Parity { parities: 2 }, 5, 2, false, false),
            (Scheme::Parity { parities: 2 }, 5, 3, true, true),
            (mirror(3), 3, 2, false, false),
            (mirror(2), 4, 2, false, false),
            (mirror(2), 4, 2, true, true),
            (mirror(2), 4, 3, false, true),
        ] {
            let mut facts = array("raid", scheme, slots);
            facts.arrays[0].missing = missing;
            facts.arrays[0].refused = refused.then(|| "too few".to_owned());
            let degraded = found(&facts, FindingCode::Degraded).unwrap();
            assert_eq!(degraded.cost.starts_with("nothing can be read"), lost, "{scheme:?}: {degraded:?}");
            assert_eq!(degraded.fix == WHY, lost, "{scheme:?}: {degraded:?}");
            // No commands for what cannot be written.
            assert_eq!(found(&facts, FindingCode::NoSpare).is_none(), lost, "{scheme:?}");
        }
    }

    /// mdadm takes the bitmap away with the first command, and refuses the second.
    #[test]
    fn a_partial_parity_log_is_advised_where_there_can_be_one() {
        let advised = |change: fn(&mut ArrayFacts)| {
            let mut facts = array("raid5", RAID5, 4);
            change(&mut facts.arrays[0]);
            fix(&facts, FindingCode::WriteHole)
        };
        let could = advised(|_| ());
        assert!(
            could.contains("consistency-policy=ppl /dev/md/data || mdadm --grow --bitmap=internal"),
            "{could}"
        );
        for refused in [
            advised(|array| array.level = "raid4".to_owned()),
            advised(|array| array.metadata = "0.90".to_owned()),
            advised(|array| array.slots = 65),
            advised(|array| array.missing = 1),
        ] {
            assert!(refused.starts_with("a journal device"), "{refused}");
        }
    }
}
