//! The fields of physical volumes, groups and volumes, under LVM2's names.

use wattle_control::Stack;
use wattle_control::lvm::GroupScan;
use wattle_format::lvm::{Kind, Lv, Pv, Segment, Vg};

use super::columns::{Column, List, Value};
use super::look;

const fn usual(field: &'static str, heading: &'static str) -> Column {
    Column { field, heading, usual: true }
}

const fn more(field: &'static str, heading: &'static str) -> Column {
    Column { field, heading, usual: false }
}

/// `pv list`.
pub const PV: List = List {
    rows: "physical_volumes",
    prefix: "pv_",
    columns: &[
        usual("pv_name", "PV"),
        usual("vg_name", "VG"),
        usual("pv_fmt", "Fmt"),
        usual("pv_attr", "Attr"),
        usual("pv_size", "PSize"),
        usual("pv_free", "PFree"),
        more("pv_used", "Used"),
        more("dev_size", "DevSize"),
        more("pe_start", "1st PE"),
        more("pv_pe_count", "PE"),
        more("pv_pe_alloc_count", "Alloc"),
        more("pv_mda_count", "#PMda"),
        more("pv_tags", "PV Tags"),
        more("pv_uuid", "PV UUID"),
    ],
};

/// `vg list`.
pub const VG: List = List {
    rows: "volume_groups",
    prefix: "vg_",
    columns: &[
        usual("vg_name", "VG"),
        usual("pv_count", "#PV"),
        usual("lv_count", "#LV"),
        usual("snap_count", "#SN"),
        usual("vg_attr", "Attr"),
        usual("vg_size", "VSize"),
        usual("vg_free", "VFree"),
        more("vg_extent_size", "Ext"),
        more("vg_extent_count", "#Ext"),
        more("vg_free_count", "Free"),
        more("vg_missing_pv_count", "#PV Missing"),
        more("vg_seqno", "Seq"),
        more("vg_systemid", "System ID"),
        more("vg_tags", "VG Tags"),
        more("vg_uuid", "VG UUID"),
    ],
};

/// `lv list`.
pub const LV: List = List {
    rows: "logical_volumes",
    prefix: "lv_",
    columns: &[
        usual("lv_name", "LV"),
        usual("vg_name", "VG"),
        usual("lv_attr", "Attr"),
        usual("lv_size", "LSize"),
        usual("pool_lv", "Pool"),
        usual("origin", "Origin"),
        more("segtype", "Type"),
        more("seg_count", "#Seg"),
        more("stripes", "#Str"),
        more("stripe_size", "Stripe"),
        more("devices", "Devices"),
        more("lv_full_name", "LV"),
        more("lv_host", "Host"),
        more("lv_tags", "LV Tags"),
        more("lv_uuid", "LV UUID"),
    ],
};

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

fn has(words: &[String], word: &str) -> bool {
    words.iter().any(|found| found == word)
}

fn free(vg: &Vg, pv: &Pv) -> u64 {
    vg.free_extents(&pv.name).iter().map(|run| run.end - run.start).sum()
}

/// Physical volumes: those of groups, missing ones too, then those in none.
pub fn pvs(stack: &Stack) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for group in &stack.groups {
        let bytes =
            |extents: u64| Value::Bytes(extents.saturating_mul(group.vg.extent_sectors).saturating_mul(512));
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
                Value::Bytes(label.map_or(0, |label| label.device_bytes)),
                Value::Bytes(pv.pe_start.saturating_mul(512)),
                Value::Count(pv.pe_count),
                Value::Count(pv.pe_count.saturating_sub(free)),
                Value::Count(label.map_or(0, |label| label.metadata_areas.len() as u64)),
                text(pv.tags.join(",")),
                text(pv.id.to_string()),
            ]);
        }
    }
    for ix in (0..stack.scan.members.len()).filter(|ix| look::group_of(stack, *ix).is_none()) {
        let seen = &stack.scan.members[ix];
        let Some(label) = seen.physical.as_ref().map(|physical| &physical.label) else { continue };
        let start_bytes = label.data_areas.first().map_or(0, |area| area.offset_bytes);
        let size = Value::Bytes(label.device_bytes.saturating_sub(start_bytes));
        rows.push(vec![
            text(&seen.member.name),
            text(""),
            text("lvm2"),
            text("---"),
            size.clone(),
            size,
            Value::Bytes(0),
            Value::Bytes(label.device_bytes),
            Value::Bytes(start_bytes),
            Value::Count(0),
            Value::Count(0),
            Value::Count(label.metadata_areas.len() as u64),
            text(""),
            text(label.id.to_string()),
        ]);
    }
    rows
}

/// Groups.
pub fn vgs(stack: &Stack) -> Vec<Vec<Value>> {
    stack.groups.iter().map(vg).collect()
}

fn vg(group: &GroupScan) -> Vec<Value> {
    let vg = &group.vg;
    let bytes = |extents: u64| Value::Bytes(extents.saturating_mul(vg.extent_sectors).saturating_mul(512));
    let extents = vg.pvs.iter().map(|pv| pv.pe_count).fold(0, u64::saturating_add);
    let free = vg.pvs.iter().map(|pv| free(vg, pv)).fold(0, u64::saturating_add);
    let missing = group.devices.iter().filter(|device| device.is_none()).count() as u64;
    let snapshots = vg.lvs.iter().flat_map(|lv| &lv.segments);
    let snapshots = snapshots.filter(|segment| matches!(segment.kind, Kind::Snapshot { .. })).count() as u64;
    let attributes = [
        if has(&vg.status, "WRITE") { 'w' } else { 'r' },
        if has(&vg.status, "RESIZEABLE") { 'z' } else { '-' },
        if has(&vg.status, "EXPORTED") { 'x' } else { '-' },
        if missing > 0 { 'p' } else { '-' },
        'n',
        if vg.lock_type.as_deref().is_some_and(|lock| lock != "none") { 's' } else { '-' },
    ];
    vec![
        text(&vg.name),
        Value::Count(vg.pvs.len() as u64),
        Value::Count(vg.lvs.iter().filter(|lv| vg.is_visible(lv)).count() as u64),
        Value::Count(snapshots),
        text(attributes.iter().collect::<String>()),
        bytes(extents),
        bytes(free),
        bytes(1),
        Value::Count(extents),
        Value::Count(free),
        Value::Count(missing),
        Value::Count(vg.seqno),
        text(vg.system_id.clone().unwrap_or_default()),
        text(vg.tags.join(",")),
        text(vg.id.to_string()),
    ]
}

/// Volumes, without those that are parts of others.
pub fn lvs(stack: &Stack) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for group in &stack.groups {
        let visible = group.vg.lvs.iter().enumerate().filter(|(_, lv)| group.vg.is_visible(lv));
        rows.extend(visible.map(|(ix, lv)| row(stack, group, lv, group.volumes[ix].partial)));
    }
    rows
}

fn row(stack: &Stack, group: &GroupScan, lv: &Lv, partial: bool) -> Vec<Value> {
    let first = lv.segments.first();
    let kind = first.map(|segment| &segment.kind);
    let (stripes, stripe_sectors) = match kind {
        Some(Kind::Striped { stripes, stripe_sectors }) => (stripes.len() as u64, *stripe_sectors),
        Some(Kind::Raid(raid)) => (raid.images.len() as u64, raid.stripe_sectors.unwrap_or(0)),
        _ => (1, 0),
    };
    let of_snapshot =
        group.vg.lvs.iter().flat_map(|lv| &lv.segments).find_map(|segment| match &segment.kind {
            Kind::Snapshot { origin, store, .. } if *store == lv.name => Some(origin.as_str()),
            _ => None,
        });
    let (pool, origin) = match kind {
        Some(Kind::Thin { pool, origin, .. }) => (pool.as_str(), origin.as_deref()),
        Some(Kind::Cache { pool, origin, .. }) => (pool.as_str(), Some(origin.as_str())),
        _ => ("", of_snapshot),
    };
    vec![
        text(&lv.name),
        text(&group.vg.name),
        text(attributes(lv, of_snapshot.is_some(), partial)),
        Value::Bytes(group.size_bytes(lv)),
        text(pool),
        text(origin.unwrap_or_default()),
        text(first.map_or("", type_name)),
        Value::Count(lv.segments.len() as u64),
        Value::Count(stripes),
        Value::Bytes(stripe_sectors.saturating_mul(512)),
        text(devices(stack, group, lv)),
        text(group.full_name(lv)),
        text(lv.creation_host.clone().unwrap_or_default()),
        text(lv.tags.join(",")),
        text(lv.id.to_string()),
    ]
}

/// `linear` is a name for one stripe.
fn type_name(segment: &Segment) -> &str {
    match &segment.kind {
        Kind::Striped { stripes, .. } if stripes.len() == 1 => "linear",
        kind => kind.name(),
    }
}

/// As lvs(8) has them, of a volume that is not active.
fn attributes(lv: &Lv, is_snapshot: bool, partial: bool) -> String {
    let kind = match lv.segments.first().map(|segment| &segment.kind) {
        _ if is_snapshot => 's',
        Some(Kind::Mirror { .. }) => 'm',
        Some(Kind::Raid(_)) => 'r',
        Some(Kind::ThinPool { .. }) => 't',
        Some(Kind::Thin { .. }) => 'V',
        Some(Kind::Cache { .. } | Kind::Writecache { .. } | Kind::CachePool { .. }) => 'C',
        Some(Kind::Vdo { .. }) => 'v',
        Some(Kind::VdoPool { .. }) => 'd',
        _ => '-',
    };
    let (write, health) = (if lv.is_writable() { 'w' } else { 'r' }, if partial { 'p' } else { '-' });
    format!("{kind}{write}i-----{health}-")
}

/// `device(extent)` of each stripe of the first segment, and how many segments there are besides.
fn devices(stack: &Stack, group: &GroupScan, lv: &Lv) -> String {
    let name = |name: &str| {
        let at = group.vg.pvs.iter().position(|pv| pv.name == name);
        let member = at.and_then(|at| group.devices[at]);
        member.map_or(name.to_owned(), |member| stack.scan.members[member].member.name.clone())
    };
    let segment = |segment: &Segment| match &segment.kind {
        Kind::Striped { stripes, .. } => {
            let stripes = stripes.iter().map(|stripe| format!("{}({})", name(&stripe.name), stripe.extent));
            stripes.collect::<Vec<_>>().join(",")
        }
        kind => kind.references().join(","),
    };
    lv.segments.iter().map(segment).collect::<Vec<_>>().join(" ")
}
