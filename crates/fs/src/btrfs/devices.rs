//! The devices of a file system: which of those given are its own, which lag behind, and which are
//! not here.
//!
//! Each device has a superblock with the identifier of the file system, its own number and its own
//! identifier. The newest superblock counts. A device whose superblock is older was away while the
//! others were written: what is on it is used only where it proves to be what is looked for, or
//! where nothing else has it.
//!
//! A file system that was made from a seed has the seed among its devices, with the identifier that
//! it has as a file system of its own.

use std::cmp::Reverse;
use std::rc::Rc;

use crate::btrfs::superblock::{DeviceItem, Superblock};
use crate::devices::{FsDevice, FsDeviceState};
use crate::error::{Error, Note};
use crate::source::{ByteSource, GivenSource};

/// The number of a device that is being filled to replace another one. It gets that one's number
/// and identifier at the end.
const REPLACEMENT: u64 = 0;

/// The devices that are here.
pub struct Devices {
    here: Vec<DeviceHere>,
    /// Identifiers that headers of blocks may have: the file system's, and those of seeds.
    block_uuids: Vec<[u8; 16]>,
    /// The generation of the newest superblock.
    newest: u64,
}

/// A device that is here, and is used.
struct DeviceHere {
    item: DeviceItem,
    source: Rc<ByteSource>,
    generation: u64,
    /// Others were written since.
    is_stale: bool,
    /// It is of another file system, from which this one was made.
    is_seed: bool,
    /// Which of those given.
    given: usize,
}

/// The devices of a file system, with its superblock, and those that are not used.
pub struct Gathered {
    pub superblock: Superblock,
    pub devices: Devices,
    /// Given, and not used.
    pub unused: Vec<FsDevice>,
    /// What there is to say if their superblocks do not name the same log.
    pub logs_differ: Option<Note>,
}

/// A superblock that was read, of which of those given.
type Found<'a> = (&'a GivenSource, Superblock);

/// Which of the devices given belong to the file system with that identifier.
///
/// # Errors
/// Two devices say different things of the same moment.
pub fn gather(sources: &[GivenSource], uuid: [u8; 16]) -> Result<Gathered, Error> {
    let all = sources.iter().filter_map(|given| Some((given, Superblock::read(&given.1).ok()?)));
    let (own, others): (Vec<Found<'_>>, Vec<Found<'_>>) =
        all.partition(|(_, superblock)| superblock.uuid == uuid);
    let (own, replacements): (Vec<Found<'_>>, Vec<Found<'_>>) =
        own.into_iter().partition(|(_, superblock)| superblock.device.id != REPLACEMENT);
    let seeds = others.into_iter().filter(|(_, superblock)| superblock.is_seed).collect();
    let unused_as = |state| move |((given, _), superblock): &Found<'_>| unused(*given, superblock, state);
    let mut not_used: Vec<FsDevice> =
        replacements.iter().map(unused_as(FsDeviceState::Replacement)).collect();
    let (own, mut twice) = each_once(own)?;
    let (seeds, seeds_twice) = each_once(seeds)?;
    twice.extend(seeds_twice);
    not_used.extend(twice.iter().map(unused_as(FsDeviceState::Twice)));

    let what = "none of it has a superblock with the number of a device";
    let none = Error::Damaged { structure: "btrfs superblock", at: 0, what };
    let newest = own.iter().map(|(_, superblock)| superblock).max_by_key(|found| age(found));
    let newest = newest.ok_or(none)?.clone();
    for (_, superblock) in &own {
        if superblock.generation == newest.generation && !superblock.agrees_with(&newest) {
            return Err(disagree(superblock, &newest));
        }
    }
    let logs_differ = logs_differ(&own, &newest);
    let mut block_uuids = vec![newest.metadata_uuid];
    block_uuids.extend(seeds.iter().map(|(_, superblock)| superblock.metadata_uuid));
    let here = |is_seed: bool| {
        move |((given, source), superblock): Found<'_>| DeviceHere {
            item: superblock.device,
            source: source.clone(),
            generation: superblock.generation,
            is_stale: !is_seed && superblock.generation < newest.generation,
            is_seed,
            given: *given,
        }
    };
    let generation = newest.generation;
    let superblock = newest.clone();
    let here = own.into_iter().map(here(false)).chain(seeds.into_iter().map(here(true))).collect();
    let devices = Devices { here, block_uuids, newest: generation };
    Ok(Gathered { superblock, devices, unused: not_used, logs_differ })
}

/// What orders superblocks by how much they know, the same whatever order they are given in. Among
/// equals Linux takes the device with the lowest number; one that has a log comes before that.
fn age(found: &Superblock) -> impl Ord + use<> {
    let is_first = found.copied.is_none();
    (found.generation, is_first, found.log_tree.is_some(), Reverse(found.device.id))
}

/// A flush writes where the log is into the first superblock of every device, and Linux goes on
/// where only one of them takes that: after a crash the others have no log, or an older one.
fn logs_differ(own: &[Found<'_>], used: &Superblock) -> Option<Note> {
    let others = own.iter().map(|(_, superblock)| superblock);
    let mut others = others.filter(|other| other.generation == used.generation && other.copied.is_none());
    let differs = others.any(|other| other.log_tree != used.log_tree);
    (differs && used.copied.is_none()).then_some(Note::DeviceLogsDiffer { id: used.device.id })
}

/// Of each device the newest; and the others, which are copies of it.
fn each_once(mut found: Vec<Found<'_>>) -> Result<(Vec<Found<'_>>, Vec<Found<'_>>), Error> {
    // The first one given is the first among those of one age.
    found.sort_by_key(|((given, _), superblock)| (Reverse(superblock.generation), *given));
    let (mut once, mut twice): (Vec<Found<'_>>, Vec<Found<'_>>) = Default::default();
    for (given, superblock) in found {
        match once.iter().find(|(_, other)| other.device.uuid == superblock.device.uuid) {
            None => once.push((given, superblock)),
            Some((_, other)) if other.generation == superblock.generation => {
                if !other.agrees_with(&superblock) || other.log_tree != superblock.log_tree {
                    return Err(disagree(&superblock, other));
                }
                twice.push((given, superblock));
            }
            Some(_) => twice.push((given, superblock)),
        }
    }
    once.sort_by_key(|((given, _), _)| *given);
    Ok((once, twice))
}

fn disagree(one: &Superblock, other: &Superblock) -> Error {
    Error::DevicesDisagree { one: one.device.id, other: other.device.id, generation: one.generation }
}

fn unused(given: usize, superblock: &Superblock, state: FsDeviceState) -> FsDevice {
    let DeviceItem { id, size_bytes, uuid } = superblock.device;
    let generation = Some(superblock.generation);
    FsDevice { id, uuid, size_bytes, state, generation, given: Some(given) }
}

impl Devices {
    /// The place among those that are here of the device with that number and identifier.
    pub fn find(&self, id: u64, uuid: [u8; 16]) -> Option<usize> {
        self.here.iter().position(|device| (device.item.id, device.item.uuid) == (id, uuid))
    }

    pub fn source(&self, ix: usize) -> &ByteSource {
        &self.here[ix].source
    }

    pub fn is_stale(&self, ix: usize) -> bool {
        self.here[ix].is_stale
    }

    /// Whether the device is the first of those given.
    pub fn is_first(&self, ix: usize) -> bool {
        self.here[ix].given == 0
    }

    pub fn id(&self, ix: usize) -> u64 {
        self.here[ix].item.id
    }

    /// Whether the header of a block of this file system may have that identifier.
    pub fn is_block_uuid(&self, uuid: [u8; 16]) -> bool {
        self.block_uuids.contains(&uuid)
    }

    /// What those that are here say of themselves.
    pub fn items(&self) -> Vec<DeviceItem> {
        self.here.iter().filter(|here| !here.is_seed).map(|here| here.item).collect()
    }

    /// The sizes of all together.
    pub fn size_bytes(&self) -> u64 {
        self.here.iter().map(|device| device.source.size()).fold(0, u64::saturating_add)
    }

    /// The devices that the file system lists, here or not, and those that are here and that it
    /// does not list; by number.
    pub fn report(&self, listed: &[DeviceItem], unused: Vec<FsDevice>) -> Vec<FsDevice> {
        let listed_device = |item: &DeviceItem| {
            let here = self.find(item.id, item.uuid).map(|ix| &self.here[ix]);
            let state = match here {
                None => FsDeviceState::Missing,
                Some(here) if here.is_seed => FsDeviceState::Seed,
                Some(here) if here.is_stale => FsDeviceState::Stale { newest: self.newest },
                Some(_) => FsDeviceState::InUse,
            };
            FsDevice {
                id: item.id,
                uuid: item.uuid,
                size_bytes: item.size_bytes,
                state,
                generation: here.map(|here| here.generation),
                given: here.map(|here| here.given),
            }
        };
        let is_listed = |here: &DeviceItem| listed.iter().any(|item| item.uuid == here.uuid);
        // A seed that is here is perhaps the seed of another file system.
        let unlisted = self.here.iter().filter(|here| !here.is_seed && !is_listed(&here.item));
        let unlisted = unlisted.map(|here| FsDevice {
            id: here.item.id,
            uuid: here.item.uuid,
            size_bytes: here.item.size_bytes,
            state: FsDeviceState::NotListed,
            generation: Some(here.generation),
            given: Some(here.given),
        });
        let mut report: Vec<FsDevice> = listed.iter().map(listed_device).chain(unlisted).collect();
        let is_seed_in_use = |device: &FsDevice| report.iter().any(|listed| listed.uuid == device.uuid);
        let unused: Vec<FsDevice> =
            unused.into_iter().filter(|device| is_known(device, is_seed_in_use(device))).collect();
        report.extend(unused);
        report.sort_by_key(|device| (device.id, device.given));
        report
    }

    /// What there is to say of them.
    pub fn notes(&self, report: &[FsDevice], size_bytes: u64) -> Vec<Note> {
        let mut notes = Vec::new();
        for device in report {
            let (id, uuid) = (device.id, device.uuid);
            notes.extend(match device.state {
                FsDeviceState::InUse | FsDeviceState::Seed => None,
                FsDeviceState::Missing => Some(Note::DeviceMissing { id, uuid }),
                FsDeviceState::Stale { newest } => {
                    let generation = device.generation.unwrap_or(0);
                    Some(Note::DeviceStale { id, generation, newest })
                }
                FsDeviceState::Twice => Some(Note::DeviceTwice { id }),
                FsDeviceState::Replacement => Some(Note::DeviceReplacement),
                FsDeviceState::NotListed => Some(Note::DeviceNotListed { id }),
            });
        }
        match &self.here[..] {
            [only] if report.len() == 1 => notes.extend(only.source.cut_off(size_bytes)),
            here => notes.extend(here.iter().filter_map(|here| {
                let DeviceItem { id, size_bytes, .. } = here.item;
                let there_bytes = here.source.size();
                (size_bytes > there_bytes).then_some(Note::DeviceCutOff { id, size_bytes, there_bytes })
            })),
        }
        notes
    }
}

/// Whether a device that is not used is worth a word: of seeds that are given twice only those of
/// this file system are.
fn is_known(device: &FsDevice, in_use: bool) -> bool {
    device.state != FsDeviceState::Twice || in_use
}
