//! From a decision to a running array: claims the members, makes sure that nothing changed, and starts the engine.

use wattle_engine::metadata::{Metadata, NoMetadata};
use wattle_engine::units::Sector;
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec, MemberState};
use wattle_format::md::Superblock;
use wattle_rt::{Core, Device};

use crate::assemble::{Access, Assembly, Slot};
use crate::commit::{MdMetadata, Place};
use crate::members::{Claim, Member, MemberError};
use crate::problem::{Code, Problem};
use crate::scan::{ArrayScan, Scan, read_superblocks};

/// An array whose members are ours: locked, open for what is going to be done with them, and unchanged since the decision.
#[derive(Debug)]
pub struct Claimed {
    assembly: Assembly,
    slots: Vec<Option<ClaimedMember>>,
    spares: Vec<ClaimedMember>,
    read_only: bool,
}

/// A member that is ours, and its superblock as it is on disk.
#[derive(Debug)]
struct ClaimedMember {
    device: Device,
    superblock: Superblock,
}

/// Claims the members of an array that `scan` found: exclusively if it will be written, otherwise against writers. Members that
/// the array does not use are left alone. An array that may only be read is claimed for reading, whatever was asked for;
/// [`Claimed::read_only`] and [`Assembly::problems`] say so.
///
/// # Errors
/// A [`Problem`]: the array is refused, a member is in use or cannot be written, or one changed since the scan.
pub fn claim(scan: &Scan, array: &ArrayScan, read_only: bool) -> Result<Claimed, Problem> {
    let assembly = array.assembly.clone();
    if let Some(refusal) = assembly.refusal() {
        return Err(refusal);
    }
    // A member that may or may not be part of the array makes the array uncertain, even if the others were enough.
    let uncertain = |ix: &usize| {
        scan.members[*ix].problem.as_ref().filter(|problem| problem.code == Code::SeveralSuperblocks)
    };
    if let Some(problem) = array.unused.iter().find_map(uncertain) {
        return Err(problem.clone());
    }
    let read_only = read_only || assembly.access != Access::ReadWrite;
    let claim = if read_only { Claim::Read } else { Claim::Write };
    let claim_one = |ix: usize| claim_member(scan, array.members[ix], claim);
    let slots = assembly
        .slots
        .iter()
        .map(|slot| slot.member().map(claim_one).transpose())
        .collect::<Result<_, _>>()?;
    // Whoever only reads needs no spares.
    let spares = if read_only { &[][..] } else { &assembly.spares };
    let spares = spares.iter().map(|&ix| claim_one(ix)).collect::<Result<_, _>>()?;
    Ok(Claimed { assembly, slots, spares, read_only })
}

fn claim_member(scan: &Scan, member: usize, claim: Claim) -> Result<ClaimedMember, MemberError> {
    let seen = &scan.members[member];
    let claimed: Member = seen.member.claim(claim)?;
    // Between the look and the lock another process may have run the array.
    let now = read_superblocks(&claimed);
    let Some(superblock) = seen.superblock().filter(|known| now.valid.contains(known)) else {
        let changed = MemberError::Changed { name: claimed.name };
        return Err(now.unreadable.into_iter().next().unwrap_or(changed));
    };
    Ok(ClaimedMember { device: claimed.device, superblock: superblock.clone() })
}

impl Claimed {
    /// What the array is.
    #[must_use]
    pub fn assembly(&self) -> &Assembly {
        &self.assembly
    }

    /// Whether nothing will be written: asked for, or all that its state allows.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Starts the array on every core of the runtime, with `core` as its home. Nothing is written before the first write.
    ///
    /// # Panics
    /// Never: an array that may be read has a geometry and enough members.
    pub async fn start(self, core: &Core) -> ArrayHandle {
        let geometry = self.assembly.geometry.clone().expect("an array that is not refused has a geometry");
        let members = self
            .assembly
            .slots
            .iter()
            .zip(&self.slots)
            .map(|(slot, claimed)| member_spec(*slot, claimed.as_ref()));
        let spec = ArraySpec {
            synced_below: Sector(self.assembly.synced_below_sectors),
            read_only: self.read_only,
            ..ArraySpec::new(self.assembly.name(), geometry, members.collect())
        };
        // Without redundancy there is nothing that could be dirty, and md writes nothing either.
        let recorded = !self.read_only && spec.geometry.redundancy() > 0;
        let metadata: Box<dyn Metadata> =
            if recorded { Box::new(self.metadata(core)) } else { Box::new(NoMetadata) };
        ArrayHandle::start(core, spec, metadata).await
    }

    fn metadata(self, core: &Core) -> MdMetadata {
        let split = |member: ClaimedMember| (Place { device: member.device }, member.superblock);
        let slots = self.slots.into_iter().map(|member| member.map(split)).collect();
        let spares = self.spares.into_iter().map(split).collect();
        MdMetadata::new(core, &self.assembly, slots, spares)
    }
}

fn member_spec(slot: Slot, claimed: Option<&ClaimedMember>) -> MemberSpec {
    let state = match slot {
        Slot::Missing => MemberState::Missing,
        Slot::InSync { .. } => MemberState::InSync,
        Slot::Rebuilding { valid_below_sectors, .. } => {
            MemberState::Rebuilding { valid_below: Sector(valid_below_sectors) }
        }
    };
    let data_offset = claimed.map_or(0, |claimed| claimed.superblock.data_offset_sectors());
    MemberSpec {
        device: claimed.map(|claimed| claimed.device.clone()),
        data_offset: Sector(data_offset),
        state,
        ..MemberSpec::missing()
    }
}
