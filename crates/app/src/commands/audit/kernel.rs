//! Arrays as the kernel knows them, where their members cannot be read: for an audit without root,
//! and of what was collected of a system.

use std::collections::BTreeSet;

use wattle_advise::audit::AuditFacts;
use wattle_advise::audit::facts::{ArrayFacts, ArrayMember, DeviceFacts, DeviceOrigin, MemberRole};
use wattle_advise::limits::Scheme;

use super::system::SystemRoot;

/// Chunks are no larger, whatever a file says.
const CHUNK_MAX: u64 = 1 << 40;

/// The array that has one of these members.
pub fn find(facts: &AuditFacts, members: &BTreeSet<String>) -> Option<usize> {
    let is_one = |array: &ArrayFacts| {
        array.members.iter().any(|member| members.contains(&facts.devices[member.device].name))
    };
    facts.arrays.iter().position(is_one)
}

/// Makes an array of what /sys says of it; `None` if that is not enough.
pub fn make(
    system: &SystemRoot,
    facts: &mut AuditFacts,
    node: &str,
    members: &BTreeSet<String>,
) -> Option<usize> {
    let dir = format!("sys/block/{node}/md");
    let level = system.text(&format!("{dir}/level"))?;
    let number = |file: &str| system.number(&format!("{dir}/{file}"));
    let slots = u32::try_from(number("raid_disks")?).ok()?;
    let layout = number("layout").unwrap_or(0);
    // RAID 10: near copies in the low byte, far ones in the next.
    let (near, far) = (layout & 0xff, layout >> 8 & 0xff);
    let all = slots.max(1);
    let (scheme, data_drives) = match level.as_str() {
        "raid4" | "raid5" => (Scheme::Parity { parities: 1 }, slots.checked_sub(1)?),
        "raid6" => (Scheme::Parity { parities: 2 }, slots.checked_sub(2)?),
        "raid1" => (Scheme::Mirrored { copies: all, far: false }, 1),
        "raid10" => {
            let copies = u32::try_from(near.checked_mul(far)?).ok()?;
            let near = u32::try_from(near).ok().filter(|near| *near > 0)?;
            let data = if slots.is_multiple_of(near) { slots / near } else { slots };
            (Scheme::Mirrored { copies, far: far > 1 && layout >> 16 == 0 }, data)
        }
        "raid0" => (Scheme::Striped, slots),
        "linear" => (Scheme::Striped, 1),
        _ => return None,
    };
    let used = number("component_size").map(|kib| kib.saturating_mul(1024)).filter(|used| *used > 0);
    let found: Vec<_> = members.iter().filter_map(|name| member(system, facts, &dir, name, used)).collect();
    facts.arrays.push(ArrayFacts {
        name: node.to_owned(),
        level,
        scheme,
        chunk: number("chunk_size").filter(|chunk| *chunk <= CHUNK_MAX).unwrap_or(0),
        data_drives,
        slots,
        missing: 0,
        members: found,
        metadata: system.text(&format!("{dir}/metadata_version")).unwrap_or_default(),
        bitmap: None,
        log: None,
        sync: None,
        refused: None,
        scrubbed: None,
        running: None,
        served: false,
    });
    Some(facts.arrays.len() - 1)
}

fn member(
    system: &SystemRoot,
    facts: &mut AuditFacts,
    dir: &str,
    name: &str,
    used: Option<u64>,
) -> Option<ArrayMember> {
    let device = device(system, facts, name)?;
    let state = system.text(&format!("{dir}/dev-{name}/state")).unwrap_or_default();
    let is = |word: &str| state.split(',').any(|state| state == word);
    let role = match () {
        () if is("faulty") => MemberRole::Failed("the kernel says that it is faulty".to_owned()),
        () if is("journal") => MemberRole::Journal,
        () if is("spare") => MemberRole::Spare,
        () => MemberRole::Active,
    };
    let start = system.number(&format!("{dir}/dev-{name}/offset")).map(|sectors| sectors.saturating_mul(512));
    Some(ArrayMember { device, role, start, used, bad_sectors: 0 })
}

/// Adds a drive that could not be read, and its partitions.
pub fn drive(system: &SystemRoot, facts: &mut AuditFacts, name: &str) {
    if device(system, facts, name).is_none() {
        return;
    }
    for partition in system.names(&format!("sys/block/{name}")) {
        if system.has(&format!("sys/block/{name}/{partition}/start")) {
            device(system, facts, &partition);
        }
    }
}

/// The device of that name, which becomes one of the facts if it is not yet.
fn device(system: &SystemRoot, facts: &mut AuditFacts, name: &str) -> Option<usize> {
    if let Some(ix) = facts.devices.iter().position(|device| device.name == name) {
        return Some(ix);
    }
    let sectors = |path: &str| system.number(path).map(|sectors| sectors.saturating_mul(512));
    let (size, origin) = if system.has(&format!("sys/block/{name}")) {
        (sectors(&format!("sys/block/{name}/size"))?, DeviceOrigin::Drive)
    } else {
        let drives = system.names("sys/block");
        let drive =
            drives.into_iter().find(|drive| system.has(&format!("sys/block/{drive}/{name}/start")))?;
        let start = sectors(&format!("sys/block/{drive}/{name}/start"))?;
        let size = sectors(&format!("sys/block/{drive}/{name}/size"))?;
        (size, DeviceOrigin::Partition { of: device(system, facts, &drive)?, start })
    };
    let name = name.to_owned();
    facts.devices.push(DeviceFacts { name, size, origin, file_system: None, queue: None, drive: None });
    Some(facts.devices.len() - 1)
}
