//! Cached volumes: the origin, and over it the blocks that only the cache has in their newest form.
//!
//! A write-through cache never has any, so its origin is read whatever became of the cache. Of a
//! write-back cache the dirty blocks are known if it was stopped in good order; if not, every block
//! that it has is at least as new as the origin's.

use wattle_engine::volume::Leg;
use wattle_format::dm::cache::{CachedBlock, Superblock};
use wattle_format::lvm::segment::CacheParts;
use wattle_format::lvm::{Lv, SegmentKind};

use super::metadata::Metadata;
use super::open::{Opened, Opener, Plan};
use super::overlay::{Base, Overlay, RUNS_MAX};
use super::problems;
use crate::problem::Problem;

/// Where the parts of a cache are.
struct Parts<'a> {
    metadata: &'a str,
    metadata_offset_bytes: u64,
    data: &'a str,
    data_offset_bytes: u64,
    /// Of the data, where the text says so.
    data_bytes: Option<u64>,
    chunk_sectors: Option<u64>,
    mode: Option<&'a str>,
}

impl Opener<'_> {
    pub(super) async fn cache(
        &mut self,
        full_name: &str,
        len_bytes: u64,
        kind: &SegmentKind,
        plan: &mut Plan,
    ) -> Result<(), Problem> {
        let SegmentKind::Cache { pool, origin, single, chunk_sectors, mode, .. } = kind else {
            return Err(problems::unsupported(full_name, kind.name()));
        };
        let parts = match single {
            Some(parts) => Parts::of_single(pool, parts, *chunk_sectors, mode.as_deref()),
            None => match self.group.vg.lv(pool).map(|Lv { segments, .. }| &segments[..]) {
                Some([segment]) => Parts::of_pool(&segment.kind),
                _ => None,
            }
            .ok_or_else(|| problems::not_mapped(full_name, "what it names as its cache is none"))?,
        };
        let (origin, _) = self.part(origin, plan).await?;
        let mut overlay = Overlay::new(len_bytes, Base::Volume(origin, len_bytes));
        let origin_has_all = matches!(parts.mode, Some("writethrough" | "passthrough"));
        let metadata = self.open_part(parts.metadata).await?;
        let data = self.open_part(parts.data).await?;
        let dirty = if metadata.partial || data.partial {
            Err(problems::cache_missing(full_name, &self.group.lacking()))
        } else {
            self.dirty(full_name, &parts, &metadata, &data).await
        };
        match dirty {
            Ok(dirty) => {
                let below = plan.leg(parts.data, &data.volume, parts.data_offset_bytes);
                plan.take(&data);
                for (origin_block, cache_block) in dirty.blocks {
                    let block_bytes = dirty.block_bytes;
                    let offset_bytes =
                        below.offset_bytes.saturating_add(cache_block.saturating_mul(block_bytes));
                    let at = origin_block.saturating_mul(block_bytes);
                    let put = overlay.put(at, block_bytes, Leg { offset_bytes, ..below });
                    put.map_err(|error| problems::unmappable(full_name, parts.metadata, error))?;
                }
            }
            Err(problem) if origin_has_all => {
                plan.notes.push(format!(
                    "{}; the cache is a write-through one, so its origin has everything",
                    problem.what
                ));
            }
            Err(problem) => return Err(problem),
        }
        plan.segments = overlay.finish();
        Ok(())
    }

    /// The blocks that are newer in the cache, by their place in the origin.
    async fn dirty(
        &self,
        full_name: &str,
        parts: &Parts<'_>,
        metadata: &Opened,
        data: &Opened,
    ) -> Result<Dirty, Problem> {
        let volume = self.reader(metadata)?;
        let offset_bytes = parts.metadata_offset_bytes;
        let metadata = Metadata { volume, offset_bytes, of: full_name, name: parts.metadata };
        let superblock = Superblock::decode(&metadata.block(0).await?);
        let superblock = superblock.map_err(|error| metadata.damaged(&error.to_string()))?;
        let block_bytes = u64::from(superblock.data_block_sectors) * 512;
        let after = data.volume.size_bytes().saturating_sub(parts.data_offset_bytes);
        let blocks = after.min(parts.data_bytes.unwrap_or(u64::MAX)) / block_bytes;
        if let Some(why) = mismatch(&superblock, parts.chunk_sectors, blocks) {
            return Err(metadata.damaged(&why));
        }
        let nothing = Dirty { block_bytes, blocks: Vec::new() };
        if !superblock.clean_shutdown && matches!(parts.mode, Some("writethrough" | "passthrough")) {
            return Ok(nothing);
        }
        // By blocks of the cache; `None`: every block says so itself.
        let mut dirty: Option<Vec<u64>> = None;
        if let (true, Some(bits)) = (superblock.clean_shutdown, superblock.dirty()) {
            let words = dirty.insert(Vec::new());
            metadata
                .array(bits, |(_, word)| {
                    words.push(u64::from_le_bytes(word));
                    Ok(())
                })
                .await?;
        }
        let is_dirty = |mapping: &CachedBlock| match &dirty {
            _ if !superblock.clean_shutdown => true,
            Some(words) => {
                let word = words.get((mapping.cache_block / 64) as usize);
                word.is_some_and(|word| word >> (mapping.cache_block % 64) & 1 == 1)
            }
            None => mapping.dirty,
        };
        let mut found = nothing;
        metadata
            .array(superblock.mappings(), |entry| {
                let mapping = CachedBlock::decode(entry).filter(is_dirty);
                found.blocks.extend(mapping.map(|mapping| (mapping.origin_block, mapping.cache_block)));
                if found.blocks.len() > RUNS_MAX { Err(problems::too_scattered(full_name)) } else { Ok(()) }
            })
            .await?;
        found.blocks.sort_unstable();
        Ok(found)
    }
}

/// What the cache has in its newest form.
struct Dirty {
    block_bytes: u64,
    /// Blocks of the origin, and where they are in the cache; ascending.
    blocks: Vec<(u64, u64)>,
}

impl<'a> Parts<'a> {
    fn of_single(
        volume: &'a str,
        parts: &CacheParts,
        chunk_sectors: Option<u64>,
        mode: Option<&'a str>,
    ) -> Self {
        Self {
            metadata: volume,
            metadata_offset_bytes: parts.metadata_start.saturating_mul(512),
            data: volume,
            data_offset_bytes: parts.data_start.saturating_mul(512),
            data_bytes: Some(parts.data_len.saturating_mul(512)),
            chunk_sectors,
            mode,
        }
    }

    fn of_pool(pool: &'a SegmentKind) -> Option<Self> {
        let SegmentKind::CachePool { data, metadata, chunk_sectors, mode, .. } = pool else { return None };
        Some(Self {
            metadata,
            metadata_offset_bytes: 0,
            data,
            data_offset_bytes: 0,
            data_bytes: None,
            chunk_sectors: *chunk_sectors,
            mode: mode.as_deref(),
        })
    }
}

/// Why a cache's metadata is not what the volume group's text speaks of, or not to be relied on.
/// `blocks`: how many there is room for.
fn mismatch(superblock: &Superblock, chunk_sectors: Option<u64>, blocks: u64) -> Option<String> {
    let (sectors, has) = (superblock.data_block_sectors, superblock.cache_blocks);
    match chunk_sectors {
        _ if superblock.needs_check => {
            Some("the kernel could not write all of it, and says that it has to be checked".to_owned())
        }
        Some(wanted) if wanted != u64::from(sectors) => {
            Some(format!("its blocks have {sectors} sectors, and the volume group's text says {wanted}"))
        }
        _ if u64::from(has) > blocks => {
            Some(format!("it speaks of {has} blocks, and there is room for {blocks}"))
        }
        _ => None,
    }
}
