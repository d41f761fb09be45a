//! The fields of physical volumes, groups and volumes, under LVM2's names.

use wattle_control::Stack;
use wattle_control::lvm::GroupScan;
use wattle_control::lvm::allocate::AllocationPolicy;
use wattle_control::lvm::flags::{is_skipped, starts_by_itself};
use wattle_format::lvm::segment::Stripe;
use wattle_format::lvm::{Lv, LvSegment, Pv, SegmentKind, Vg};
use wattle_server::groups::look;

use super::attributes;
use super::columns::CellKind::{Bytes, Count, Text, Words};
use super::columns::{self, CellValue, Column, List};

const fn usual(field: &'static str, heading: &'static str, kind: columns::CellKind) -> Column {
    Column { field, heading, kind, usual: true }
}

const fn more(field: &'static str, heading: &'static str, kind: columns::CellKind) -> Column {
    Column { field, heading, kind, usual: false }
}

/// `pv list`.
pub const PV: List = List {
    rows: "physical_volumes",
    prefix: "pv_",
    sorted_by: "pv_name",
    columns: &[
        usual("pv_name", "PV", Text),
        usual("vg_name", "VG", Text),
        usual("pv_fmt", "Fmt", Text),
        usual("pv_attr", "Attr", Text),
        usual("pv_size", "PSize", Bytes),
        usual("pv_free", "PFree", Bytes),
        more("pv_used", "Used", Bytes),
        more("dev_size", "DevSize", Bytes),
        more("pe_start", "1st PE", Bytes),
        more("pv_pe_count", "PE", Count),
        more("pv_pe_alloc_count", "Alloc", Count),
        more("pv_mda_count", "#PMda", Count),
        more("pv_tags", "PV Tags", Words),
        more("pv_uuid", "PV UUID", Text),
    ],
};

/// `vg list`.
pub const VG: List = List {
    rows: "volume_groups",
    prefix: "vg_",
    sorted_by: "vg_name",
    columns: &[
        usual("vg_name", "VG", Text),
        usual("pv_count", "#PV", Count),
        usual("lv_count", "#LV", Count),
        usual("snap_count", "#SN", Count),
        usual("vg_attr", "Attr", Text),
        usual("vg_size", "VSize", Bytes),
        usual("vg_free", "VFree", Bytes),
        more("vg_extent_size", "Ext", Bytes),
        more("vg_extent_count", "#Ext", Count),
        more("vg_free_count", "Free", Count),
        more("vg_missing_pv_count", "#PV Missing", Count),
        more("vg_seqno", "Seq", Count),
        more("vg_systemid", "System ID", Text),
        more("vg_tags", "VG Tags", Words),
        more("vg_uuid", "VG UUID", Text),
    ],
};

/// `lv list`.
pub const LV: List = List {
    rows: "logical_volumes",
    prefix: "lv_",
    sorted_by: "vg_name,lv_name",
    columns: &[
        usual("lv_name", "LV", Text),
        usual("vg_name", "VG", Text),
        usual("lv_attr", "Attr", Text),
        usual("lv_size", "LSize", Bytes),
        usual("pool_lv", "Pool", Text),
        usual("origin", "Origin", Text),
        more("segtype", "Type", Text),
        more("seg_count", "#Seg", Count),
        more("stripes", "#Str", Count),
        more("stripe_size", "Stripe", Bytes),
        more("devices", "Devices", Words),
        more("lv_full_name", "LV", Text),
        more("lv_permissions", "LPerms", Text),
        more("lv_skip_activation", "SkipAct", Text),
        more("lv_autoactivation", "AutoAct", Text),
        more("lv_host", "Host", Text),
        more("lv_tags", "LV Tags", Words),
        more("lv_uuid", "LV UUID", Text),
    ],
};

fn text(text: impl Into<String>) -> CellValue {
    CellValue::Text(text.into())
}

fn has(words: &[String], word: &str) -> bool {
    words.iter().any(|found| found == word)
}

fn free(vg: &Vg, pv: &Pv) -> u64 {
    vg.free_extents(&pv.name).iter().map(|run| run.end - run.start).sum()
}

/// Physical volumes: those of groups, missing ones too, then those in none.
pub fn pvs(stack: &Stack) -> Vec<Vec<CellValue>> {
    let mut rows = Vec::new();
    for group in &stack.groups {
        let bytes = |extents: u64| {
            CellValue::Bytes(extents.saturating_mul(group.vg.extent_sectors).saturating_mul(512))
        };
        for (pv, device) in group.vg.pvs.iter().zip(&group.devices) {
            let seen = device.map(|ix| &stack.scan.members[ix]);
            let free = free(&group.vg, pv);
            let label = seen.and_then(|seen| seen.physical.as_ref()).map(|physical| &physical.label);
            let attributes = [
                if has(&pv.status, "ALLOCATABLE") { 'a' } else { 'u' },
                if has(&pv.status, "EXPORTED") { 'x' } else { '-' },
                if device.is_none() || pv.is_missing() { 'm' } else { '-' },
            ];
            rows.push(vec![
                text(seen.map_or("[unknown]", |seen| seen.member.name.as_str())),
                text(&group.vg.name),
                text("lvm2"),
                text(attributes.iter().collect::<String>()),
                bytes(pv.pe_count),
                bytes(free),
                bytes(pv.pe_count.saturating_sub(free)),
                CellValue::Bytes(seen.and_then(|seen| seen.physical.as_ref()).map_or(0, |pv| pv.size_bytes)),
                CellValue::Bytes(pv.pe_start.saturating_mul(512)),
                CellValue::Count(pv.pe_count),
                CellValue::Count(pv.pe_count.saturating_sub(free)),
                CellValue::Count(label.map_or(0, |label| label.metadata_areas.len() as u64)),
                CellValue::Words(pv.tags.clone()),
                text(pv.id.to_string()),
            ]);
        }
    }
    for ix in stack.scan.members.ids().filter(|ix| look::group_of(stack, *ix).is_none()) {
        let seen = &stack.scan.members[ix];
        let Some(label) = seen.physical.as_ref().map(|physical| &physical.label) else { continue };
        let start_bytes = label.data_areas.first().map_or(0, |area| area.offset_bytes);
        // As LVM2 has it: no group has divided it yet.
        let size = CellValue::Bytes(label.device_bytes);
        rows.push(vec![
            text(&seen.member.name),
            text(""),
            text("lvm2"),
            text("---"),
            size.clone(),
            size.clone(),
            CellValue::Bytes(0),
            size,
            CellValue::Bytes(start_bytes),
            CellValue::Count(0),
            CellValue::Count(0),
            CellValue::Count(label.metadata_areas.len() as u64),
            CellValue::Words(Vec::new()),
            text(label.id.to_string()),
        ]);
    }
    rows
}

/// Groups.
pub fn vgs(stack: &Stack) -> Vec<Vec<CellValue>> {
    stack.groups.iter().map(vg).collect()
}

fn vg(group: &GroupScan) -> Vec<CellValue> {
    let vg = &group.vg;
    let bytes =
        |extents: u64| CellValue::Bytes(extents.saturating_mul(vg.extent_sectors).saturating_mul(512));
    let extents = vg.pvs.iter().map(|pv| pv.pe_count).fold(0, u64::saturating_add);
    let free = vg.pvs.iter().map(|pv| free(vg, pv)).fold(0, u64::saturating_add);
    let missing = group.devices.iter().filter(|device| device.is_none()).count() as u64;
    let snapshots = vg.lvs.iter().flat_map(|lv| &lv.segments);
    let snapshots =
        snapshots.filter(|segment| matches!(segment.kind, SegmentKind::Snapshot { .. })).count() as u64;
    let attributes = [
        if has(&vg.status, "WRITE") { 'w' } else { 'r' },
        if has(&vg.status, "RESIZEABLE") { 'z' } else { '-' },
        if has(&vg.status, "EXPORTED") { 'x' } else { '-' },
        if missing > 0 { 'p' } else { '-' },
        AllocationPolicy::of(vg, None).letter(),
        if vg.lock_type.as_deref().is_some_and(|lock| lock != "none") { 's' } else { '-' },
    ];
    vec![
        text(&vg.name),
        CellValue::Count(vg.pvs.len() as u64),
        CellValue::Count(vg.lvs.iter().filter(|lv| vg.is_visible(lv)).count() as u64),
        CellValue::Count(snapshots),
        text(attributes.iter().collect::<String>()),
        bytes(extents),
        bytes(free),
        bytes(1),
        CellValue::Count(extents),
        CellValue::Count(free),
        CellValue::Count(missing),
        CellValue::Count(vg.seqno),
        text(vg.system_id.clone().unwrap_or_default()),
        CellValue::Words(vg.tags.clone()),
        text(vg.id.to_string()),
    ]
}

/// Volumes: those that operators see, or all of them.
pub fn lvs(stack: &Stack, all: bool) -> Vec<Vec<CellValue>> {
    let mut rows = Vec::new();
    for group in &stack.groups {
        let shown = group.vg.lvs.iter().filter(|lv| match all {
            // What only ties an old snapshot to its origin is none.
            true => !lv.segments.iter().any(|segment| matches!(segment.kind, SegmentKind::Snapshot { .. })),
            false => group.vg.is_visible(lv),
        });
        rows.extend(shown.map(|lv| row(stack, group, lv, group.volumes[&lv.id].partial)));
    }
    rows
}

/// A volume's name, in brackets if operators do not see it.
fn bracketed(vg: &Vg, name: &str) -> String {
    match vg.lv(name) {
        Some(lv) if !vg.is_visible(lv) => format!("[{name}]"),
        _ => name.to_owned(),
    }
}

fn row(stack: &Stack, group: &GroupScan, lv: &Lv, partial: bool) -> Vec<CellValue> {
    let vg = &group.vg;
    let first = lv.segments.first();
    let kind = first.map(|segment| &segment.kind);
    let (stripes, stripe_sectors) = match kind {
        Some(SegmentKind::Striped { stripes, stripe_sectors }) => (stripes.len() as u64, *stripe_sectors),
        Some(SegmentKind::Raid(raid)) => (raid.images.len() as u64, raid.stripe_sectors.unwrap_or(0)),
        Some(SegmentKind::Mirror { legs, .. }) => (legs.len() as u64, 0),
        Some(SegmentKind::Thin { .. } | SegmentKind::Error | SegmentKind::Zero) => (0, 0),
        _ => (1, 0),
    };
    let of_snapshot = vg.lvs.iter().flat_map(|lv| &lv.segments).find_map(|segment| match &segment.kind {
        SegmentKind::Snapshot { origin, store, .. } if *store == lv.name => Some(origin.as_str()),
        _ => None,
    });
    let (pool, origin) = match kind {
        Some(SegmentKind::Thin { pool, origin, external_origin, .. }) => {
            (pool.as_str(), origin.as_deref().or(external_origin.as_deref()))
        }
        Some(SegmentKind::Cache { pool, origin, .. }) => (pool.as_str(), Some(origin.as_str())),
        Some(SegmentKind::Writecache { cache, origin, .. }) => (cache.as_str(), Some(origin.as_str())),
        Some(SegmentKind::Integrity { origin, .. }) => ("", Some(origin.as_str())),
        Some(SegmentKind::Vdo { pool, .. }) => (pool.as_str(), None),
        _ => ("", of_snapshot),
    };
    vec![
        text(bracketed(vg, &lv.name)),
        text(&vg.name),
        text(attributes::of(vg, lv, partial)),
        CellValue::Bytes(group.size_bytes(lv)),
        text(bracketed(vg, pool)),
        text(bracketed(vg, origin.unwrap_or_default())),
        text(first.map_or("", type_name)),
        CellValue::Count(lv.segments.len() as u64),
        CellValue::Count(stripes),
        CellValue::Bytes(stripe_sectors.saturating_mul(512)),
        CellValue::Words(devices(stack, group, lv)),
        text(group.full_name(lv)),
        text(if lv.is_writable() { "writeable" } else { "read-only" }),
        text(if is_skipped(lv) { "skip activation" } else { "" }),
        text(if starts_by_itself(lv) { "enabled" } else { "" }),
        text(lv.creation_host.clone().unwrap_or_default()),
        CellValue::Words(lv.tags.clone()),
        text(lv.id.to_string()),
    ]
}

/// `linear` is a name for one stripe.
fn type_name(segment: &LvSegment) -> &str {
    match &segment.kind {
        SegmentKind::Striped { stripes, .. } if stripes.len() == 1 => "linear",
        kind => kind.name(),
    }
}

/// `device(extent)` of what each segment lies on.
fn devices(stack: &Stack, group: &GroupScan, lv: &Lv) -> Vec<String> {
    let name = |name: &str| {
        let at = group.vg.pvs.iter().position(|pv| pv.name == name);
        let member = at.and_then(|at| group.devices[at]);
        member.map_or(name.to_owned(), |member| stack.scan.members[member].member.name.clone())
    };
    let at = |stripe: &Stripe| format!("{}({})", name(&stripe.name), stripe.extent);
    let whole = |name: &String| format!("{name}(0)");
    let segment = |segment: &LvSegment| match &segment.kind {
        SegmentKind::Striped { stripes, .. } => stripes.iter().map(at).collect(),
        SegmentKind::Mirror { legs, .. } => legs.iter().map(at).collect(),
        SegmentKind::Raid(raid) => raid.images.iter().map(|image| whole(&image.data)).collect(),
        SegmentKind::ThinPool { data, .. }
        | SegmentKind::CachePool { data, .. }
        | SegmentKind::VdoPool { data } => {
            vec![whole(data)]
        }
        SegmentKind::Cache { origin, .. }
        | SegmentKind::Writecache { origin, .. }
        | SegmentKind::Integrity { origin, .. } => {
            vec![whole(origin)]
        }
        _ => Vec::new(),
    };
    lv.segments.iter().flat_map(segment).collect()
}
