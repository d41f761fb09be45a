//! What a start does before the engine runs: parity that was in flight is made right from partial
//! parity logs, and what only a journal has is brought to the members. Where nothing may be
//! written, the same recovery writes to memory over the members.

use std::sync::Arc;

use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_rt::Core;

use super::{Claimed, ClaimedMember, Trust, list};
use crate::md::assemble::{Needs, Slot};
use crate::md::journal::{self, DataArea, JournalReplayError};
use crate::md::ppl::{self, LogMember};
use crate::overlay::memory::{self, MemoryRoom};
use crate::problem::{Check, Code, Problem};

/// What the replay of a journal may keep in memory, in bytes: the largest stripe cache of the
/// kernel holds 32768 pages of 4 KiB of every member (docs/formats.md §17.1), of which few are in
/// flight.
const IN_FLIGHT_BYTES_MAX: u64 = 256 << 20;

impl Claimed {
    /// Follows the partial parity logs, and makes parity right: on the members, or, where nothing
    /// may be written, in memory over them. How many pieces that was on the members; `None` if
    /// parity is not known to be right there all the same.
    pub(super) async fn replay(&mut self, core: &Core, trust: &mut Trust) -> Result<Option<usize>, Problem> {
        let geometry = self.assembly.geometry.as_ref().expect("an array that is not refused has a geometry");
        let members = self.log_members();
        let replay = ppl::replay(core, geometry, &members, &self.stored_uuid()).await;
        // Where the operator vouches for parity, nothing has to be trusted.
        let degraded = self.assembly.degraded() > 0 && self.assembly.needs != Needs::Nothing;
        let trusted = replay.outcome.trusts_parity(degraded);
        if degraded && !trusted {
            return Err(not_replayed(self.assembly.name(), &replay.outcome));
        }
        let members = if self.read_only {
            let patched: MemberSet = replay.patches.iter().map(|patch| patch.slot).collect();
            // What the logs may ask for is bounded, so that this never runs short.
            self.keep_in_memory(core, &patched, &MemoryRoom::new(8 * ppl::PARITY_BYTES_MAX));
            let slots = (0..).map(MemberIx).zip(self.log_members());
            slots.map(|(slot, member)| member.filter(|_| patched.contains(slot))).collect()
        } else {
            members
        };
        if let Err(failed) = ppl::apply(core, &members, &replay).await {
            return Err(replay_failed(self.assembly.name(), &failed));
        }
        if trusted {
            *trust = Trust { below: Sector::MAX, needs: None };
        }
        Ok((trusted && !self.read_only).then_some(replay.patches.len()))
    }

    /// By slot.
    fn log_members(&self) -> Vec<Option<LogMember>> {
        let member = |(slot, claimed): (&Slot, &Option<ClaimedMember>)| {
            let claimed = claimed.as_ref()?;
            let valid_below = match *slot {
                Slot::Rebuilding { valid_below_sectors, .. } => Sector(valid_below_sectors),
                _ => Sector::MAX,
            };
            Some(LogMember {
                device: claimed.device.clone(),
                data_offset: claimed.data_offset(),
                valid_below,
                bad: claimed.bad.clone(),
                log: claimed.log_area(),
            })
        };
        self.assembly.slots.iter().zip(&self.seats).map(member).collect()
    }

    /// Replays the log of the journal, in memory over the members: such an array is only read.
    pub(super) async fn replay_journal(
        &mut self,
        core: &Core,
        journal: &ClaimedMember,
    ) -> Result<(), Problem> {
        let geometry = self.assembly.geometry.clone().expect("an array that is not refused has a geometry");
        let room = MemoryRoom::new(IN_FLIGHT_BYTES_MAX);
        // The log says nothing of members that are being filled; the others have all that they
        // have.
        let slots = self.assembly.slots.iter_mut().zip(&mut self.seats);
        for (slot, seat) in slots.filter(|(slot, _)| matches!(slot, Slot::Rebuilding { .. })) {
            (*slot, *seat) = (Slot::Missing, None);
        }
        let replacements = self.assembly.replacements.iter_mut();
        for (who, seat) in replacements.zip(self.seats.iter_mut().skip(geometry.raid_disks())) {
            (*who, *seat) = (None, None);
        }
        self.keep_in_memory(core, &(0..geometry.raid_disks() as u16).map(MemberIx).collect(), &room);
        let area = |seat: &Option<ClaimedMember>| {
            let member = seat.as_ref()?;
            Some(DataArea {
                device: member.device.clone(),
                data_offset_sectors: member.data_offset().0,
                valid_below_sectors: u64::MAX,
            })
        };
        let areas: Vec<_> = self.seats.iter().take(geometry.raid_disks()).map(area).collect();
        let mut members = self.specs();
        members.truncate(geometry.raid_disks());
        let source = (&journal.device, journal.written_superblock()?);
        let replayed = journal::replay(core, source, &geometry, &areas, members).await;
        let name = self.assembly.name();
        match replayed {
            _ if room.was_short() => Err(in_flight_too_large(name, &journal.name)),
            Err(error) => Err(journal_not_replayed(name, &journal.name, &error)),
            Ok(_) => Ok(()),
        }
    }

    /// From here on what is written to the members in these slots stays in memory.
    fn keep_in_memory(&mut self, core: &Core, slots: &MemberSet, room: &Arc<MemoryRoom>) {
        for slot in slots.iter() {
            if let Some(Some(member)) = self.seats.get_mut(slot.index()) {
                member.device = memory::in_memory(core, member.device.clone(), room);
            }
        }
    }
}

fn not_replayed(array: &str, outcome: &ppl::ParityKnowledge) -> Problem {
    let why = match outcome {
        ppl::ParityKnowledge::Untrusted(why) => why.to_string(),
        _ => "the logs were cut short".to_owned(),
    };
    Problem::new(
        Code::DirtyDegraded,
        format!(
            "{array}: a member is missing, and the partial parity logs do not say what parity was in flight"
        ),
        why,
        "give all members, the one that failed too; --force=dirty-degraded goes on and may return wrong data in the stripes that were \
         in flight",
    )
    .forced_by(Check::DirtyDegraded)
}

fn in_flight_too_large(array: &str, journal: &str) -> Problem {
    let mib = IN_FLIGHT_BYTES_MAX >> 20;
    Problem::new(
        Code::InFlightTooLarge,
        format!(
            "{array}: the journal on {journal} holds more that is on no member than the {mib} MiB that are kept in memory"
        ),
        "an array with a journal is only read, and what its journal has is kept in memory for that",
        "let the kernel assemble copies of the members and the journal, which replays it",
    )
}

fn journal_not_replayed(array: &str, journal: &str, error: &JournalReplayError) -> Problem {
    Problem::new(
        Code::JournalNotReplayed,
        format!("{array}: the journal on {journal}: {error}"),
        "what it holds is newer than the members, and reading these without it would return old data",
        "see what is wrong with that drive (`wattle examine`), and copy it first if it is dying",
    )
}

fn replay_failed(array: &str, failed: &MemberSet) -> Problem {
    Problem::new(
        Code::ReadFailed,
        format!("{array}: parity from the partial parity logs could not be written to {}", list(failed)),
        "the array's parity is not right without it",
        "see what is wrong with that member, or start the array without it",
    )
}
