//! What has to be known before a block can be read: the journal, the bitmap, the checksum.

use std::collections::BTreeMap;

use wattle_crypt::{SecretBytes, TagMaker};
use wattle_format::integrity::{
    DIRTY_BITMAP, DISCARDED, FIXED_HMAC, IntegrityLayout, IntegritySuperblock, JOURNAL_MAC, JournalRing,
    JournalSection, LoggedBlock,
};

use super::{IntegrityDevice, IntegrityFacts, journal_damaged, no_checksum, unsupported};
use crate::members::{Keyring, Member};
use crate::problem::{Check, Code, Forced, Problem};

/// Blocks that are looked at for what tags are made with.
const SAMPLES: u64 = 64;
/// Bits of tags that have to be right before they prove anything.
const PROOF_BITS: u64 = 32;
/// Blocks of a journal that are kept track of: far more than Linux makes journals for.
const LOGGED_MAX: usize = 4 << 20;
/// The longest bitmap that is read, bytes.
const BITMAP_BYTES_MAX: u64 = 64 << 20;
/// What is read of the tags where the samples were all discarded, bytes at once and in all.
const TAGS_BYTES: usize = 1 << 20;
const TAGS_BYTES_MAX: u64 = 256 << 20;

/// What was found out about a device.
#[derive(Debug)]
pub(crate) struct Opened {
    /// What its blocks are read by.
    pub tags: OpenedTags,
    /// What its users are told.
    pub facts: IntegrityFacts,
    /// The ring of its journal, or why it cannot be written.
    pub ring: Result<JournalRing, &'static str>,
}

/// What a journal holds, by the sectors of its blocks, and where each lies there, bytes.
type LoggedBlocks = BTreeMap<u64, (u64, LoggedBlock)>;

/// What blocks are read by.
#[derive(Debug, Clone)]
pub(crate) struct OpenedTags {
    pub layout: IntegrityLayout,
    pub block_bytes: u32,
    pub sectors: u64,
    /// Where tags end that count, sectors.
    tags_end: u64,
    /// The bits of blocks whose tags do not count.
    bitmap: Vec<u8>,
    logged: LoggedBlocks,
    maker: Option<TagMaker>,
}

impl OpenedTags {
    /// Reads what is to be known of a device, and of what is to be written the ring of its journal,
    /// or why it cannot be written.
    pub fn read(
        device: &IntegrityDevice,
        member: &Member,
        keys: &Keyring,
        (forced, to_write): (Forced, bool),
    ) -> Result<Opened, Problem> {
        let superblock = &device.superblock;
        let mut tags = Self {
            layout: device.layout.clone(),
            block_bytes: superblock.block_bytes(),
            sectors: superblock.provided_sectors,
            tags_end: superblock.tags_end_sector(),
            bitmap: Vec::new(),
            logged: BTreeMap::new(),
            maker: None,
        };
        let mut notes = Vec::new();
        let mut ring = Err("its journal was passed over");
        if superblock.has(DIRTY_BITMAP) {
            tags.bitmap = tags.read_bitmap(member)?;
            ring = Err("the bitmap in place of its journal is in use: close it once with integritysetup");
        } else {
            match tags.read_journal(member, to_write) {
                Ok((logged, found)) => {
                    tags.logged = logged;
                    ring = Ok(found);
                }
                Err(problem) if problem.force.is_some_and(|check| forced.has(check)) => {
                    notes.push(format!(
                        "{}; --force={}: its journal is passed over, and what is read may be old",
                        problem.what,
                        Check::Journal
                    ));
                }
                Err(problem) => return Err(problem),
            }
        }
        tags.maker = tags.find_maker(member, superblock, keys)?;
        let facts = IntegrityFacts {
            checksum: tags.maker.as_ref().map(TagMaker::name),
            logged_blocks: tags.logged.len() as u64,
            unchecked_sectors: tags.unchecked_sectors(),
            only_read: None,
            notes,
        };
        let ring = ring.and_then(|ring| match &tags.maker {
            _ if superblock.has(JOURNAL_MAC) => Err("its journal has codes with a key of their own"),
            None => Err("no tag on it says what its checksum is"),
            Some(_) if ring.next.is_none() => Err("older sections of its journal are damaged"),
            Some(_) => Ok(ring),
        });
        Ok(Opened { tags, facts, ring })
    }

    /// What tags are made with, if that is known.
    pub fn maker(&self) -> Option<&TagMaker> {
        self.maker.as_ref()
    }

    /// What is in the journal, by where it lies there.
    pub fn logged_by_place(&self) -> BTreeMap<u64, &LoggedBlock> {
        self.logged.values().map(|(at, logged)| (*at, logged)).collect()
    }

    /// The same once the journal was brought to its places.
    pub fn settled(self) -> Self {
        Self { logged: BTreeMap::new(), ..self }
    }

    /// Where the block at `sector` lies in the journal, and what else is known of it there.
    pub fn logged(&self, sector: u64) -> Option<&(u64, LoggedBlock)> {
        self.logged.get(&sector)
    }

    /// Whether the tag of the block at `sector` counts.
    fn is_checked(&self, sector: u64) -> bool {
        let bit = self.layout.bit(sector);
        let byte = usize::try_from(bit / 8).ok().and_then(|byte| self.bitmap.get(byte));
        sector < self.tags_end && byte.is_none_or(|byte| byte & 1 << (bit % 8) == 0)
    }

    /// Whether the block at `sector`, read from its place, is what was written there as far as it
    /// can be known.
    pub fn is_good(&self, sector: u64, tag: &[u8], block: &[u8]) -> bool {
        if !self.is_checked(sector) {
            return true;
        }
        let Some(maker) = &self.maker else { return is_discarded(tag) };
        // A discard needs no key, and would pass for what was written under one.
        maker.is_tag_of(tag, sector, block) || (!maker.has_key() && is_discarded(tag))
    }

    /// Whether a block of the journal is what was written.
    pub fn is_good_logged(&self, logged: &LoggedBlock, block: &[u8]) -> bool {
        self.maker.as_ref().is_some_and(|maker| maker.is_tag_of(&logged.tag, logged.sector, block))
    }

    fn unchecked_sectors(&self) -> u64 {
        let behind = self.sectors - self.tags_end;
        let per_bit = (0..64).map(|shift| 1 << shift).find(|&len| self.layout.bit(len) == 1).unwrap_or(1);
        let named = (0..).zip(&self.bitmap).map(|(at, byte): (u64, _)| {
            let bits = (0..8).filter(|bit| byte & 1 << bit != 0);
            let starts = bits.map(|bit| (at * 8 + bit).saturating_mul(per_bit).min(self.tags_end));
            starts.map(|start| per_bit.min(self.tags_end - start)).sum::<u64>()
        });
        behind + named.sum::<u64>()
    }

    fn read_bitmap(&self, member: &Member) -> Result<Vec<u8>, Problem> {
        let bitmap = self.layout.bitmap().filter(|(_, len)| *len <= BITMAP_BYTES_MAX);
        let Some((at, len)) = bitmap else {
            return Err(unsupported(&member.name, "its bitmap does not fit its place"));
        };
        Ok(member.read(at, len as usize)?)
    }

    /// Reads the journal: what counts of it, and what is known of its sections. Of one that holds
    /// nothing, and is not to be written, only the heads are read.
    fn read_journal(&self, member: &Member, to_write: bool) -> Result<(LoggedBlocks, JournalRing), Problem> {
        let (layout, name) = (&self.layout, &member.name);
        let unread = |error: crate::members::MemberError| journal_damaged(name, &error.to_string());
        let read = |section: u32, len: u64| {
            member.read(layout.section_at_bytes(section), len as usize).map_err(unread)
        };
        let mut is_unused = true;
        for section in 0..layout.sections {
            let head = read(section, JournalSection::head_bytes() as u64)?;
            is_unused &= JournalSection::is_unused(layout, &head);
            if !is_unused {
                break;
            }
        }
        let fresh = || Ok((BTreeMap::new(), JournalRing::fresh(layout.sections)));
        if is_unused && !to_write {
            return fresh();
        }
        let (mut rounds, mut found, mut count) = (Vec::new(), Vec::new(), 0);
        for section in 0..layout.sections {
            let bytes = read(section, layout.section_bytes())?;
            let parsed = match JournalSection::parse(layout, section, &bytes) {
                Ok(parsed) => parsed,
                // It was never begun, or what was written over it is not in use any more.
                Err(_) if is_unused => return fresh(),
                Err(error) => return Err(journal_damaged(name, &error.to_string())),
            };
            rounds.push(parsed.rounds);
            count += parsed.blocks.len();
            if count > LOGGED_MAX {
                return Err(journal_too_large(name));
            }
            found.push(parsed.blocks);
        }
        let ring = match JournalRing::of(&rounds) {
            Ok(ring) => ring,
            Err(_) if is_unused => return fresh(),
            Err(error) => return Err(journal_damaged(name, &error.to_string())),
        };
        let mut logged = BTreeMap::new();
        for &section in &ring.counted {
            for block in std::mem::take(&mut found[section as usize]) {
                let per_block = u64::from(self.block_bytes) / 512;
                let sector = block.sector;
                if !sector.is_multiple_of(per_block) || sector.saturating_add(per_block) > self.sectors {
                    let what = format!("an entry of section {section} is for sector {sector}");
                    return Err(journal_damaged(name, &what));
                }
                let at = layout.section_at_bytes(section) + layout.entry_data_bytes(block.entry);
                logged.insert(sector, (at, block));
            }
        }
        Ok((logged, ring))
    }

    /// Finds what tags are made with: what gives most of those that are looked at. `None` if no
    /// block has a tag that counts.
    fn find_maker(
        &self,
        member: &Member,
        superblock: &IntegritySuperblock,
        keys: &Keyring,
    ) -> Result<Option<TagMaker>, Problem> {
        let given: Vec<SecretBytes> = keys.given().into_iter().map(|key| key.secret).collect();
        let salt = superblock.has(FIXED_HMAC).then_some(superblock.salt);
        let makers = TagMaker::all(usize::from(superblock.tag_bytes), salt, &given);
        let mut samples = self.spread(member);
        if samples.is_empty() {
            samples = self.first_tags(member);
        }
        if samples.is_empty() {
            return Ok(None);
        }
        let count = |maker: &TagMaker| {
            samples.iter().filter(|(sector, tag, block)| maker.is_tag_of(tag, *sector, block)).count() as u64
        };
        let counted = makers.into_iter().map(|maker| (count(&maker), maker));
        let best = counted.reduce(|best, next| if next.0 > best.0 { next } else { best });
        match best {
            Some((right, maker)) if right * 8 * u64::from(superblock.tag_bytes) >= PROOF_BITS => {
                Ok(Some(maker))
            }
            _ => Err(no_checksum(&member.name, superblock.tag_bytes, !given.is_empty())),
        }
    }

    /// Blocks that can be read and have tags that count, spread over the device.
    fn spread(&self, member: &Member) -> Vec<(u64, Vec<u8>, Vec<u8>)> {
        let per_block = u64::from(self.block_bytes) / 512;
        let blocks = self.tags_end / per_block;
        let step = (blocks / SAMPLES).max(1);
        let sectors = (0..SAMPLES).map(|nth| nth * step).filter(|&block| block < blocks);
        let sectors = sectors.map(|block| block * per_block).filter(|&sector| self.is_checked(sector));
        sectors.filter_map(|sector| self.sample(member, sector)).collect()
    }

    fn sample(&self, member: &Member, sector: u64) -> Option<(u64, Vec<u8>, Vec<u8>)> {
        let tag = member.read(self.layout.tag_at_bytes(sector), self.layout.tag_bytes as usize).ok()?;
        if is_discarded(&tag) {
            return None;
        }
        let at = self.layout.data_sector(sector) * 512;
        let block = member.read(at, self.block_bytes as usize).ok()?;
        Some((sector, tag, block))
    }

    /// The first blocks whose tags count and are not those of discarded blocks.
    fn first_tags(&self, member: &Member) -> Vec<(u64, Vec<u8>, Vec<u8>)> {
        let (per_block, tag_bytes) = (u64::from(self.block_bytes) / 512, self.layout.tag_bytes);
        let (mut sector, mut looked, mut found) = (0, 0, Vec::new());
        while sector < self.tags_end && looked < TAGS_BYTES_MAX && (found.len() as u64) < SAMPLES {
            let run = self.layout.run_sectors(sector).min(self.tags_end - sector);
            let count = (run / per_block).clamp(1, TAGS_BYTES as u64 / tag_bytes);
            let tags = member.read(self.layout.tag_at_bytes(sector), (count * tag_bytes) as usize);
            for (nth, tag) in (0..).zip(tags.unwrap_or_default().chunks_exact(tag_bytes as usize)) {
                let at = sector + nth * per_block;
                if (found.len() as u64) < SAMPLES && !is_discarded(tag) && self.is_checked(at) {
                    found.extend(self.sample(member, at));
                }
            }
            looked += count * tag_bytes;
            sector += count * per_block;
        }
        found
    }
}

fn is_discarded(tag: &[u8]) -> bool {
    tag.iter().all(|&byte| byte == DISCARDED)
}

fn journal_too_large(name: &str) -> Problem {
    Problem::new(
        Code::InFlightTooLarge,
        format!("{name}: the journal of dm-integrity holds more than {LOGGED_MAX} blocks"),
        "where each of them lies is kept in memory",
        "let Linux replay it: open it once with integritysetup",
    )
    .of_member(name)
}
