//! Whether a device was in the array together with those that are its members now, or was run
//! without them: what its own superblock says of them. Pure.
//!
//! - A slot says nothing of that: a half of an array that was run alone gets other devices in the
//!   slots of the other half's members. So members are known by device number, and by device UUID
//!   where one of them may be the device itself. Least of all says its own slot, which a device
//!   always knows.
//! - Metadata 0.90 has numbers that follow slots, and firmware numbers drives anew: there the slots
//!   of others are all there is.
//! - Numbers below `raid_disks` are given when an array is created, so such a member was there from
//!   the start: a device that does not count on it went on without it. Other numbers are given to
//!   what joins, so a device may not know one because it had left before. (Linux gives them again
//!   when they are free.)

use wattle_format::md::{DeviceRole, Uuid};

use super::facts::SuperblockFacts;

/// A member of the array as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeatedMember {
    /// Where it is.
    pub slot: u16,
    /// Its number in the role table.
    pub dev_number: u32,
    /// Its own id (1.x).
    pub device_uuid: Option<Uuid>,
}

impl SeatedMember {
    /// The device of a superblock, in a slot.
    #[must_use]
    pub fn new(own: &SuperblockFacts, slot: u16) -> Self {
        Self { slot, dev_number: own.dev_number, device_uuid: own.device_uuid }
    }
}

/// What a superblock says of a device that is a member now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is a member, where it is now.
    Working,
    /// The device was run without it.
    Out,
    /// Nothing: it may have joined since.
    Unknown,
    /// Nothing: it has the place or the number of the device itself.
    InItsPlace,
}

/// What a superblock says of a member.
pub(crate) fn standing(own: &SuperblockFacts, member: &SeatedMember) -> Standing {
    if !numbers_tell(own) {
        return match () {
            () if own.own_role() == DeviceRole::Active(member.slot) => Standing::InItsPlace,
            () if own.fills(member.slot) => Standing::Working,
            () => Standing::Out,
        };
    }
    if own.dev_number == member.dev_number {
        // An earlier state of a member was with it; another device with its number need not be.
        let is_same = own.device_uuid.is_some() && own.device_uuid == member.device_uuid;
        return if is_same { Standing::Working } else { Standing::InItsPlace };
    }
    match own.role_of(member.dev_number) {
        DeviceRole::Active(slot) if slot == member.slot => Standing::Working,
        DeviceRole::Faulty => Standing::Out,
        _ if member.dev_number < own.raid_disks => Standing::Out,
        _ => Standing::Unknown,
    }
}

/// Whether a device that was in a slot was run without all of the array's members, so that it has
/// changes that they lack. `utime_secs` is when the array's superblocks were last written.
///
/// A device that merely left earlier knows those that stayed. Where none of them stayed, the array
/// may be what others made of it one by one; but not if the device counts one of them out, or
/// counted on no other device, or was written after all of them.
pub(crate) fn went_apart(own: &SuperblockFacts, members: &[SeatedMember], utime_secs: u64) -> bool {
    let says = |wanted| members.iter().any(|member| standing(own, member) == wanted);
    if members.is_empty() || says(Standing::Working) {
        return false;
    }
    says(Standing::Out) || numbers_tell(own) && is_alone(own) || own.utime_secs > utime_secs
}

/// Whether a device that was away lacks nothing of these members but what they wrote since: it
/// knows each of them, and nothing wrote its superblock after theirs.
pub(crate) fn knows_all(own: &SuperblockFacts, members: &[SeatedMember], utime_secs: u64) -> bool {
    !members.is_empty()
        && numbers_tell(own)
        && own.utime_secs <= utime_secs
        && members.iter().all(|member| standing(own, member) == Standing::Working)
}

/// Whether a device number is that of one device.
fn numbers_tell(own: &SuperblockFacts) -> bool {
    own.version.is_1x() && own.container.is_none()
}

/// Whether a superblock counts on no other device.
fn is_alone(own: &SuperblockFacts) -> bool {
    let is_other = |(number, role): (u32, &DeviceRole)| {
        number != own.dev_number && matches!(role, DeviceRole::Active(_))
    };
    !(0..).zip(&own.roles).any(is_other)
}
