//! Moves extents to other physical volumes, step after step.

use wattle_control::lvm::edit::State;
use wattle_control::lvm::plan::GroupPlan;
use wattle_control::lvm::relocate::{WantedMove, next_step};
use wattle_control::units::Units;
use wattle_control::{Code, Problem, Stack, shell_word};

use super::change::GroupChange;
use super::look;

/// What a step moves at most: so long writes to it wait.
const STEP_BYTES: u64 = 32 << 20;

/// Why a move is not undone.
pub const NO_UNDO: &str = "no undo log: what is written from now on is in the new places, and the old text would lead to the old ones; to take it \
                       back, move it back (`wattle lv move NAME --from NEW --on OLD`)";

/// The next step off `from`.
///
/// # Errors
/// The group must not be changed, a volume cannot be moved, or there is no room.
pub fn decide(
    stack: &Stack,
    name: &str,
    (from, begun): (&str, bool),
    on: &[String],
    units: Units,
) -> Result<GroupChange, Problem> {
    let (group, volume) = match name.split_once('/') {
        Some(_) => look::split(name).map(|(group, volume)| (group, Some(volume)))?,
        None => (name, None),
    };
    let group = look::group(stack, group, State::Here)?;
    let from_name = look::physical(stack, group, &[from.to_owned()])?.swap_remove(0);
    let on = look::physical(stack, group, on)?;
    group.check_room()?;
    let extent_bytes = group.vg.extent_sectors.saturating_mul(512).max(1);
    let extents_max = (STEP_BYTES / extent_bytes).max(1);
    let step = next_step(&group.vg, WantedMove { from: &from_name, volume, on: &on, extents_max })?;
    let Some(step) = step else { return Err(nothing(name, from, begun)) };
    let moved_bytes = step.extents.saturating_mul(extent_bytes);
    let of = volume.map_or(String::new(), |volume| format!(" -n {}", shell_word(volume)));
    let (source, targets) =
        (look::linux_names(stack, group, &[from_name]), look::linux_names(stack, group, &on));
    Ok(GroupChange {
        action: format!("lv move {name} --from {from}"),
        result: moved(name, from, moved_bytes, units),
        plan: GroupPlan::change(&stack.scan, group, step.after.clone())?,
        commands: vec![format!("pvmove{of}{source}{targets}")],
        // The old text would lead to what volumes held once: only moving back is safe.
        notes: (!begun).then(|| NO_UNDO.to_owned()).into_iter().collect(),
        step: Some(step),
    })
}

/// What came of moving so much.
pub fn moved(name: &str, from: &str, bytes: u64, units: Units) -> String {
    format!("{name}, off {from}: {} moved", units.show(bytes))
}

fn nothing(name: &str, from: &str, begun: bool) -> Problem {
    let why = match begun {
        true => "the rest was moved or removed meanwhile",
        false => "none of its extents are there",
    };
    Problem::new(
        Code::BadVolume,
        format!("nothing of {name} is on {from}"),
        why,
        "see `wattle lv list -o +devices`",
    )
}
