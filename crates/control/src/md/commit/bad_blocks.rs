//! The bad-block logs of the members, in line with a record before their superblocks are.

use wattle_engine::MemberKey;
use wattle_engine::metadata::ArrayRecord;
use wattle_engine::units::{MemberIx, MemberSet};
use wattle_format::md::{Features, Superblock};
use wattle_rt::{BufMut, Durability, IoError};

use super::{MdMetadata, SuperblockPlace};
use crate::md::badblocks::BadLog;

impl MdMetadata {
    /// Brings the bad-block logs of all members in line with `record`.
    pub(super) async fn write_bad_blocks(&self, record: &ArrayRecord) -> Result<(), MemberSet> {
        let mut failed = MemberSet::EMPTY;
        for (seat, who) in (0..).map(MemberIx).zip(&record.seats) {
            let Some(key) = who.key.filter(|_| who.state.writable()) else { continue };
            let (Some(place), Some(superblock)) = (self.place(key), self.state().superblock(key).cloned())
            else {
                continue;
            };
            let listed = superblock.features().contains(Features::BAD_BLOCKS);
            if who.bad.is_empty() && !listed && !self.bad_logs.borrow().contains_key(&key) {
                continue;
            }
            let kept = self.bad_logs.borrow().get(&key).cloned();
            let log = match kept {
                Some(log) => Some(log),
                None => self.load_bad_blocks(key, &place, &superblock, listed).await,
            };
            let Some(mut log) = log else {
                failed.insert(seat);
                continue;
            };
            let Ok(images) = log.plan(&who.bad) else {
                failed.insert(seat);
                continue;
            };
            if self.write_images(key, &place, &log, images).await.is_err() {
                failed.insert(seat);
                continue;
            }
            if let Some(known) = self.state.borrow_mut().known_mut(key) {
                known.bad_outside = log.has_outside();
            }
            self.bad_logs.borrow_mut().insert(key, log);
        }
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }

    /// A member's log; `None` if it has none, or none that makes sense.
    async fn load_bad_blocks(
        &self,
        key: MemberKey,
        place: &SuperblockPlace,
        superblock: &Superblock,
        listed: bool,
    ) -> Option<BadLog> {
        let mut log = BadLog::empty(superblock, place.block_bytes())?;
        if listed {
            let area = BufMut::zeroed(log.len_bytes);
            let read = self.core.read(&place.device, log.at_bytes, area);
            let (read, area) = self.waits.watch_read(key, read).await;
            read.ok()?;
            log.load(&area).ok()?;
        }
        Some(log)
    }

    async fn write_images(
        &self,
        key: MemberKey,
        place: &SuperblockPlace,
        log: &BadLog,
        images: Vec<Vec<u8>>,
    ) -> Result<(), IoError> {
        if !images.is_empty() {
            // An entry goes only when what was written over the sectors is durable.
            self.flush_of(key, place).await?;
        }
        for image in images {
            let image = BufMut::copy_of(&image).freeze();
            let write = self.core.write(&place.device, log.at_bytes, image, Durability::Fua);
            self.waits.watch(key, write).await?;
        }
        Ok(())
    }
}
