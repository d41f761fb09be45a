//! The journal of a volume that was not unmounted: blocks of its own structures that are newer.
//!
//! TN1150, "Journal", which knows neither numbers of transactions nor checksums of their blocks;
//! these, and that complete transactions may follow the end that the journal's header names, are
//! facts of Apple's `hfs_journal.h` and of what macOS does at a mount.
//!
//! The journal is a ring behind its header. A transaction is one or several lists of blocks, each
//! followed by the blocks it names. What is not whole is not applied; and nothing is applied
//! before all that is to be was read.

use std::ops::Range;

use crate::Note;
use crate::bytes::{be32, be64};
use crate::error::Error;
use crate::hfs::header::HfsPlace;
use crate::source::ByteSource;

const MAGIC: u32 = 0x4a4e_4c78;
/// In the byte order of the machine that made the journal.
const ENDIAN: u32 = 0x1234_5678;

/// What the checksum of the header covers: a number of a transaction came behind it later.
const HEADER_SUM_BYTES: usize = 44;
const HEADER_SUM_AT: usize = 36;
/// The checksum of a list covers its head and its first entry, which names no block.
const LIST_SUM_BYTES: usize = 32;
const LIST_SUM_AT: usize = 8;
const LIST_HEAD_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
/// Of a block that was freed before the transaction was written.
const KILLED: u64 = u64::MAX;

/// Flags of lists.
const HAS_SUMS: u32 = 1;
const IS_FIRST: u32 = 2;

/// As macOS: no journal is larger.
const JOURNAL_BYTES_MAX: u64 = 1 << 30;
/// What is held in memory; journals of this size are of volumes of several TiB.
const REPLAY_BYTES_MAX: u64 = 512 << 20;
const SECTOR_BYTES: u64 = 512;
/// More than a list of the largest journal has.
const LIST_BYTES_MAX: u64 = 4 << 20;

/// Applies what the journal holds. What is to be known of that is the note.
pub fn replay(source: &mut ByteSource, place: &HfsPlace) -> Option<Note> {
    let header = &place.header;
    if !header.has_journal() {
        return (!header.was_unmounted()).then_some(Note::NoJournal);
    }
    if !header.journal_is_current() {
        let why = "what mounted it last did not keep the journal, which is older than what is there";
        return (!header.was_unmounted()).then_some(Note::JournalNotApplied { why });
    }
    let found = match Ring::open(source, place) {
        Ok(None) => return None,
        Ok(Some(ring)) => ring.collect(source),
        Err(why) => return Some(Note::JournalNotApplied { why }),
    };
    let blocks = found.blocks.len() as u64;
    for (offset, bytes) in found.blocks {
        if let Err(why) = source.overlay(offset, &bytes) {
            return Some(Note::JournalNotApplied { why });
        }
    }
    match found.damage {
        Some(why) if blocks == 0 => Some(Note::JournalNotApplied { why }),
        Some(why) => Some(Note::JournalCutShort { why }),
        None => (blocks > 0).then_some(Note::JournalApplied { blocks }),
    }
}

/// As TN1150 has it: of bytes, one by one.
fn checksum(bytes: &[u8], without: Range<usize>) -> u32 {
    let sum = bytes.iter().enumerate().fold(0_u32, |sum, (at, &byte)| {
        let byte = if without.contains(&at) { 0 } else { byte };
        (sum << 8) ^ sum.wrapping_add(byte.into())
    });
    !sum
}

/// Integers in the byte order of a journal.
#[derive(Debug, Clone, Copy)]
struct JournalWords {
    is_little: bool,
}

impl JournalWords {
    fn word(self, bytes: &[u8], at: usize) -> Option<u32> {
        be32(bytes, at).map(|word| if self.is_little { word.swap_bytes() } else { word })
    }

    fn bytes(self, word: u32) -> [u8; 4] {
        if self.is_little { word.to_le_bytes() } else { word.to_be_bytes() }
    }

    fn half(self, bytes: &[u8], at: usize) -> Option<u16> {
        crate::bytes::be16(bytes, at).map(|half| if self.is_little { half.swap_bytes() } else { half })
    }

    fn long(self, bytes: &[u8], at: usize) -> Option<u64> {
        be64(bytes, at).map(|long| if self.is_little { long.swap_bytes() } else { long })
    }
}

/// A journal that is not empty.
#[derive(Debug)]
struct Ring {
    /// Where its header is.
    offset: u64,
    words: JournalWords,
    /// The ring, from the header's first byte on.
    bytes: Range<u64>,
    /// The first transaction, and what is behind the last: in `bytes`.
    start: u64,
    end: u64,
    list_bytes: u64,
    /// Numbers of blocks count in that.
    sector_bytes: u64,
}

/// What transactions come to.
#[derive(Default)]
struct Found {
    /// Where blocks belong, and what is newer, in order.
    blocks: Vec<(u64, Vec<u8>)>,
    /// Why what follows is not used.
    damage: Option<&'static str>,
}

/// A list of blocks: what it takes with these, and what it has.
struct List {
    bytes: u64,
    number: u32,
    is_first: bool,
    continues: bool,
    blocks: Vec<(u64, Vec<u8>)>,
}

/// What is at a place where a list may be.
enum Next {
    List(List),
    /// No list begins here.
    Nothing(&'static str),
    /// A list begins here that is damaged, and with it a transaction, or it belongs to the one
    /// before.
    Damaged {
        why: &'static str,
        is_first: bool,
    },
}

impl Ring {
    /// Finds the journal; `None` if there is nothing in it.
    fn open(source: &ByteSource, place: &HfsPlace) -> Result<Option<Self>, &'static str> {
        const IN_VOLUME: u32 = 1;
        const ELSEWHERE: u32 = 2;
        const NEEDS_INIT: u32 = 4;
        const CUT: &str = "what says where it is, is cut off";
        let header = &place.header;
        let info = place.base + u64::from(header.journal_info_block) * header.block_bytes;
        let info = source.bytes(info, 52).map_err(|_| "what says where it is cannot be read")?;
        let flags = be32(&info, 0).ok_or(CUT)?;
        if flags & NEEDS_INIT != 0 {
            return Ok(None);
        }
        if flags & ELSEWHERE != 0 || flags & IN_VOLUME == 0 {
            return Err("it is on another device");
        }
        let (offset, len) = (be64(&info, 36).ok_or(CUT)?, be64(&info, 44).ok_or(CUT)?);
        let offset = place.base.checked_add(offset).ok_or("it lies beyond the end")?;
        if len > JOURNAL_BYTES_MAX || offset.checked_add(len).is_none_or(|end| end > source.size()) {
            return Err("it lies beyond the end, or is too large");
        }
        let head = source.bytes(offset, HEADER_SUM_BYTES).map_err(|_| "its header cannot be read")?;
        Self::decode(&head, offset, len).ok_or("its header is cut off")?
    }

    fn decode(head: &[u8], offset: u64, len: u64) -> Option<Result<Option<Self>, &'static str>> {
        let big = JournalWords { is_little: false };
        let words = JournalWords { is_little: big.word(head, 4)? != ENDIAN };
        if (words.word(head, 0)?, words.word(head, 4)?) != (MAGIC, ENDIAN) {
            return Some(Err("its header is none"));
        }
        let sum = words.word(head, HEADER_SUM_AT)?;
        if sum != checksum(head, HEADER_SUM_AT..HEADER_SUM_AT + 4) {
            return Some(Err("the checksum of its header is wrong"));
        }
        let (start, end, size) = (words.long(head, 8)?, words.long(head, 16)?, words.long(head, 24)?);
        let (list_bytes, sector_bytes) = (u64::from(words.word(head, 32)?), u64::from(words.word(head, 40)?));
        let bytes = sector_bytes..size;
        let is_place = |at: u64| bytes.start <= at && at <= bytes.end && at.is_multiple_of(SECTOR_BYTES);
        let fits = size <= len
            && sector_bytes >= SECTOR_BYTES
            && sector_bytes.is_multiple_of(SECTOR_BYTES)
            && (LIST_SUM_BYTES as u64..=LIST_BYTES_MAX).contains(&list_bytes)
            && list_bytes < size - sector_bytes.min(size)
            && is_place(start)
            && is_place(end);
        if !fits {
            return Some(Err("its header is impossible"));
        }
        let turned = |at: u64| if at == size { sector_bytes } else { at };
        let (start, end) = (turned(start), turned(end));
        let ring = Self { offset, words, bytes, start, end, list_bytes, sector_bytes };
        Some(Ok((start != end).then_some(ring)))
    }

    fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    /// So many bytes further in the ring.
    fn further(&self, at: u64, bytes: u64) -> u64 {
        self.bytes.start + (at - self.bytes.start + bytes) % self.len()
    }

    /// Bytes of the ring, which may go over its end.
    fn read(&self, source: &ByteSource, at: u64, len: u64) -> Result<Vec<u8>, Error> {
        let first = len.min(self.bytes.end - at);
        let mut bytes = source.bytes(self.offset + at, first as usize)?;
        if first < len {
            let rest = source.bytes(self.offset + self.bytes.start, (len - first) as usize)?;
            bytes.extend(rest);
        }
        Ok(bytes)
    }

    /// Reads the transactions, those that are whole.
    fn collect(&self, source: &ByteSource) -> Found {
        let mut found = Found::default();
        // Blocks of the transaction that is being read begin there.
        let mut transaction = 0;
        let (mut at, mut done, mut number) = (self.start, 0_u64, 0);
        let named = (self.end + self.len() - self.start) % self.len();
        let mut held = 0_u64;
        while done < self.len() {
            let is_named = done < named;
            if !is_named && number == 0 {
                return found;
            }
            let list = match self.list(source, at, number) {
                Next::List(list) if list.bytes <= self.len() - done => list,
                // Behind the end that the header names, anything may be.
                Next::Nothing(_) if !is_named => return found,
                Next::Damaged { is_first: true, why } => {
                    found.damage = is_named.then_some(why);
                    return found;
                }
                Next::Nothing(why) | Next::Damaged { why, .. } => {
                    found.blocks.truncate(transaction);
                    found.damage = is_named.then_some(why);
                    return found;
                }
                Next::List(_) => {
                    found.blocks.truncate(transaction);
                    found.damage = Some("a list of blocks is longer than the journal");
                    return found;
                }
            };
            if list.is_first {
                transaction = found.blocks.len();
            }
            held += list.blocks.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
            found.blocks.extend(list.blocks);
            if held > REPLAY_BYTES_MAX {
                let why = "it changes more than 512 MiB, which is not held in memory";
                return Found { damage: Some(why), blocks: Vec::new() };
            }
            if !list.continues {
                transaction = found.blocks.len();
            }
            number = list.number;
            done += list.bytes;
            at = self.further(at, list.bytes);
        }
        found
    }

    /// The list at a place, if it is the one that follows the transaction of that number.
    fn list(&self, source: &ByteSource, at: u64, last: u32) -> Next {
        let Ok(head) = self.read(source, at, self.list_bytes) else {
            return Next::Damaged { why: "a part of it cannot be read", is_first: false };
        };
        let sum = self.words.word(&head, LIST_SUM_AT);
        let computed = checksum(&head[..LIST_SUM_BYTES], LIST_SUM_AT..LIST_SUM_AT + 4);
        if sum != Some(computed) {
            return Next::Nothing("the checksum of a list of blocks is wrong");
        }
        match self.blocks_of(source, at, &head, last) {
            Some(next) => next,
            None => Next::Damaged { why: "a list of blocks is cut off", is_first: false },
        }
    }

    fn blocks_of(&self, source: &ByteSource, at: u64, head: &[u8], last: u32) -> Option<Next> {
        let words = self.words;
        let (most, count) = (words.half(head, 0)?, words.half(head, 2)?);
        let (bytes, flags) = (u64::from(words.word(head, 4)?), words.word(head, 12)?);
        let number = words.word(head, LIST_HEAD_BYTES + 12)?;
        let is_first = flags & IS_FIRST != 0;
        let damaged = |why| Some(Next::Damaged { why, is_first });
        if last != 0 && number != 0 && number != last && number != last.wrapping_add(1) {
            return Some(Next::Nothing("its transactions are not in order"));
        }
        if count == 0 || count > most || bytes < self.list_bytes || bytes > self.len().min(REPLAY_BYTES_MAX) {
            return damaged("a list of blocks is impossible");
        }
        let mut blocks = Vec::new();
        let mut place = self.list_bytes;
        for entry in 1..usize::from(count) {
            let entry_at = LIST_HEAD_BYTES + entry * ENTRY_BYTES;
            let (block, len) = (words.long(head, entry_at)?, u64::from(words.word(head, entry_at + 8)?));
            let sum = words.word(head, entry_at + 12)?;
            if place + len > bytes {
                return damaged("the blocks of a list take more than it has");
            }
            if block != KILLED {
                let target = block.checked_mul(self.sector_bytes);
                let end = target.and_then(|target| target.checked_add(len));
                if !len.is_multiple_of(SECTOR_BYTES) || end.is_none_or(|end| end > source.size()) {
                    return damaged("a block of it lies beyond the end");
                }
                let Ok(bytes) = self.read(source, self.further(at, place), len) else {
                    return damaged("a part of it cannot be read");
                };
                if flags & HAS_SUMS != 0 && sum != 0 && sum != checksum(&bytes, 0..0) {
                    return damaged("the checksum of a block is wrong");
                }
                blocks.extend(target.map(|target| (target, bytes)));
            }
            place += len;
        }
        // Old journals have no flags, and say of each list whether another one follows.
        let is_old = flags & (HAS_SUMS | IS_FIRST) == 0;
        let continues = !is_old || number != 0;
        let number = if is_old { 0 } else { number };
        Some(Next::List(List { bytes, number, is_first, continues, blocks }))
    }
}

/// Makes the checksums of the journal's header and of its first lists right, for fuzzing.
pub fn seal(image: &mut [u8]) {
    const LISTS_MAX: usize = 8;
    let Some(ring) = ring_of(image) else { return };
    let mut at = ring.start;
    for _ in 0..LISTS_MAX {
        let place = usize::try_from(ring.offset.saturating_add(at)).ok();
        let list = place.and_then(|place| image.get_mut(place..)?.get_mut(..LIST_SUM_BYTES));
        let Some(list) = list else { return };
        let sum = checksum(list, LIST_SUM_AT..LIST_SUM_AT + 4);
        list[LIST_SUM_AT..LIST_SUM_AT + 4].copy_from_slice(&ring.words.bytes(sum));
        let Some(len) = ring.words.word(list, 4).filter(|len| u64::from(*len) < ring.len()) else { return };
        at = ring.further(at, len.into());
    }
}

/// The ring of an image whose journal is in its usual place, with the checksum of its header made
/// right.
fn ring_of(image: &mut [u8]) -> Option<Ring> {
    let block_bytes = u64::from(be32(image, 1024 + 40)?);
    let info = u64::from(be32(image, 1024 + 12)?).checked_mul(block_bytes)?;
    let info = usize::try_from(info).ok()?;
    let (offset, len) = (be64(image, info.checked_add(36)?)?, be64(image, info.checked_add(44)?)?);
    let at = usize::try_from(offset).ok()?;
    let head = image.get_mut(at..)?.get_mut(..HEADER_SUM_BYTES)?;
    let words = JournalWords { is_little: be32(head, 4)? != ENDIAN };
    let sum = checksum(head, HEADER_SUM_AT..HEADER_SUM_AT + 4);
    head[HEADER_SUM_AT..HEADER_SUM_AT + 4].copy_from_slice(&words.bytes(sum));
    Ring::decode(head, offset, len)?.ok()?
}
