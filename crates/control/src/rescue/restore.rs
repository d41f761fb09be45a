//! Superblocks for what was found, as `create` would write them: for members under an overlay.

use wattle_engine::geometry::{LevelKind, layout_name};
use wattle_format::md::{Uuid, Version};
use wattle_rt::WallTime;

use super::Explanation;
use crate::md::create::{Consistency, CreatePlan, CreateRequest, MemberContents, inspect, plan};
use crate::members::Member;
use crate::problem::{Check, Forced, Problem};

/// What would be written, and what it was planned with.
#[derive(Debug)]
pub struct Restore {
    /// The superblocks; and the same in mdadm's terms.
    pub plan: CreatePlan,
    /// What was on the members.
    pub states: Vec<MemberContents>,
}

impl Restore {
    /// Writes the superblocks to the members' overlays.
    ///
    /// # Errors
    /// An overlay cannot be had or written.
    ///
    /// # Panics
    /// If what is written to members would be written to them.
    pub fn write_over(&self) -> Result<(), Problem> {
        let is_kept = |member: &Member| member.is_overlaid() || member.is_made_up();
        assert!(
            self.plan.devices.iter().all(|device| is_kept(&device.member)),
            "a guess is never written to a member"
        );
        let members = self.plan.claim(&self.states)?;
        self.plan.execute(&members)?;
        Ok(())
    }
}

/// Superblocks that say what was found.
///
/// # Errors
/// A member cannot be read, or no superblock can say this.
pub fn restore(
    finding: &Explanation,
    members: &[Member],
    name: &str,
    set_uuid: Uuid,
    now: WallTime,
) -> Result<Restore, Problem> {
    let shape = &finding.shape;
    let version = shape.version;
    let request = CreateRequest {
        bitmap_sweep_secs: None,
        write_mostly: Vec::new(),
        name: name.to_owned(),
        level: shape.level,
        members: finding.order.iter().map(|who| who.map(|who| members[who].clone())).collect(),
        spares: Vec::new(),
        version,
        chunk_bytes: (shape.chunk_sectors > 0).then_some(shape.chunk_sectors * 512),
        layout: layout_name(shape.level, shape.layout),
        data_offset_bytes: (version == Version::V12).then_some(shape.data_offset_sectors * 512),
        size_bytes: None,
        assume_clean: shape.level.kind() != LevelKind::Striped,
        consistency: Consistency::Resync,
        forced: Forced::default().with(Check::Signature),
        set_uuid,
        now,
    };
    let states = request.members.iter().flatten().map(inspect).collect::<Result<Vec<_>, _>>()?;
    let plan = plan(&request, &states)?;
    Ok(Restore { plan, states })
}
