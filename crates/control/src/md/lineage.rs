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
//!   what joins, so a device may not know one because it had left before.
//! - Nor does a number tell all: it is given again once it is free, and for each half of an array
//!   the numbers of the other half's members are. Where every newcomer gets the first one that is
//!   free, as in Linux, it is the very number of a member that is away, in the same slot.
//! - What is written over as a whole gets another number than it had: devices that left while it
//!   was out have the old one as one that is out, and would count out an array that they never
//!   left.
//!
//! So a device that is older than the array comes back by the bitmap alone only if the bitmaps say
//! the same of it ([`own_bits`]). They can, since nothing clears a bit while a member is out, and
//! `events_cleared` says in which generation bits were cleared last:
//!
//! 1. What left in generation N has the array's own `events_cleared`: each superblock that is
//!    written comes with a bitmap's header that has it. Where the array was whole again without the
//!    device, and bits were cleared, `events_cleared` is above N, and all of it is written.
//! 2. It has no bit that the array does not have, for none was cleared since it left. (Those which
//!    it does not have are what it missed.) So what is written on it covers what it wrote itself.
//! 3. In the generation in which it left copies may differ: bits were being cleared, and their
//!    writes wait in the caches of drives, or one reached this device first. If the array's
//!    `events_cleared` is N, neither of these says anything. As Linux takes a generation back when
//!    an array turns clean, N and N − 1 are one.
//! 4. In a crash a bit may have been set on one device only. That device is not clean.
//! 5. What is being filled did not go on by itself, and on what joins mdadm sets every bit.
//!
//! A device that differs has a history of its own, and what it wrote there would be lost. Only
//! where something else explains it as well (4, 5), or where its bits cannot be read, is it taken
//! for one that may lack anything.

use wattle_format::md::{DeviceRole, Uuid};

use super::bitmap::BitmapBits;
use super::facts::{BitmapContent, CLEAN, SuperblockFacts};

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

/// What a device's own bitmap says of where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnBits {
    /// Nothing that it would not if it was with the array until it left.
    WithArray,
    /// Elsewhere: bits were cleared or set there that are not in the array's history.
    Apart,
    /// Nothing that is certain.
    Unclear,
}

/// What the bitmap of a device says beside the array's, which it must have been written with.
pub(crate) fn own_bits(
    own: &SuperblockFacts,
    content: Option<&BitmapContent>,
    array: Option<&BitmapBits>,
) -> OwnBits {
    let is_true = |content: &&BitmapContent| !content.stale && content.events >= own.events;
    let Some((content, array)) = content.filter(is_true).zip(array.filter(|array| !array.stale)) else {
        return OwnBits::Unclear;
    };
    let regions = &array.regions;
    let is_whole = own.recovery_offset.is_none();
    match () {
        () if array.events_cleared.saturating_add(1) >= own.events => OwnBits::WithArray,
        () if content.events_cleared != array.events_cleared && is_whole => OwnBits::Apart,
        () if content.events_cleared != array.events_cleared => OwnBits::Unclear,
        () if !content.is_laid_out_as(regions) => OwnBits::Unclear,
        () if content.set().all(|region| regions.contains(region)) => OwnBits::WithArray,
        () if is_whole && own.resync_offset == CLEAN => OwnBits::Apart,
        () => OwnBits::Unclear,
    }
}

/// Whether a device that was in a slot was run without all of the array's members, so that it has
/// changes that they lack. `utime_secs` is when the array's superblocks were last written.
///
/// A device that merely left earlier knows those that stayed. Where none of them stayed, the array
/// may be what others made of it one by one; but not if the device counts one of them out, or
/// counted on no other device, or was written after all of them.
pub(crate) fn went_apart(
    own: &SuperblockFacts,
    bits: OwnBits,
    members: &[SeatedMember],
    utime_secs: u64,
) -> bool {
    let says = |wanted| members.iter().any(|member| standing(own, member) == wanted);
    if members.is_empty() {
        return false;
    }
    if bits == OwnBits::Apart {
        return true;
    }
    if says(Standing::Working) {
        return false;
    }
    says(Standing::Out) || own.container.is_none() && is_alone(own) || own.utime_secs > utime_secs
}

/// Whether nothing tells a device that left early from one that was run without these members: it
/// knows none of them. All that was there when it left may have been replaced since; and what it
/// went on without, but joined late, its table has as a number that is free.
pub(crate) fn is_strange(own: &SuperblockFacts, members: &[SeatedMember]) -> bool {
    let is_known = |member: &SeatedMember| standing(own, member) == Standing::Working;
    numbers_tell(own) && !members.iter().any(is_known)
}

/// Whether a device that was away lacks nothing of these members but what they have bits for: it
/// knows each of them, its bitmap says so, and nothing wrote its superblock after theirs.
pub(crate) fn knows_all(
    own: &SuperblockFacts,
    bits: OwnBits,
    members: &[SeatedMember],
    utime_secs: u64,
) -> bool {
    !members.is_empty()
        && bits == OwnBits::WithArray
        && numbers_tell(own)
        && own.utime_secs <= utime_secs
        && members.iter().all(|member| standing(own, member) == Standing::Working)
}

/// Whether a device number is that of one device.
pub(crate) fn numbers_tell(own: &SuperblockFacts) -> bool {
    own.version.is_1x() && own.container.is_none()
}

/// Whether a superblock counts on no other device.
fn is_alone(own: &SuperblockFacts) -> bool {
    let is_other = |(number, role): (u32, &DeviceRole)| {
        number != own.dev_number && matches!(role, DeviceRole::Active(_))
    };
    !(0..).zip(&own.roles).any(is_other)
}
