//! `wattle detail`: arrays being served as mdadm shows arrays that run.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::process::ExitCode;

use wattle_control::Problem;
use wattle_format::md::Version;
use wattle_server::protocol::report::{ArrayReport, Health, MemberReport, SeatState, SpareState};
use wattle_server::socket::client::Servers;
use wattle_server::time::parse_rfc3339;

use crate::cli::{DetailArgs, DetailFormat};
use crate::environment::{local_time, runtime_dir};
use crate::output::mdadm::{self, DetailView, DeviceState, DeviceView, Surroundings, WorkView};
use crate::output::text::printable;
use crate::output::{self, Screen};
use wattle_server::ids::host_name;

/// # Errors
/// What was asked for is not being served, or a server does not answer.
pub fn run(args: &DetailArgs, screen: Screen) -> Result<ExitCode, Problem> {
    let dir = runtime_dir(args.runtime.runtime_dir.as_deref());
    let servers = Servers::ask(&dir);
    let arrays: Vec<&ArrayReport> = match &args.name {
        None => servers.arrays().map(|(_, array)| array).collect(),
        Some(name) => servers.meant(&dir, name)?.arrays,
    };
    let host = host_name();
    let here = Surroundings { host: &host, time_of: local_time };
    let text: String = arrays.into_iter().map(|array| show(array, args.format, here)).collect();
    output::print(&text)?;
    let mut status = ExitCode::SUCCESS;
    // With a name, what other servers do is of no concern.
    for problem in servers.silent.iter().filter(|_| args.name.is_none()) {
        status = output::report(problem, screen.style_err);
    }
    Ok(status)
}

fn show(array: &ArrayReport, format: DetailFormat, here: Surroundings<'_>) -> String {
    let recorded = array.recorded.clone().unwrap_or_default();
    let version = array.metadata.as_deref().and_then(|version| version.parse::<Version>().ok());
    let own_name = printable(&recorded.name);
    // What has no superblocks has no name but the one it is served under.
    let called = if own_name.is_empty() { &array.name } else { &own_name };
    let path = mdadm::device_path(version, called, recorded.preferred_minor.unwrap_or(0)).unwrap_or_default();
    let path = printable(&path);
    let devices = devices(array);
    let names: Vec<String> = devices.iter().map(|device| printable(device.name)).collect();
    let devices = devices.iter().zip(&names).map(|(device, name)| DeviceView { name, ..device.clone() });
    let view = DetailView {
        path: &path,
        metadata: array.metadata.as_deref(),
        level: &array.level,
        layout_code: array.layout_code.unwrap_or(0),
        has_layout: array.layout_code.is_some(),
        chunk_bytes: array.chunk_bytes,
        size_bytes: array.size_bytes,
        device_bytes: match recorded.member_bytes {
            0 => array.member_bytes.unwrap_or(0),
            bytes => bytes,
        },
        raid_disks: array.members.len(),
        created: recorded.created.as_deref().and_then(parse_rfc3339),
        updated: recorded.updated.as_deref().and_then(parse_rfc3339),
        name: &own_name,
        uuid: array.uuid.as_deref(),
        events: recorded.events,
        preferred_minor: recorded.preferred_minor,
        bitmap: array.consistency.as_deref() == Some("bitmap"),
        consistency: array.consistency.as_deref(),
        active: array.state.starts_with("active"),
        read_only: array.read_only,
        broken: array.health == Health::Unusable,
        unsynced: !array.synced,
        work: array.sync.as_ref().map(|job| WorkView {
            action: &job.action,
            percent: (u128::from(job.done_bytes) * 100).checked_div(job.total_bytes.into()).unwrap_or(0)
                as u64,
        }),
        devices: devices.collect(),
    };
    match format {
        DetailFormat::Mdadm => mdadm::detail(&view, here),
        DetailFormat::Export => mdadm::detail_export(&view),
        DetailFormat::Scan => mdadm::detail_scan(&view, false),
        DetailFormat::ScanVerbose => mdadm::detail_scan(&view, true),
    }
}

/// What is in slots, what is to replace that, and the spares. What may come back is none of the
/// array's devices to md.
fn devices(array: &ArrayReport) -> Vec<DeviceView<'_>> {
    let in_seats =
        array.members.iter().chain(&array.replacements).filter_map(|member| of_seat(array, member));
    let spares = array.spares.iter().filter_map(|spare| {
        let state = match spare.state {
            SpareState::Spare | SpareState::Refused => DeviceState::Spare,
            SpareState::Faulty => DeviceState::Faulty,
            SpareState::Returning => return None,
        };
        Some(device(array, &spare.member, None, state, false))
    });
    in_seats.chain(spares).collect()
}

fn of_seat<'a>(array: &ArrayReport, member: &'a MemberReport) -> Option<DeviceView<'a>> {
    let state = match member.state {
        SeatState::InSync => DeviceState::InSync,
        SeatState::Rebuilding => DeviceState::Rebuilding,
        SeatState::Faulty => DeviceState::Faulty,
        SeatState::Missing => return None,
    };
    Some(device(array, member.member.as_deref()?, Some(member.slot), state, member.write_mostly))
}

fn device<'a>(
    array: &ArrayReport,
    name: &'a str,
    slot: Option<u16>,
    state: DeviceState,
    write_mostly: bool,
) -> DeviceView<'a> {
    let number = array.recorded.as_ref().and_then(|recorded| recorded.numbers.get(name).copied());
    let (major, minor) = node(name);
    DeviceView { number, major, minor, slot, state, write_mostly, name }
}

/// The numbers of a block device; zeros of a file, which has none.
fn node(name: &str) -> (u32, u32) {
    let node = fs::metadata(name).ok().filter(|found| found.file_type().is_block_device());
    node.map_or((0, 0), |found| (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev())))
}
