//! A change of a volume group, decided and not carried out yet.

use std::path::Path;

use wattle_control::MemberId;
use wattle_control::lvm::plan::{ChangeTarget, From, GroupPlan, GroupWrite};
use wattle_control::lvm::relocate::RelocateStep;
use wattle_control::members::Member;
use wattle_control::undo::CoveredWrite;
use wattle_control::{Code, Problem, Stack};
use wattle_format::lvm::Stamp;

use super::pv;
use crate::protocol::change::ChangeWrite;
use crate::protocol::{ChangeReport, SCHEMA_VERSION};

/// What was decided.
#[derive(Debug)]
pub struct GroupChange {
    /// `lv create data/home`: for the text and the backup.
    pub action: String,
    /// What comes of it, for people.
    pub result: String,
    /// What is written.
    pub plan: GroupPlan,
    /// The commands of LVM2's that do the same.
    pub commands: Vec<String>,
    /// What to know.
    pub notes: Vec<String>,
    /// What is copied first.
    pub step: Option<RelocateStep>,
}

impl GroupChange {
    /// The group's text afterwards.
    pub fn text(&self, stamp: &Stamp) -> Option<Vec<u8>> {
        let stamp = Stamp { description: format!("wattle {}", self.action), ..stamp.clone() };
        self.plan.after.as_ref().map(|vg| vg.to_text(&stamp))
    }
}

/// What carrying a plan out writes, for an undo log.
///
/// # Errors
/// A metadata area cannot take the text.
pub fn writes(plan: &GroupPlan, text: Option<&[u8]>) -> Result<Vec<CoveredWrite>, Problem> {
    let write = |GroupWrite { place: site, step, offset_bytes, bytes, .. }| CoveredWrite {
        site,
        step,
        offset_bytes,
        bytes,
    };
    Ok(plan.writes(text)?.into_iter().map(write).collect())
}

/// What a physical volume is on does not run.
pub fn stopped(name: &str, error: &dyn std::error::Error) -> Problem {
    Problem::new(
        Code::VolumeFailed,
        format!("{name}: {error}"),
        "it does not run",
        "see what is wrong with its members (`wattle scan`)",
    )
}

/// The device that is made a physical volume still holds what the operator was told of.
///
/// # Errors
/// It does not.
pub fn check_same(stack: &Stack, member: MemberId, place: &ChangeTarget) -> Result<(), Problem> {
    let seen = &stack.scan.members[member];
    let now = pv::wiped(seen);
    match &place.from {
        From::New(wiped) if *wiped != now || seen.facts.is_some() => Err(changed(&seen.member)),
        _ => Ok(()),
    }
}

fn changed(member: &Member) -> Problem {
    wattle_control::MemberError::Changed { name: member.name.clone() }.into()
}

/// What a change comes to, with this text.
///
/// # Errors
/// A metadata area cannot take the text.
pub fn report(
    change: &GroupChange,
    text: Option<&[u8]>,
    dry_run: bool,
    backup: Option<&Path>,
) -> Result<ChangeReport, Problem> {
    let plan = &change.plan;
    let bytes = |extents: u64| {
        let sectors = plan.after.as_ref().map_or(0, |vg| vg.extent_sectors);
        extents.saturating_mul(sectors).saturating_mul(512)
    };
    let writes = plan.writes(text)?.into_iter().map(|write| ChangeWrite {
        physical_volume: plan.places[write.place].name.clone(),
        what: write.what.to_owned(),
        offset_bytes: write.offset_bytes,
        len_bytes: write.bytes.len() as u64,
    });
    Ok(ChangeReport {
        schema_version: SCHEMA_VERSION,
        dry_run,
        action: change.action.clone(),
        result: change.result.clone(),
        moved_bytes: change.step.as_ref().map(|step| bytes(step.extents)),
        left_bytes: change.step.as_ref().map(|step| bytes(step.left)),
        group: plan.after.as_ref().map(|vg| vg.name.clone()),
        group_uuid: plan.after.as_ref().map(|vg| vg.id.to_string()),
        seqno: plan.after.as_ref().map(|vg| vg.seqno),
        text: text.map(|text| String::from_utf8_lossy(text).into_owned()),
        backup: backup.map(|path| path.display().to_string()),
        undo_log: None,
        start_undo_logs: Vec::new(),
        writes: writes.collect(),
        lvm_commands: change.commands.clone(),
        notes: change.notes.clone(),
    })
}
