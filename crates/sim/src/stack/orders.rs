//! Operators' orders at any moment, and drives that fail while they are being filled.

use std::time::Duration;

use wattle_engine::job::JobKind;
use wattle_engine::units::{MemberIx, Sector};
use wattle_engine::{ArrayHandle, Job, MemberSpec, MemberState};
use wattle_rt::{Core, Rng};

use super::PART_SECTORS;
use super::play::Running;
use crate::lock::lock;

/// How long an array may take to become whole once nothing fails any more.
const WHOLE_WITHIN: Duration = Duration::from_secs(60);

/// One order after the other. Not more members are in danger at a time than redundancy covers.
pub(super) async fn run(running: &Running, core: &Core, mut rng: Rng) {
    let slots = running.stack.bases[0].drives.len() as u16;
    for _ in 0..1 + rng.below(3) {
        core.sleep(Duration::from_micros(rng.below(3_000))).await;
        if slots > 3 && rng.below(4) > 0 {
            many(running, core, &mut rng).await;
        } else {
            one(running, core, MemberIx(rng.below(slots.into()) as u16), &mut rng).await;
        }
        wait_until_whole(running, core).await;
    }
}

/// Drives are given to one slot, and fail while they are being filled.
async fn one(running: &Running, core: &Core, slot: MemberIx, rng: &mut Rng) {
    let array = &running.bases[0];
    let replaces = rng.below(3) > 0;
    if !replaces {
        tell(running, "fail", &array.fail(core, slot).await);
    }
    let seat = if replaces { replacement(running, slot) } else { slot };
    for _ in 0..1 + rng.below(3) {
        give(running, core, slot, replaces, rng).await;
        let flush = running.stack.flush.as_micros() as u64;
        if rng.coin() {
            // A fill that has come to its end waits for clients' requests.
            wait_until_filled(running, core, seat).await;
            core.sleep(Duration::from_micros(rng.below(flush + 200))).await;
        } else {
            core.sleep(Duration::from_micros(rng.below(2 * flush + 8_000))).await;
        }
        match rng.below(4) {
            0 | 1 => fail_writes(running, core, seat).await,
            2 => tell(running, "fail", &array.fail(core, seat).await),
            _ => tell(running, "check", &array.start_job(core, Job::Check { range: None }).await),
        }
        if rng.below(3) == 0 {
            tell(running, "remove", &array.remove(core, seat).await);
        }
    }
}

/// Two members are filled anew while a third is replaced, all in one pass; the replacement fails as
/// that ends, and another drive comes at once.
async fn many(running: &Running, core: &Core, rng: &mut Rng) {
    let array = &running.bases[0];
    let mut slots: Vec<u16> = (0..running.stack.bases[0].drives.len() as u16).collect();
    let mut take = || MemberIx(slots.swap_remove(rng.below(slots.len() as u64) as usize));
    let (replaced, others) = (take(), [take(), take()]);
    for slot in others {
        tell(running, "fail", &array.fail(core, slot).await);
    }
    for slot in others {
        give(running, core, slot, false, rng).await;
    }
    give(running, core, replaced, true, rng).await;
    let seat = replacement(running, replaced);
    wait_until_filled(running, core, seat).await;
    let record = running.stack.record.as_micros() as u64;
    core.sleep(Duration::from_micros(rng.below(2 * record + 500))).await;
    tell(running, "fail", &array.fail(core, seat).await);
    give(running, core, replaced, true, rng).await;
}

/// The seat of what replaces the member of a slot.
fn replacement(running: &Running, slot: MemberIx) -> MemberIx {
    MemberIx(slot.0 + running.stack.bases[0].drives.len() as u16)
}

/// What is whole has right parity and equal copies.
pub(super) async fn check(running: &Running, core: &Core) {
    let (array, asked) = (&running.bases[0], core.now());
    if lock(&running.ledger).wrong.is_some()
        || array.start_job(core, Job::Check { range: None }).await.is_err()
    {
        return;
    }
    loop {
        let report = array.report(core).await;
        let report = report.filter(|report| report.action == JobKind::Check && report.ended >= asked);
        if let Some(report) = report {
            if report.mismatch_sectors > 0 {
                lock(&running.ledger).accuse(format!("the array is whole, and a check says {report:?}"));
            }
            return;
        }
        core.sleep(Duration::from_millis(1)).await;
    }
}

/// The name of the member in a seat of an array, and its state.
async fn seat(array: &ArrayHandle, core: &Core, seat: MemberIx) -> (Option<String>, MemberState) {
    let status = array.status(core).await;
    let slots = status.members.len();
    let member = match seat.index().checked_sub(slots) {
        None => &status.members[seat.index()],
        Some(slot) => &status.replacements[slot],
    };
    (member.device.as_deref().map(ToOwned::to_owned), member.state)
}

/// Gives a drive to a slot: to replace its member, or to take its place.
async fn give(running: &Running, core: &Core, slot: MemberIx, replaces: bool, rng: &mut Rng) {
    let array = &running.bases[0];
    let status = array.status(core).await;
    let in_use = |name: &str| {
        let mut seats = status.members.iter().chain(&status.replacements);
        seats.any(|member| member.device.as_deref() == Some(name))
    };
    let free: Vec<usize> = (0..running.stack.all_drives).filter(|drive| !in_use(&spare(*drive))).collect();
    if free.is_empty() {
        return;
    }
    let drive = free[rng.below(free.len() as u64) as usize];
    running.controls[drive].fail_next_writes(0);
    let part = running.drives[drive].part(spare(drive), 0, PART_SECTORS * 512);
    // Without a list of bad blocks, a write that fails takes its member with it.
    let blank = MemberSpec::blank(part.expect("it is as large"), Sector(0));
    let who = MemberSpec { bad_entries_max: 0, ..blank };
    if replaces {
        tell(running, &format!("replace {slot} with drive{drive}"), &array.replace(core, slot, who).await);
    } else {
        tell(running, &format!("add drive{drive} to {slot}"), &array.add(core, slot, who).await);
    }
}

fn spare(drive: usize) -> String {
    format!("drive{drive}p0")
}

/// Waits until nearly all of the member of a seat is filled, or it is not being filled any more.
async fn wait_until_filled(running: &Running, core: &Core, at: MemberIx) {
    for _ in 0..1_000 {
        let (_, state) = seat(&running.bases[0], core, at).await;
        let status = running.bases[0].status(core).await;
        let position = status.sync.map_or(Sector(0), |sync| sync.position);
        if !matches!(state, MemberState::Rebuilding { .. }) || position.0 + 24 > PART_SECTORS {
            return;
        }
        core.sleep(Duration::from_micros(50)).await;
    }
}

/// The next write to the member of a seat fails, if it is one that is being filled; when this
/// returns it has, or the member is out of it otherwise.
async fn fail_writes(running: &Running, core: &Core, at: MemberIx) {
    let array = &running.bases[0];
    let (Some(name), MemberState::Rebuilding { .. }) = seat(array, core, at).await else { return };
    let drive = (0..running.stack.all_drives).find(|drive| spare(*drive) == name);
    let Some(control) = drive.map(|drive| &running.controls[drive]) else { return };
    control.fail_next_writes(1);
    lock(&running.ledger).tell(|| format!("the next write of {name} fails"));
    for _ in 0..60 {
        core.sleep(Duration::from_micros(500)).await;
        let (now, state) = seat(array, core, at).await;
        if state == MemberState::Faulty || now.as_ref() != Some(&name) {
            break;
        }
    }
    // One that has become a whole member meanwhile keeps its redundancy.
    let failed = control.writes_to_fail() == 0;
    control.fail_next_writes(0);
    if failed {
        wait_until_settled(running, core).await;
    }
}

/// Waits until every request that is under way has been answered: by then the member that missed
/// the write of one of them is failed, and the status says so.
///
/// It may be a whole member: the status says "rebuilding" until the promotion is recorded, and a
/// write is settled only when the other members have answered too. Taken for whole until then, it
/// would let an order to another slot put more members in danger than redundancy covers.
async fn wait_until_settled(running: &Running, core: &Core) {
    let now = lock(&running.ledger).requests_begun();
    while !lock(&running.ledger).answered(now) && lock(&running.ledger).wrong.is_none() {
        core.sleep(Duration::from_micros(100)).await;
    }
}

/// Waits until every slot has a whole member and none is being filled.
pub(super) async fn wait_until_whole(running: &Running, core: &Core) {
    let array = &running.bases[0];
    let deadline = core.now() + WHOLE_WITHIN;
    let mut rng = Rng::new(running.stack.seed);
    loop {
        let status = array.status(core).await;
        let filling = |member: &MemberState| matches!(member, MemberState::Rebuilding { .. });
        let busy = status.members.iter().chain(&status.replacements).any(|member| filling(&member.state));
        let missing = status.members.iter().position(|member| !member.state.writable());
        match missing {
            None if !busy && status.sync.is_none() => return,
            Some(slot) if !busy => {
                let seats = (0..).map(MemberIx).zip(status.members.iter().chain(&status.replacements));
                for (seat, _) in seats.filter(|(_, member)| member.state == MemberState::Faulty) {
                    tell(running, "remove", &array.remove(core, seat).await);
                }
                give(running, core, MemberIx(slot as u16), false, &mut rng).await;
            }
            _ => {}
        }
        if lock(&running.ledger).wrong.is_some() {
            return;
        }
        if core.now() > deadline {
            let what = format!(
                "nothing fails any more, and still the array is not whole: {:?}, {:?}, {:?}",
                status.members.iter().map(|member| member.state).collect::<Vec<_>>(),
                status.sync,
                status.synced_below
            );
            return lock(&running.ledger).accuse(what);
        }
        core.sleep(Duration::from_millis(1)).await;
    }
}

/// An operator may be refused; the array must be none the worse.
fn tell<T: std::fmt::Debug, E: std::fmt::Debug>(running: &Running, what: &str, result: &Result<T, E>) {
    lock(&running.ledger).tell(|| format!("{what}: {result:?}"));
}
