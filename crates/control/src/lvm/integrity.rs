//! Images with checksums (`lvcreate --raidintegrity y`): dm-integrity keeps the data as it is on a
//! volume of its own, and tags, a bitmap or a journal on another one.
//!
//! In the mode *bitmap* data is written to its place, and what the bitmap names has its tags made
//! again: all data is there whatever happened. In the mode *journal*, LVM2's default, data waits in
//! the journal until it is brought to its place; its entries are not read here. Tags are not
//! compared.

use wattle_engine::volume::{MapSegment, SegmentTarget};

use super::open::{Opener, Plan};
use super::problems;
use crate::problem::{Check, Problem};

/// LVM2's word for the mode bitmap.
const BITMAP: &str = "B";

impl Opener<'_> {
    pub(super) async fn integrity(
        &mut self,
        full_name: &str,
        len_bytes: u64,
        (origin, metadata): (&str, Option<&str>),
        data_sectors: u64,
        mode: Option<&str>,
        plan: &mut Plan,
    ) -> Result<(), Problem> {
        if metadata.is_none() {
            // Tags lie among the data then, which LVM2 does not make.
            return Err(problems::unsupported(full_name, "integrity without a volume for its checksums"));
        }
        if mode != Some(BITMAP) {
            if !self.forced.has(Check::Journal) {
                return Err(problems::integrity_journal(full_name));
            }
            plan.notes.push(format!(
                "{full_name}: --force={}: its journal is passed over, and what is read may be old",
                Check::Journal
            ));
        }
        let (leg, _) = self.part(origin, plan).await?;
        let data_bytes = data_sectors.saturating_mul(512).min(len_bytes);
        plan.segments.push(MapSegment { len_bytes: data_bytes, target: SegmentTarget::Linear(leg) });
        if data_bytes < len_bytes {
            let len_bytes = len_bytes - data_bytes;
            plan.segments.push(MapSegment { len_bytes, target: SegmentTarget::Missing });
        }
        Ok(())
    }
}
