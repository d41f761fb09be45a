//! `wattle scan --svg`: what lies on what, as a picture.

use std::collections::BTreeMap;
use std::path::Path;

use wattle_control::lvm::GroupScan;
use wattle_control::scan::MemberOrigin;
use wattle_control::{Access, ArrayScan, Code, MemberScan, Problem, Stack, Verdict};
use wattle_control::{ArrayId, GroupId, MemberId};
use wattle_engine::geometry::Level;
use wattle_format::lvm::Id;

use super::layers::{free_extents, plain_signatures, segment_types};
use crate::output::Screen;
use crate::output::plot::{Layer, LayerPlot, Tone, svg};
use crate::output::text::printable;

/// Writes the picture.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, stack: &Stack, screen: Screen) -> Result<(), Problem> {
    std::fs::write(path, svg(&picture(stack, screen))).map_err(|error| {
        Problem::new(
            Code::OutputFailed,
            format!("{}: {error}", path.display()),
            "the picture could not be written",
            "name a file in a directory that can be written",
        )
    })
}

/// Which box stands for what.
#[derive(Default)]
struct Boxes {
    boxes: Vec<Layer>,
    /// By member of the scan. The content of an array is the array's box.
    members: BTreeMap<MemberId, usize>,
}

impl Boxes {
    fn add(&mut self, name: &str, lines: Vec<String>, tone: Tone, on: Vec<usize>) -> usize {
        let lines = lines.into_iter().filter(|line| !line.is_empty()).map(|line| printable(&line)).collect();
        self.boxes.push(Layer { name: printable(name), lines, tone, on });
        self.boxes.len() - 1
    }

    fn of(&self, members: impl IntoIterator<Item = MemberId>) -> Vec<usize> {
        members.into_iter().filter_map(|ix| self.members.get(&ix).copied()).collect()
    }
}

/// Layer by layer, in the order in which they were found: below comes before above.
fn picture(stack: &Stack, screen: Screen) -> LayerPlot {
    let members = &stack.scan.members;
    let mut boxes = Boxes::default();
    let (mut arrays, mut groups) = (BTreeMap::new(), BTreeMap::new());
    // A layer can be drawn once all it lies on is; each round draws one more layer.
    loop {
        let before = boxes.boxes.len();
        for (ix, seen) in
            members.entries().filter(|(ix, _)| !boxes.members.contains_key(ix)).collect::<Vec<_>>()
        {
            let drawn = match seen.origin {
                MemberOrigin::Given => Some(member(&mut boxes, stack, ix, Vec::new(), screen)),
                MemberOrigin::Partition { of, .. }
                | MemberOrigin::Container { of, .. }
                | MemberOrigin::Decrypted { of }
                | MemberOrigin::Layered { of } => boxes
                    .members
                    .get(&of)
                    .copied()
                    .map(|below| member(&mut boxes, stack, ix, vec![below], screen)),
                MemberOrigin::Array(array) => arrays.get(&array).copied(),
                MemberOrigin::Logical { group, volume } => groups
                    .get(&group)
                    .map(|&below| logical(&mut boxes, stack, seen, (group, volume), below, screen)),
            };
            boxes.members.extend(drawn.map(|drawn| (ix, drawn)));
        }
        for (ix, found) in stack.scan.arrays.entries() {
            if !arrays.contains_key(&ix)
                && found.members.iter().all(|member| boxes.members.contains_key(member))
            {
                arrays.insert(ix, array(&mut boxes, stack, (ix, found), screen));
            }
        }
        for (ix, found) in stack.groups.entries() {
            if !groups.contains_key(&ix)
                && found.devices.iter().flatten().all(|member| boxes.members.contains_key(member))
            {
                groups.insert(ix, group(&mut boxes, found, screen));
            }
        }
        if boxes.boxes.len() == before {
            break;
        }
    }
    for (ix, found) in stack.groups.entries() {
        unopened(&mut boxes, found, groups.get(&ix).copied(), screen);
    }
    LayerPlot { title: "what lies on what".to_owned(), boxes: boxes.boxes }
}

fn member(boxes: &mut Boxes, stack: &Stack, ix: MemberId, on: Vec<usize>, screen: Screen) -> usize {
    let seen = &stack.scan.members[ix];
    let name = seen.member.name.rsplit('/').next().unwrap_or(&seen.member.name);
    let mut lines = vec![screen.units.show_capacity(seen.member.device.size_bytes())];
    lines.extend(plain_signatures(stack, seen));
    lines.extend(seen.problem.as_ref().map(|problem| format!("{} ({})", problem.code.title(), problem.code)));
    let verdict = verdict(stack, ix).filter(|verdict| !matches!(verdict, Verdict::Fresh { .. }));
    lines.extend(verdict.map(|verdict| verdict.word().to_owned()));
    let tone = match verdict {
        _ if seen.problem.is_some() => Tone::Unusable,
        None | Some(Verdict::Spare | Verdict::Journal) => Tone::Plain,
        Some(_) => Tone::Degraded,
    };
    boxes.add(name, lines, tone, on)
}

/// What became of a member of an array.
fn verdict(stack: &Stack, ix: MemberId) -> Option<&Verdict> {
    stack.scan.arrays.iter().find_map(|array| {
        let at = array.members.iter().position(|&member| member == ix)?;
        array.assembly.verdicts.get(at)
    })
}

fn array(boxes: &mut Boxes, stack: &Stack, (ix, found): (ArrayId, &ArrayScan), screen: Screen) -> usize {
    let assembly = &found.assembly;
    let level = Level::from_md(assembly.array.level);
    let content = stack.scan.members.iter().find(|seen| seen.origin == MemberOrigin::Array(ix));
    let health = super::health(assembly);
    let tone = match &assembly.access {
        Access::Refused(_) => Tone::Unusable,
        _ if assembly.degraded() > 0 || !assembly.synced() => Tone::Degraded,
        _ => Tone::Good,
    };
    let level = level.map_or_else(|| "array".to_owned(), |level| level.to_string());
    let mut lines = vec![
        format!("{level} {}", super::slots_view(&assembly.slots)),
        health.word(assembly.synced()).to_owned(),
    ];
    if assembly.array.chunk_sectors > 0 {
        lines.push(format!("chunk {}", screen.units.show(super::bytes(assembly.array.chunk_sectors.into()))));
    }
    lines.extend(content.map(|seen| screen.units.show_capacity(seen.member.device.size_bytes())));
    lines.extend(content.into_iter().flat_map(|seen| plain_signatures(stack, seen)));
    let mut on = boxes.of(found.members.iter().copied());
    on.extend(missing(boxes, &assembly.missing()));
    boxes.add(assembly.name(), lines, tone, on)
}

/// A box for each run of slots without a member: what is not there is seen too.
fn missing(boxes: &mut Boxes, slots: &[u16]) -> Vec<usize> {
    let runs = slots.chunk_by(|one, next| one + 1 == *next);
    let name = |run: &[u16]| match *run {
        [first, .., last] => format!("slots {first} to {last}"),
        _ => format!("slot {}", run[0]),
    };
    runs.map(|run| boxes.add(&name(run), vec!["missing".to_owned()], Tone::Absent, Vec::new())).collect()
}

fn group(boxes: &mut Boxes, found: &GroupScan, screen: Screen) -> usize {
    let extent_bytes = super::bytes(found.vg.extent_sectors);
    let free: u64 = found.vg.pvs.iter().map(|pv| free_extents(found, &pv.name)).fold(0, u64::saturating_add);
    let missing = found.devices.iter().filter(|device| device.is_none()).count();
    let mut lines =
        vec!["volume group".to_owned(), format!("extents of {}", screen.units.show(extent_bytes))];
    lines.push(format!("{} free", screen.units.show(free.saturating_mul(extent_bytes))));
    if missing > 0 {
        lines.push(format!("{missing} of {} physical volumes missing", found.devices.len()));
    }
    lines
        .extend(found.problem.as_ref().map(|problem| format!("{} ({})", problem.code.title(), problem.code)));
    let tone = match (&found.problem, missing) {
        (Some(_), _) => Tone::Unusable,
        (None, 0) => Tone::Plain,
        (None, _) => Tone::Degraded,
    };
    let on = boxes.of(found.devices.iter().flatten().copied());
    boxes.add(&found.vg.name, lines, tone, on)
}

fn logical(
    boxes: &mut Boxes,
    stack: &Stack,
    seen: &MemberScan,
    (group, volume): (GroupId, Id),
    below: usize,
    screen: Screen,
) -> usize {
    let group = &stack.groups[group];
    let mut lines = vec![screen.units.show_capacity(seen.member.device.size_bytes())];
    lines.push(segment_types(group, volume).join(" and "));
    let lacks = super::layers::lacks(&group.volumes[&volume], screen.units);
    let partial = lacks.is_some();
    lines.extend(lacks);
    lines.extend(plain_signatures(stack, seen));
    boxes.add(&seen.member.name, lines, if partial { Tone::Degraded } else { Tone::Plain }, vec![below])
}

/// Volumes that could not be opened.
fn unopened(boxes: &mut Boxes, group: &GroupScan, below: Option<usize>, screen: Screen) {
    let Some(below) = below else { return };
    for lv in &group.vg.lvs {
        let state = &group.volumes[&lv.id];
        let Some(problem) = state.problem.as_ref().filter(|_| group.vg.is_visible(lv)) else { continue };
        let size = screen.units.show_capacity(group.size_bytes(lv));
        let lines = vec![size, format!("{} ({})", problem.code.title(), problem.code)];
        boxes.add(&group.full_name(lv), lines, Tone::Unusable, vec![below]);
    }
}
