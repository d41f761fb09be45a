//! Metadata of device-mapper's targets in blocks of 4 KiB (thin pools, caches), read block by block
//! through the volume they are on.

use wattle_engine::Volume;
use wattle_format::dm::{ArrayWalk, BLOCK_BYTES, Walk};
use wattle_rt::BufMut;

use super::open::read;
use super::problems;
use crate::problem::Problem;

/// Where the blocks are.
pub(super) struct Metadata<'a> {
    pub volume: Volume,
    pub offset_bytes: u64,
    /// The volume that cannot be mapped without them, by its full name.
    pub of: &'a str,
    /// The volume that they are on.
    pub name: &'a str,
}

impl Metadata<'_> {
    pub async fn block(&self, number: u64) -> Result<BufMut, Problem> {
        // Walks ask for no block behind the end of what the superblock says, which may say more
        // than there is.
        let at = number.saturating_mul(BLOCK_BYTES as u64).saturating_add(self.offset_bytes);
        read(&self.volume, at, BLOCK_BYTES).await
    }

    /// Every entry of a tree, by ascending key.
    pub async fn walk<const V: usize>(
        &self,
        mut walk: Walk<V>,
        mut each: impl FnMut((u64, [u8; V])) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        while let Some(block) = walk.wants() {
            let entries = walk.give(&self.block(block).await?);
            let entries = entries.map_err(|error| self.damaged(&error.to_string()))?;
            entries.into_iter().try_for_each(&mut each)?;
        }
        Ok(())
    }

    /// Every value of an array; one that lacks some is damaged.
    pub async fn array<const V: usize>(
        &self,
        mut array: ArrayWalk<V>,
        mut each: impl FnMut((u64, [u8; V])) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        while let Some(block) = array.wants() {
            let values = array.give(&self.block(block).await?);
            values.map_err(|error| self.damaged(&error.to_string()))?.into_iter().try_for_each(&mut each)?;
        }
        if array.is_complete() { Ok(()) } else { Err(self.damaged("an array in it has gaps")) }
    }

    pub fn damaged(&self, why: &str) -> Problem {
        problems::damaged(self.of, self.name, why)
    }
}
