//! Which members a log is of, and what to write to bring back what was there.

use std::collections::BTreeMap;

use wattle_format::overlay::{sample, sample_bytes, sample_places};
use wattle_format::undo::{Range, SECTOR_BYTES, UndoLog, UndoTarget, UndoTargetKind};
use wattle_rt::{Core, Device, IoError};

use crate::byte_range::read;
use crate::nodes::MemberId;
use crate::problem::{Check, Code, Forced, Problem};
use crate::scan::MemberOrigin;
use crate::stack::{Stack, key};
use crate::undo::{CoveredWrite, drive_id};

/// How a device compares with what a log says of a target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fit {
    /// Sectors that are as the command found them.
    pub before: u64,
    /// Sectors that are as the command left them, at its end or in between.
    pub written: u64,
    /// Sectors that are neither: the first of them, and how many.
    pub other: Option<(u64, u64)>,
    /// Some sector that is not just zeros is as it was or as it was left.
    known: bool,
    /// The places that the command left alone are as they were.
    alike: bool,
    /// These hold only zeros, as on any new drive.
    blank: bool,
    /// Some sector that was written is not just zeros.
    told: bool,
    /// Where sectors begin that the command left alone and that are as they were, a place of the
    /// log's each.
    left_alone: Vec<u64>,
    /// An id says that it is the target, whatever it holds.
    by_id: bool,
}

impl Fit {
    /// Whether sectors compare as they did another time.
    #[must_use]
    pub fn same_sectors(&self, other: &Self) -> bool {
        (self.before, self.written, self.other) == (other.before, other.written, other.other)
    }

    /// Whether this can be nothing but the target, or a copy of it.
    fn is_it(&self) -> bool {
        self.by_id || self.known || self.alike
    }
}

/// Compares a device with a target, and says what has to be written to bring back what was there,
/// in the steps of the command backwards; of sectors that something else has written since only if
/// `all`.
///
/// # Errors
/// It cannot be read.
pub async fn compare(
    core: &Core,
    device: &Device,
    log: &UndoLog,
    target: usize,
    all: bool,
) -> Result<(Fit, Vec<CoveredWrite>), IoError> {
    let mut fit = Fit { alike: true, blank: true, ..Fit::default() };
    let mut writes = Vec::new();
    for range in log.ranges.iter().filter(|range| range.target as usize == target) {
        let (offset_bytes, len_bytes) = place(range);
        let bytes = read(core, device, offset_bytes, len_bytes).await?;
        compare_range(range, &bytes, all, &mut fit, &mut writes);
    }
    // All targets of a log count their steps from the same one.
    let last = log.ranges.iter().map(|range| range.step).max().unwrap_or(0);
    writes.iter_mut().for_each(|write| write.step = last - write.step);
    let sectors = log.targets[target].sectors;
    let len_bytes = sample_bytes(sectors);
    let mut compared = 0;
    for (offset_bytes, then) in sample_places(sectors).into_iter().zip(log.targets[target].samples) {
        let Some(then) = then else { continue };
        // A place that cannot be read any more tells nothing.
        if let Ok(bytes) = read(core, device, offset_bytes, len_bytes).await {
            compared += 1;
            fit.alike &= sample(&bytes) == then;
            if sample(&bytes) == then {
                fit.left_alone.push(offset_bytes / SECTOR_BYTES as u64);
            }
            fit.blank &= bytes.iter().all(|&byte| byte == 0);
        }
    }
    fit.alike &= compared > 0;
    Ok((fit, writes))
}

fn place(range: &Range) -> (u64, usize) {
    (range.sector * SECTOR_BYTES as u64, range.sectors as usize * SECTOR_BYTES)
}

fn compare_range(range: &Range, bytes: &[u8], all: bool, fit: &mut Fit, writes: &mut Vec<CoveredWrite>) {
    let mut run: Option<CoveredWrite> = None;
    for (ix, now) in bytes.chunks_exact(SECTOR_BYTES).enumerate() {
        let before = range.before(ix);
        let sector = range.sector + ix as u64;
        let is_before = now == before;
        let is_written = !is_before && range.is_written(ix, now);
        if is_before {
            fit.before += 1;
        } else if is_written {
            fit.written += 1;
        } else {
            let (_, others) = fit.other.get_or_insert((sector, 0));
            *others += 1;
        }
        fit.known |= (is_before || is_written) && now.iter().any(|&byte| byte != now[0]);
        fit.told |= is_written && now.iter().any(|&byte| byte != 0);
        if is_written || !is_before && all {
            let offset_bytes = sector * SECTOR_BYTES as u64;
            run.get_or_insert_with(|| CoveredWrite {
                site: range.target as usize,
                step: range.step,
                offset_bytes,
                bytes: Vec::new(),
            })
            .bytes
            .extend(before);
        } else {
            writes.extend(run.take());
        }
    }
    writes.extend(run);
}

/// A target that was found: its place among the members of the stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTarget {
    /// Which of [`UndoLog::targets`].
    pub target: usize,
    /// Which of [`crate::Scan::members`].
    pub member: MemberId,
    /// How it compares.
    pub fit: Fit,
}

/// The targets of a log among what is on the members that were opened, whatever these are called
/// now.
///
/// # Errors
/// A [`Problem`]: one is missing, cannot be told from others, or was written since; unless the
/// operator insists.
pub async fn find(
    core: &Core,
    stack: &Stack,
    log: &UndoLog,
    forced: Forced,
) -> Result<Vec<FoundTarget>, Problem> {
    let mut candidates = Vec::new();
    for target in 0..log.targets.len() {
        candidates.push(self::candidates(core, stack, log, target).await?);
    }
    // Those about which there is no question are not what others could be.
    let settled: Vec<_> =
        candidates.iter().zip(&log.targets).map(|(fits, what)| settled(stack, what, fits)).collect();
    let mut found: Vec<FoundTarget> = Vec::new();
    let (mut missing, mut blocked) = (Vec::new(), None);
    for (target, (what, mut candidates)) in log.targets.iter().zip(candidates).enumerate() {
        let named = |ix: MemberId| key(stack, ix).1.is_none_or(|name| name == what.name);
        candidates.retain(|ix, _| settled[target].is_none_or(|mine| mine == *ix));
        candidates.retain(|ix, _| settled[target] == Some(*ix) || !settled.contains(&Some(*ix)));
        let chosen = match choose(stack, what, &candidates) {
            Choice::One(ix) => ix,
            Choice::Several(several) => return Err(not_told(stack, what, &several)),
            Choice::None => match candidates.keys().find(|ix| named(**ix)) {
                Some(&ix) if forced.has(Check::WrittenSince) => ix,
                Some(&ix) => return Err(another(stack, what, ix)),
                None => {
                    let bytes = what.sectors.saturating_mul(SECTOR_BYTES as u64);
                    missing.push(format!("{} ({bytes} bytes)", what.name));
                    let not_started = || stack.blocked_by().filter(|_| what.place != UndoTargetKind::Member);
                    let is_closed = || stack.not_opened().next();
                    blocked = blocked.or_else(|| not_started().cloned()).or_else(is_closed);
                    continue;
                }
            },
        };
        if let Some(other) = found.iter().find(|other| other.member == chosen) {
            let what = [what, &log.targets[other.target]];
            return Err(both(stack, what, chosen));
        }
        let fit = candidates[&chosen].clone();
        let one = FoundTarget { target, member: chosen, fit };
        check_written_since(stack, log, &one, forced)?;
        found.push(one);
    }
    if !missing.is_empty() && (found.is_empty() || !forced.has(Check::MissingMember)) {
        return Err(missing_members(&missing, found.len(), blocked.as_ref(), &others(stack, &found)));
    }
    Ok(found)
}

/// What could be a target by its kind and size, and how it compares.
async fn candidates(
    core: &Core,
    stack: &Stack,
    log: &UndoLog,
    target: usize,
) -> Result<BTreeMap<MemberId, Fit>, Problem> {
    let what = &log.targets[target];
    let mut candidates = BTreeMap::new();
    for (ix, seen) in stack.scan.members.entries() {
        if key(stack, ix).0 != what.place || seen.member.size_sectors() != what.sectors {
            continue;
        }
        let compared = compare(core, &seen.member.device, log, target, false).await;
        let (mut fit, _) = compared.map_err(|error| {
            Problem::new(
                Code::ReadFailed,
                format!("{}: comparing it with the undo log: {error}", seen.member.name),
                "what is there now has to be known before it is written over; nothing was written",
                "leave the member out, or copy the drive first and give the copy",
            )
            .of_member(&seen.member.name)
        })?;
        // An id is what an array or a volume is found by.
        fit.by_id = what.place != UndoTargetKind::Member;
        candidates.insert(ix, fit);
    }
    Ok(candidates)
}

/// The member that has a target's name, as far as is known the same drive, and on it everything as
/// the command left it.
fn settled(stack: &Stack, what: &UndoTarget, candidates: &BTreeMap<MemberId, Fit>) -> Option<MemberId> {
    let is_settled = |ix: MemberId, fit: &Fit| {
        let (_, name) = key(stack, ix);
        let named = name.is_none_or(|name| name == what.name);
        named && fit.is_it() && fit.alike && fit.other.is_none() && !other_drive(stack, what, ix)
    };
    candidates.iter().find(|(ix, fit)| is_settled(**ix, fit)).map(|(ix, _)| *ix)
}

/// Whether a member is known to be another drive than the target was: a copy of it at most.
fn other_drive(stack: &Stack, what: &UndoTarget, member: MemberId) -> bool {
    let drive = drive_of(stack, member);
    !drive.is_empty() && !what.drive.is_empty() && drive != what.drive
}

fn drive_of(stack: &Stack, member: MemberId) -> String {
    let member = &stack.scan.members[member].member;
    drive_id(&member.address, &member.device)
}

/// Which of several that look right.
enum Choice {
    One(MemberId),
    Several(Vec<MemberId>),
    None,
}

/// By what is on them first: everything as the command left it, then also what it left alone. What
/// is alike by that is told by what the drives say they are, then by the names, which go by the
/// order in which drives are found.
fn choose(stack: &Stack, what: &UndoTarget, candidates: &BTreeMap<MemberId, Fit>) -> Choice {
    let drive = |ix: &MemberId| drive_of(stack, *ix);
    let named = |ix: &MemberId| key(stack, *ix).1.is_none_or(|name| name == what.name);
    let mut fits: Vec<_> = candidates.iter().filter(|(_, fit)| fit.is_it()).collect();
    // A blank drive is like any other.
    fits.retain(|(ix, fit)| {
        fit.by_id || fit.known || !fit.blank || named(ix) && !other_drive(stack, what, **ix)
    });
    for better in [|fit: &Fit| fit.other.is_none(), |fit: &Fit| fit.alike] {
        if fits.iter().any(|(_, fit)| better(fit)) {
            fits.retain(|(_, fit)| better(fit));
        }
    }
    let fits: Vec<_> = fits.into_iter().map(|(ix, _)| *ix).collect();
    let same_drive: Vec<_> =
        fits.iter().copied().filter(|ix| !what.drive.is_empty() && drive(ix) == what.drive).collect();
    let same_name: Vec<_> =
        fits.iter().copied().filter(|ix| named(ix) && !other_drive(stack, what, *ix)).collect();
    match (&same_drive[..], &same_name[..], &fits[..]) {
        ([one], _, _) | ([], [one], _) | ([], [], [one]) => Choice::One(*one),
        ([], [], []) => Choice::None,
        _ => Choice::Several(fits),
    }
}

fn name(stack: &Stack, member: MemberId) -> &str {
    &stack.scan.members[member].member.name
}

fn not_told(stack: &Stack, what: &UndoTarget, several: &[MemberId]) -> Problem {
    let names: Vec<_> = several.iter().map(|&ix| name(stack, ix)).collect();
    Problem::new(
        Code::NotLogged,
        format!("{} could be any of {}", what.name, names.join(", ")),
        "they hold the same where the undo log could tell them apart; nothing was written",
        "give members under the names they had, which links of these names do too, or give fewer",
    )
}

fn both(stack: &Stack, [one, other]: [&UndoTarget; 2], member: MemberId) -> Problem {
    Problem::new(
        Code::NotLogged,
        format!("{} could be both {} and {}", name(stack, member), other.name, one.name),
        "they held the same where the undo log could tell them apart; nothing was written",
        "give all members, under the names they had",
    )
    .of_member(name(stack, member))
}

fn another(stack: &Stack, what: &UndoTarget, member: MemberId) -> Problem {
    let name = name(stack, member);
    Problem::new(
        Code::NotLogged,
        format!("{name} does not look like the member of this name that the command wrote to"),
        "neither what the command found nor what it wrote is there, nor what it left alone; nothing was written",
        format!("give {} by the name it has now; if it is this one, --force=written-since", what.name),
    )
    .of_member(name)
    .forced_by(Check::WrittenSince)
}

/// Refuses a member that something else has written to since. Where all that is to be written over
/// is zeros, these do not tell: what was made since may have left them alone, and what is brought
/// back would lie under it. Nor do labels and metadata areas of LVM2: a partition table, or what is
/// in it, leaves them alone too. What is where the command left all alone, and as it was, was not
/// made since: of a command or an undo that was cut short, zeros may be all that is left.
///
/// # Errors
/// Sectors that the command wrote hold something else; or all of these are zeros and something is
/// recognised elsewhere, or a physical volume has something beside its label that was not there as
/// far as is known; unless the operator insists.
pub fn check_written_since(
    stack: &Stack,
    log: &UndoLog,
    found: &FoundTarget,
    forced: Forced,
) -> Result<(), Problem> {
    let FoundTarget { target, member, ref fit } = *found;
    if forced.has(Check::WrittenSince) {
        return Ok(());
    }
    if let Some((sector, others)) = fit.other {
        return Err(written_since(stack, member, sector, others));
    }
    let ranges = || log.ranges.iter().filter(|range| range.target as usize == target);
    let is_logged = |at: u64| {
        ranges().any(|range| at.checked_sub(range.sector).is_some_and(|at| at < u64::from(range.sectors)))
    };
    let place_sectors = (sample_bytes(log.targets[target].sectors) / SECTOR_BYTES) as u64;
    let was_there =
        |sector: u64| fit.left_alone.iter().any(|place| (*place..place + place_sectors).contains(&sector));
    let seen = &stack.scan.members[member];
    let is_made = |sector: u64| fit.written > 0 && !is_logged(sector) && !was_there(sector);
    let mut made = seen.recognised().filter(|(sector, _)| is_made(*sector));
    let label = seen.physical.as_ref().map(|physical| &physical.label);
    match label.filter(|label| fit.told || was_there(label.sector)) {
        // What lies behind the start of the data may be a volume's.
        Some(label) => {
            let data =
                label.data_areas.first().map_or(u64::MAX, |area| area.offset_bytes / SECTOR_BYTES as u64);
            let beside = made.find(|(sector, _)| *sector != label.sector && *sector < data);
            beside.map_or(Ok(()), |(_, what)| Err(made_beside(name(stack, member), &what)))
        }
        None if fit.told => Ok(()),
        None => made.next().map_or(Ok(()), |(_, what)| Err(made_since(name(stack, member), &what))),
    }
}

fn made_beside(name: &str, what: &str) -> Problem {
    Problem::new(
        Code::WrittenSince,
        format!("{name}: {what} is on it, beside the label of a physical volume"),
        "as far as is known it was not there before the command: what was made since left alone what the command wrote, and the volume group would \
         be given the same room; nothing was written",
        "see what is there now (`wattle scan`, `wattle examine`); if it is not needed, --force=written-since brings back what was before all the \
         same",
    )
    .of_member(name)
    .forced_by(Check::WrittenSince)
}

fn made_since(name: &str, what: &str) -> Problem {
    Problem::new(
        Code::WrittenSince,
        format!("{name}: {what} is on it, and was made since"),
        "what is to be written over is as the command left it, and only zeros: what was made since left them alone, and what was there before \
         would come back under it and be taken for what is on the member; nothing was written",
        "see what is there now (`wattle scan`, `wattle examine`), and take back first what made it; --force=written-since brings back what was \
         before all the same",
    )
    .of_member(name)
    .forced_by(Check::WrittenSince)
}

fn written_since(stack: &Stack, member: MemberId, sector: u64, others: u64) -> Problem {
    let name = name(stack, member);
    let array = stack.scan.arrays.iter().find(|array| array.members.contains(&member));
    let by = array.map_or(String::new(), |array| {
        format!(
            ": it is a member of {}, whose data and parity stay as they are now, whatever superblocks come back. By those of before, members and \
             logs that missed what was written since are taken for current again, and what is read then can be wrong, with nothing that \
             tells where",
            array.assembly.name()
        )
    });
    Problem::new(
        Code::WrittenSince,
        format!("{name}: {others} sectors were written since, the first at byte {}", sector * SECTOR_BYTES as u64),
        format!("they hold neither what was there before nor what the command wrote{by}; nothing was written"),
        "see what is there now (`wattle scan`, `wattle examine`); --force=written-since brings back what was before all the same: then read it \
         only (`wattle serve --read-only`, or --overlay), and do not go on writing",
    )
    .of_member(name)
    .forced_by(Check::WrittenSince)
}

/// Members that were given and are none of those that were found, nor a part of an array.
fn others(stack: &Stack, found: &[FoundTarget]) -> Vec<String> {
    let of_array = |ix| stack.scan.arrays.iter().any(|array| array.members.contains(&ix));
    let is_other = |ix| found.iter().all(|found| found.member != ix) && !of_array(ix);
    let given = stack.scan.members.entries().filter(|(_, seen)| seen.origin == MemberOrigin::Given);
    given
        .filter(|(ix, _)| is_other(*ix))
        .map(|(_, seen)| {
            let bytes = seen.member.size_sectors().saturating_mul(SECTOR_BYTES as u64);
            format!("{} ({bytes} bytes)", seen.member.name)
        })
        .collect()
}

fn missing_members(
    missing: &[String],
    found: usize,
    blocked: Option<&Problem>,
    others: &[String],
) -> Problem {
    let (why, next) = match blocked {
        None if !others.is_empty() => (
            format!(
                "given are also {}: they are of another size than these were, or nothing tells that they are these (a blank drive is like \
                 any other); bringing back only some would leave them in disagreement with the others; nothing was written",
                others.join(", ")
            ),
            "give blank ones by the names they had, which links of these names do too; --force=missing-member does those that are there"
                .to_owned(),
        ),
        // They may lie on what does not start.
        Some(blocked) => (
            format!(
                "not everything can be looked into: {} ({}): {}; nothing was written",
                blocked.what, blocked.code, blocked.why
            ),
            blocked.next.clone(),
        ),
        None => (
            "bringing back only some would leave them in disagreement with the others; nothing was written"
                .to_owned(),
            "give all of them, by the names they have now; --force=missing-member does those that are there"
                .to_owned(),
        ),
    };
    Problem::new(
        Code::MissingLogged,
        format!("{} of {} are missing: {}", missing.len(), missing.len() + found, missing.join(", ")),
        why,
        next,
    )
    .forced_by(Check::MissingMember)
}
