//! Tuning: read-ahead, stripe cache, threads, and the chunk against what is asked.

use super::facts::{ArrayFacts, AuditFacts, DeviceFacts, DeviceOrigin, IntendedUse, KernelArray};
use super::{AuditReport, FindingCode, Size, word};
use crate::limits::Scheme;

/// What md starts with, and what published measurements found to be enough for SSDs.
const DEFAULT_ENTRIES: u64 = 256;
const GOOD_ENTRIES: u64 = 4096;
const PAGE: u64 = 4096;

/// Of the memory, for one cache.
const MEMORY_PART: u64 = 8;

pub(super) fn rules(facts: &AuditFacts, report: &mut AuditReport) {
    if facts.system.is_none() {
        let why = "only members were looked at; the system they are in says it (`wattle audit` there)";
        report.unknown("read-ahead, stripe cache, threads", why);
    }
    for (ix, array) in facts.arrays.iter().enumerate() {
        if let Some(running) = &array.running {
            read_ahead(facts, ix, array, running, report);
            if array.parities() > 0 {
                stripe_cache(facts, array, running, report);
                threads(facts, array, running, report);
            }
        } else if facts.system.is_some() {
            let what = format!("{}: read-ahead, stripe cache, threads", array.name);
            report.unknown(what, "the kernel does not run it");
        }
        chunk(facts.request, array, report);
    }
    layers(facts, report);
}

fn read_ahead_of(device: &DeviceFacts) -> Option<u64> {
    device.queue.as_ref()?.read_ahead
}

fn read_ahead(
    facts: &AuditFacts,
    ix: usize,
    array: &ArrayFacts,
    running: &KernelArray,
    report: &mut AuditReport,
) {
    let Some(stripes) = array.stripes() else { return };
    let Some(found) = facts.content(ix).and_then(read_ahead_of) else {
        report.unknown(format!("{}: read-ahead", array.name), "/sys/block has none of it");
        return;
    };
    if found < stripes.stripe() {
        let evidence = format!(
            "{}, and a stripe is {} x {} = {}",
            Size(found),
            stripes.drives,
            Size(stripes.unit),
            Size(stripes.stripe())
        );
        let busy = found.div_ceil(stripes.unit).max(1);
        let cost = format!("one reader keeps {} of {} drives busy", busy.min(stripes.drives), stripes.drives);
        // Sectors.
        let fix = format!("blockdev --setra {} /dev/{}", stripes.stripe() / 256, running.node);
        report.find(FindingCode::ReadAhead, &array.name, [evidence, cost, fix]);
    }
}

/// Only the read-ahead of what a file system is on counts.
fn layers(facts: &AuditFacts, report: &mut AuditReport) {
    for (ix, device) in facts.devices.iter().enumerate() {
        let DeviceOrigin::Logical { group, volume } = device.origin else { continue };
        let group = &facts.groups[group];
        let areas = group.volumes[volume].segments.iter().flat_map(|segment| &segment.areas);
        let devices = areas.filter_map(|(physical, _)| group.physical.get(*physical)?.device);
        let below = devices.map(|device| &facts.devices[device]).max_by_key(|device| read_ahead_of(device));
        let Some(below) = below.filter(|_| facts.place(ix, 0).is_some()) else { continue };
        let (Some(own), Some(lower)) = (read_ahead_of(device), read_ahead_of(below)) else { continue };
        if own < lower {
            let evidence = format!("{}, and {} below it has {}", Size(own), below.name, Size(lower));
            let cost = format!("readers of {} get {} ahead, whatever is set below", device.name, Size(own));
            let fix = format!("lvchange --readahead {} {}", lower / 512, word(&device.name));
            report.find(FindingCode::ReadAheadDiffers, &device.name, [evidence, cost, fix]);
        }
    }
}

fn stripe_cache(facts: &AuditFacts, array: &ArrayFacts, running: &KernelArray, report: &mut AuditReport) {
    let Some(entries) = running.stripe_cache else {
        report.unknown(format!("{}: its stripe cache", array.name), "md/stripe_cache_size cannot be read");
        return;
    };
    let memory = |entries: u64| entries.saturating_mul(PAGE).saturating_mul(array.slots.into());
    let takes =
        |entries: u64| format!("{entries} x 4 KiB x {} members = {}", array.slots, Size(memory(entries)));
    let set = |entries: u64| {
        format!("by a udev rule: echo {entries} > /sys/block/{}/md/stripe_cache_size", running.node)
    };
    match facts.is_flash(array) {
        Some(true) if entries <= DEFAULT_ENTRIES => {
            let evidence = format!("{entries} entries: {}", takes(entries));
            let cost =
                format!("few writes in flight; {GOOD_ENTRIES} entries would take {}", takes(GOOD_ENTRIES));
            report.find(FindingCode::SmallStripeCache, &array.name, [evidence, cost, set(GOOD_ENTRIES)]);
        }
        None => {
            let what = format!("{}: whether its stripe cache fits its drives", array.name);
            report.unknown(what, "it is not said whether they have heads");
        }
        Some(_) => {}
    }
    let of = facts.system.as_ref().and_then(|system| system.memory);
    if let Some(of) = of.filter(|of| memory(entries) > of / MEMORY_PART) {
        let evidence = format!("{}, of {}", takes(entries), Size(of));
        let cost = "memory that nothing else can have".to_owned();
        report.find(FindingCode::LargeStripeCache, &array.name, [evidence, cost, set(entries / 2)]);
    }
    let rebuilding = running.action.as_deref().is_some_and(|action| !matches!(action, "idle" | "frozen"));
    if let Some(active) =
        running.stripe_cache_active.filter(|active| rebuilding && *active >= entries - entries / 10)
    {
        let evidence = format!(
            "{} is under way with {active} of {entries} entries in use",
            running.action.as_deref().unwrap_or_default()
        );
        let more = entries.saturating_mul(2);
        let cost = format!("it waits for entries, not for drives; twice as many would take {}", takes(more));
        report.find(FindingCode::CacheFull, &array.name, [evidence, cost, set(more)]);
    }
}

fn threads(facts: &AuditFacts, array: &ArrayFacts, running: &KernelArray, report: &mut AuditReport) {
    if facts.is_flash(array) == Some(true) && running.threads == Some(0) {
        let processors = facts.system.as_ref().and_then(|system| system.processors).unwrap_or(4);
        if processors < 2 {
            return;
        }
        let evidence = format!("group_thread_cnt is 0, with {processors} processors");
        let cost = "writes stop growing where one processor is full".to_owned();
        let threads = processors.div_ceil(2).min(8);
        let fix = format!("by a udev rule: echo {threads} > /sys/block/{}/md/group_thread_cnt", running.node);
        report.find(FindingCode::OneThread, &array.name, [evidence, cost, fix]);
    }
}

fn chunk(request: Option<IntendedUse>, array: &ArrayFacts, report: &mut AuditReport) {
    let Some(stripes) = array.stripes() else { return };
    let Some(request) = request else {
        let why = "it depends on what is asked of it: --workload 'rw=randwrite bs=4k'";
        report.unknown(format!("{}: whether its chunk of {} fits", array.name, Size(stripes.unit)), why);
        return;
    };
    let asked = format!(
        "{} requests of {}, and a chunk of {} in stripes of {}",
        if request.random { "random" } else { "sequential" },
        Size(request.size),
        Size(stripes.unit),
        Size(stripes.stripe())
    );
    let simulate = format!(
        "wattle simulate --level {} --members {} --sweep chunk=… says which is better",
        array.level.trim_start_matches("raid"),
        array.slots
    );
    let parity = matches!(array.scheme, Scheme::Parity { .. });
    if request.random && request.size.saturating_mul(2) > stripes.unit {
        let (size, unit) = (request.size, stripes.unit);
        let cost = match size > unit {
            true => format!("each request keeps {} drives busy instead of one", size.div_ceil(unit)),
            false => format!("{} % of requests touch two drives, wherever they start", 100 * size / unit),
        };
        report.find(FindingCode::ChunkForLoad, &array.name, [asked, cost, simulate]);
    } else if !request.random && request.writes && parity && request.size < stripes.stripe() {
        let whole = stripes.stripe().div_ceil(request.size.max(1));
        let cost = format!("{whole} requests have to come together before a stripe is written as a whole");
        report.find(FindingCode::ChunkForLoad, &array.name, [asked, cost, simulate]);
    }
}
