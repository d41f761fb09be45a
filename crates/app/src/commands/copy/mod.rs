//! `wattle copy`: a volume, or a drive as it is, into a file; what cannot be read is left out and
//! noted in a map.

mod rescue;
mod target;
#[cfg(test)]
mod tests;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use wattle_control::members::{Claim, MemberAccess};
use wattle_control::units::Units;
use wattle_control::{Code, Problem};
use wattle_format::rescue_map::{RescueMap, Status};
use wattle_rt::{Core, Device, text_of_path};
use wattle_server::protocol::SCHEMA_VERSION;

use crate::cli::{CopyArgs, read_beside};
use crate::commands::loss::{FileLoss, LossFile, MemberLoss, RescueLoss, both, read_as_members};
use crate::members;
use crate::output::{self, Screen};
use crate::volumes::{self, Meant};
use rescue::RescueEffort;
use target::{CopyTarget, MapFile};

/// One core reads while the other writes; the order of neither matters.
const CORES_MAX: usize = 2;

/// Areas that are named for people. The map has them all.
const AREAS_SHOWN: usize = 5;

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    source: String,
    to: String,
    map: String,
    size_bytes: u64,
    copied_bytes: u64,
    missing_bytes: u64,
    missing: Vec<Area>,
    loss: RescueLoss,
}

#[derive(Serialize)]
struct Area {
    offset_bytes: u64,
    len_bytes: u64,
    /// As the map has it: `?`, `*`, `/` or `-`.
    status: char,
}

/// # Errors
/// There is no such volume, the copy must not go there, or not everything could be copied.
pub fn run(access: &MemberAccess, args: &CopyArgs, screen: Screen) -> Result<(), Problem> {
    target::check_maps(args)?;
    if args.raw { drive(access, args, screen) } else { volume(access, args, screen) }
}

fn volume(access: &MemberAccess, args: &CopyArgs, screen: Screen) -> Result<(), Problem> {
    let members = access.look_all(&args.members)?;
    target::check(args, &members)?;
    let engine = (&args.engine, CORES_MAX);
    volumes::read(
        access,
        &args.members,
        Meant::Volume(args.volume.as_deref()),
        &args.force,
        engine,
        async |core, volume, scan| {
            let source = volume.device(&core, volume.name()).map_err(|error| {
                Problem::new(
                    Code::VolumeFailed,
                    format!("{}: {error}", volume.name()),
                    "it was stopped as soon as it was started",
                    "see `wattle why` of its members",
                )
            })?;
            copy(args, screen, &core, &source, MemberLoss::of_scan(scan)).await
        },
    )
}

/// A drive as it is, whatever is on it.
fn drive(access: &MemberAccess, args: &CopyArgs, screen: Screen) -> Result<(), Problem> {
    let [name] = &args.members[..] else {
        return Err(Problem::new(
            Code::Usage,
            format!("--raw copies one drive, and {} are given", args.members.len()),
            "each drive has its own copy and its own map",
            "run the command once for each; without --raw the volume on the members is copied",
        ));
    };
    let member = access.look(name)?;
    target::check(args, std::slice::from_ref(&member))?;
    let claimed = member.claim(Claim::Read)?;
    members::run(&args.engine, CORES_MAX, async |core| {
        copy(args, screen, &core, &claimed.device, MemberLoss::of_members([&claimed])).await
    })
}

async fn copy(
    args: &CopyArgs,
    screen: Screen,
    core: &Core,
    source: &Device,
    members: Vec<MemberLoss>,
) -> Result<(), Problem> {
    let target = CopyTarget::open(args, core, source).await?;
    // A copy that goes on has a report of its own again.
    let map = MapFile::of(args);
    let mut read = read_beside(&args.overlay, &args.keys, &args.maps);
    read.extend(read_as_members(&args.members, &members));
    let new_map = map.new_path();
    let written = [args.to.as_path(), map.path(), &new_map];
    let others: Vec<_> = read.iter().map(|path| &**path).chain(written).collect();
    let report_to = args.report.as_ref().map(|path| LossFile::create(path, target.resumed, &others));
    let report_to = report_to.transpose()?;
    let progress = progress(source.size_bytes(), target.map.bytes(Status::Finished));
    let effort = RescueEffort { scrape: !args.no_scrape, retries: args.retries };
    let place = target.place.clone();
    let (map, result) = rescue::copy(core, source, target, effort, &progress).await;
    progress.finish_and_clear();
    let missing = missing(&map);
    let early = result.as_ref().err().map(|problem| problem.what.clone());
    let result = match result {
        Ok(()) if !missing.is_empty() => Err(incomplete(source, &missing, screen.units)),
        Ok(()) => place.check(),
        failed => failed,
    };
    let file = FileLoss::of_copy(&args.to, &map.missing(), early);
    let loss = RescueLoss::new("copy", members, vec![file], u64::from(result.is_ok()), &result);
    let reported = report_to.map_or(Ok(()), |report_to| report_to.write(&loss, screen.units));
    let report = report(args, source, &map, missing, loss);
    match args.json.json {
        true => both(both(result, reported), output::print_json(&report)),
        false => both(both(result, reported), output::print(&render(&report, screen.units))),
    }
}

fn missing(map: &RescueMap) -> Vec<Area> {
    let missing = map.areas().filter(|(_, status)| *status != Status::Finished);
    let area = |(area, status): (std::ops::Range<u64>, Status)| Area {
        offset_bytes: area.start,
        len_bytes: area.end - area.start,
        status: status.symbol(),
    };
    missing.map(area).collect()
}

fn report(args: &CopyArgs, source: &Device, map: &RescueMap, missing: Vec<Area>, loss: RescueLoss) -> Report {
    let copied_bytes = map.bytes(Status::Finished);
    Report {
        schema_version: SCHEMA_VERSION,
        source: source.name().to_owned(),
        to: text_of_path(&args.to),
        map: text_of_path(MapFile::of(args).path()),
        size_bytes: map.size_bytes(),
        copied_bytes,
        missing_bytes: map.size_bytes() - copied_bytes,
        missing,
        loss,
    }
}

fn render(report: &Report, units: Units) -> String {
    let Report { source, to, map, copied_bytes, size_bytes, .. } = report;
    let (copied, size) = (units.show(*copied_bytes), units.show(*size_bytes));
    output::text::printable(&format!("{source}: {copied} of {size} copied to {to}, map in {map}")) + "\n"
}

fn incomplete(source: &Device, missing: &[Area], units: Units) -> Problem {
    let shown = missing.iter().take(AREAS_SHOWN);
    let missing_bytes: u64 = missing.iter().map(|area| area.len_bytes).sum();
    let mut areas: Vec<_> =
        shown.map(|area| format!("{} at byte {}", units.show(area.len_bytes), area.offset_bytes)).collect();
    let more = missing.len().saturating_sub(AREAS_SHOWN);
    if more > 0 {
        areas.push(format!("{more} more places in the map"));
    }
    Problem::new(
        Code::CopyIncomplete,
        format!("{}: {} could not be read", source.name(), units.show(missing_bytes)),
        format!("missing, and no data in the copy: {}", areas.join(", ")),
        "run the command again with --retries N to try these places again, or GNU ddrescue with the same map",
    )
}

/// Shown when a person waits.
fn progress(size_bytes: u64, copied_bytes: u64) -> ProgressBar {
    const TEMPLATE: &str = "{bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta} {msg}";
    let style = ProgressStyle::with_template(TEMPLATE).expect("the template is a constant");
    let bar = ProgressBar::with_draw_target(Some(size_bytes), ProgressDrawTarget::stderr());
    bar.with_style(style).with_position(copied_bytes)
}
