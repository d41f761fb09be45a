//! Whether a device may join an array that is running, in which place, and what is written on it
//! before it does. Pure.
//!
//! - Nothing is taken that something is on: another array's superblock, a file system, a partition
//!   table, a volume group; unless the operator names the check. What was of this array before is
//!   taken back, and so are its spares: unless something else was put on them meanwhile, which
//!   a superblock often survives.
//! - What of a device of ours is evidence of that: everything that is recognised outside of its
//!   data, where the array never writes; and within its data what the array, taken as it is now,
//!   would not show at that place of any member. (Data that starts with the device, as with
//!   metadata 1.0 and 0.90, shows the array's own file system or partition table.) So a device is
//!   refused too if the array got a new file system while it was away, or was made over an old one:
//!   nothing tells that apart.
//! - Where the operator insists, the evidence goes, and all of the device is written: the program
//!   that put it there wrote more than that.
//! - A device that was away is brought up to date by the bitmap if it was whole, or was being
//!   brought up to date like that, and every bit since is still there (the rules are those of
//!   assembly); otherwise all of it is written.
//! - A device that went on without this array's members is refused: its changes would be lost
//!   silently. So is one that knows none of them: it may be just old, or not. Where the operator
//!   gives its changes up, it is another device from then on, with another number: what it went on
//!   with may come too, and would know it.
//! - What joins gets a device number that no member had: the number of a device that is away may
//!   come back with it. Which one that is its id says, so that two halves of an array do not both
//!   give the first that is free (see [`crate::md::lineage`]).
//!
//! Order of writes, for the code that carries it out: [`Admission::writes`] and the array's bitmap,
//! flush; then the superblocks of all, this one among them. A crash before leaves a device that is
//! no member.

use std::ops::Range;

use wattle_engine::geometry::{Level, LevelKind};
use wattle_engine::planted::{self, Bug};
use wattle_format::md::defaults;
use wattle_format::md::{
    DeviceFields, DeviceFlags, DeviceRole, Features, RawSuperblock, SUPERBLOCK_BYTES, SetError, Superblock,
    Uuid, Version, badblocks, ppl, super_offset_sectors,
};
use wattle_format::probe;

use crate::md::areas::beside_data;
use crate::md::assemble::MemberRecovery;
use crate::md::bitmap::BitmapBits;
use crate::md::commit::own_bytes;
use crate::md::create::PlannedWrite;
use crate::md::facts::{BitmapContent, SuperblockFacts};
use crate::md::lineage::{self, OwnBits, SeatedMember};
use crate::problem::{Check, Code, Forced, Problem};
use crate::signature::FoundSignature;
use crate::size::Iec;

/// A device that is offered to an array.
#[derive(Debug, Clone)]
pub struct OfferedDevice {
    /// As the operator named it.
    pub name: String,
    /// Whole sectors.
    pub size_sectors: u64,
    /// The smallest write it takes.
    pub logical_block_bytes: u32,
    /// Valid superblocks on it.
    pub superblocks: Vec<Superblock>,
    /// Where superblocks are that are not valid.
    pub damaged: Vec<FoundSignature>,
    /// Everything else that is recognised on it.
    pub signatures: Vec<FoundSignature>,
    /// What its bitmap says, if it has one of this array that can be read.
    pub bitmap: Option<BitmapContent>,
}

impl OfferedDevice {
    /// A device and what was found on it.
    #[must_use]
    pub fn new(
        name: &str,
        device: &wattle_rt::Device,
        superblocks: Vec<Superblock>,
        damaged: &[RawSuperblock],
        signatures: Vec<FoundSignature>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            size_sectors: device.size_bytes() / 512,
            logical_block_bytes: device.logical_block_bytes(),
            superblocks,
            damaged: damaged.iter().map(damaged_signature).collect(),
            signatures,
            bitmap: None,
        }
    }

    /// Its superblock of the array that this one is of.
    #[must_use]
    pub fn own(&self, template: &Superblock) -> Option<&Superblock> {
        self.superblocks.iter().find(|own| own.set_uuid() == template.set_uuid())
    }
}

/// A superblock that is valid, as something that is recognised.
pub(crate) fn superblock_signature(superblock: &Superblock) -> FoundSignature {
    FoundSignature {
        what: format!("md {} superblock", superblock.version()),
        offset_bytes: superblock.found_at_sectors() * 512,
        uuid: Some(superblock.set_uuid().to_string()),
        kind: None,
    }
}

/// A superblock that is not valid, as something that is recognised.
pub(crate) fn damaged_signature(raw: &RawSuperblock) -> FoundSignature {
    FoundSignature {
        what: format!("damaged md {} superblock", raw.fields().version()),
        offset_bytes: raw.fields().found_at_sectors() * 512,
        uuid: None,
        kind: None,
    }
}

/// A device that is part of the array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningDevice {
    /// As the operator named it.
    pub name: String,
    /// Its number in the role table.
    pub dev_number: u32,
    /// Its own id (1.x).
    pub device_uuid: Option<Uuid>,
    /// It waits for something to do.
    pub spare: bool,
}

/// The array as it is running.
#[derive(Debug, Clone)]
pub struct ArrayNow {
    /// The superblock of a member that is in sync, as it is on disk.
    pub template: Superblock,
    /// Every member and spare.
    pub devices: Vec<RunningDevice>,
    /// The whole members of slots.
    pub in_sync: Vec<SeatedMember>,
    /// Those when the array was assembled.
    pub in_sync_at_start: Vec<SeatedMember>,
    /// What devices that are out now were left with: superblocks that the array wrote on them since
    /// it was assembled, or found on them then.
    pub left_with: Vec<Superblock>,
    /// Slots without a member, or with one that failed.
    pub empty: Vec<u16>,
    /// Slots whose member is being replaced.
    pub replacing: Vec<u16>,
    /// What its bitmap says; `None` without one whose bits are believed.
    pub bitmap: Option<BitmapBits>,
    /// The smallest write that the array's clients may send to its members.
    pub logical_block_bytes: u32,
    /// What the device that is offered might show of the array's content.
    pub shown: Vec<FoundSignature>,
}

/// Where a device is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedSeat {
    /// Where it was, or in the first empty slot, or as a spare.
    Any,
    /// In this slot, which is empty.
    Slot(u16),
    /// To replace the member of this slot.
    Replace(u16),
    /// As a spare.
    Spare,
}

/// Where a device goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// Into this slot.
    Slot(u16),
    /// Beside the member of this slot.
    Replacement(u16),
    /// Nowhere yet.
    Spare,
}

/// A device that may join, and how.
#[derive(Debug, Clone)]
pub struct Admission {
    /// Where it goes.
    pub seat: Seat,
    /// What has to be written before it is current.
    pub recovery: MemberRecovery,
    /// Its number in the role table, for the superblocks of all.
    pub dev_number: u32,
    /// Its superblock, of the generation of [`ArrayNow::template`]: the next round writes it. With
    /// metadata 0.90 it is a spare until it is whole, since these cannot say how far a member is
    /// rebuilt.
    pub superblock: Superblock,
    /// What is written before any superblock, in order. Of the bitmap only its place is known here.
    pub writes: Vec<PlannedWrite>,
    /// Refusals that the operator has overridden.
    pub overridden: Vec<Problem>,
}

/// Decides whether `offer` may join the array and how. `device_uuid` is random, for a device that
/// was not of the array before.
///
/// # Errors
/// A [`Problem`]: there is no place for it, it is too small or its blocks are too large, or
/// something is on it.
pub fn admit(
    offer: &OfferedDevice,
    running: &ArrayNow,
    place: WantedSeat,
    device_uuid: Uuid,
    forced: Forced,
) -> Result<Admission, Problem> {
    let template = &running.template;
    let own = offer.own(template);
    let member = own.and_then(|own| running.devices.iter().find(|device| is_same(device, own, template)));
    let spare =
        member.filter(|device| device.spare && matches!(place, WantedSeat::Slot(_) | WantedSeat::Replace(_)));
    if let (Some(member), None) = (member, spare) {
        return Err(already_there(offer, member));
    }
    let mut overridden = Vec::new();
    let mut refuse = |problem: Problem| {
        let named = problem.force.is_some_and(|check| forced.has(check));
        if named {
            overridden.push(problem);
            Ok(())
        } else {
            Err(problem)
        }
    };

    let former = own.filter(|own| spare.is_none() && own.version() == template.version());
    let seat = find_seat(offer, running, place, former)?;
    check_blocks(offer, running)?;
    let bits = former.map_or(OwnBits::Unclear, |own| {
        lineage::own_bits(&facts(own), offer.bitmap.as_ref(), running.bitmap.as_ref())
    });
    let apart = former.filter(|own| went_on_alone(own, bits, running) || is_strange(own, running));
    if let Some(own) = apart {
        refuse(split_brain(offer, own, running, went_on_alone(own, bits, running)))?;
    }
    let foreign = foreign_signatures(offer, own, running);
    let superblocks = foreign_superblocks(offer, own, running);
    let is_ours = check_empty(offer, &superblocks, &foreign, &mut refuse)?;

    let by_regions = former.filter(|own| {
        is_ours && apart.is_none() && seat_of(own) == Some(seat) && lacks_only_bits(own, bits, running)
    });
    let fields = match by_regions {
        Some(own) => kept_fields(own),
        None => new_fields(offer, template, own.and_then(|own| own.device_uuid()).unwrap_or(device_uuid))?,
    };
    check_size(offer, template, &fields)?;
    // What is written over as a whole has nothing left of the member that it was. Devices that left
    // while it was out count that number out, and would count out the array, too.
    let stays_itself = |own: &Superblock| {
        apart.is_none()
            && (by_regions.is_some() || own.role().slot().is_none() || !template.version().is_1x())
    };
    let dev_number = match (spare, former) {
        (Some(spare), _) if is_only_one_with(spare.dev_number, running) => spare.dev_number,
        (None, Some(own)) if stays_itself(own) && is_free(own.dev_number(), running, seat) => {
            own.dev_number()
        }
        _ => free_number(running, device_uuid).ok_or_else(|| no_number(offer, template))?,
    };
    let recovery = if by_regions.is_some() { MemberRecovery::Regions } else { MemberRecovery::Full };
    let mut superblock = superblock(template, DeviceFields { dev_number, ..fields }, seat, recovery)
        .map_err(|error| cannot_say(offer, &error.to_string()))?;
    let bad_blocks_count = by_regions.is_some_and(|own| own.features().contains(Features::BAD_BLOCKS));
    // Until the new superblock is there the old one counts, and is believed only with what its list
    // names. Where the list stays in its place, the new superblock says whether it counts.
    let bad_blocks_kept = former.is_some_and(|own| own.bad_block_log() == superblock.bad_block_log());
    if bad_blocks_count {
        superblock
            .add_features(Features::BAD_BLOCKS)
            .map_err(|error| cannot_say(offer, &error.to_string()))?;
    }
    if let Some(error) = superblock.check(offer.size_sectors).first() {
        return Err(cannot_say(offer, &error.to_string()));
    }
    let mut writes = writes(offer, &superblock, &superblocks, bad_blocks_kept);
    if !foreign.is_empty() {
        writes.splice(0..0, zeros_over_signatures(offer, &superblock));
    }
    Ok(Admission { seat, recovery, dev_number: superblock.dev_number(), superblock, writes, overridden })
}

/// Whether a superblock is that of a device which is part of the array now, or a copy of it. 0.90
/// has no ids; numbers there follow slots, so that an old device may have the number of a new one.
fn is_same(device: &RunningDevice, own: &Superblock, template: &Superblock) -> bool {
    match (device.device_uuid, own.device_uuid()) {
        (Some(device), Some(own)) => device == own,
        _ => device.dev_number == own.dev_number() && own.events() + 1 >= template.events(),
    }
}

fn find_seat(
    offer: &OfferedDevice,
    running: &ArrayNow,
    place: WantedSeat,
    former: Option<&Superblock>,
) -> Result<Seat, Problem> {
    let no_place = |why: String, next: &str| {
        Err(Problem::new(Code::NoPlace, format!("{}: there is no place for it", offer.name), why, next)
            .of_member(&offer.name))
    };
    let redundant =
        Level::from_md(running.template.level()).is_some_and(|level| level.kind() != LevelKind::Striped);
    if !redundant {
        return no_place(
            "the array's level has no redundancy, and nothing to fill a new member from".to_owned(),
            "make an array with redundancy (`wattle create`) and copy the data",
        );
    }
    let is_empty = |slot: &u16| running.empty.contains(slot);
    match place {
        WantedSeat::Spare => Ok(Seat::Spare),
        WantedSeat::Any => {
            let was_in = former.and_then(|own| own.role().slot()).filter(is_empty);
            Ok(was_in.or_else(|| running.empty.first().copied()).map_or(Seat::Spare, Seat::Slot))
        }
        WantedSeat::Slot(slot) if is_empty(&slot) => Ok(Seat::Slot(slot)),
        WantedSeat::Slot(slot) => no_place(
            format!("slot {slot} is not empty"),
            "fail and remove the member in it first, or use `wattle replace`",
        ),
        WantedSeat::Replace(slot) if !running.template.version().is_1x() => no_place(
            format!("metadata 0.90 cannot say that the member of slot {slot} is being replaced"),
            "add it as a spare, then fail the member: the spare takes its place",
        ),
        WantedSeat::Replace(slot) if running.replacing.contains(&slot) => no_place(
            format!("the member of slot {slot} is being replaced already"),
            "wait until that is done",
        ),
        WantedSeat::Replace(slot) if running.in_sync.iter().any(|member| member.slot == slot) => {
            Ok(Seat::Replacement(slot))
        }
        WantedSeat::Replace(slot) => no_place(
            format!("slot {slot} has no whole member that could be replaced"),
            "use `wattle add`, which fills empty slots",
        ),
    }
}

/// The slot that a superblock says it is in.
fn seat_of(own: &Superblock) -> Option<Seat> {
    own.role().slot().filter(|_| !own.features().contains(Features::REPLACEMENT)).map(Seat::Slot)
}

/// Whether a device that was of the array was run without those that are in sync now.
fn went_on_alone(own: &Superblock, bits: OwnBits, running: &ArrayNow) -> bool {
    own.events() > running.template.events()
        || own.role().slot().is_some()
            && lineage::went_apart(&facts(own), bits, &running.in_sync, running.template.utime().secs)
            && !was_left_so(own, running)
}

/// Whether it may have been: it was in a slot, and nothing tells where it was since.
fn is_strange(own: &Superblock, running: &ArrayNow) -> bool {
    own.role().slot().is_some()
        && lineage::is_strange(&facts(own), &running.in_sync)
        && !was_left_so(own, running)
}

/// Whether a device has all but what bits stand for. The array must be the one that it left, and
/// not one that others made without it. It is that if the device is as this array left it; members
/// that are in sync now may have come back since, and be unknown to it. What left before the array
/// was assembled is judged as assembly judges it, by those that were in sync then.
fn lacks_only_bits(own: &Superblock, bits: OwnBits, running: &ArrayNow) -> bool {
    // Bits say what was written, not what was moved when the array was given another shape.
    let shape = |of: &Superblock| (of.level(), of.layout(), of.chunk_sectors(), of.raid_disks());
    running.bitmap.as_ref().is_some_and(|bitmap| own.events() >= bitmap.events_cleared)
        && shape(own) == shape(&running.template)
        && (own.recovery_offset().is_none() || own.features().contains(Features::RECOVERY_BITMAP))
        && (was_left_so(own, running)
            || lineage::knows_all(&facts(own), bits, witnesses(running), running.template.utime().secs))
}

fn facts(own: &Superblock) -> SuperblockFacts {
    SuperblockFacts::of(own)
}

fn witnesses(running: &ArrayNow) -> &[SeatedMember] {
    if planted::is(Bug::StrictWitnesses) { &running.in_sync } else { &running.in_sync_at_start }
}

/// Whether nothing but this array has written a device's superblock: whatever starts an array says
/// so in the superblocks of its members.
fn was_left_so(own: &Superblock, running: &ArrayNow) -> bool {
    !planted::is(Bug::StrictWitnesses)
        && running.left_with.iter().any(|was| {
            let of = |of: &Superblock| (of.events(), of.utime(), of.dev_number(), of.device_uuid());
            of(own) == of(was) && own.roles().eq(was.roles())
        })
}

fn check_blocks(offer: &OfferedDevice, running: &ArrayNow) -> Result<(), Problem> {
    if offer.logical_block_bytes <= running.logical_block_bytes {
        return Ok(());
    }
    let (own, array) = (offer.logical_block_bytes, running.logical_block_bytes);
    Err(Problem::new(
        Code::BlocksTooLarge,
        format!("{}: its logical blocks have {own} bytes, the array's {array}", offer.name),
        "clients of the array may write less than one of its blocks",
        format!("use a drive with blocks of at most {array} bytes (some can be reformatted)"),
    )
    .of_member(&offer.name))
}

/// What is recognised on a device and is not of this array.
fn foreign_signatures<'a>(
    offer: &'a OfferedDevice,
    own: Option<&Superblock>,
    running: &ArrayNow,
) -> Vec<&'a FoundSignature> {
    offer.signatures.iter().filter(|seen| !is_content(seen, own, running)).collect()
}

/// The superblocks on a device that are none of this array's, nor of an array that lies on it; how
/// an operator knows them, too.
fn foreign_superblocks(
    offer: &OfferedDevice,
    own: Option<&Superblock>,
    running: &ArrayNow,
) -> Vec<(FoundSignature, String)> {
    let others =
        offer.superblocks.iter().filter(|other| other.set_uuid() != running.template.set_uuid()).map(
            |other| {
                let known_as = format!("a member of array {} ({})", array_name(other), other.set_uuid());
                (superblock_signature(other), known_as)
            },
        );
    let damaged = offer.damaged.iter().map(|seen| (seen.clone(), seen.to_string()));
    others.chain(damaged).filter(|(seen, _)| !is_content(seen, own, running)).collect()
}

/// Whether something on a device is what the array has at that place.
fn is_content(seen: &FoundSignature, own: Option<&Superblock>, running: &ArrayNow) -> bool {
    own.is_some_and(|own| lies_in_data(own, seen)) && running.shown.contains(seen)
}

/// Whether something lies where a device with this superblock holds the array's content.
#[must_use]
pub fn lies_in_data(own: &Superblock, seen: &FoundSignature) -> bool {
    let start = own.data_offset_sectors();
    let end = start.saturating_add(own.size_sectors());
    (start..end).contains(&(seen.offset_bytes / 512))
}

/// Refuses a device that something is on which is not this array's, unless the operator insists.
/// Whether nothing is.
fn check_empty(
    offer: &OfferedDevice,
    superblocks: &[(FoundSignature, String)],
    foreign: &[&FoundSignature],
    refuse: &mut impl FnMut(Problem) -> Result<(), Problem>,
) -> Result<bool, Problem> {
    let mut found: Vec<_> = superblocks.iter().map(|(_, known_as)| known_as.clone()).collect();
    found.extend(foreign.iter().map(ToString::to_string));
    if found.is_empty() {
        return Ok(true);
    }
    refuse(
        Problem::new(
            Code::SignatureFound,
            format!("{}: it is not empty: {}", offer.name, found.join(", ")),
            "the array would write over it",
            "check that this is the right device; --force=signature uses it all the same",
        )
        .of_member(&offer.name)
        .forced_by(Check::Signature),
    )?;
    Ok(false)
}

fn array_name(superblock: &Superblock) -> String {
    superblock.md_minor().map_or_else(|| superblock.name(), |minor| format!("md{minor}"))
}

fn already_there(offer: &OfferedDevice, member: &RunningDevice) -> Problem {
    let role = if member.spare { "a spare" } else { "a member" };
    if offer.name == member.name {
        return Problem::new(
            Code::GivenTwice,
            format!("{}: it is {role} of this array already", offer.name),
            "a member counted twice is redundancy that is not there",
            "name another device",
        )
        .of_member(&offer.name);
    }
    Problem::new(
        Code::DuplicateRole,
        format!("{}: it is {}, {role} of this array, or a copy of it", offer.name, member.name),
        "a device has one place in an array",
        "name another device; or erase the copy's superblock first",
    )
    .of_member(&offer.name)
}

fn split_brain(offer: &OfferedDevice, own: &Superblock, running: &ArrayNow, is_sure: bool) -> Problem {
    let (events, array_events) = (own.events(), running.template.events());
    let (what, why) = if is_sure {
        (
            "it was run without the members of this array",
            format!(
                "it has {events} events and changes of its own, the array has {array_events}; what was written there would be lost"
            ),
        )
    } else {
        (
            "it knows none of the members of this array, and may have been run without them",
            format!(
                "it has {events} events, the array has {array_events}, and nothing tells whether it has changes of its own, which would be lost"
            ),
        )
    };
    Problem::new(
        Code::SplitBrain,
        format!("{}: {what}", offer.name),
        why,
        "look at it by itself first (`wattle cat`); --force=split-brain gives its changes up",
    )
    .of_member(&offer.name)
    .forced_by(Check::SplitBrain)
}

fn cannot_say(offer: &OfferedDevice, error: &str) -> Problem {
    Problem::new(
        Code::NoPlace,
        format!("{}: {error}", offer.name),
        "the array's metadata version cannot describe it as a member",
        "use another device",
    )
    .of_member(&offer.name)
}

fn no_number(offer: &OfferedDevice, template: &Superblock) -> Problem {
    cannot_say(offer, &format!("metadata {} has no device number left", template.version()))
}

/// What a device that comes back has and keeps.
fn kept_fields(own: &Superblock) -> DeviceFields {
    DeviceFields {
        dev_number: own.dev_number(),
        device_uuid: own.device_uuid().unwrap_or(Uuid([0; 16])),
        super_offset_sectors: own.found_at_sectors(),
        data_offset_sectors: own.data_offset_sectors(),
        data_size_sectors: own.data_size_sectors(),
        recovery_offset: None,
        replacement: false,
        bad_block_log: own.bad_block_log(),
        flags: own.device_flags(),
    }
}

/// What a new device has: its areas lie as the template's do, relative to its own superblock.
fn new_fields(
    offer: &OfferedDevice,
    template: &Superblock,
    device_uuid: Uuid,
) -> Result<DeviceFields, Problem> {
    let version = template.version();
    let data_offset_sectors = template.data_offset_sectors();
    let at =
        super_offset_sectors(version, offer.size_sectors).ok_or_else(|| too_small(offer, template, 0))?;
    let ppl = template.features().intersects(Features::PPL | Features::MULTIPLE_PPLS);
    let usable = defaults::usable_sectors(version, offer.size_sectors, data_offset_sectors, ppl);
    // With the superblock at the end, its areas lie before it and end the data.
    let data_size_sectors = match version {
        Version::V10 => {
            let first = first_area(template).min(0);
            usable.min(at.saturating_add_signed(first).saturating_sub(data_offset_sectors))
        }
        _ => usable,
    };
    Ok(DeviceFields {
        dev_number: 0,
        device_uuid,
        super_offset_sectors: at,
        data_offset_sectors,
        data_size_sectors,
        recovery_offset: None,
        replacement: false,
        bad_block_log: template.bad_block_log(),
        flags: DeviceFlags::default(),
    })
}

/// Where the first area beside a superblock begins, relative to it.
fn first_area(superblock: &Superblock) -> i64 {
    let bitmap = superblock.bitmap_offset_sectors().map(i64::from);
    let log = superblock.ppl().map(|area| i64::from(area.offset_sectors));
    let bad_blocks = superblock.bad_block_log().map(|area| i64::from(area.offset_sectors));
    [bitmap, log, bad_blocks].into_iter().flatten().min().unwrap_or(0)
}

fn too_small(offer: &OfferedDevice, template: &Superblock, usable_sectors: u64) -> Problem {
    let iec = |sectors: u64| Iec(sectors.saturating_mul(512));
    Problem::new(
        Code::TooSmall,
        format!(
            "{}: {} of data fit, and {} are needed",
            offer.name,
            iec(usable_sectors),
            iec(template.size_sectors())
        ),
        format!(
            "it has {} sectors, and the array uses {} from sector {} on",
            offer.size_sectors,
            template.size_sectors(),
            template.data_offset_sectors()
        ),
        "use a device that is at least as large as the array's others",
    )
    .of_member(&offer.name)
}

fn check_size(offer: &OfferedDevice, template: &Superblock, fields: &DeviceFields) -> Result<(), Problem> {
    let there = offer.size_sectors.saturating_sub(fields.data_offset_sectors).min(fields.data_size_sectors);
    if there < template.size_sectors() { Err(too_small(offer, template, there)) } else { Ok(()) }
}

/// Whether one device has this number. A spare that was away may find its number with another:
/// nothing says that it had one.
fn is_only_one_with(dev_number: u32, running: &ArrayNow) -> bool {
    running.devices.iter().filter(|device| device.dev_number == dev_number).count() == 1
}

/// Whether no number is in the way but that of the device which comes back with it.
fn is_free(dev_number: u32, running: &ArrayNow, seat: Seat) -> bool {
    let in_use = running.devices.iter().any(|device| device.dev_number == dev_number);
    let role = running.template.role_of(dev_number);
    !in_use
        && (!matches!(role, DeviceRole::Active(_))
            || matches!(seat, Seat::Slot(slot) if role == DeviceRole::Active(slot)))
}

/// A number behind the slots that no device has or had; of those that the table has room for the
/// one that a random id says, since another half of the array gives numbers too. If there is none,
/// one of a device that failed. In 0.90 numbers follow slots: there it is the first.
fn free_number(running: &ArrayNow, random: Uuid) -> Option<u32> {
    let template = &running.template;
    let in_use = |number: &u32| running.devices.iter().any(|device| device.dev_number == *number);
    let numbers = || (0..wattle_format::md::max_devices(template.version())).filter(|number| !in_use(number));
    let unused = |number: &u32| template.role_of(*number) == DeviceRole::Spare;
    let behind = || numbers().filter(|number| *number >= template.raid_disks()).filter(unused);
    let has_room = |number: &u32| template.version().is_1x() && *number < template.max_devices();
    let drawn = || {
        let offered: Vec<_> = behind().filter(has_room).collect();
        let first = u64::from_le_bytes(std::array::from_fn(|at| random.0[at]));
        offered.get(first.checked_rem(offered.len() as u64)? as usize).copied()
    };
    drawn()
        .or_else(|| behind().next())
        .or_else(|| numbers().find(unused))
        .or_else(|| numbers().find(|number| template.role_of(*number) == DeviceRole::Faulty))
}

fn superblock(
    template: &Superblock,
    fields: DeviceFields,
    seat: Seat,
    recovery: MemberRecovery,
) -> Result<Superblock, SetError> {
    let is_1x = template.version().is_1x();
    let in_place = seat != Seat::Spare && is_1x;
    let mut superblock = template.for_device(&DeviceFields {
        recovery_offset: in_place.then_some(0),
        replacement: in_place && matches!(seat, Seat::Replacement(_)),
        ..fields
    })?;
    let role = match seat {
        Seat::Slot(slot) | Seat::Replacement(slot) if is_1x => DeviceRole::Active(slot),
        _ => DeviceRole::Spare,
    };
    superblock.set_role(fields.dev_number, role)?;
    if in_place && recovery == MemberRecovery::Regions {
        superblock.add_features(Features::RECOVERY_BITMAP)?;
    }
    Ok(superblock)
}

/// What has to be there before the superblock says that it is.
fn writes(
    offer: &OfferedDevice,
    superblock: &Superblock,
    foreign: &[(FoundSignature, String)],
    bad_blocks_kept: bool,
) -> Vec<PlannedWrite> {
    let place = superblock.found_at_sectors() * 512;
    let is_ours = |old: &&Superblock| old.set_uuid() == superblock.set_uuid();
    let old = offer.superblocks.iter().filter(is_ours).map(superblock_signature);
    let mut writes: Vec<_> = old
        .chain(foreign.iter().map(|(seen, _)| seen.clone()))
        .filter(|old| old.offset_bytes != place)
        .map(|old| PlannedWrite {
            what: format!("zeros over the {}", old.what),
            offset_bytes: old.offset_bytes,
            bytes: vec![0; SUPERBLOCK_BYTES],
        })
        .collect();
    let has_log = superblock.features().intersects(Features::PPL | Features::MULTIPLE_PPLS);
    let log = superblock.ppl().filter(|_| has_log).and_then(|area| {
        let len_sectors = u64::from(area.size_sectors);
        Some(beside_data(superblock, i32::from(area.offset_sectors), len_sectors)?.start * 512)
    });
    if let Some(offset_bytes) = log {
        let bytes = ppl::empty_area(&superblock.stored_uuid(), ppl::HEADER_BYTES);
        writes.push(PlannedWrite { what: "partial parity log".to_owned(), offset_bytes, bytes });
    }
    let bad_blocks = superblock.bad_block_log().filter(|_| !bad_blocks_kept);
    let bad_blocks = bad_blocks
        .and_then(|area| beside_data(superblock, area.offset_sectors, u64::from(area.size_sectors)));
    if let Some(place) = bad_blocks {
        let bytes = badblocks::empty_area((place.end - place.start) as usize * 512);
        let offset_bytes = place.start * 512;
        writes.push(PlannedWrite { what: "bad-block log".to_owned(), offset_bytes, bytes });
    }
    writes
}

/// Zeros wherever something may be recognised: what the operator has given up is not found again
/// when the device comes back one day. Its superblock is written anyway.
fn zeros_over_signatures(offer: &OfferedDevice, superblock: &Superblock) -> Vec<PlannedWrite> {
    let block = u64::from(offer.logical_block_bytes);
    let size_bytes = offer.size_sectors * 512 / block * block;
    let place = superblock.found_at_sectors() * 512;
    let behind = place + (own_bytes(superblock) as u64).next_multiple_of(block);
    let zeros = |range: Range<u64>| PlannedWrite {
        what: "zeros over what was recognised".to_owned(),
        offset_bytes: range.start,
        bytes: vec![0; (range.end - range.start) as usize],
    };
    probe::ranges(size_bytes)
        .into_iter()
        .map(|range| range.start / block * block..range.end.next_multiple_of(block))
        .flat_map(|range| [range.start..range.end.min(place), range.start.max(behind)..range.end])
        .filter(|range| !range.is_empty())
        .map(zeros)
        .collect()
}
