//! NTFS, as the documentation of the Linux-NTFS project describes it, and [MS-XCA] and [MS-FSCC] of
//! Microsoft what is compressed and what links are.
//!
//! Our own reader, because the crate there is (`ntfs` 0.4) reads through a seeking stream, so that
//! its errors name no place, unwraps some of what it decodes instead of an error, and does not
//! unpack what NTFS compresses.
//!
//! A file is known by its reference: the number of its record in the master file table, and in the
//! high bits how often that was used, so that an entry which outlived its file is found out. Short
//! names for DOS and the volume's own files are not listed. The log is not read: whether it holds
//! more is looked at, and said.

mod index;
mod lznt1;
mod record;
mod reparse;
mod volume;

use std::ops::Range;
use std::rc::Rc;

use crate::bytes::{le16, le32, le64, u8_at};
use crate::error::Error;
use crate::names::{of_utf16, units};
use crate::source::{ByteSource, FileRun};
use crate::{
    ATTRIBUTE_BYTES_MAX, About, DeviceNumber, DirEntry, EachData, EachEntry, EachRun, FileKind, FileMetadata,
    FileSystem, FileTime, FsNode, Note, link_target,
};

use record::{
    Attribute, AttributeBody, ClusterExtent, Outside, damaged, flags, kinds, mend, record_of, sequence_of,
};
use reparse::{INTERIX_BYTES_MAX, ReparsePoint};
use volume::{NtfsFile, NtfsVolume, TORN};

/// Records of the volume's own files.
mod own {
    pub const LOG: u64 = 2;
    pub const VOLUME: u64 = 3;
    pub const ROOT: u64 = 5;
    /// Below it are the volume's own files, which are not listed.
    pub const FIRST_OF_USERS: u64 = 16;
}

/// A link's target, and what else is small.
const SMALL_BYTES_MAX: u64 = 64 << 10;
/// What is compressed together at most, bytes: 16 clusters of 4 KiB, and larger ones of others.
const UNIT_BYTES_MAX: u64 = 2 << 20;

/// Whether the first boot sector proves that an NTFS was formatted there.
///
/// # Errors
/// It cannot be read.
pub fn is_formatted(source: &ByteSource) -> Result<bool, Error> {
    volume::is_formatted(source)
}

/// Whether an NTFS is there, or a copy of its boot sector.
///
/// # Errors
/// The first cannot be read, and there is no copy.
pub fn is_here(source: &ByteSource) -> Result<bool, Error> {
    volume::is_here(source)
}

/// What is compressed together.
struct CompressionUnit {
    /// Where it is in the file.
    bytes: Range<u64>,
    /// Where its clusters are.
    extents: Vec<ClusterExtent>,
    /// They are fewer than its bytes take.
    is_packed: bool,
}

/// An NTFS.
pub struct Ntfs {
    volume: NtfsVolume,
    about: About,
    root: FsNode,
}

impl Ntfs {
    /// Finds the master file table and the root directory.
    ///
    /// # Errors
    /// They cannot be read, or are damaged.
    pub fn open(source: ByteSource) -> Result<Self, Error> {
        let volume = NtfsVolume::open(source)?;
        let root = volume.file(own::ROOT)?;
        if !root.head.is_directory {
            return Err(damaged(own::ROOT, "the root is no directory"));
        }
        let root = FsNode { tree: 0, inode: own::ROOT | u64::from(root.head.sequence) << 48 };
        let mut notes: Vec<Note> = volume.source.cut_off(volume.size_bytes).into_iter().collect();
        notes.extend(volume.boot_copied.map(|why| Note::BootCopy { why }));
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&volume.serial.to_be_bytes());
        let mut about =
            About { kind: "ntfs", label: Vec::new(), uuid, size_bytes: volume.size_bytes, notes: Vec::new() };
        // What the volume says of itself is not worth an error.
        if let Ok(file) = volume.file(own::VOLUME) {
            const DIRTY: u16 = 1;
            about.label =
                file.resident(kinds::VOLUME_NAME).map_or_else(Vec::new, |name| of_utf16(units(name)));
            let bits = file.resident(kinds::VOLUME_INFORMATION).and_then(|information| le16(information, 10));
            notes.extend(bits.is_some_and(|bits| bits & DIRTY != 0).then_some(Note::MarkedDamaged));
        }
        notes.extend(why_log_counts(&volume).map(|why| Note::JournalNotApplied { why }));
        about.notes = notes;
        Ok(Self { volume, about, root })
    }

    /// A file that a reference still leads to.
    fn file(&self, node: FsNode) -> Result<Rc<NtfsFile>, Error> {
        let (record, sequence) = (record_of(node.inode), sequence_of(node.inode));
        let file = self.volume.file(record)?;
        if sequence != 0 && sequence != file.head.sequence {
            return Err(damaged(record, "its entry in a directory is of another file that is gone"));
        }
        Ok(file)
    }

    /// What a file is, if that is not just a file or a directory.
    fn reparse(&self, file: &NtfsFile) -> Result<Option<ReparsePoint>, Error> {
        let Some(found) = file.find(kinds::REPARSE_POINT, "") else { return self.interix(file) };
        let value = self.volume.whole(file.record, found, SMALL_BYTES_MAX)?;
        let parsed = reparse::parse(&value).ok_or_else(|| damaged(file.record, "its reparse point"))?;
        Ok(Some(parsed))
    }

    /// The same of a file of the system whose data says so; no other data is read.
    fn interix(&self, file: &NtfsFile) -> Result<Option<ReparsePoint>, Error> {
        const SYSTEM: u32 = 4;
        let bits = file.resident(kinds::STANDARD_INFORMATION).and_then(|standard| le32(standard, 32));
        let Some(data) = file.find(kinds::DATA, "").filter(|_| bits.is_some_and(|bits| bits & SYSTEM != 0))
        else {
            return Ok(None);
        };
        let is_plain = match &data.body {
            AttributeBody::Resident(_) => true,
            AttributeBody::Outside(outside) => {
                outside.size <= INTERIX_BYTES_MAX && data.flags & (flags::COMPRESSED | flags::ENCRYPTED) == 0
            }
        };
        match is_plain {
            true => Ok(reparse::interix(&self.volume.whole(file.record, data, INTERIX_BYTES_MAX)?)),
            false => Ok(None),
        }
    }

    fn kind(&self, file: &NtfsFile) -> Result<(FileKind, Option<DeviceNumber>), Error> {
        Ok(match self.reparse(file)? {
            Some(ReparsePoint::Link(_)) => (FileKind::Symlink, None),
            Some(ReparsePoint::Device(kind, number)) => (kind, Some(number)),
            Some(ReparsePoint::Special) => (FileKind::Socket, None),
            _ if file.head.is_directory => (FileKind::Directory, None),
            _ => (FileKind::File, None),
        })
    }

    /// The data of a file that is one and can be read here; `None` if it has none.
    fn data<'a>(&self, file: &'a NtfsFile) -> Result<Option<&'a Attribute>, Error> {
        let data = file.find(kinds::DATA, "");
        match self.reparse(file)? {
            Some(ReparsePoint::Elsewhere(what)) => return Err(Error::Unsupported { what }),
            Some(ReparsePoint::Other(tag))
                if !file.head.is_directory && (is_offline(file) || data.is_some_and(has_hole)) =>
            {
                return Err(Error::UnknownReparsePoint { tag });
            }
            None | Some(ReparsePoint::Other(_)) if !file.head.is_directory => {}
            _ => return Err(Error::NotAFile),
        }
        if data.is_some_and(|data| data.flags & flags::ENCRYPTED != 0) {
            return Err(Error::Unsupported { what: "a file that Windows encrypted (EFS)" });
        }
        Ok(data)
    }

    /// Calls `each` with what of an attribute lies on clusters as it is, in order.
    fn plain_runs(
        &self,
        record: u64,
        outside: &Outside,
        range: &Range<u64>,
        each: &mut dyn FnMut(FileRun) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let end = outside.written.min(outside.size);
        for extent in &outside.extents {
            let Some(lcn) = extent.lcn else { continue };
            let bytes = |clusters: u64| clusters.saturating_mul(self.volume.cluster_bytes);
            let at = bytes(extent.vcn);
            let run = FileRun::plain(at, bytes(lcn), bytes(extent.count).min(end.saturating_sub(at)));
            if let Some(run) = run.within(range) {
                each(run)?;
            }
        }
        self.check_clusters(record, outside, range)
    }

    /// That the clusters of an attribute are all known, as far as a range of it reaches.
    fn check_clusters(&self, record: u64, outside: &Outside, range: &Range<u64>) -> Result<(), Error> {
        if outside.is_torn {
            return Err(damaged(record, TORN));
        }
        let to = outside.written.min(outside.size);
        let covered = outside.extents.last().map_or(0, |last| last.vcn + last.count);
        match covered.saturating_mul(self.volume.cluster_bytes) < to.min(range.end) {
            true => {
                let why = Box::new(damaged(record, "its clusters end before its data does"));
                Err(Error::MapPart { to, why })
            }
            false => Ok(()),
        }
    }

    /// What of a unit lies on clusters: less than all of it is compressed.
    fn unit(outside: &Outside, unit: &Range<u64>) -> Vec<ClusterExtent> {
        let part = |extent: &ClusterExtent| {
            let (from, to) = (extent.vcn.max(unit.start), (extent.vcn + extent.count).min(unit.end));
            let lcn = extent.lcn? + from.checked_sub(extent.vcn)?;
            (from < to).then_some(ClusterExtent { vcn: from, lcn: Some(lcn), count: to - from })
        };
        let extents = &outside.extents[outside.first_from(unit.start)..];
        extents.iter().take_while(|extent| extent.vcn < unit.end).filter_map(part).collect()
    }

    /// Calls `each` for the units of a compressed attribute that lie in a range of it: their bytes,
    /// and where on clusters they lie.
    fn units(
        &self,
        record: u64,
        outside: &Outside,
        range: &Range<u64>,
        each: &mut dyn FnMut(&CompressionUnit) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let clusters = 1_u64.checked_shl(outside.unit_log.into());
        let unit_bytes = clusters.and_then(|clusters| clusters.checked_mul(self.volume.cluster_bytes));
        let (Some(clusters), Some(unit_bytes)) = (clusters, unit_bytes.filter(|len| *len <= UNIT_BYTES_MAX))
        else {
            return Err(damaged(record, "what is compressed together is too large"));
        };
        let end = outside.written.min(outside.size).min(range.end);
        let mut next = range.start / unit_bytes;
        for extent in &outside.extents[outside.first_from(next.saturating_mul(clusters))..] {
            // Holes are passed over, however large.
            if extent.lcn.is_none() {
                continue;
            }
            next = next.max(extent.vcn / clusters);
            while next * clusters < extent.vcn + extent.count && next.saturating_mul(unit_bytes) < end {
                let bytes = next * unit_bytes..(next + 1) * unit_bytes;
                let extents = Self::unit(outside, &(next * clusters..(next + 1) * clusters));
                for extent in &extents {
                    let end = extent.lcn.unwrap_or(0).saturating_add(extent.count);
                    let (offset, size) =
                        (end.saturating_mul(self.volume.cluster_bytes), self.volume.source.size());
                    if offset > size {
                        return Err(Error::BeyondEnd { offset, size });
                    }
                }
                let stored: u64 = extents.iter().map(|extent| extent.count).sum();
                each(&CompressionUnit { bytes, extents, is_packed: stored < clusters })?;
                next += 1;
            }
        }
        self.check_clusters(record, outside, range)
    }

    /// The data of a compressed attribute.
    fn unpack(
        &self,
        record: u64,
        outside: &Outside,
        range: &Range<u64>,
        each: &mut EachData<'_>,
    ) -> Result<(), Error> {
        let end = outside.written.min(outside.size).min(range.end);
        let bytes_of = |clusters: u64| clusters.saturating_mul(self.volume.cluster_bytes);
        self.units(record, outside, range, &mut |CompressionUnit { bytes: unit, extents, is_packed }| {
            let mut stored = Vec::new();
            for extent in extents {
                let bytes = self.volume.source.bytes(
                    bytes_of(extent.lcn.unwrap_or(0)),
                    bytes_of(extent.count).min(UNIT_BYTES_MAX) as usize,
                )?;
                stored.extend(bytes);
            }
            let mut plain = vec![0; (unit.end - unit.start) as usize];
            match stored.get(..plain.len()).filter(|_| !*is_packed) {
                Some(stored) => plain.copy_from_slice(stored),
                None => lznt1::unpack(&stored, &mut plain).map_err(|what| damaged(record, what))?,
            }
            let (from, to) = (unit.start.max(range.start), unit.end.min(end));
            if from >= to {
                return Ok(());
            }
            each(from, &plain[(from - unit.start) as usize..(to - unit.start) as usize])
        })
    }
}

/// Whether a file says that its data is on another storage, or is fetched when it is read.
fn is_offline(file: &NtfsFile) -> bool {
    const OFFLINE: u32 = 0x1000;
    const RECALL_ON_OPEN: u32 = 0x4_0000;
    const RECALL_ON_DATA_ACCESS: u32 = 0x40_0000;
    let bits = file.resident(kinds::STANDARD_INFORMATION).and_then(|standard| le32(standard, 32));
    bits.is_some_and(|bits| bits & (OFFLINE | RECALL_ON_OPEN | RECALL_ON_DATA_ACCESS) != 0)
}

/// Whether something of an attribute is stored nowhere here. Of what is compressed, every unit ends
/// in a hole: it has to be a whole one.
fn has_hole(attribute: &Attribute) -> bool {
    let AttributeBody::Outside(outside) = &attribute.body else { return false };
    let unit = match attribute.flags & flags::COMPRESSED {
        0 => 1,
        _ => 1_u64.checked_shl(outside.unit_log.into()).unwrap_or(1),
    };
    let is_hole = |extent: &ClusterExtent| {
        let first = extent.vcn.checked_next_multiple_of(unit).and_then(|first| first.checked_add(unit));
        extent.lcn.is_none() && first.is_some_and(|end| end <= extent.vcn + extent.count)
    };
    outside.written < outside.size || outside.extents.iter().any(is_hole)
}

/// Why the log may hold more than what is on its place: it does not say that it was closed.
fn why_log_counts(volume: &NtfsVolume) -> Option<&'static str> {
    const UNREADABLE: &str = "its log cannot be read";
    const NOT_CLOSED: &str = "its log was not closed, and what it holds is not read here";
    let Ok(file) = volume.file(own::LOG) else { return Some(UNREADABLE) };
    let Some(AttributeBody::Outside(log)) = file.find(kinds::DATA, "").map(|data| &data.body) else {
        return Some(UNREADABLE);
    };
    // Two pages say how it was left; a log that was wiped is filled with ones.
    let mut newest: Option<(u64, bool)> = None;
    let mut is_wiped = true;
    for at in [0, 4096] {
        let mut page = vec![0; 4096];
        if volume.read_outside(own::LOG, log, at, &mut page).is_err() {
            return Some(UNREADABLE);
        }
        is_wiped &= page.iter().all(|&byte| byte == 0xff);
        if let Some(found) = restart(&mut page) {
            newest = newest.max(Some(found));
        }
    }
    match newest {
        Some((_, true)) => None,
        None if is_wiped => None,
        _ => Some(NOT_CLOSED),
    }
}

/// Of a page that says how a log was left: its number, and whether that was in good order.
fn restart(page: &mut [u8]) -> Option<(u64, bool)> {
    const IS_CLEAN: u16 = 2;
    const NO_CLIENT: u16 = 0xffff;
    mend(page, *b"RSTR").ok()?;
    let area = page.get(usize::from(le16(page, 24)?)..)?;
    let (number, in_use, bits) = (le64(area, 0)?, le16(area, 12)?, le16(area, 14)?);
    Some((number, in_use == NO_CLIENT || bits & IS_CLEAN != 0))
}

/// Tenths of microseconds since 1601.
fn time(stamp: u64) -> FileTime {
    const TO_1970_SECONDS: i64 = 11_644_473_600;
    let seconds = (stamp / 10_000_000).cast_signed() - TO_1970_SECONDS;
    FileTime::new(seconds, (stamp % 10_000_000) as u32 * 100)
}

impl FileSystem for Ntfs {
    fn about(&self) -> &About {
        &self.about
    }

    fn root(&self) -> FsNode {
        self.root
    }

    fn metadata(&self, node: FsNode) -> Result<FileMetadata, Error> {
        const READ_ONLY: u32 = 1;
        const DOS: u8 = 2;
        let file = self.file(node)?;
        let (kind, device) = self.kind(&file)?;
        let standard = file.resident(kinds::STANDARD_INFORMATION);
        let standard = standard.ok_or_else(|| damaged(file.record, "it has no times"))?;
        let stamp = |at| le64(standard, at).map_or_else(FileTime::default, time);
        let is_read_only = le32(standard, 32).is_some_and(|bits| bits & READ_ONLY != 0);
        let mode = match kind {
            FileKind::Directory => 0o755,
            FileKind::Symlink => 0o777,
            _ if is_read_only => 0o444,
            _ => 0o644,
        };
        let is_name = |found: &&Attribute| match &found.body {
            AttributeBody::Resident(name) if found.kind == kinds::FILE_NAME => u8_at(name, 65) != Some(DOS),
            _ => false,
        };
        let links = file.attributes.iter().filter(is_name).count();
        let (size_bytes, stored_bytes) = match file.find(kinds::DATA, "").map(|data| &data.body) {
            _ if kind != FileKind::File => (0, 0),
            None => (0, 0),
            Some(AttributeBody::Resident(bytes)) => (bytes.len() as u64, bytes.len() as u64),
            Some(AttributeBody::Outside(outside)) => {
                let stored = outside.extents.iter().filter(|extent| extent.lcn.is_some());
                let clusters = stored.fold(0_u64, |sum, extent| sum.saturating_add(extent.count));
                (outside.size, clusters.saturating_mul(self.volume.cluster_bytes))
            }
        };
        Ok(FileMetadata {
            kind,
            mode,
            uid: 0,
            gid: 0,
            links: links.max(1) as u32,
            size_bytes,
            stored_bytes,
            accessed: stamp(24),
            modified: stamp(8),
            changed: stamp(16),
            created: Some(stamp(0)),
            device,
        })
    }

    fn list(&self, directory: FsNode, each: &mut EachEntry<'_>) -> Result<(), Error> {
        let file = self.file(directory)?;
        if self.kind(&file)?.0 != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        self.nodes(&file, &mut |entries| {
            for entry in entries {
                let is_own = record_of(entry.reference) < own::FIRST_OF_USERS;
                if !entry.is_dos && !is_own && !entry.name.is_empty() {
                    let node = FsNode { tree: 0, inode: entry.reference };
                    each(DirEntry { name: of_utf16(entry.name), node })?;
                }
            }
            Ok(())
        })
    }

    fn link(&self, link: FsNode) -> Result<Vec<u8>, Error> {
        let file = self.file(link)?;
        match self.reparse(&file)? {
            Some(ReparsePoint::Link(target)) => link_target(target, "NTFS record", file.record),
            _ => Err(Error::NotALink),
        }
    }

    fn read(&self, file: FsNode, range: Range<u64>, each: &mut EachData<'_>) -> Result<(), Error> {
        let file = self.file(file)?;
        let Some(data) = self.data(&file)? else { return Ok(()) };
        match &data.body {
            AttributeBody::Resident(bytes) => {
                let end = (bytes.len() as u64).min(range.end);
                match range.start < end {
                    true => each(range.start, &bytes[range.start as usize..end as usize]),
                    false => Ok(()),
                }
            }
            AttributeBody::Outside(outside) if data.flags & flags::COMPRESSED != 0 => {
                self.unpack(file.record, outside, &range, each)
            }
            AttributeBody::Outside(outside) => self
                .plain_runs(file.record, outside, &range, &mut |run| self.volume.source.deliver(run, each)),
        }
    }

    fn runs(&self, file: FsNode, each: &mut EachRun<'_>) -> Result<(), Error> {
        let file = self.file(file)?;
        let Some(data) = self.data(&file)? else { return Ok(()) };
        match &data.body {
            AttributeBody::Resident(_) => Ok(()),
            AttributeBody::Outside(outside) if data.flags & flags::COMPRESSED != 0 => {
                let bytes = |clusters: u64| clusters.saturating_mul(self.volume.cluster_bytes);
                self.units(
                    file.record,
                    outside,
                    &(0..u64::MAX),
                    &mut |CompressionUnit { bytes: unit, extents, is_packed }| {
                        for extent in extents {
                            let (place, len) = (bytes(extent.lcn.unwrap_or(0)), bytes(extent.count));
                            let within = bytes(extent.vcn) - unit.start;
                            each(match is_packed {
                                true => FileRun {
                                    unpacked_len: Some(unit.end - unit.start),
                                    ..FileRun::plain(unit.start, place, len)
                                },
                                false => FileRun::plain(unit.start + within, place, len),
                            })?;
                        }
                        Ok(())
                    },
                )
            }
            AttributeBody::Outside(outside) => self.plain_runs(file.record, outside, &(0..u64::MAX), each),
        }
    }

    /// Named streams, as `user.NAME`, and what else has no place in a plain file.
    fn attributes(&self, node: FsNode) -> Result<Vec<Vec<u8>>, Error> {
        let file = self.file(node)?;
        let name = |found: &Attribute| match found.kind {
            kinds::DATA if !found.name.is_empty() => {
                Some([b"user.", &of_utf16(found.name.iter().copied())[..]].concat())
            }
            kinds::EXTENDED => Some(b"system.ntfs_ea".to_vec()),
            _ => None,
        };
        Ok(file.attributes.iter().filter_map(name).collect())
    }

    fn attribute(&self, node: FsNode, name: &[u8]) -> Result<Vec<u8>, Error> {
        let file = self.file(node)?;
        let stream = name.strip_prefix(b"user.").ok_or(Error::NoSuchEntry)?;
        let is_it = |found: &&Attribute| {
            found.kind == kinds::DATA && of_utf16(found.name.iter().copied()) == stream && !stream.is_empty()
        };
        let found = file.attributes.iter().find(is_it).ok_or(Error::NoSuchEntry)?;
        match found.flags & (flags::COMPRESSED | flags::ENCRYPTED) {
            0 => self.volume.whole(file.record, found, ATTRIBUTE_BYTES_MAX as u64),
            _ => Err(Error::Unsupported { what: "a named stream that is compressed or encrypted" }),
        }
    }
}
