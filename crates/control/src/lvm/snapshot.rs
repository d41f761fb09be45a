//! Old snapshots, both sides. The store holds what the origin had where it was changed since, or
//! what was written to the snapshot: with it the origin is the snapshot. While a snapshot is merged
//! into its origin, the origin is the snapshot too: that is what it will be when all is copied.

use wattle_format::dm::snapshot::{Exceptions, HEADER_BYTES, Header, SnapshotError};
use wattle_format::lvm::{SegmentKind, Vg};

use super::open::{Opener, Plan, read};
use super::overlay::{Base, Overlay, RUNS_MAX};
use super::problems;
use crate::problem::Problem;

/// A snapshot as the text has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Snapshot<'a> {
    origin: &'a str,
    store: &'a str,
    chunk_sectors: u64,
}

/// The snapshot that a volume is shown as: one that it is the store of, or one that is being merged
/// into it.
pub(super) fn of<'a>(vg: &'a Vg, name: &str) -> Option<Snapshot<'a>> {
    kinds(vg).find_map(|kind| match kind {
        SegmentKind::Snapshot { origin, store, chunk_sectors, merging }
            if store == name || *merging && origin == name =>
        {
            Some(Snapshot { origin, store, chunk_sectors: *chunk_sectors })
        }
        _ => None,
    })
}

/// Whether others have their blocks from this volume, so that it must not be written without them.
pub(super) fn is_relied_on(vg: &Vg, name: &str) -> bool {
    kinds(vg).any(|kind| match kind {
        SegmentKind::Snapshot { origin, store, .. } => origin == name || store == name,
        SegmentKind::Thin { external_origin, .. } => external_origin.as_deref() == Some(name),
        _ => false,
    })
}

fn kinds(vg: &Vg) -> impl Iterator<Item = &SegmentKind> {
    vg.lvs.iter().flat_map(|lv| &lv.segments).map(|segment| &segment.kind)
}

impl Opener<'_> {
    pub(super) async fn snapshot(
        &mut self,
        full_name: &str,
        snapshot: Snapshot<'_>,
        plan: &mut Plan,
    ) -> Result<(), Problem> {
        plan.read_only = true;
        let damaged = |error: SnapshotError| problems::damaged(full_name, snapshot.store, &error.to_string());
        let (origin, origin_volume) = self.part(snapshot.origin, plan).await?;
        let (store, reader) = self.part(snapshot.store, plan).await?;
        let header = Header::decode(&read(&reader, 0, HEADER_BYTES).await?).map_err(damaged)?;
        if !header.valid {
            return Err(problems::invalid_snapshot(full_name));
        }
        if u64::from(header.chunk_sectors) != snapshot.chunk_sectors {
            let (found, wanted) = (header.chunk_sectors, snapshot.chunk_sectors);
            let why = format!("its chunks have {found} sectors, and the volume group's text says {wanted}");
            return Err(problems::damaged(full_name, snapshot.store, &why));
        }
        let chunk_bytes = u64::from(header.chunk_sectors) * 512;
        let mut exceptions = Exceptions::new(header, reader.size_bytes() / 512);
        let mut tables = 0;
        while let Some(chunk) = exceptions.wants() {
            // Of what a table has room for; so many runs there may be.
            if tables * (chunk_bytes / 16) > RUNS_MAX as u64 {
                return Err(problems::too_scattered(full_name));
            }
            let table = read(&reader, chunk * chunk_bytes, chunk_bytes as usize).await?;
            exceptions.give(&table).map_err(damaged)?;
            tables += 1;
        }
        let size_bytes = origin_volume.size_bytes();
        let mut overlay = Overlay::new(size_bytes, Base::Volume(origin, size_bytes));
        for (origin_chunk, store_chunk) in exceptions.iter() {
            let leg = wattle_engine::volume::Leg { offset_bytes: store_chunk * chunk_bytes, ..store };
            let put = overlay.put(origin_chunk.saturating_mul(chunk_bytes), chunk_bytes, leg);
            put.map_err(|error| problems::unmappable(full_name, snapshot.store, error))?;
        }
        plan.segments = overlay.finish();
        Ok(())
    }
}
