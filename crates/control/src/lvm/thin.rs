//! Thin volumes: blocks of a pool's data where the pool's metadata has any, and zeros, or an origin
//! outside of the pool, elsewhere. Snapshots are volumes like others that share blocks.
//!
//! LVM2 commits a text with what a pool is to make or to delete before it tells the pool, and tells
//! it at the next activation where the power failed in between. Until then the pool is one
//! transaction behind, and what it has is right.

use wattle_engine::volume::Leg;
use wattle_format::dm::thin::Superblock;
use wattle_format::lvm::{Lv, SegmentKind};

use super::metadata::Metadata;
use super::open::{Opener, Plan};
use super::overlay::{Base, Overlay};
use super::problems;
use crate::problem::Problem;

impl Opener<'_> {
    /// What is to be merged into a thin volume is what it is from its next activation on.
    pub(super) fn merged_device(&self, name: &str) -> Option<u64> {
        let kinds = self.group.vg.lvs.iter().flat_map(|lv| &lv.segments).map(|segment| &segment.kind);
        kinds.into_iter().find_map(|kind| match kind {
            SegmentKind::Thin { device_id, merge: Some(into), .. } if into == name => Some(*device_id),
            _ => None,
        })
    }

    pub(super) async fn thin(
        &mut self,
        full_name: &str,
        len_bytes: u64,
        pool: &str,
        device_id: u64,
        external_origin: Option<&str>,
        plan: &mut Plan,
    ) -> Result<(), Problem> {
        let Some(Lv { segments, .. }) = self.group.vg.lv(pool) else {
            return Err(problems::not_mapped(full_name, "its pool does not exist"));
        };
        let [segment] = &segments[..] else {
            return Err(problems::not_mapped(full_name, "its pool has several segments"));
        };
        let SegmentKind::ThinPool { data, metadata, transaction_id, chunk_sectors, .. } = &segment.kind
        else {
            return Err(problems::not_mapped(full_name, "what it names as its pool is none"));
        };
        let (_, reader) = self.part(metadata, plan).await?;
        let metadata = Metadata { volume: reader, offset_bytes: 0, of: full_name, name: metadata };
        let superblock = Superblock::decode(&metadata.block(0).await?);
        let superblock = superblock.map_err(|error| metadata.damaged(&error.to_string()))?;
        let waits =
            segment.has_pool_messages() && superblock.transaction_id.checked_add(1) == Some(*transaction_id);
        let transaction_now = if waits { superblock.transaction_id } else { *transaction_id };
        if let Some(why) = mismatch(&superblock, transaction_now, *chunk_sectors) {
            return Err(metadata.damaged(&why));
        }
        // What is on disk is the last transaction that was written whole, and nothing is written.
        if superblock.needs_check {
            plan.notes.push(format!(
                "{full_name}: the kernel could not change the metadata of its pool, and says that it has to be checked; read as it was before"
            ));
        }
        let mut root = None;
        metadata
            .walk(superblock.mapping_root(device_id), |(_, value)| {
                root = Some(value);
                Ok(())
            })
            .await?;
        let Some(root) = root else {
            if waits {
                return Err(problems::not_made_yet(full_name, pool));
            }
            return Err(metadata.damaged(&format!("the pool has no volume {device_id}")));
        };
        let (data, _) = self.part(data, plan).await?;
        let base = match external_origin {
            None => Base::Zeros,
            Some(origin) => {
                let (leg, origin) = self.part(origin, plan).await?;
                Base::Volume(leg, origin.size_bytes())
            }
        };
        let block_bytes = u64::from(superblock.data_block_sectors) * 512;
        let mut overlay = Overlay::new(len_bytes, base);
        let last = len_bytes.div_ceil(block_bytes).saturating_sub(1);
        metadata
            .walk(superblock.mappings(root, 0..=last), |entry| {
                let Some(mapping) = superblock.mapping(entry) else {
                    return Err(metadata.damaged(&format!("block {} lies beyond the pool's data", entry.0)));
                };
                let offset_bytes = mapping.data_block.saturating_mul(block_bytes);
                let put = overlay.put(mapping.block * block_bytes, block_bytes, Leg { offset_bytes, ..data });
                put.map_err(|error| problems::unmappable(full_name, metadata.name, error))
            })
            .await?;
        plan.segments = overlay.finish();
        Ok(())
    }
}

/// Why the pool's metadata is not what the volume group's text speaks of, or not to be relied on.
fn mismatch(superblock: &Superblock, transaction_id: u64, chunk_sectors: u64) -> Option<String> {
    let (transaction, sectors) = (superblock.transaction_id, superblock.data_block_sectors);
    if transaction != transaction_id {
        Some(format!(
            "it is of transaction {transaction}, and the volume group's text of transaction {transaction_id}: \
             one of them is older than the other"
        ))
    } else if u64::from(sectors) != chunk_sectors {
        Some(format!("its blocks have {sectors} sectors, and the volume group's text says {chunk_sectors}"))
    } else {
        None
    }
}
