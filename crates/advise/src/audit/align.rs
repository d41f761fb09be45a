//! Alignment, from the drive up to logical volumes: what starts where nothing below it does.

use super::facts::{
    ArrayFacts, AuditFacts, DeviceFacts, DeviceOrigin, GroupFacts, LogicalFacts, PhysicalFacts, SegmentFacts,
    Stripes,
};
use super::{AuditReport, FindingCode, Size, word};

/// What drives of today write at once, also those that take smaller requests.
const BLOCK: u64 = 4096;

/// Where partitions of old begin.
const OLD_START: u64 = 63 * 512;

pub(super) fn rules(facts: &AuditFacts, report: &mut AuditReport) {
    for device in &facts.devices {
        if let DeviceOrigin::Partition { of, start } = device.origin {
            partition(facts, device, of, start, report);
        }
    }
    for array in &facts.arrays {
        members(facts, array, report);
    }
    for group in &facts.groups {
        physical(facts, group, report);
        for volume in &group.volumes {
            volume_rules(facts, group, volume, report);
        }
    }
}

/// What a start inside a stripe costs.
fn cost(stripes: &Stripes<'_>, at: u64) -> String {
    let (unit, stripe) = (stripes.unit, stripes.stripe());
    let crossing = format!("a request of {} that starts at its own multiple touches two drives", Size(unit));
    match (stripes.parity, at.is_multiple_of(unit)) {
        (true, true) => format!(
            "what is written as a whole stripe of {} is parts of two, and parity is read first",
            Size(stripe)
        ),
        (true, false) => format!("{crossing}; no stripe of {} is written as a whole", Size(stripe)),
        (false, _) => crossing,
    }
}

fn partition(facts: &AuditFacts, device: &DeviceFacts, of: usize, start: u64, report: &mut AuditReport) {
    let below = &facts.devices[of];
    if let Some((stripes, at)) = facts.place(of, start) {
        if !at.is_multiple_of(stripes.grain()) {
            let evidence = format!(
                "it starts at {} (sector {}) of {}, whose stripes of {} x {} are {}: {} beyond the last one's start",
                Size(at),
                start / 512,
                stripes.name,
                stripes.drives,
                Size(stripes.unit),
                Size(stripes.stripe()),
                Size(at % stripes.stripe())
            );
            let fix = format!("partition {} anew, from sector {}", below.name, stripes.stripe() / 512);
            report.find(FindingCode::PartitionStripe, &device.name, [evidence, cost(&stripes, at), fix]);
        }
        return;
    }
    let Some(at) = facts.on_drive(of, start) else { return };
    let drive = facts.drive(of).map(|drive| &facts.devices[drive]);
    let stated = drive.and_then(|drive| drive.queue.as_ref()?.physical_block);
    let block = stated.unwrap_or(BLOCK).max(512);
    let fix =
        "move it to a partition that starts at sector 2048: replace the member by such a one, or copy it";
    if start == OLD_START {
        let evidence =
            format!("it starts at sector 63, {} bytes behind a multiple of 4 KiB", OLD_START % BLOCK);
        let cost = "each write of 4 KiB is two of the drive's blocks, each read first on a drive with blocks of 4 KiB";
        report.find(FindingCode::OldStart, &device.name, [evidence, cost.to_owned(), fix.to_owned()]);
    } else if !at.is_multiple_of(block) {
        let known = if stated.is_some() { "writes blocks" } else { "may write blocks" };
        let evidence = format!(
            "it starts at sector {}, and {} {known} of {}",
            start / 512,
            drive.map_or("the drive", |drive| drive.name.as_str()),
            Size(block)
        );
        let cost = "each block of the file system is two of the drive's, each read first";
        report.find(FindingCode::PartitionBlock, &device.name, [evidence, cost.to_owned(), fix.to_owned()]);
    }
}

fn members(facts: &AuditFacts, array: &ArrayFacts, report: &mut AuditReport) {
    for member in array.active() {
        let device = &facts.devices[member.device];
        let Some(start) = member.start else { continue };
        // What is on the array's own account: a partition that is off is told of as such.
        if start.is_multiple_of(BLOCK) {
            continue;
        }
        let evidence = format!("data of {} starts at sector {} of {}", array.name, start / 512, device.name);
        let cost = "each block of 4 KiB is two of a drive's with such blocks, each read first";
        let fix = "make the array anew: wattle create … --data-offset 1M, and copy what is on it".to_owned();
        report.find(FindingCode::MemberStart, &device.name, [evidence, cost.to_owned(), fix]);
    }
}

fn physical(facts: &AuditFacts, group: &GroupFacts, report: &mut AuditReport) {
    for physical in &group.physical {
        let Some(device) = physical.device else { continue };
        let name = &facts.devices[device].name;
        let Some((stripes, at)) = facts.place(device, physical.start) else { continue };
        if !at.is_multiple_of(stripes.grain()) && !below_is_off(facts, device) {
            let evidence = format!(
                "pe_start is {}, and stripes of {} are {} x {} = {}",
                Size(physical.start),
                stripes.name,
                stripes.drives,
                Size(stripes.unit),
                Size(stripes.stripe())
            );
            let fix = format!(
                "pvcreate --dataalignment {}k {}, with the volumes moved away first (pvmove)",
                stripes.stripe() >> 10,
                word(&facts.devices[device].node())
            );
            report.find(FindingCode::DataStart, name, [evidence, cost(&stripes, at), fix]);
        }
        if !group.extent.is_multiple_of(stripes.grain()) {
            let evidence = format!(
                "extents of {} are {}, and stripes of {} are {}",
                group.name,
                Size(group.extent),
                stripes.name,
                Size(stripes.grain())
            );
            let every = stripes.grain() / gcd(stripes.grain(), group.extent.max(1));
            let cost = format!("one place of {every} where a volume may start is the start of a stripe");
            let fix = if stripes.grain().is_power_of_two() {
                format!("vgchange --physicalextentsize {}k {}", stripes.grain() >> 10, word(&group.name))
            } else {
                format!("give volumes sizes that are multiples of {every} extents: lvcreate -l N")
            };
            report.find(FindingCode::ExtentStripe, &group.name, [evidence, cost, fix]);
        }
    }
}

/// Whether the partition that a device is starts inside a stripe itself: what is said of it need
/// not be said of all that lies on it.
fn below_is_off(facts: &AuditFacts, device: usize) -> bool {
    let DeviceOrigin::Partition { of, start } = facts.devices[device].origin else { return false };
    facts.place(of, start).is_some_and(|(stripes, at)| !at.is_multiple_of(stripes.grain()))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn volume_rules(facts: &AuditFacts, group: &GroupFacts, volume: &LogicalFacts, report: &mut AuditReport) {
    let full_name = format!("{}/{}", group.name, volume.name);
    let mut first_phase = None;
    for segment in &volume.segments {
        for &(physical, start) in &segment.areas {
            let Some(physical) = group.physical.get(physical) else { continue };
            let Some((stripes, at)) = physical.device.and_then(|device| facts.place(device, start)) else {
                continue;
            };
            let grain = stripes.grain();
            if segment.areas.len() > 1 && !segment.stripe.is_multiple_of(grain) {
                report.find(FindingCode::VolumeStripes, &full_name, unfit_stripes(segment, &stripes));
                return;
            }
            // The place within the volume is what a file system counts from.
            let phase = (at % grain + grain - segment.start % grain) % grain;
            // That extents start inside a stripe is told of the physical volume.
            let told = first_phase.unwrap_or(if extents_are_off(facts, physical) { phase } else { 0 });
            first_phase.get_or_insert(phase);
            if phase != told {
                report.find(FindingCode::VolumeStart, &full_name, start_inside(segment, &stripes, at, phase));
                return;
            }
        }
    }
}

fn unfit_stripes(segment: &SegmentFacts, stripes: &Stripes<'_>) -> [String; 3] {
    let grain = stripes.grain();
    let evidence = format!(
        "its stripes are {} on each of {} physical volumes, and those of {} are {}",
        Size(segment.stripe),
        segment.areas.len(),
        stripes.name,
        Size(grain)
    );
    let cost = format!("its pieces are no whole stripes of {}", stripes.name);
    [evidence, cost, format!("lvcreate --stripes {} --stripesize {}k", segment.areas.len(), grain >> 10)]
}

fn start_inside(segment: &SegmentFacts, stripes: &Stripes<'_>, at: u64, phase: u64) -> [String; 3] {
    let grain = Size(stripes.grain());
    let what = match segment.start {
        0 => "it starts".to_owned(),
        start => format!("what is at {} of it is", Size(start)),
    };
    let evidence = format!(
        "{what} at {} of {}, which is {} beyond where a stripe of {grain} would have to start",
        Size(at),
        stripes.name,
        Size(phase)
    );
    let fix = format!(
        "move it to free extents that start at a multiple of {grain}: pvmove -n NAME PV:FROM-TO PV:FROM-TO"
    );
    [evidence, cost(stripes, phase), fix]
}

fn extents_are_off(facts: &AuditFacts, physical: &PhysicalFacts) -> bool {
    let place = physical.device.and_then(|device| facts.place(device, physical.start));
    place.is_some_and(|(stripes, at)| !at.is_multiple_of(stripes.grain()))
}
