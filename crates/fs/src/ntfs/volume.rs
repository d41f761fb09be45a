//! The volume below: its boot sector, the master file table, and bytes of attributes on clusters.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::bytes::{le16, le32, le64, u8_at};
use crate::error::Error;
use crate::source::{ByteSource, SIZE_MAX};

use super::record::{Attribute, AttributeBody, Outside, RecordHead, damaged, kinds, mend, parse, record_of};

const BOOT_BYTES: usize = 512;
const MAGIC: &[u8] = b"NTFS    ";
const FILE: [u8; 4] = *b"FILE";
/// The largest record and the largest block of an index.
pub(super) const BLOCK_BYTES_MAX: usize = 64 << 10;
/// What is wrong with an attribute whose extents do not fit together.
pub(super) const TORN: &str =
    "the clusters of an attribute do not end where they should, and which are right is not known";
/// The longest list of attributes, and the most records that one file has: what Windows allows.
const LIST_BYTES_MAX: u64 = 256 << 10;

/// A record of the table with what extends it.
#[derive(Debug)]
pub(super) struct NtfsFile {
    pub record: u64,
    pub head: RecordHead,
    /// Pieces of one attribute are one here.
    pub attributes: Vec<Attribute>,
}

impl NtfsFile {
    /// The attribute of that kind and name.
    pub fn find(&self, kind: u32, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|found| {
            found.kind == kind
                && found.name.len() == name.len()
                && found.name.iter().copied().eq(name.encode_utf16())
        })
    }

    /// The bytes of a small attribute that is in its record.
    pub fn resident(&self, kind: u32) -> Option<&[u8]> {
        match &self.find(kind, "")?.body {
            AttributeBody::Resident(bytes) => Some(bytes),
            AttributeBody::Outside(_) => None,
        }
    }
}

/// What the boot sector says.
#[derive(Debug, Clone, Copy)]
struct Boot {
    cluster_bytes: u64,
    size_bytes: u64,
    table_at: u64,
    table_copy_at: u64,
    record_bytes: usize,
    serial: u64,
}

/// A volume of NTFS.
pub(super) struct NtfsVolume {
    pub source: ByteSource,
    pub cluster_bytes: u64,
    pub size_bytes: u64,
    pub serial: u64,
    /// Why the first boot sector is not used, if it is not.
    pub boot_copied: Option<&'static str>,
    record_bytes: usize,
    /// Where the master file table lies.
    table: Outside,
    last: RefCell<Option<Rc<NtfsFile>>>,
}

/// Whether the first boot sector says so, and it or its copy is in order.
pub(super) fn is_formatted(source: &ByteSource) -> Result<bool, Error> {
    Ok(source.size() >= BOOT_BYTES as u64
        && has_magic(&source.bytes(0, BOOT_BYTES)?)
        && read_boot(source).is_ok())
}

/// Whether a boot sector of NTFS is there, or the copy of one.
pub(super) fn is_here(source: &ByteSource) -> Result<bool, Error> {
    if source.size() < BOOT_BYTES as u64 {
        return Ok(false);
    }
    match (source.bytes(0, BOOT_BYTES), boot_copy(source)) {
        (_, Some(_)) => Ok(true),
        (first, None) => Ok(has_magic(&first?)),
    }
}

fn has_magic(sector: &[u8]) -> bool {
    sector.get(3..3 + MAGIC.len()) == Some(MAGIC)
}

/// The first boot sector, or its copy, and why that.
fn read_boot(source: &ByteSource) -> Result<(Boot, Option<&'static str>), Error> {
    let first = source.bytes(0, BOOT_BYTES);
    let why = match &first {
        Ok(sector) if !has_magic(sector) => "it is not there",
        Ok(sector) => match parse_boot(sector) {
            Some(boot) => return Ok((boot, None)),
            None => "sizes that NTFS does not have",
        },
        Err(_) => "it cannot be read",
    };
    match boot_copy(source) {
        Some(copy) => Ok((copy, Some(why))),
        None => first.and(Err(Error::Damaged { structure: "boot sector", at: 0, what: why })),
    }
}

/// The copy in the sector behind the volume, which is the last: one that was there before another
/// format ended elsewhere, as a rule.
fn boot_copy(source: &ByteSource) -> Option<Boot> {
    [512, 4096].into_iter().find_map(|sector_bytes| {
        let at = (source.size() / sector_bytes).checked_sub(1)? * sector_bytes;
        let sector = source.bytes(at, BOOT_BYTES).ok().filter(|sector| has_magic(sector))?;
        let boot = parse_boot(&sector)?;
        at.checked_sub(boot.size_bytes).filter(|rest| *rest < boot.cluster_bytes).map(|_| boot)
    })
}

fn parse_boot(sector: &[u8]) -> Option<Boot> {
    let sector_bytes = u64::from(le16(sector, 11)?);
    if !sector_bytes.is_power_of_two() || !(256..=4096).contains(&sector_bytes) {
        return None;
    }
    // Above 128 it is a power of two.
    let sectors = match u8_at(sector, 13)? {
        count @ 0..=128 => u64::from(count),
        log => 1_u64.checked_shl(256 - u32::from(log))?,
    };
    let cluster_bytes = sector_bytes.checked_mul(sectors).filter(|bytes| bytes.is_power_of_two())?;
    if !(512..=2 << 20).contains(&cluster_bytes) {
        return None;
    }
    // Clusters, or a negative power of two.
    let record_bytes = match u8_at(sector, 64)?.cast_signed() {
        count @ 1.. => cluster_bytes.checked_mul(count.unsigned_abs().into())?,
        log => 1_u64.checked_shl(u32::from(log.unsigned_abs()))?,
    };
    let record_bytes = usize::try_from(record_bytes).ok()?;
    if !record_bytes.is_power_of_two() || !(512..=BLOCK_BYTES_MAX).contains(&record_bytes) {
        return None;
    }
    let place = |at| le64(sector, at)?.checked_mul(cluster_bytes).filter(|place| *place <= SIZE_MAX);
    Some(Boot {
        cluster_bytes,
        size_bytes: le64(sector, 40)?.checked_mul(sector_bytes).filter(|size| *size <= SIZE_MAX)?,
        table_at: place(48)?,
        table_copy_at: place(56)?,
        record_bytes,
        serial: le64(sector, 72)?,
    })
}

impl NtfsVolume {
    /// Reads the boot sector, or its copy in the last sector, and finds the table.
    pub fn open(source: ByteSource) -> Result<Self, Error> {
        let (boot, boot_copied) = read_boot(&source)?;
        let mut volume = Self {
            source,
            cluster_bytes: boot.cluster_bytes,
            size_bytes: boot.size_bytes,
            serial: boot.serial,
            boot_copied,
            record_bytes: boot.record_bytes,
            table: Outside::default(),
            last: RefCell::default(),
        };
        let first = volume.table_record(boot.table_at).or_else(|error| {
            // The first four records are there twice.
            volume.table_record(boot.table_copy_at).map_err(|_| error)
        });
        let (_, attributes) = first?;
        volume.find_table(attributes)?;
        Ok(volume)
    }

    /// The record that describes the table, at this place.
    fn table_record(&self, at: u64) -> Result<(RecordHead, Vec<Attribute>), Error> {
        let mut record = self.source.bytes(at, self.record_bytes)?;
        mend(&mut record, FILE).and_then(|()| parse(&record)).map_err(|what| damaged(0, what))
    }

    /// Where the table lies: pieces of that may be in records of its own, which lie in the pieces
    /// that are known by then.
    fn find_table(&mut self, attributes: Vec<Attribute>) -> Result<(), Error> {
        let list = attributes.iter().find(|found| found.kind == kinds::ATTRIBUTE_LIST).cloned();
        let is_data = |found: &Attribute| found.kind == kinds::DATA && found.name.is_empty();
        let data = attributes.into_iter().find(is_data).map(|found| found.body);
        let Some(AttributeBody::Outside(table)) = data else {
            return Err(damaged(0, "the table has no data"));
        };
        self.table = table;
        let Some(list) = list else { return Ok(()) };
        let list = self.whole(0, &list, LIST_BYTES_MAX)?;
        for record in listed_records(&list, Some(kinds::DATA)) {
            if record == 0 {
                continue;
            }
            let (head, attributes) = self.one_record(record)?;
            if head.base != 0 {
                return Err(damaged(record, "it is to extend the table and extends something else"));
            }
            for found in attributes.into_iter().filter(is_data) {
                if let AttributeBody::Outside(piece) = found.body {
                    self.table.extents.extend(piece.extents);
                }
            }
            self.table.extents.sort_by_key(|extent| extent.vcn);
        }
        Ok(())
    }

    /// A record by itself.
    fn one_record(&self, number: u64) -> Result<(RecordHead, Vec<Attribute>), Error> {
        let at = number.checked_mul(self.record_bytes as u64).filter(|at| *at < self.table.size);
        let at = at.ok_or_else(|| damaged(number, "the table is shorter"))?;
        let mut record = vec![0; self.record_bytes];
        self.read_outside(number, &self.table, at, &mut record)?;
        mend(&mut record, FILE).and_then(|()| parse(&record)).map_err(|what| damaged(number, what))
    }

    /// A file with all its attributes.
    pub fn file(&self, number: u64) -> Result<Rc<NtfsFile>, Error> {
        if let Some(last) = self.last.borrow().as_ref().filter(|last| last.record == number) {
            return Ok(last.clone());
        }
        let (head, mut attributes) = self.one_record(number)?;
        if !head.is_in_use {
            return Err(damaged(number, "it is not in use"));
        }
        if head.base != 0 {
            return Err(damaged(number, "it is a part of another"));
        }
        if let Some(list) = attributes.iter().find(|found| found.kind == kinds::ATTRIBUTE_LIST) {
            let list = self.whole(number, list, LIST_BYTES_MAX)?;
            for record in listed_records(&list, None).into_iter().filter(|record| *record != number) {
                let (part, more) = self.one_record(record)?;
                if part.base != number || !part.is_in_use {
                    return Err(damaged(number, "a record that is to extend it belongs to another"));
                }
                attributes.extend(more);
            }
        }
        let attributes = joined(attributes).map_err(|what| damaged(number, what))?;
        let file = Rc::new(NtfsFile { record: number, head, attributes });
        *self.last.borrow_mut() = Some(file.clone());
        Ok(file)
    }

    /// All of an attribute, if it is at most so long. What lies behind what was ever written of it
    /// is zeros, whatever the clusters there have.
    pub fn whole(&self, record: u64, attribute: &Attribute, bytes_max: u64) -> Result<Vec<u8>, Error> {
        match &attribute.body {
            AttributeBody::Resident(bytes) => Ok(bytes.clone()),
            AttributeBody::Outside(outside) if outside.is_torn => Err(damaged(record, TORN)),
            AttributeBody::Outside(outside) if outside.size <= bytes_max => {
                let mut bytes = vec![0; outside.size as usize];
                let written = outside.written.min(outside.size) as usize;
                self.read_outside(record, outside, 0, &mut bytes[..written])?;
                Ok(bytes)
            }
            AttributeBody::Outside(_) => Err(damaged(record, "an attribute that is longer than it can be")),
        }
    }

    /// Bytes of an attribute on clusters, which is not compressed. Holes are zeros.
    pub fn read_outside(
        &self,
        record: u64,
        outside: &Outside,
        at: u64,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let mut done = 0;
        while done < into.len() {
            let here = at + done as u64;
            let (place, len) =
                self.place(outside, here).ok_or_else(|| damaged(record, "clusters that are nowhere"))?;
            let part = usize::try_from(len).unwrap_or(usize::MAX).min(into.len() - done);
            match place {
                Some(place) => self.source.read(place, &mut into[done..done + part])?,
                None => into[done..done + part].fill(0),
            }
            done += part;
        }
        Ok(())
    }

    /// Where a byte of an attribute is, and for how long that goes on; `None` in it for a hole.
    fn place(&self, outside: &Outside, at: u64) -> Option<(Option<u64>, u64)> {
        let vcn = at / self.cluster_bytes;
        let extent = outside.extents.get(outside.first_from(vcn)).filter(|extent| extent.vcn <= vcn)?;
        let within = at - extent.vcn * self.cluster_bytes;
        let len = extent.count.checked_mul(self.cluster_bytes)? - within;
        match extent.lcn {
            None => Some((None, len)),
            Some(lcn) => Some((Some(lcn.checked_mul(self.cluster_bytes)?.checked_add(within)?), len)),
        }
    }
}

/// The records that a list of attributes names, each once, in their order.
fn listed_records(mut list: &[u8], kind: Option<u32>) -> Vec<u64> {
    let mut found = Vec::new();
    while let (Some(of), Some(len), Some(reference)) = (le32(list, 0), le16(list, 4), le64(list, 16)) {
        let record = record_of(reference);
        if kind.is_none_or(|kind| kind == of) && !found.contains(&record) {
            found.push(record);
        }
        match list.get(usize::from(len).max(24)..) {
            Some(rest) if len >= 24 => list = rest,
            _ => break,
        }
    }
    found
}

/// Pieces of one attribute put together.
fn joined(mut attributes: Vec<Attribute>) -> Result<Vec<Attribute>, &'static str> {
    let mut whole: Vec<Attribute> = Vec::new();
    let mut begun = BTreeMap::new();
    // Pieces follow each other by their first clusters; else the order stays.
    attributes.sort_by_key(|found| found.lowest);
    for found in attributes {
        let key = (found.kind, found.name.clone());
        if found.lowest == 0 {
            begun.entry(key).or_insert(whole.len());
            whole.push(found);
            continue;
        }
        let first = begun.get(&key).map(|&ix| &mut whole[ix].body);
        match (first, found.body) {
            (Some(AttributeBody::Outside(first)), AttributeBody::Outside(piece)) => {
                let end = first.extents.last().map_or(0, |last| last.vcn + last.count);
                if found.lowest < end {
                    return Err("pieces of an attribute do not follow each other");
                }
                first.is_torn |= piece.is_torn || end != found.lowest;
                first.extents.extend(piece.extents);
            }
            _ => return Err("a piece of an attribute has no beginning"),
        }
    }
    Ok(whole)
}
