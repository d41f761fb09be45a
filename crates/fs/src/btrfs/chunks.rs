//! From the logical space to the devices: chunks, each on one or several of them.
//!
//! A chunk lies on its devices in stripes of 64 KiB, or in one piece where it is not striped. Of
//! each of its parts there are as many ways to read it as there are copies, or a direct one and
//! those by way of parity.

use std::collections::BTreeMap;

use crate::btrfs::devices::Devices;
use crate::btrfs::parity;
use crate::btrfs::superblock::Superblock;
use crate::btrfs::tree::{ItemKey, KEY_BYTES};
use crate::bytes::{le16, le64, uuid_at};
use crate::error::Error;

const HEADER_BYTES: usize = 48;
const STRIPE_BYTES: usize = 32;

/// What lies on a device before the next one follows, where chunks are striped.
const COLUMN_BYTES: u64 = 64 << 10;

/// Kinds of redundancy in a chunk's type.
const RAID0: u64 = 0x8;
const RAID1: u64 = 0x10;
const DUP: u64 = 0x20;
const RAID10: u64 = 0x40;
const RAID5: u64 = 0x80;
const RAID6: u64 = 0x100;
const RAID1C3: u64 = 0x200;
const RAID1C4: u64 = 0x400;
const PROFILES: u64 = 0x7f8;

/// The first three bits of a type are what the chunk is for: data, the chunk tree, other trees.
const USES: u64 = 0x7;

/// Columns of data that Q can tell apart.
const WEIGHTS: usize = 255;

/// The map.
#[derive(Debug, Default)]
pub struct Chunks {
    /// By their logical start.
    chunks: BTreeMap<u64, Chunk>,
}

#[derive(Debug)]
struct Chunk {
    len: u64,
    layout: Layout,
    /// Where its columns start.
    columns: Vec<Place>,
}

/// How the bytes of a chunk lie on its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// All on each.
    Copies,
    /// In turn on groups of so many, all on each of a group.
    Striped { copies: usize },
    /// In turn on all but so many, which have parity and change from row to row.
    Parity { parities: usize },
}

/// A place on a device.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Which of those here, if it is.
    device: Option<usize>,
    /// Its number.
    id: u64,
    offset: u64,
}

impl Place {
    fn plus(self, bytes: u64) -> Self {
        // What lies beyond any device is an error when it is read.
        Self { offset: self.offset.saturating_add(bytes), ..self }
    }
}

/// A part of a chunk that lies in one piece wherever it is.
#[derive(Debug)]
pub struct Piece {
    /// In bytes.
    pub len: u64,
    /// Its copies; or with parity the data of its row, by column.
    places: Vec<Place>,
    /// Where P and Q of its row are.
    parity: Vec<Place>,
    /// With parity, its own column.
    column: usize,
}

/// A way to read a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From where it is.
    Direct(usize),
    /// From P and all other data.
    ByP,
    /// From Q and all other data.
    ByQ,
    /// From P, Q and all other data but that of a further column.
    ByBoth(usize),
}

fn damaged(logical: u64, what: &'static str) -> Error {
    Error::Damaged { structure: "btrfs chunk", at: logical, what }
}

impl Layout {
    /// Of a type and a number of columns; `None` if they do not fit.
    fn of(kind: u64, columns: usize, group: usize) -> Option<Self> {
        let copies = |expected| (columns == expected).then_some(Self::Copies);
        match kind & !USES {
            0 => copies(1),
            DUP | RAID1 => copies(2),
            RAID1C3 => copies(3),
            RAID1C4 => copies(4),
            RAID0 => Some(Self::Striped { copies: 1 }),
            RAID10 => (group == 2 && columns.is_multiple_of(2)).then_some(Self::Striped { copies: 2 }),
            RAID5 => (columns >= 2).then_some(Self::Parity { parities: 1 }),
            RAID6 => (3..=WEIGHTS).contains(&columns).then_some(Self::Parity { parities: 2 }),
            _ => None,
        }
    }
}

impl Chunks {
    /// Those in the superblock.
    pub fn of_superblock(superblock: &Superblock, devices: &Devices) -> Result<Self, Error> {
        let mut chunks = Self::default();
        let mut rest = &superblock.chunks[..];
        while !rest.is_empty() {
            let key = ItemKey::decode(rest, 0)
                .ok_or_else(|| damaged(0, "the superblock's list ends within one"))?;
            let item = &rest[KEY_BYTES..];
            let len = chunks.add(superblock, devices, key.offset, item)?;
            rest = &item[len..];
        }
        Ok(chunks)
    }

    /// Adds what an item says, and returns the item's length.
    pub fn add(
        &mut self,
        superblock: &Superblock,
        devices: &Devices,
        logical: u64,
        item: &[u8],
    ) -> Result<usize, Error> {
        let short = || damaged(logical, "its item is too short");
        let (len, kind) = le64(item, 0).zip(le64(item, 24)).ok_or_else(short)?;
        let (columns, group) = le16(item, 44).zip(le16(item, 46)).ok_or_else(short)?;
        let end = HEADER_BYTES + usize::from(columns) * STRIPE_BYTES;
        let places = item.get(HEADER_BYTES..end).filter(|places| !places.is_empty());
        let places = places.ok_or_else(|| damaged(logical, "its item has no place, or is too short"))?;
        if kind & !(USES | PROFILES) != 0 {
            return Err(Error::Unsupported { what: "btrfs with chunks of a kind that is not known" });
        }
        let layout = Layout::of(kind, columns.into(), group.into())
            .ok_or_else(|| damaged(logical, "its kind does not fit its places"))?;
        if layout != Layout::Copies && le64(item, 16) != Some(COLUMN_BYTES) {
            return Err(Error::Unsupported { what: "btrfs with stripes of another length than 64 KiB" });
        }
        let sector = superblock.sector_bytes as u64;
        if len == 0 || logical.checked_add(len).is_none() {
            return Err(damaged(logical, "it has an impossible length"));
        }
        if !logical.is_multiple_of(sector) || !len.is_multiple_of(sector) {
            return Err(damaged(logical, "it does not start and end between sectors"));
        }
        let place = |place: &[u8]| {
            let (id, offset, uuid) = (le64(place, 0)?, le64(place, 8)?, uuid_at(place, 16)?);
            Some(Place { device: devices.find(id, uuid), id, offset })
        };
        let columns: Option<Vec<Place>> = places.chunks_exact(STRIPE_BYTES).map(place).collect();
        self.chunks.insert(logical, Chunk { len, layout, columns: columns.ok_or_else(short)? });
        Ok(end)
    }

    fn chunk(&self, logical: u64) -> Result<(&Chunk, u64), Error> {
        let found = self.chunks.range(..=logical).next_back();
        let within =
            found.map(|(start, chunk)| (chunk, logical - start)).filter(|(chunk, at)| *at < chunk.len);
        within.ok_or_else(|| damaged(logical, "there is none at this address"))
    }

    /// How many bytes of all chunks are on missing devices alone, and how many there are.
    pub fn lost_bytes(&self) -> (u64, u64) {
        let chunks = self.chunks.values();
        chunks.fold((0, 0), |(lost, all), chunk| {
            (chunk.lost_bytes().saturating_add(lost), chunk.len.saturating_add(all))
        })
    }

    /// How much of a range lies in the chunk that has its start.
    pub fn within(&self, logical: u64, len: u64) -> Result<u64, Error> {
        let (chunk, at) = self.chunk(logical)?;
        Ok(len.min(chunk.len - at))
    }

    /// Where a range is, as much of it as lies in one piece.
    pub fn piece(&self, logical: u64, len: u64) -> Result<Piece, Error> {
        let (chunk, at) = self.chunk(logical)?;
        let len = len.min(chunk.len - at);
        let (number, within) = (at / COLUMN_BYTES, at % COLUMN_BYTES);
        let in_column = len.min(COLUMN_BYTES - within);
        let columns = &chunk.columns;
        let count = columns.len() as u64;
        match chunk.layout {
            Layout::Copies => {
                let places = columns.iter().map(|place| place.plus(at)).collect();
                Ok(Piece { len, places, parity: Vec::new(), column: 0 })
            }
            Layout::Striped { copies } => {
                let groups = count / copies as u64;
                let (group, row) = ((number % groups) as usize, number / groups);
                let on_column = row.saturating_mul(COLUMN_BYTES).saturating_add(within);
                let of_group = &columns[group * copies..(group + 1) * copies];
                let places = of_group.iter().map(|place| place.plus(on_column)).collect();
                Ok(Piece { len: in_column, places, parity: Vec::new(), column: 0 })
            }
            Layout::Parity { parities } => {
                let data = count - parities as u64;
                let (column, row) = ((number % data) as usize, number / data);
                let on_column = row.saturating_mul(COLUMN_BYTES).saturating_add(within);
                // From row to row everything is one column further.
                let place = |ix: u64| columns[((row % count + ix) % count) as usize].plus(on_column);
                let places = (0..data).map(place).collect();
                let parity = (data..count).map(place).collect();
                Ok(Piece { len: in_column, places, parity, column })
            }
        }
    }
}

impl Chunk {
    fn lost_bytes(&self) -> u64 {
        let missing = |columns: &[Place]| columns.iter().filter(|place| place.device.is_none()).count();
        let lost_columns = match self.layout {
            Layout::Copies if missing(&self.columns) == self.columns.len() => return self.len,
            Layout::Copies => 0,
            Layout::Striped { copies } => {
                self.columns.chunks(copies).filter(|group| missing(group) == copies).count() * copies
            }
            Layout::Parity { parities } => match missing(&self.columns) {
                missing if missing > parities => missing,
                _ => 0,
            },
        };
        let lost = u128::from(self.len) * lost_columns as u128 / self.columns.len().max(1) as u128;
        u64::try_from(lost).unwrap_or(u64::MAX)
    }
}

impl Piece {
    /// The ways to read it, in the order in which they are tried: those that need no device that is
    /// stale before others, those that need one that is missing last.
    pub fn ways(&self, devices: &Devices) -> Vec<Way> {
        let mut ways: Vec<Way> = match self.parity.len() {
            0 => (0..self.places.len()).map(Way::Direct).collect(),
            _ => vec![Way::Direct(self.column), Way::ByP],
        };
        if self.parity.len() == 2 {
            let others = (0..self.places.len()).filter(|other| *other != self.column);
            ways.push(Way::ByQ);
            ways.extend(others.map(Way::ByBoth));
        }
        ways.sort_by_key(|way| {
            let is_missing = self.needs(*way).any(|place| place.device.is_none());
            (is_missing, self.stale(*way, devices).is_some())
        });
        ways
    }

    /// The places that are read for it.
    fn needs(&self, way: Way) -> impl Iterator<Item = Place> + '_ {
        let is_read = move |ix: usize| match way {
            Way::Direct(direct) => ix == direct,
            Way::ByP | Way::ByQ => ix != self.column,
            Way::ByBoth(other) => ix != self.column && ix != other,
        };
        let parity = match way {
            Way::Direct(_) => &[][..],
            Way::ByP => &self.parity[..1],
            Way::ByQ => &self.parity[1..],
            Way::ByBoth(_) => &self.parity[..],
        };
        let data = self.places.iter().enumerate().filter(move |(ix, _)| is_read(*ix));
        data.map(|(_, place)| *place).chain(parity.iter().copied())
    }

    /// The first stale device that is read for it.
    pub fn stale(&self, way: Way, devices: &Devices) -> Option<usize> {
        self.needs(way).filter_map(|place| place.device).find(|&device| devices.is_stale(device))
    }

    /// The device that it is read from as it is, if that is here and up to date.
    pub fn direct_up_to_date(&self, way: Way, devices: &Devices) -> Option<usize> {
        let Way::Direct(ix) = way else { return None };
        self.places[ix].device.filter(|&device| !devices.is_stale(device))
    }

    /// Where its copies are on the device that was given first.
    pub fn on_first(&self, devices: &Devices) -> Vec<u64> {
        let is_own = |ix: usize| self.parity.is_empty() || ix == self.column;
        let places = self.places.iter().enumerate().filter(|(ix, _)| is_own(*ix)).map(|(_, place)| place);
        let on_first = places.filter(|place| place.device.is_some_and(|device| devices.is_first(device)));
        on_first.map(|place| place.offset).collect()
    }

    /// Reads a part of it, from `skip` bytes on.
    ///
    /// # Errors
    /// A device is missing or cannot be read there; the error names `(structure, at)`.
    pub fn read(
        &self,
        way: Way,
        devices: &Devices,
        (structure, at): (&'static str, u64),
        skip: u64,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let read = |place: Place, into: &mut [u8]| {
            let missing = Error::DeviceMissing { structure, at, id: place.id };
            let offset = place
                .offset
                .checked_add(skip)
                .ok_or(Error::BeyondEnd { offset: place.offset, size: u64::MAX });
            devices.source(place.device.ok_or(missing)?).read(offset?, into)
        };
        if let Way::Direct(ix) = way {
            return read(self.places[ix], into);
        }
        // What is missing is noticed before anything is read.
        if let Some(place) = self.needs(way).find(|place| place.device.is_none()) {
            return Err(Error::DeviceMissing { structure, at, id: place.id });
        }
        let len = into.len();
        let of_parity = |ix: usize, wanted: bool| {
            let mut bytes = vec![0; if wanted { len } else { 0 }];
            if wanted {
                read(self.parity[ix], &mut bytes)?;
            }
            Ok::<_, Error>(bytes)
        };
        let (mut p, mut q) = (of_parity(0, way != Way::ByQ)?, of_parity(1, way != Way::ByP)?);
        let mut data = vec![0; len];
        for (ix, place) in self.places.iter().enumerate() {
            if ix == self.column || way == Way::ByBoth(ix) {
                continue;
            }
            read(*place, &mut data)?;
            parity::add(&mut p, &data, 1);
            parity::add(&mut q, &data, parity::weight(ix));
        }
        match way {
            Way::ByQ => {
                parity::from_q(&mut q, self.column);
                into.copy_from_slice(&q);
            }
            Way::ByBoth(other) => {
                into.copy_from_slice(&parity::from_both(&p, &q, (self.column, other)));
            }
            _ => into.copy_from_slice(&p),
        }
        Ok(())
    }
}
