//! Arrays of members described by hand, for tests of the decisions about them.

pub mod real;

use wattle_control::assemble::{Access, Assembly, Slot, assemble};
use wattle_control::facts::{
    BitmapContent, BitmapFacts, CLEAN, DeviceRole, Features, MemberFacts, SuperblockFacts, Uuid, Version,
};
use wattle_control::reason::Reason;
use wattle_control::{Code, Forced};

pub const EVENTS: u64 = 20;

/// Members of a healthy array of `level` over `n` members, device `i` in slot `i`.
pub fn array(level: i32, n: u16) -> Vec<MemberFacts> {
    let mut roles = vec![DeviceRole::Spare; 128];
    for slot in 0..n {
        roles[usize::from(slot)] = DeviceRole::Active(slot);
    }
    let layout = match level {
        0 => 1,
        5 | 6 => 2,
        10 => 0x102,
        _ => 0,
    };
    (0..n)
        .map(|slot| {
            let superblock = SuperblockFacts {
                container: None,
                version: Version::V12,
                set_uuid: Uuid([7; 16]),
                set_name: "host:data".to_owned(),
                level,
                layout,
                chunk_sectors: if level == 1 { 0 } else { 128 },
                size_sectors: if level > 0 { 14336 } else { 0 },
                raid_disks: u32::from(n),
                dev_number: u32::from(slot),
                device_uuid: Some(Uuid([slot as u8 + 1; 16])),
                roles: roles.clone(),
                events: EVENTS,
                ctime_secs: 1000,
                utime_secs: 2000,
                resync_offset: CLEAN,
                recovery_offset: None,
                data_offset_sectors: 2048,
                data_size_sectors: 14336,
                features: if level == 0 { Features::RAID0_LAYOUT } else { Features::default() },
                reshape: None,
            };
            MemberFacts::new(format!("m{slot}"), 16384, superblock)
        })
        .collect()
}

/// The same without some slots.
pub fn without(mut members: Vec<MemberFacts>, slots: &[usize]) -> Vec<MemberFacts> {
    let mut ix = 0;
    members.retain(|_| {
        ix += 1;
        !slots.contains(&(ix - 1))
    });
    members
}

pub fn each(members: &mut [MemberFacts], mut change: impl FnMut(&mut SuperblockFacts)) {
    members.iter_mut().for_each(|member| change(&mut member.superblock));
}

pub fn rebuilding(member: usize, valid_below_sectors: u64) -> Slot {
    Slot::Rebuilding { member, valid_below_sectors, by_bitmap: false }
}

pub fn decide(members: &[MemberFacts]) -> Assembly {
    assemble(members, Forced::default()).expect("there are members")
}

pub fn refusals(assembly: &Assembly) -> Vec<Code> {
    match &assembly.access {
        Access::Refused(reasons) => reasons.iter().map(Reason::code).collect(),
        other => panic!("expected a refusal, found {other:?}"),
    }
}

/// A bitmap's bits of which these are set.
pub fn bits_of(set: &[u64]) -> Vec<u8> {
    let mut bits = vec![0; 14];
    set.iter().for_each(|&bit| wattle_format::md::bitmap::set(&mut bits, bit, true));
    bits
}

/// Gives every member a bitmap of 112 regions of 128 sectors with these bits set, as new as the
/// superblocks.
pub fn with_bitmap(members: &mut [MemberFacts], events_cleared: u64, set: &[u64]) {
    let covered_sectors = if members[0].superblock.level == 10 { 2 * 14336 } else { 14336 };
    for member in members {
        member.superblock.features |= Features::BITMAP;
        member.bitmap = BitmapFacts::Version(4);
        member.bitmap_content = Some(BitmapContent {
            events: member.superblock.events,
            events_cleared,
            stale: false,
            region_sectors: 128,
            covered_sectors,
            sweep_secs: 5,
            bits: bits_of(set),
        });
    }
}
