//! Volumes of type writecache: the origin, and over it what is newer in the cache, which is all
//! that the cache holds. The kernel keeps the list of that on the cache itself, and it is complete
//! after a crash too: what is not in it was not acknowledged as durable.

use std::cmp::Reverse;

use wattle_engine::volume::Leg;
use wattle_format::dm::writecache::{ENTRY_BYTES, HEADER_BYTES, Header};

use super::open::{Opened, Opener, Plan, read};
use super::overlay::{Base, Overlay, RUNS_MAX};
use super::problems;
use crate::problem::Problem;

/// Of the list that is read at once.
const READ_BYTES: u64 = 1 << 20;

impl Opener<'_> {
    pub(super) async fn writecache(
        &mut self,
        full_name: &str,
        len_bytes: u64,
        (cache, origin): (&str, &str),
        block_bytes: u64,
        plan: &mut Plan,
    ) -> Result<(), Problem> {
        let (origin, _) = self.part(origin, plan).await?;
        let opened = self.open_part(cache).await?;
        if opened.partial {
            return Err(problems::cache_missing(full_name, &self.group.lacking()));
        }
        let (header, blocks) = self.newer(full_name, cache, &opened, block_bytes).await?;
        let below = plan.leg(cache, &opened.volume, header.data_offset_bytes());
        plan.take(&opened);
        let mut overlay = Overlay::new(len_bytes, Base::Volume(origin, len_bytes));
        for (sector, block) in blocks {
            let offset_bytes = below.offset_bytes + block * block_bytes;
            let put = overlay.put(sector.saturating_mul(512), block_bytes, Leg { offset_bytes, ..below });
            put.map_err(|error| problems::unmappable(full_name, cache, error))?;
        }
        plan.segments = overlay.finish();
        Ok(())
    }

    /// The blocks that are newer in the cache: sectors of the origin, ascending, and the block.
    async fn newer(
        &self,
        full_name: &str,
        cache: &str,
        opened: &Opened,
        block_bytes: u64,
    ) -> Result<(Header, Vec<(u64, u64)>), Problem> {
        let damaged = |why: &str| problems::damaged_writecache(full_name, cache, why);
        let reader = self.reader(opened)?;
        let header = Header::decode(&read(&reader, 0, HEADER_BYTES).await?);
        let header = header.map_err(|error| damaged(&error.to_string()))?;
        if u64::from(header.block_bytes) != block_bytes {
            let found = header.block_bytes;
            return Err(damaged(&format!(
                "its blocks have {found} bytes, and the volume group's text says {block_bytes}"
            )));
        }
        if header.end_bytes().is_none_or(|end| end > reader.size_bytes()) {
            return Err(damaged(&format!(
                "it speaks of {} blocks, and there is no room for them",
                header.blocks
            )));
        }
        let mut found = Vec::new();
        let mut at = 0;
        while at < header.entries_bytes() {
            let len = READ_BYTES.min(header.entries_bytes() - at);
            let bytes = read(&reader, HEADER_BYTES as u64 + at, len as usize).await?;
            for (ix, bytes) in (at / ENTRY_BYTES as u64..).zip(bytes.as_chunks().0) {
                let Some(entry) = header.entry(bytes) else { continue };
                if !header.is_aligned(entry.sector) {
                    return Err(damaged(&format!(
                        "block {ix} is said to be at sector {} of the origin",
                        entry.sector
                    )));
                }
                found.push((entry.sector, Reverse(entry.sequence), ix));
                if found.len() > RUNS_MAX {
                    return Err(problems::too_scattered(full_name));
                }
            }
            at += len;
        }
        found.sort_unstable();
        found.dedup_by_key(|(sector, ..)| *sector);
        Ok((header, found.into_iter().map(|(sector, _, ix)| (sector, ix)).collect()))
    }
}
