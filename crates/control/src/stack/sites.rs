//! What a member of a stack is called in undo logs, and by what it is found in another stack.

use wattle_format::undo::UndoTargetKind;
use wattle_rt::Device;

use super::{LogicalId, Stack};
use crate::nodes::MemberId;
use crate::scan::MemberOrigin;
use crate::undo::{UndoSite, absolute, drive_id};

impl UndoSite {
    /// A member of a stack, where `device` is open for writing.
    #[must_use]
    pub fn of(stack: &Stack, member: MemberId, device: Device) -> Self {
        let (place, name) = key(stack, member);
        let seen = &stack.scan.members[member].member;
        let name = name.unwrap_or_else(|| seen.name.clone());
        Self { name, place, drive: drive_id(&seen.address, &seen.device), device }
    }
}

/// What makes a member of a stack the same in another one: what it is, and its name where that says
/// which.
pub type MemberIdentity = (UndoTargetKind, Option<String>);

/// What makes a member of a stack the same in another one.
#[must_use]
pub fn key(stack: &Stack, member: MemberId) -> MemberIdentity {
    let seen = &stack.scan.members[member];
    match seen.origin {
        MemberOrigin::Given
        | MemberOrigin::Partition { .. }
        | MemberOrigin::Container { .. }
        | MemberOrigin::Layered { .. } => (UndoTargetKind::Member, Some(absolute(&seen.member.name))),
        MemberOrigin::Array(array) => {
            (UndoTargetKind::Array(stack.scan.arrays[array].assembly.array.set_uuid.0), None)
        }
        // Its device may be called otherwise the next time; what is in its header stays.
        MemberOrigin::Decrypted { of } => (UndoTargetKind::Member, Some(stack.encrypted_name(of))),
        MemberOrigin::Logical { group, volume } => {
            (UndoTargetKind::Volume(stack.groups[group].vg.id, volume), None)
        }
    }
}

impl Stack {
    /// What tells a member from every other one, whatever it is called: what goes on after a
    /// restart goes on with this. An id of what is on it, or of the drive or file that it is, and
    /// where on that. `None` of what is made up.
    #[must_use]
    pub fn lasting_identity(&self, member: MemberId) -> Option<String> {
        let seen = &self.scan.members[member];
        Some(match seen.origin {
            MemberOrigin::Given => seen.member.machine_identity()?,
            MemberOrigin::Array(array) => self.scan.arrays[array].assembly.array.set_uuid.to_string(),
            MemberOrigin::Logical { group, volume } => {
                LogicalId { group: self.groups[group].vg.id, volume }.to_string()
            }
            MemberOrigin::Decrypted { of } if self.scan.members[of].encryption.is_some() => {
                self.encrypted_name(of)
            }
            MemberOrigin::Partition { of, number } => format!("{} p{number}", self.lasting_identity(of)?),
            MemberOrigin::Layered { of } | MemberOrigin::Decrypted { of } => {
                format!("{} inside", self.lasting_identity(of)?)
            }
            MemberOrigin::Container { of, .. } => {
                format!("{} {}", self.lasting_identity(of)?, seen.member.name)
            }
        })
    }

    /// What an encrypted member is called wherever it lies, as systemd calls it.
    pub(super) fn encrypted_name(&self, of: MemberId) -> String {
        let seen = &self.scan.members[of];
        match &seen.encryption {
            Some(encryption) => format!("luks-{}", encryption.header.uuid),
            None => seen.member.name.clone(),
        }
    }

    /// The member that has this identity; `None` where none has it, or several.
    #[must_use]
    pub fn find_again(&self, identity: &MemberIdentity) -> Option<MemberId> {
        let mut found = self.scan.members.ids().filter(|&member| key(self, member) == *identity);
        found.next().filter(|_| found.next().is_none())
    }
}
