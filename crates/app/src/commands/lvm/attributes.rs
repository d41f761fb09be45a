//! `lv_attr`, as lvs(8) has it, of volumes of which none is active.

use wattle_control::lvm::allocate::AllocationPolicy;
use wattle_control::lvm::flags::is_skipped;
use wattle_format::lvm::{Lv, SegmentKind, Vg};

/// The ten letters.
pub fn of(vg: &Vg, lv: &Lv, partial: bool) -> String {
    let write = if lv.is_writable() { 'w' } else { 'r' };
    let allocation = lv.allocation_policy().and_then(AllocationPolicy::parse);
    let allocation = allocation.map_or('i', AllocationPolicy::letter);
    let zeroes = match kind(lv) {
        Some(SegmentKind::ThinPool { zero_new_blocks, .. }) => *zero_new_blocks != Some(0),
        Some(SegmentKind::Thin { pool, .. }) => vg.lv(pool).is_some_and(|pool| {
            matches!(kind(pool), Some(SegmentKind::ThinPool { zero_new_blocks, .. }) if *zero_new_blocks != Some(0))
        }),
        _ => false,
    };
    let (zeroes, health) = (if zeroes { 'z' } else { '-' }, if partial { 'p' } else { '-' });
    let skip = if is_skipped(lv) { 'k' } else { '-' };
    format!("{}{write}{allocation}---{}{zeroes}{health}{skip}", volume_type(vg, lv), target_type(vg, lv))
}

fn kind(lv: &Lv) -> Option<&SegmentKind> {
    lv.segments.first().map(|segment| &segment.kind)
}

/// What a volume is to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Image,
    RaidMetadata,
    MirrorLog,
    PoolData,
    CacheData,
    Metadata,
    CacheOrigin,
    SnapshotOrigin,
    ExternalOrigin,
    SnapshotStore,
    Cache,
}

fn part(vg: &Vg, lv: &Lv) -> Option<Part> {
    let is = |name: &String| *name == lv.name;
    vg.lvs.iter().flat_map(|other| &other.segments).find_map(|segment| match &segment.kind {
        SegmentKind::Raid(raid) => {
            let image =
                raid.images.iter().find(|image| is(&image.data) || image.meta.as_ref().is_some_and(is))?;
            Some(if is(&image.data) { Part::Image } else { Part::RaidMetadata })
        }
        SegmentKind::Mirror { legs, .. } if legs.iter().any(|leg| is(&leg.name)) => Some(Part::Image),
        SegmentKind::Mirror { log: Some(log), .. } if is(log) => Some(Part::MirrorLog),
        SegmentKind::ThinPool { data, .. } | SegmentKind::VdoPool { data } if is(data) => {
            Some(Part::PoolData)
        }
        SegmentKind::CachePool { data, .. } if is(data) => Some(Part::CacheData),
        SegmentKind::ThinPool { metadata, .. } | SegmentKind::CachePool { metadata, .. } if is(metadata) => {
            Some(Part::Metadata)
        }
        SegmentKind::Integrity { metadata: Some(metadata), .. } if is(metadata) => Some(Part::Metadata),
        SegmentKind::Cache { origin, .. } | SegmentKind::Writecache { origin, .. } if is(origin) => {
            Some(Part::CacheOrigin)
        }
        SegmentKind::Cache { pool, single: Some(_), .. } if is(pool) => Some(Part::Cache),
        SegmentKind::Writecache { cache, .. } if is(cache) => Some(Part::Cache),
        SegmentKind::Snapshot { origin, .. } if is(origin) => Some(Part::SnapshotOrigin),
        SegmentKind::Snapshot { store, .. } if is(store) => Some(Part::SnapshotStore),
        SegmentKind::Thin { external_origin: Some(origin), .. } if is(origin) => Some(Part::ExternalOrigin),
        _ => None,
    })
}

/// The first letter.
fn volume_type(vg: &Vg, lv: &Lv) -> char {
    match (kind(lv), part(vg, lv)) {
        (Some(SegmentKind::Integrity { .. }), _) => 'g',
        // Whether images are in sync only shows when they are active.
        (_, Some(Part::Image)) => 'I',
        (_, Some(Part::RaidMetadata | Part::Metadata)) => 'e',
        (_, Some(Part::MirrorLog)) => 'l',
        (_, Some(Part::PoolData)) => 'T',
        (_, Some(Part::CacheData | Part::Cache)) => 'C',
        (_, Some(Part::SnapshotStore)) => 's',
        (Some(SegmentKind::Mirror { .. }), _) => 'm',
        (Some(SegmentKind::Raid(_)), _) => 'r',
        (Some(SegmentKind::ThinPool { .. }), _) => 't',
        (Some(SegmentKind::Thin { .. }), _) => 'V',
        (
            Some(SegmentKind::Cache { .. } | SegmentKind::Writecache { .. } | SegmentKind::CachePool { .. }),
            _,
        ) => 'C',
        (Some(SegmentKind::Vdo { .. }), _) => 'v',
        (Some(SegmentKind::VdoPool { .. }), _) => 'd',
        (Some(SegmentKind::Error | SegmentKind::Zero), _) => 'v',
        (_, Some(Part::CacheOrigin | Part::SnapshotOrigin | Part::ExternalOrigin)) => 'o',
        _ if lv.name.ends_with("_pmspare") => 'e',
        _ => '-',
    }
}

/// The seventh letter: which of the kernel's targets it has to do with.
fn target_type(vg: &Vg, lv: &Lv) -> char {
    match (kind(lv), part(vg, lv)) {
        (_, Some(Part::Image | Part::RaidMetadata)) if is_of_a_mirror(vg, lv) => 'm',
        (_, Some(Part::Image | Part::RaidMetadata)) => 'r',
        (_, Some(Part::MirrorLog)) => 'm',
        (_, Some(Part::SnapshotOrigin | Part::SnapshotStore)) => 's',
        (_, Some(Part::CacheOrigin | Part::Cache)) => 'C',
        (Some(SegmentKind::Mirror { .. }), _) => 'm',
        (Some(SegmentKind::Raid(_)), _) => 'r',
        (Some(SegmentKind::Thin { .. } | SegmentKind::ThinPool { .. }), _) => 't',
        (
            Some(SegmentKind::Cache { .. } | SegmentKind::Writecache { .. } | SegmentKind::CachePool { .. }),
            _,
        ) => 'C',
        (Some(SegmentKind::Error | SegmentKind::Zero), _) => 'v',
        _ => '-',
    }
}

fn is_of_a_mirror(vg: &Vg, lv: &Lv) -> bool {
    let mut segments = vg.lvs.iter().flat_map(|other| &other.segments);
    segments.any(|segment| matches!(&segment.kind, SegmentKind::Mirror { legs, .. } if legs.iter().any(|leg| leg.name == lv.name)))
}
