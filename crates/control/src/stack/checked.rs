//! The step of a round that opens devices of dm-integrity, for the same reason where encrypted ones
//! are: what an array lacks may be in there.

use wattle_format::probe::SignatureKind;
use wattle_rt::Core;

use super::Stack;
use crate::integrity::{CheckedDevice, IntegrityDevice, IntegrityFacts, IntegrityState, OpenedTags};
use crate::members::Member;
use crate::nodes::MemberId;
use crate::problem::{Code, Problem};
use crate::scan::{MemberOrigin, MemberScan};

/// What an open device's name ends with.
const SUFFIX: &str = ":integrity";

impl Stack {
    /// Opens the devices of dm-integrity that were not looked at before; what is on them.
    pub(super) async fn open_checked(&mut self, core: &Core) -> Result<Vec<(Member, MemberOrigin)>, Problem> {
        let new: Vec<_> = self.scan.members.ids().filter(|id| !self.looked_for_tags.contains(id)).collect();
        self.looked_for_tags.extend(&new);
        let found = self.beside(core, move |scan| {
            let mut found = Vec::new();
            for ix in new {
                let seen = &mut scan.members[ix];
                if !is_integrity(seen) {
                    continue;
                }
                match IntegrityDevice::read(&seen.member) {
                    Ok(device) => {
                        seen.integrity = Some(device);
                        found.push(ix);
                    }
                    Err(problem) => _ = seen.problem.get_or_insert(problem),
                }
            }
            found
        });
        let mut opened = Vec::new();
        for ix in found.await? {
            let name = self.scan.members[ix].member.name.clone();
            if !self.wants(|wanted| wanted.layered.contains(&name)) {
                continue;
            }
            let state = match self.check(core, ix).await {
                Ok((inside, facts)) => {
                    opened.push((inside, MemberOrigin::Layered { of: ix }));
                    IntegrityState::Open(facts)
                }
                Err(problem) => IntegrityState::Refused(problem),
            };
            if let Some(device) = &mut self.scan.members[ix].integrity {
                device.state = state;
            }
        }
        Ok(opened)
    }

    async fn check(&mut self, core: &Core, ix: MemberId) -> Result<(Member, IntegrityFacts), Problem> {
        let seen = &self.scan.members[ix];
        let (member, device) = (seen.member.clone(), seen.integrity.clone().expect("it was just read"));
        let below = self.volume(core, ix).await?;
        let (keys, forced) = (self.options.keys.clone(), self.options.policy.forced);
        let name = member.name.clone();
        let read = core.offload(move || OpenedTags::read(&device, &member, &keys, forced));
        let (tags, facts) = read.await.map_err(Problem::no_thread)??;
        let inside = format!("{name}{SUFFIX}");
        let device = CheckedDevice::device(core, &inside, below, tags).map_err(|error| {
            Problem::new(
                Code::VolumeFailed,
                format!("{name}: {error}"),
                "what is on it cannot be reached",
                "see what is wrong with its members (`wattle scan`)",
            )
        })?;
        Ok((Member::layer(inside, device), facts))
    }
}

/// Whether a member is a device of dm-integrity and nothing that lies over what is left of one.
fn is_integrity(seen: &MemberScan) -> bool {
    seen.facts.is_none()
        && seen.container.is_none()
        && seen.problem.is_none()
        && seen.signatures.iter().any(|signature| signature.kind == Some(SignatureKind::Integrity))
}
