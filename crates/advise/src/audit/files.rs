//! File systems: whether they know the stripes they are on, and how their groups lie.

use super::facts::{AuditFacts, DeviceFacts, FileSystemFacts, Stripes};
use super::{AuditReport, FindingCode, Size, word};

/// Groups for each processor from which more make no difference: storage that is very parallel
/// wants some for each.
const GROUPS_PER_PROCESSOR: u64 = 32;

/// More are many on any machine.
const GROUPS_MANY: u64 = 4096;

/// Fewer groups than this may well start anywhere.
const GROUPS_TELLING: usize = 4;

pub(super) fn rules(facts: &AuditFacts, report: &mut AuditReport) {
    for (ix, device) in facts.devices.iter().enumerate() {
        let Some(file_system) = &device.file_system else { continue };
        let stripes = facts.place(ix, 0).map(|(stripes, _)| stripes);
        if let Some(stripes) = stripes {
            geometry(device, file_system, &stripes, report);
        }
        if file_system.kind == "xfs" {
            groups(facts, device, file_system, stripes.as_ref(), report);
            old_format(device, file_system, report);
        }
    }
}

/// How a file system is told of stripes: when it is made, and afterwards.
fn commands(device: &DeviceFacts, file_system: &FileSystemFacts, stripes: &Stripes<'_>) -> (String, String) {
    let (unit, stripe) = (stripes.unit, stripes.stripe());
    if file_system.kind == "xfs" {
        let make = format!("mkfs.xfs -d su={}k,sw={}", unit >> 10, stripes.drives);
        let mount =
            format!("mount -o sunit={},swidth={} {} …", unit / 512, stripe / 512, word(&device.node()));
        return (make, mount);
    }
    let block = file_system.block.max(1);
    let options = format!("stride={},stripe_width={}", unit / block, stripe / block);
    let tune = format!("tune2fs -E {options} {}", word(&device.node()));
    (format!("mke2fs -t {} -E {options}", file_system.kind), tune)
}

fn geometry(
    device: &DeviceFacts,
    file_system: &FileSystemFacts,
    stripes: &Stripes<'_>,
    report: &mut AuditReport,
) {
    let (make, tune) = commands(device, file_system, stripes);
    let fix = format!("{tune}; anew: {make}");
    let below = format!(
        "{} is {} x {} of data = {}",
        stripes.name,
        stripes.drives,
        Size(stripes.unit),
        Size(stripes.stripe())
    );
    let reads_first = match stripes.parity {
        true => "large files are not written as whole stripes, and parity is read first",
        false => "what could be on one drive is on two, and drives are not used alike",
    };
    let (unit, width) = (file_system.unit, file_system.width);
    match (unit, width) {
        (None, None) => {
            let evidence =
                format!("{} has no stripe unit and no stripe width, and {below}", file_system.kind);
            report.find(FindingCode::NoStripes, &device.name, [evidence, reads_first.to_owned(), fix]);
            return;
        }
        (Some(unit), _) if unit != stripes.unit => {
            let evidence = format!("its stripe unit is {}, and {below}", Size(unit));
            let cost = "its structures start where no drive's part of a stripe does".to_owned();
            report.find(FindingCode::UnitDiffers, &device.name, [evidence, cost, fix.clone()]);
        }
        _ => {}
    }
    let width = width.unwrap_or(unit.unwrap_or(0));
    if width != stripes.stripe() {
        let evidence = format!("its stripe width is {}, and {below}", Size(width));
        report.find(FindingCode::WidthDiffers, &device.name, [evidence, reads_first.to_owned(), fix]);
    }
    let unit = unit.unwrap_or(stripes.unit);
    if file_system.kind == "xfs" && file_system.groups > 1 && !file_system.group_size.is_multiple_of(unit) {
        let evidence = format!(
            "its {} groups are {} each, which is no multiple of {}",
            file_system.groups,
            Size(file_system.group_size),
            Size(unit)
        );
        let cost = "only the first group starts where a drive's part of a stripe does".to_owned();
        report.find(FindingCode::GroupUnit, &device.name, [evidence, cost, make]);
    }
}

fn groups(
    facts: &AuditFacts,
    device: &DeviceFacts,
    file_system: &FileSystemFacts,
    stripes: Option<&Stripes<'_>>,
    report: &mut AuditReport,
) {
    let slots = &file_system.group_slots;
    let most = slots.iter().map(|slot| (slots.iter().filter(|other| *other == slot).count(), *slot)).max();
    if let (Some((count, slot)), Some(stripes)) = (most, stripes)
        && slots.len() >= GROUPS_TELLING
        && count * 4 >= slots.len() * 3
    {
        let member = file_system.slot_members.iter().find(|(other, _)| *other == slot);
        let evidence = format!(
            "{count} of {} groups of {} start on the member in slot {slot}{}",
            slots.len(),
            Size(file_system.group_size),
            member.map_or(String::new(), |(_, name)| format!(", {name}"))
        );
        let cost = "that member takes the writes of nearly all free space and inodes".to_owned();
        // Wherever the layout begins anew, a group that is one unit longer begins on the next
        // member.
        let longer = (file_system.group_size / stripes.unit.max(1) + 1).saturating_mul(stripes.unit);
        let (make, _) = commands(device, file_system, stripes);
        let fix = format!("anew, with groups of a unit more: {make},agsize={longer}");
        report.find(FindingCode::GroupsTogether, &device.name, [evidence, cost, fix]);
    }
    let processors = facts.system.as_ref().and_then(|system| system.processors);
    let many = processors.map_or(GROUPS_MANY, |processors| {
        // Storage with stripes gets 32 to begin with.
        processors
            .saturating_mul(GROUPS_PER_PROCESSOR)
            .clamp(if stripes.is_some() { 64 } else { 32 }, GROUPS_MANY)
    });
    if file_system.groups > many {
        let on = processors.map_or(String::new(), |processors| format!(" for {processors} processors"));
        let evidence = format!("{} groups of {}{on}", file_system.groups, Size(file_system.group_size));
        let cost = format!("no file's run is longer than {}", Size(file_system.group_size));
        let fix = "make it anew with mkfs.xfs -d agcount=N, N about the number of processors".to_owned();
        report.find(FindingCode::ManyGroups, &device.name, [evidence, cost, fix]);
    }
}

fn old_format(device: &DeviceFacts, file_system: &FileSystemFacts, report: &mut AuditReport) {
    if file_system.version == 4 {
        let evidence = "its superblock says version 4".to_owned();
        let cost =
            "what changes its metadata by itself is not noticed, and Linux drops it in 2030".to_owned();
        let fix = "copy what is on it to one made by a mkfs.xfs of today (-m crc=1)".to_owned();
        report.find(FindingCode::OldFormat, &device.name, [evidence, cost, fix]);
    }
}
