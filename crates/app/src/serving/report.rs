//! What the engine reports, as the control socket and `wattle status` show it.

use wattle_engine::MemberState;
use wattle_engine::array::{ArrayStatus, MemberStatus};
use wattle_engine::units::{SECTOR_BYTES, Sector};

use super::{Facts, Served};
use crate::control_socket::protocol::{ArrayReport, Counters, Health, MemberReport};

/// What an array is and does.
pub fn array_report(served: &Served, status: &ArrayStatus) -> ArrayReport {
    let facts = &served.facts;
    let synced = status.synced_below == Sector::MAX;
    let states: Vec<_> = status.members.iter().map(|member| member.state).collect();
    ArrayReport {
        name: facts.name.clone(),
        uuid: facts.uuid.clone(),
        level: status.level.to_string(),
        layout: facts.layout.clone(),
        chunk_bytes: facts.chunk_bytes,
        size_bytes: bytes(status.size),
        health: match (status.broken, status.degraded) {
            (true, _) => Health::Unusable,
            (false, 0) => Health::Good,
            (false, _) => Health::Degraded,
        },
        slots: slots_view(&states),
        state: state(status.dirty, synced).to_owned(),
        synced,
        read_only: status.read_only,
        exports: served.exports.clone(),
        notes: facts.notes.clone(),
        degraded: status.degraded,
        members: (0..)
            .zip(&status.members)
            .map(|(slot, member)| member_report(facts, slot, member))
            .collect(),
        counters: counters(status),
    }
}

fn state(dirty: bool, synced: bool) -> &'static str {
    match (dirty, synced) {
        (false, true) => "clean",
        (true, true) => "active",
        (false, false) => "clean, not synced",
        (true, false) => "active, not synced",
    }
}

/// `[UU_U]`: up, or not, by slot. As mdstat shows it, so a member that is being rebuilt is not up.
fn slots_view(states: &[MemberState]) -> String {
    let letter = |state: &MemberState| if *state == MemberState::InSync { 'U' } else { '_' };
    format!("[{}]", states.iter().map(letter).collect::<String>())
}

fn member_report(facts: &Facts, slot: u16, member: &MemberStatus) -> MemberReport {
    let (state, valid_below_bytes) = match member.state {
        MemberState::InSync => ("in_sync", None),
        MemberState::Rebuilding { valid_below } => ("rebuilding", Some(bytes(valid_below))),
        MemberState::Missing => ("missing", None),
        MemberState::Faulty => ("faulty", None),
    };
    let name = facts.members.get(usize::from(slot)).cloned().flatten();
    MemberReport {
        slot,
        member: name.or_else(|| member.device.clone()),
        state: state.to_owned(),
        valid_below_bytes,
        read_errors: member.read_errors,
    }
}

fn counters(status: &ArrayStatus) -> Counters {
    let c = &status.counters;
    Counters {
        reads: c.reads,
        read_bytes: c.read_bytes,
        writes: c.writes,
        write_bytes: c.write_bytes,
        flushes: c.flushes,
        rows_full: c.rows_full,
        rows_reconstruct: c.rows_reconstruct,
        rows_read_modify: c.rows_read_modify,
        rows_degraded: c.rows_degraded,
        rows_recovered: c.rows_recovered,
        pre_reads: c.pre_reads,
        merged: c.merged,
        repaired: c.repaired,
    }
}

/// Saturates: "everywhere" is the largest sector.
fn bytes(sectors: Sector) -> u64 {
    sectors.0.saturating_mul(SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_shown_as_mdstat_does() {
        let rebuilding = MemberState::Rebuilding { valid_below: Sector(8) };
        let states =
            [MemberState::InSync, MemberState::Missing, rebuilding, MemberState::Faulty, MemberState::InSync];
        assert_eq!(slots_view(&states), "[U___U]");
    }
}
