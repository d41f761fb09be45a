//! A journal is brought to its places before the device is written, and made ready to go on.
//!
//! Order: what counts goes to its places, and a flush makes it durable. Then the sections that were
//! being written are made empty, the first one last: until that is done, none behind it counts. A
//! cut of power at any point leaves a journal of which the same is to be done again.

use std::collections::BTreeMap;
use std::sync::Arc;

use wattle_format::integrity::{LoggedBlock, SectionPlace};
use wattle_rt::{BufMut, Core, IoError, JoinHandle};

use super::blocks::{CheckedBlocks, SealedBlock, all};

/// Sections that are made empty at once.
const SECTIONS: usize = 16;

impl CheckedBlocks {
    /// Whether every block in the journal is what was written, so that all of it can be brought to
    /// its place.
    ///
    /// # Errors
    /// Any of the volume below.
    pub async fn journal_agrees(&self, core: &Core) -> Result<bool, IoError> {
        let logged = self.tags.logged_by_place();
        for section in 0..self.tags.layout.sections {
            if self.blocks_of(core, section, &logged).await?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Brings a journal that [agrees](Self::journal_agrees) to its places, and makes the sections
    /// empty that were being written.
    ///
    /// # Errors
    /// Any of the volume below.
    pub async fn settle(self, core: &Core, unfinished: &[SectionPlace]) -> Result<Self, IoError> {
        let logged = self.tags.logged_by_place();
        for section in 0..self.tags.layout.sections {
            let blocks = self.blocks_of(core, section, &logged).await?.ok_or(IoError::MEDIUM)?;
            self.put(core, &blocks).await?;
        }
        self.flush(core).await?;
        if let Some((first, behind)) = unfinished.split_first() {
            for places in behind.chunks(SECTIONS).chain([std::slice::from_ref(first)]) {
                all(places.iter().map(|&place| self.empty(core, place)).collect()).await?;
                self.flush(core).await?;
            }
        }
        Ok(Self { tags: Arc::new(Arc::unwrap_or_clone(self.tags).settled()), below: self.below })
    }

    /// The blocks of a section which no later one has; `None` if one of them is not what was
    /// written.
    async fn blocks_of(
        &self,
        core: &Core,
        section: u32,
        logged: &BTreeMap<u64, &LoggedBlock>,
    ) -> Result<Option<BTreeMap<u64, SealedBlock>>, IoError> {
        let layout = &self.tags.layout;
        let start = layout.section_at_bytes(section);
        let mut entries = logged.range(start..start + layout.section_bytes()).peekable();
        let mut blocks = BTreeMap::new();
        if entries.peek().is_none() {
            return Ok(Some(blocks));
        }
        core.yield_now().await;
        let buf = BufMut::alloc(layout.section_bytes() as usize);
        let (result, bytes) = self.below.open(core)?.read(start, buf).await;
        result?;
        for (at, logged) in entries {
            let from = (at - start) as usize;
            let mut data = bytes[from..from + self.tags.block_bytes as usize].to_vec();
            logged.complete(&mut data);
            if !self.tags.is_good_logged(logged, &data) {
                return Ok(None);
            }
            blocks.insert(logged.sector, SealedBlock { data, tag: logged.tag.clone() });
        }
        Ok(Some(blocks))
    }

    fn empty(&self, core: &Core, place: SectionPlace) -> JoinHandle<Result<(), IoError>> {
        let layout = &self.tags.layout;
        let mut bytes = BufMut::alloc(layout.section_bytes() as usize);
        place.fill(layout, &[], &mut bytes);
        self.write_below(core, layout.section_at_bytes(place.section), bytes.freeze())
    }
}
