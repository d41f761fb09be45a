//! Entries of directories, of FAT (with long names) and of exFAT.
//!
//! Both have entries of 32 bytes; a file takes several in a row. Times are what a clock on a wall
//! showed, of FAT without a word of where: they are taken for UTC, as Linux does with `tz=UTC`.

use crate::FileTime;
use crate::bytes::{le16, le32, le64, u8_at};
use crate::names::{of_dos, of_utf16, units};

use super::FatEntry;

/// An entry's size, and that of a part of a name.
pub(super) const ENTRY_BYTES: usize = 32;

/// Bits of attributes, of both.
mod attributes {
    pub const READ_ONLY: u8 = 0x01;
    pub const VOLUME: u8 = 0x08;
    pub const DIRECTORY: u8 = 0x10;
    /// None has these.
    pub const RESERVED: u8 = 0xc0;
    /// A part of a long name: read-only, hidden, system and volume at once.
    pub const LONG_NAME: u8 = 0x0f;
}

/// What an entry comes to.
pub(super) enum Step {
    /// There are no more, if what lies here was written.
    End,
    /// Nothing of its own.
    Skip,
    /// A file or directory, and its name; without what it says where its checksum is wrong.
    Found(Vec<u8>, Option<Box<FatEntry>>),
    /// Something that was a file or directory, of which not even the name is known.
    Damaged(&'static str),
    /// The volume's label.
    Label(Vec<u8>),
}

/// Puts together what takes several entries.
#[derive(Default)]
pub(super) struct LongName {
    units: Vec<u16>,
    checksum: u8,
    /// The number of the next part; 0 once all are here.
    next: u8,
}

impl LongName {
    /// Takes in a part; the last one comes first.
    fn take(&mut self, entry: &[u8]) {
        const LAST: u8 = 0x40;
        const PARTS_MAX: u8 = 20;
        let (number, checksum) = (entry[0], entry[13]);
        if number & LAST != 0 {
            *self = Self { units: Vec::new(), checksum, next: number & !LAST };
        }
        let fits = self.next > 0
            && self.next <= PARTS_MAX
            && number & !LAST == self.next
            && checksum == self.checksum;
        if !fits {
            *self = Self::default();
            return;
        }
        let part = [&entry[1..11], &entry[14..26], &entry[28..32]];
        let part: Vec<u16> = part.into_iter().flat_map(units).collect();
        self.units.splice(0..0, part);
        self.next -= 1;
        if self.next == 0 {
            let end = self.units.iter().position(|&unit| unit == 0).unwrap_or(self.units.len());
            self.units.truncate(end);
        }
    }

    /// The name that is whole and belongs to this entry of DOS.
    fn of(&mut self, short: &[u8]) -> Option<Vec<u8>> {
        let Self { units, checksum, next } = std::mem::take(self);
        let sum = short[..11].iter().fold(0_u8, |sum, &byte| sum.rotate_right(1).wrapping_add(byte));
        (next == 0 && !units.is_empty() && sum == checksum).then(|| of_utf16(units))
    }
}

/// An entry of FAT. A label is one of the root, and has no data: what says that it is one and is
/// not was a file or directory, or is in a sector that was lost: all of it is ones where flash
/// memory was erased. Only FAT32 has numbers of clusters that are longer than 16 bits: of the
/// others OS/2 keeps something else there.
pub(super) fn fat(entry: &[u8], is_32: bool, in_root: bool, long: &mut LongName) -> Step {
    const DELETED: u8 = 0xe5;
    if matches!(entry[0], 0 | DELETED) {
        *long = LongName::default();
        return if entry[0] == 0 { Step::End } else { Step::Skip };
    }
    let bits = entry[11];
    if bits & 0x3f == attributes::LONG_NAME {
        long.take(entry);
        return Step::Skip;
    }
    let long_name = long.of(entry);
    if bits & attributes::VOLUME != 0 {
        let is_label = in_root
            && bits & (attributes::DIRECTORY | attributes::RESERVED) == 0
            && entry[26..ENTRY_BYTES].iter().all(|&byte| byte == 0);
        if !is_label {
            return Step::Damaged("an entry that says it is a label, and cannot be one");
        }
        return Step::Label(of_dos(super::trimmed(&entry[..11]), false).into_bytes());
    }
    if entry[0] == b'.' && matches!(&entry[..2], b". " | b"..") {
        return Step::Skip;
    }
    let name = long_name.unwrap_or_else(|| short_name(entry));
    let number = |at| le16(entry, at).unwrap_or(0);
    let time = |date_at, time: Option<usize>, tenths: u8| {
        of_clock(u32::from(number(date_at)) << 16 | time.map_or(0, |at| u32::from(number(at))), tenths)
    };
    let is_directory = bits & attributes::DIRECTORY != 0;
    let size = le32(entry, 28).unwrap_or(0).into();
    let first_high = if is_32 { number(20) } else { 0 };
    Step::Found(
        name,
        Some(Box::new(FatEntry {
            is_directory,
            is_read_only: bits & attributes::READ_ONLY != 0,
            first: u32::from(first_high) << 16 | u32::from(number(26)),
            in_one_piece: false,
            size: if is_directory { 0 } else { size },
            valid: size,
            accessed: time(18, None, 0),
            modified: time(24, Some(22), 0),
            created: time(16, Some(14), entry[13]),
        })),
    )
}

/// A name of eight letters and three.
fn short_name(entry: &[u8]) -> Vec<u8> {
    /// Windows keeps here which part is in small letters.
    const SMALL_BASE: u8 = 0x08;
    const SMALL_EXTENSION: u8 = 0x10;
    let mut base = entry[..8].to_vec();
    // The first letter may be one that marks deleted entries.
    if base[0] == 0x05 {
        base[0] = 0xe5;
    }
    let case = entry[12];
    let mut name = of_dos(super::trimmed(&base), case & SMALL_BASE != 0);
    let extension = super::trimmed(&entry[8..11]);
    if !extension.is_empty() {
        name.push('.');
        name += &of_dos(extension, case & SMALL_EXTENSION != 0);
    }
    // A name of nothing but blanks is none that a path can have.
    if name.is_empty() { b"_".to_vec() } else { name.into_bytes() }
}

/// Puts together what takes several entries of exFAT: file, stream, names. One checksum covers
/// them, and nothing of a set is used that it does not prove.
#[derive(Default)]
pub(super) struct ExFatSet {
    /// What the first one says, while others are to come.
    entry: Option<Box<FatEntry>>,
    /// Entries of it that are still to come.
    left: u8,
    name: Vec<u16>,
    name_len: usize,
    /// The checksum that the first one has of all, and that of those that came.
    stored_sum: u16,
    sum: u16,
    /// What begins is of a kind that is not known, and may have entries behind it as a file does.
    is_unknown: bool,
}

impl ExFatSet {
    /// Whether an entry is the first of a file, whose place is the file's number.
    pub fn is_first(entry: &[u8]) -> bool {
        entry[0] == kinds::FILE
    }

    /// Whether entries of it are still to come.
    pub fn is_begun(&self) -> bool {
        self.entry.is_some()
    }

    /// What the entry that comes next proves to be damaged, if it does: a set that ends too soon,
    /// or a part of one whose beginning is gone.
    pub fn broken_by(&self, entry: &[u8]) -> Option<&'static str> {
        match (is_part(entry), self.is_begun()) {
            (false, true) => Some(NOT_WHOLE),
            (true, false) if !self.is_unknown || entry[0] == kinds::STREAM => {
                Some("the first of its entries is missing")
            }
            _ => None,
        }
    }

    /// Takes in an entry, of the root or another directory.
    pub fn take(&mut self, entry: &[u8], in_root: bool) -> Step {
        match entry[0] {
            0 => {
                *self = Self::default();
                return Step::End;
            }
            kinds::FILE => {
                *self = Self {
                    left: entry[1],
                    entry: Some(Box::new(file_entry(entry))),
                    stored_sum: le16(entry, SET_SUM.start).unwrap_or(0),
                    sum: first_sum(entry),
                    ..Self::default()
                };
                return Step::Skip;
            }
            _ if is_part(entry) && !self.is_begun() => return Step::Skip,
            kinds::LABEL if in_root => {
                *self = Self::default();
                let len = usize::from(entry[1]).min(11) * 2;
                return Step::Label(of_utf16(units(&entry[2..2 + len])));
            }
            kinds::STREAM => self.stream(entry),
            kinds::NAME => self.name.extend(units(&entry[2..])),
            // In use and secondary, and not needed to read the file.
            _ if is_part(entry) => {}
            // A deleted one, or one of the volume.
            kind => {
                *self = Self { is_unknown: kind & IN_USE != 0, ..Self::default() };
                let is_known = matches!(kind, kinds::BITMAP | kinds::LETTERS) && in_root;
                return match kind & (IN_USE | BENIGN) == IN_USE && !is_known {
                    true => Step::Damaged("an entry of an unknown kind that must not be passed over"),
                    false => Step::Skip,
                };
            }
        }
        self.sum = add_to_sum(self.sum, entry);
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return Step::Skip;
        }
        let Self { entry, mut name, name_len, stored_sum, sum, .. } = std::mem::take(self);
        name.truncate(name_len);
        match name.is_empty() {
            true => Step::Damaged(NOT_WHOLE),
            false => Step::Found(of_utf16(name), entry.filter(|_| sum == stored_sum)),
        }
    }

    fn stream(&mut self, entry: &[u8]) {
        const IN_ONE_PIECE: u8 = 2;
        let Some(found) = &mut self.entry else { return };
        self.name_len = usize::from(entry[3]);
        found.in_one_piece = entry[1] & IN_ONE_PIECE != 0;
        found.first = le32(entry, 20).unwrap_or(0);
        found.size = le64(entry, 24).unwrap_or(0);
        found.valid = le64(entry, 8).unwrap_or(0).min(found.size);
    }
}

const NOT_WHOLE: &str = "its entries are not whole";

/// Where the first entry of a set has the checksum of all, which does not cover itself.
const SET_SUM: std::ops::Range<usize> = 2..4;

/// Bits of the kinds of entries of exFAT.
const IN_USE: u8 = 0x80;
const SECONDARY: u8 = 0x40;
/// What does not know one passes it over with all that belongs to it; of others the whole directory
/// is in question.
const BENIGN: u8 = 0x20;

/// Whether an entry is in use and belongs to one before it.
fn is_part(entry: &[u8]) -> bool {
    entry[0] & (IN_USE | SECONDARY) == IN_USE | SECONDARY
}

/// The checksum of a set: the sum is rotated right by one bit and each byte added.
fn add_to_sum(sum: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(sum, |sum, &byte| sum.rotate_right(1).wrapping_add(byte.into()))
}

fn first_sum(entry: &[u8]) -> u16 {
    add_to_sum(add_to_sum(0, &entry[..SET_SUM.start]), &entry[SET_SUM.end..])
}

/// Makes the checksums of what looks like sets of exFAT right, for fuzzing.
pub(super) fn seal(image: &mut [u8]) {
    for at in (0..image.len()).step_by(ENTRY_BYTES) {
        let Some((first, rest)) = image[at..].split_at_mut_checked(ENTRY_BYTES) else { return };
        let rest = rest.get(..usize::from(first[1]) * ENTRY_BYTES);
        let Some(rest) = rest.filter(|rest| rest.first() == Some(&kinds::STREAM)) else { continue };
        if ExFatSet::is_first(first) {
            let sum = add_to_sum(first_sum(first), rest);
            first[SET_SUM].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// Kinds of entries of exFAT; the high bit says that they are in use.
mod kinds {
    pub const BITMAP: u8 = 0x81;
    pub const LETTERS: u8 = 0x82;
    pub const LABEL: u8 = 0x83;
    pub const FILE: u8 = 0x85;
    pub const STREAM: u8 = 0xc0;
    pub const NAME: u8 = 0xc1;
}

fn file_entry(entry: &[u8]) -> FatEntry {
    let bits = entry[4];
    let time = |at, tenths: u8, zone_at| {
        let time = of_clock(le32(entry, at).unwrap_or(0), tenths);
        FileTime { seconds: time.seconds - zone_seconds(u8_at(entry, zone_at).unwrap_or(0)), ..time }
    };
    FatEntry {
        is_directory: bits & attributes::DIRECTORY != 0,
        is_read_only: bits & attributes::READ_ONLY != 0,
        first: 0,
        in_one_piece: false,
        size: 0,
        valid: 0,
        created: time(8, entry[20], 22),
        modified: time(12, entry[21], 23),
        accessed: time(16, 0, 24),
    }
}

/// How far a clock was ahead of UTC: in quarters of an hour, if that is known.
fn zone_seconds(zone: u8) -> i64 {
    const IS_KNOWN: u8 = 0x80;
    // Seven bits with a sign.
    let quarters = i64::from((zone << 1).cast_signed() >> 1);
    if zone & IS_KNOWN != 0 { quarters * 15 * 60 } else { 0 }
}

/// A date and time as DOS packs them, date in the high half; `hundredths` of a second come on top.
fn of_clock(packed: u32, hundredths: u8) -> FileTime {
    let bits = |shift: u32, count: u32| i64::from(packed >> shift & ((1 << count) - 1));
    let (year, month, day) = (1980 + bits(25, 7), bits(21, 4).clamp(1, 12), bits(16, 5).max(1));
    let seconds = days_since_1970(year, month, day) * 86_400
        + bits(11, 5) * 3600
        + bits(5, 6) * 60
        + bits(0, 5) * 2
        + i64::from(hundredths / 100);
    FileTime { seconds, nanoseconds: u32::from(hundredths % 100) * 10_000_000 }
}

/// Of the calendar in use, for years from 1970 on.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Counted from March on, leap days come last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    days - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(days_since_1970(1970, 1, 1), 0);
        assert_eq!(days_since_1970(2000, 2, 29), 11_016);
        assert_eq!(days_since_1970(2026, 11, 26), 20_783);
        let packed = (46 << 25 | 11 << 21 | 26 << 16) | (12 << 11 | 30 << 5 | 5);
        assert_eq!(of_clock(packed, 150), FileTime::new(20_783 * 86_400 + 45_000 + 11, 500_000_000));
    }

    #[test]
    fn zones_have_a_sign() {
        assert_eq!(zone_seconds(0x84), 3600);
        assert_eq!(zone_seconds(0xf8), -7200);
        assert_eq!(zone_seconds(0x04), 0);
    }
}
