//! The boot sectors of FAT and exFAT: how the volume is divided.

use crate::bytes::{le16, le32, le64, u8_at};
use crate::error::Error;
use crate::source::ByteSource;

/// A boot sector's part that is read.
const BOOT_BYTES: usize = 512;
/// FAT32 has a copy of its boot sector there.
const FAT32_COPY_SECTOR: u64 = 6;
/// exFAT's boot region is there twice; the second begins behind so many sectors.
const EXFAT_COPY_SECTORS: u64 = 12;
/// Sectors of exFAT that its checksum covers; the checksum is in the next one.
const EXFAT_SUMMED_SECTORS: u64 = 11;

/// Which of the family it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FatKind {
    Fat12,
    Fat16,
    Fat32,
    ExFat,
}

/// Where the root directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FatRoot {
    /// In front of the clusters (FAT12, FAT16): its place and size, bytes.
    Fixed { offset: u64, len: u64 },
    /// In clusters from this one on.
    Cluster(u32),
}

/// How the volume is divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FatBoot {
    pub kind: FatKind,
    /// Where the table that counts begins, and where its other copies do.
    pub tables: Vec<u64>,
    /// Where cluster 2 begins.
    pub heap_offset: u64,
    pub cluster_bytes: u64,
    /// Numbers of clusters are 2 to this and one.
    pub clusters: u32,
    pub root: FatRoot,
    pub size_bytes: u64,
    pub serial: u32,
    pub label: Vec<u8>,
    /// It says that it was not unmounted.
    pub is_dirty: bool,
    /// It says that a drive had errors.
    pub had_errors: bool,
    /// Why the first boot sector is not used, if it is not.
    pub copied: Option<&'static str>,
}

/// Whether the first boot sector proves that a FAT or exFAT was formatted there: boot code of
/// others may have the fields of FAT, and no table.
pub(super) fn is_formatted(source: &ByteSource) -> Result<bool, Error> {
    if source.size() < BOOT_BYTES as u64 {
        return Ok(false);
    }
    let sector = source.bytes(0, BOOT_BYTES)?;
    Ok(match is_exfat(&sector) {
        true => read(source).is_ok(),
        false => parse_fat(&sector).is_some_and(|boot| has_table(source, &sector, &boot)),
    })
}

/// Whether a FAT or exFAT is there, by what its boot sector has to be, or a copy of one.
pub(super) fn is_here(source: &ByteSource) -> Result<bool, Error> {
    if source.size() < BOOT_BYTES as u64 {
        return Ok(false);
    }
    match (source.bytes(0, BOOT_BYTES), copy(source)) {
        (_, Some(_)) => Ok(true),
        (first, None) => first.map(|sector| is_exfat(&sector) || parse_fat(&sector).is_some()),
    }
}

fn is_exfat(sector: &[u8]) -> bool {
    sector.get(3..11) == Some(b"EXFAT   ")
}

/// Reads what the volume is, from the first boot sector or a copy.
pub(super) fn read(source: &ByteSource) -> Result<FatBoot, Error> {
    let first = source.bytes(0, BOOT_BYTES).and_then(|sector| match is_exfat(&sector) {
        true => parse_exfat(&sector).and_then(|boot| is_summed(source, 0, &sector).map(|()| boot)),
        false => parse_fat(&sector).ok_or(Error::Unrecognised),
    });
    let error = match first {
        Ok(boot) => return Ok(boot),
        Err(error) => error,
    };
    let copied = Some(match &error {
        Error::Damaged { what, .. } => *what,
        Error::Unrecognised => "it is not there",
        _ => "it cannot be read",
    });
    copy(source).map(|boot| FatBoot { copied, ..boot }).ok_or(error)
}

/// The copy of a boot sector that is in order: of FAT32, which is asked first since it wipes that
/// of an exFAT only in part, or of exFAT. The size of a sector is in what may be damaged.
fn copy(source: &ByteSource) -> Option<FatBoot> {
    let sectors = |number: u64| {
        [512, 1024, 2048, 4096].into_iter().filter_map(move |bytes: u64| {
            Some((bytes, number * bytes, source.bytes(number * bytes, BOOT_BYTES).ok()?))
        })
    };
    let fat = sectors(FAT32_COPY_SECTOR).find_map(|(bytes, _, sector)| {
        let fits = le16(&sector, 11).map(u64::from) == Some(bytes)
            && le16(&sector, 50).map(u64::from) == Some(FAT32_COPY_SECTOR);
        let boot = parse_fat(&sector).filter(|boot| fits && boot.kind == FatKind::Fat32)?;
        has_table(source, &sector, &boot).then_some(boot)
    });
    let exfat = || {
        sectors(EXFAT_COPY_SECTORS).find_map(|(_, at, sector)| {
            let is_right = is_exfat(&sector) && is_summed(source, at, &sector).is_ok();
            parse_exfat(&sector).ok().filter(|_| is_right)
        })
    };
    fat.or_else(exfat)
}

/// Whether a table begins as each does: with the kind of medium that the boot sector names.
fn has_table(source: &ByteSource, sector: &[u8], boot: &FatBoot) -> bool {
    let begins = [sector[21], 0xff, 0xff];
    boot.tables.iter().any(|table| source.bytes(*table, begins.len()).is_ok_and(|bytes| bytes == begins))
}

fn damaged(what: &'static str) -> Error {
    Error::Damaged { structure: "boot sector", at: 0, what }
}

/// `None` if it is no boot sector of FAT.
fn parse_fat(sector: &[u8]) -> Option<FatBoot> {
    let is_jump = matches!(sector[0], 0xeb | 0xe9) && sector[510..512] == [0x55, 0xaa];
    let sector_bytes = u64::from(le16(sector, 11)?);
    let sectors_per_cluster = u64::from(u8_at(sector, 13)?);
    let reserved = u64::from(le16(sector, 14)?);
    let tables = u64::from(u8_at(sector, 16)?);
    let root_entries = u64::from(le16(sector, 17)?);
    let media = u8_at(sector, 21)?;
    let right = is_jump
        && sector_bytes.is_power_of_two()
        && (512..=4096).contains(&sector_bytes)
        && sectors_per_cluster.is_power_of_two()
        && reserved > 0
        && (1..=4).contains(&tables)
        && (media == 0xf0 || media >= 0xf8);
    if !right {
        return None;
    }
    let sectors = match le16(sector, 19)? {
        0 => u64::from(le32(sector, 32)?),
        sectors => u64::from(sectors),
    };
    let short = u64::from(le16(sector, 22)?);
    let is_32 = short == 0;
    let table_sectors = if is_32 { u64::from(le32(sector, 36)?) } else { short };
    let root_bytes = root_entries * 32;
    let first_data = reserved + tables * table_sectors + root_bytes.div_ceil(sector_bytes);
    let clusters = sectors.checked_sub(first_data)? / sectors_per_cluster;
    let kind = match clusters {
        _ if is_32 => FatKind::Fat32,
        0..=4084 => FatKind::Fat12,
        _ => FatKind::Fat16,
    };
    let table_bytes = table_sectors * sector_bytes;
    let bits = match kind {
        FatKind::Fat12 => 12,
        FatKind::Fat16 => 16,
        _ => 32,
    };
    // A table that is too short for all clusters bounds them.
    let clusters = clusters.min((table_bytes * 8 / bits).saturating_sub(2)).min(0x0fff_fff5) as u32;
    if clusters == 0 {
        return None;
    }
    let table = |ix: u64| (reserved + ix * table_sectors) * sector_bytes;
    let flags = if is_32 { le16(sector, 40)? } else { 0 };
    let tables = match flags & 0x80 {
        // The tables are no copies of each other: one of them counts.
        0x80 => vec![table(u64::from(flags & 0xf).min(tables - 1))],
        _ => (0..tables).map(table).collect(),
    };
    let root = match is_32 {
        true => FatRoot::Cluster(le32(sector, 44)?),
        false => FatRoot::Fixed { offset: table(u64::from(u8_at(sector, 16)?)), len: root_bytes },
    };
    let extended = if is_32 { 64 } else { 36 };
    let has_extended = matches!(u8_at(sector, extended + 2)?, 0x28 | 0x29);
    let state = u8_at(sector, extended + 1)?;
    let label =
        sector.get(extended + 7..extended + 18).filter(|label| has_extended && *label != b"NO NAME    ");
    Some(FatBoot {
        kind,
        tables,
        heap_offset: first_data * sector_bytes,
        cluster_bytes: sectors_per_cluster * sector_bytes,
        clusters,
        root,
        size_bytes: sectors * sector_bytes,
        serial: if has_extended { le32(sector, extended + 3)? } else { 0 },
        label: label.map_or_else(Vec::new, |label| super::trimmed(label).to_vec()),
        is_dirty: state & 1 != 0,
        had_errors: state & 2 != 0,
        copied: None,
    })
}

fn parse_exfat(sector: &[u8]) -> Result<FatBoot, Error> {
    let cut = || damaged("it is cut off");
    let sector_shift = u8_at(sector, 108).ok_or_else(cut)?;
    let cluster_shift = u8_at(sector, 109).ok_or_else(cut)?;
    if !(9..=12).contains(&sector_shift) || cluster_shift > 25 - sector_shift {
        return Err(damaged("the size of its sectors and clusters"));
    }
    let sectors = |at| le32(sector, at).map(|sectors| u64::from(sectors) << sector_shift).ok_or_else(cut);
    let (table, table_bytes, heap_offset) = (sectors(80)?, sectors(84)?, sectors(88)?);
    let clusters = le32(sector, 92).ok_or_else(cut)?;
    let flags = le16(sector, 106).ok_or_else(cut)?;
    let tables = u8_at(sector, 110).ok_or_else(cut)?;
    if u64::from(clusters) + 2 > table_bytes / 4 || !(1..=2).contains(&tables) || clusters > 0xffff_fff5 {
        return Err(damaged("its table is shorter than it has clusters"));
    }
    let size = le64(sector, 72).ok_or_else(cut)?;
    let size_bytes = size.checked_mul(1 << sector_shift).filter(|size| *size <= crate::source::SIZE_MAX);
    // The second table counts where a flag says so.
    let second = tables == 2 && flags & 1 != 0;
    Ok(FatBoot {
        kind: FatKind::ExFat,
        tables: vec![if second { table + table_bytes } else { table }],
        heap_offset,
        cluster_bytes: 1 << (sector_shift + cluster_shift),
        clusters,
        root: FatRoot::Cluster(le32(sector, 96).ok_or_else(cut)?),
        size_bytes: size_bytes.ok_or_else(|| damaged("its size"))?,
        serial: le32(sector, 100).ok_or_else(cut)?,
        label: Vec::new(),
        is_dirty: flags & 2 != 0,
        had_errors: flags & 4 != 0,
        copied: None,
    })
}

/// Proves a boot region that begins at `at` by its checksum.
fn is_summed(source: &ByteSource, at: u64, sector: &[u8]) -> Result<(), Error> {
    let shift = u8_at(sector, 108).filter(|shift| (9..=12).contains(shift));
    let sector_bytes = 1_u64 << shift.ok_or_else(|| damaged("the size of its sectors"))?;
    let region = source.bytes(at, ((EXFAT_SUMMED_SECTORS + 1) * sector_bytes) as usize)?;
    let (summed, sums) = region.split_at((EXFAT_SUMMED_SECTORS * sector_bytes) as usize);
    match le32(sums, 0) == Some(checksum(summed)) {
        true => Ok(()),
        false => Err(damaged("its checksum is wrong")),
    }
}

/// The checksum of a boot region: the sum is rotated right by one bit and each byte added, but for
/// the flags and the percentage in use, which change.
fn checksum(summed: &[u8]) -> u32 {
    let changes = |ix: &usize| matches!(ix, 106 | 107 | 112);
    let bytes = summed.iter().enumerate().filter(|(ix, _)| !changes(ix));
    bytes.fold(0_u32, |sum, (_, &byte)| sum.rotate_right(1).wrapping_add(u32::from(byte)))
}

/// Makes the checksum of exFAT's first boot region right, for fuzzing.
pub(super) fn seal(image: &mut [u8]) {
    let shift = u8_at(image, 108).filter(|shift| (9..=12).contains(shift)).unwrap_or(9);
    let len = (EXFAT_SUMMED_SECTORS << shift) as usize;
    if image.get(3..11) == Some(b"EXFAT   ") && image.len() >= len + 4 {
        let sum = checksum(&image[..len]);
        image[len..len + 4].copy_from_slice(&sum.to_le_bytes());
    }
}
