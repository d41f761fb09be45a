//! Every crash within every short sequence of changes assembles to something right.

use super::*;

/// What a device holds: current below this sector of its data.
type Truth = BTreeMap<MemberKey, u64>;

/// The transitions of a life.
const STEPS: [&str; 9] =
    ["dirty", "clean", "lose", "remove", "join", "replace 2", "checkpoint", "rebuilt", "replaced 2"];

/// What a step records, and the member in each seat then; `None` where it is not possible. Slot
/// `slot` is lost and filled again.
fn apply(
    step: &str,
    dirty: bool,
    seats: &Seats,
    slot: u16,
    spare_used: bool,
) -> Option<(ArrayRecord, Seats)> {
    let mut next = seats.clone();
    let (lost, replacement) = (seats.0[usize::from(slot)].clone(), usize::from(MEMBERS + 2));
    let change = match step {
        "dirty" if !dirty => return Some((flip(true, seats), next)),
        "clean" if dirty => return Some((flip(false, seats), next)),
        "lose" if lost.state == MemberState::InSync => {
            next = next.failing(slot);
            RecordCause::Members
        }
        "remove" if lost.state == MemberState::Faulty => {
            next.0[usize::from(slot)] = Seats::without(&[slot]).0[usize::from(slot)].clone();
            RecordCause::Members
        }
        "join" if !lost.state.writable() && !spare_used => {
            next.put(slot, SPARE, REBUILDING);
            RecordCause::Members
        }
        "replace 2" if !spare_used => {
            next.put(MEMBERS + 2, SPARE, REBUILDING);
            RecordCause::Members
        }
        "checkpoint" | "rebuilt" => {
            let seat = next.0.iter_mut().find(|seat| matches!(seat.state, MemberState::Rebuilding { .. }))?;
            let rebuilt = step == "rebuilt";
            if rebuilt && seats.0[replacement].state.writable() {
                return None;
            }
            seat.state = if rebuilt { MemberState::InSync } else { rebuilt_below(4096) };
            if rebuilt { RecordCause::Members } else { RecordCause::Checkpoint }
        }
        "replaced 2" if seats.0[replacement].state.writable() => {
            next.0.swap(2, replacement);
            next.0[2].state = MemberState::InSync;
            next.0[replacement].state = MemberState::Faulty;
            RecordCause::Members
        }
        _ => return None,
    };
    Some((record(change, dirty, CLEAN, &next), next))
}

/// One state of the world: what is written, and what is true.
struct Life {
    state: MdState,
    disks: BTreeMap<MemberKey, Superblock>,
    seats: Seats,
    dirty: bool,
    truth: Truth,
    absent: Option<u16>,
    told: Vec<&'static str>,
}

impl Life {
    fn explore(&self, depth: usize, count: &mut usize) {
        if depth == 0 {
            return;
        }
        let old = self.disks[&MemberKey(0)].version() == Version::V090;
        let spare_used = self.seats.0.iter().any(|seat| seat.key == Some(SPARE));
        for step in STEPS {
            // RAID 5 covers one loss; the engine asks for no more. 0.90 has no replacements.
            if (step == "lose" && self.absent.is_some()) || (step == "replace 2" && old) {
                continue;
            }
            let Some((record, seats)) =
                apply(step, self.dirty, &self.seats, self.absent.unwrap_or(1), spare_used)
            else {
                continue;
            };
            let (next, round) = self.state.next(&record, NOW).unwrap();
            let mut told = self.told.clone();
            told.push(step);
            let mut truth = self.truth.clone();
            match step {
                "rebuilt" | "replaced 2" => drop(truth.insert(SPARE, u64::MAX)),
                "checkpoint" => drop(truth.insert(SPARE, 4096)),
                _ => {}
            }
            let after = Life {
                state: next,
                disks: self.disks.clone(),
                seats,
                dirty: record.dirty,
                truth,
                absent: self.absent,
                told,
            };
            let disks = self.cut(&after, &round, count);
            Life { disks, ..after }.explore(depth - 1, count);
        }
    }

    /// Cuts the round after every subset of the writes of each stage; returns the disks when all
    /// has arrived.
    fn cut(&self, after: &Life, round: &Round, count: &mut usize) -> BTreeMap<MemberKey, Superblock> {
        let mut disks = self.disks.clone();
        let spares = round.spares.iter().map(|(key, superblock)| (*key, superblock.clone())).collect();
        let of = |writes: &[SuperblockWrite]| writes.iter().map(|w| (w.key, w.superblock.clone())).collect();
        let with_spares: Vec<(MemberKey, Superblock)> = [of(&round.members), spares].concat();
        let stages = [of(&round.seeds), of(&round.promoted), with_spares, of(&round.newcomers)];
        for stage in &stages {
            for arrived in 0u32..1 << stage.len() {
                let mut cut = disks.clone();
                cut.extend((0..stage.len()).filter(|ix| arrived >> ix & 1 == 1).map(|ix| stage[ix].clone()));
                self.check(after, &cut, false);
                *count += 1;
            }
            disks.extend(stage.iter().cloned());
        }
        self.check(after, &disks, true);
        disks
    }

    fn check(&self, after: &Life, disks: &BTreeMap<MemberKey, Superblock>, complete: bool) {
        let keys: Vec<_> = disks.keys().copied().collect();
        let assembly = decide(disks.values());
        let told = || {
            format!(
                "{:?}, complete {complete}, absent {:?}: {:?}",
                after.told, self.absent, assembly.verdicts
            )
        };
        let dirty = self.dirty || after.dirty;
        match &assembly.access {
            Access::ReadWrite => {}
            // Dirty and degraded and crashed: the write hole, refused by policy.
            Access::Refused(reasons) => {
                let codes: Vec<_> = reasons.iter().map(wattle_control::reason::Reason::code).collect();
                assert_eq!(codes, [Code::DirtyDegraded], "{}", told());
                assert!(dirty, "{}", told());
            }
            Access::ReadOnly(reasons) => panic!("{reasons:?}: {}", told()),
        }
        // Data that was written since a member was away is not on it: `truth` says what is.
        for (slot, found) in assembly.slots.iter().enumerate() {
            let valid = |member: usize| after.truth[&keys[member]].max(self.truth[&keys[member]]);
            match *found {
                Slot::Missing => {}
                Slot::InSync { member } => {
                    let key = keys[member];
                    let lost = |life: &Life| {
                        let seat = life.seats.0.iter().find(|seat| seat.key == Some(key));
                        seat.is_none_or(|seat| seat.state == MemberState::Faulty)
                    };
                    assert_eq!(valid(member), u64::MAX, "garbage in slot {slot}: {}", told());
                    // A member that was out before this round may have missed writes; before the
                    // first round there were none.
                    let missed = lost(self) && lost(after) && !self.told.is_empty();
                    assert!(!missed, "slot {slot} came back: {}", told());
                }
                Slot::Rebuilding { member, valid_below_sectors, .. } => {
                    assert!(valid_below_sectors <= valid(member), "slot {slot}: {}", told());
                }
            }
        }
        for replacement in assembly.replacements.iter().flatten() {
            assert!(replacement.valid_below_sectors <= after.truth[&keys[replacement.member]], "{}", told());
        }
        // No crash costs more than what the record before or the record after is without.
        let lost = |life: &Life| {
            life.seats.0[..usize::from(MEMBERS)].iter().filter(|s| s.state != MemberState::InSync).count()
        };
        let most = lost(self).max(lost(after));
        assert!(assembly.degraded() <= most, "{}", told());
        if complete {
            let expected = if after.dirty { 0 } else { CLEAN };
            assert_eq!(assembly.array.resync_offset, expected, "{}", told());
            assert_eq!(assembly.degraded(), lost(after), "{}", told());
        }
    }
}

#[test]
fn every_crash_within_every_short_sequence_assembles_to_something_right() {
    for version in [Version::V12, Version::V10, Version::V090] {
        for absent in [None, Some(3u16)] {
            let disks = superblocks(version, false, 1);
            let present: Vec<_> = disks
                .iter()
                .filter(|disk| absent.is_none_or(|slot| disk.dev_number() != u32::from(slot)))
                .cloned()
                .collect();
            let key = |disk: &Superblock| match disk.dev_number() {
                4 => SPARE,
                number => MemberKey(number),
            };
            let mut truth: Truth = disks.iter().map(|disk| (key(disk), u64::MAX)).collect();
            truth.insert(SPARE, 0);
            let life = Life {
                state: start(&present),
                disks: disks.iter().map(|disk| (key(disk), disk.clone())).collect(),
                seats: absent.map_or_else(Seats::whole, |slot| Seats::without(&[slot])),
                dirty: false,
                truth,
                absent,
                told: Vec::new(),
            };
            let mut count = 0;
            life.explore(6, &mut count);
            assert!(count > 3_000, "{version}, {absent:?}: {count} crashes");
        }
    }
}
