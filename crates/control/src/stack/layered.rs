//! The step of a round that opens devices of dm-integrity, and backing devices of bcache, for the
//! same reason where encrypted ones are: what an array lacks may be in there.

use wattle_format::probe::SignatureKind;
use wattle_rt::Core;

use super::{Purpose, Stack};
use crate::bcache::{BackingData, BcacheDevice};
use crate::integrity::{CheckedDevice, IntegrityDevice, IntegrityFacts, IntegrityState, OpenedTags};
use crate::members::Member;
use crate::nodes::MemberId;
use crate::problem::{Code, Problem};
use crate::scan::{MemberOrigin, MemberScan};

/// What an open device's name ends with.
const SUFFIX: &str = ":integrity";
/// The same of a backing device.
const BCACHE_SUFFIX: &str = ":bcache";

impl Stack {
    /// Opens the devices of dm-integrity and bcache that were not looked at before; what is on
    /// them.
    pub(super) async fn open_layered(&mut self, core: &Core) -> Result<Vec<(Member, MemberOrigin)>, Problem> {
        let new: Vec<_> = self.scan.members.ids().filter(|id| !self.looked_for_layers.contains(id)).collect();
        self.looked_for_layers.extend(&new);
        let mut found = self.open_checked(core, new.clone()).await?;
        found.extend(self.open_backing(core, new).await?);
        Ok(found)
    }

    async fn open_checked(
        &mut self,
        core: &Core,
        new: Vec<MemberId>,
    ) -> Result<Vec<(Member, MemberOrigin)>, Problem> {
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

    async fn open_backing(
        &mut self,
        core: &Core,
        new: Vec<MemberId>,
    ) -> Result<Vec<(Member, MemberOrigin)>, Problem> {
        let forced = self.options.policy.forced;
        let found = self.beside(core, move |scan| {
            let mut found = Vec::new();
            for ix in new {
                let seen = &mut scan.members[ix];
                if !is_bcache(seen) {
                    continue;
                }
                match BcacheDevice::read(&seen.member) {
                    Ok(device) => {
                        found
                            .extend(device.data_at_bytes().map(|at| (ix, at, device.superblock.block_bytes)));
                        seen.bcache = Some(device);
                    }
                    Err(problem) => _ = seen.problem.get_or_insert(problem),
                }
            }
            found
        });
        let mut opened = Vec::new();
        for (ix, at, block) in found.await? {
            let name = self.scan.members[ix].member.name.clone();
            if !self.wants(|wanted| wanted.layered.contains(&name)) {
                continue;
            }
            let device = self.scan.members[ix].bcache.as_mut();
            let judged = device.map_or(Ok(()), |device| device.judge(&name, forced));
            let inside = match judged {
                Ok(()) => self.backing(core, ix, (at, block)).await,
                Err(problem) => Err(problem),
            };
            match (inside, &mut self.scan.members[ix].bcache) {
                (Ok(inside), _) => opened.push((inside, MemberOrigin::Layered { of: ix })),
                (Err(problem), Some(device)) => device.problem = Some(problem),
                (Err(_), None) => {}
            }
        }
        Ok(opened)
    }

    async fn backing(&mut self, core: &Core, ix: MemberId, at: (u64, u32)) -> Result<Member, Problem> {
        let name = self.scan.members[ix].member.name.clone();
        let below = self.volume(core, ix).await?;
        let inside = format!("{name}{BCACHE_SUFFIX}");
        match BackingData::device(core, &inside, below, at) {
            Ok(Some(device)) => Ok(Member::layer(inside, device)),
            Ok(None) => Err(Problem::new(
                Code::TooSmall,
                format!(
                    "{name}: the data of this backing device of bcache begins at byte {}, behind its end",
                    at.0
                ),
                "the device is smaller than its superblock says",
                "check the copy or download it came from",
            )
            .of_member(name)),
            Err(error) => Err(unreachable(&name, &error)),
        }
    }

    async fn check(&mut self, core: &Core, ix: MemberId) -> Result<(Member, IntegrityFacts), Problem> {
        let seen = &self.scan.members[ix];
        let (member, device) = (seen.member.clone(), seen.integrity.clone().expect("it was just read"));
        let below = self.volume(core, ix).await?;
        let (keys, forced) = (self.options.keys.clone(), self.options.policy.forced);
        let to_write = self.options.purpose == Purpose::Write;
        let name = member.name.clone();
        let read = core.offload(move || OpenedTags::read(&device, &member, &keys, (forced, to_write)));
        let opened = read.await.map_err(Problem::no_thread)??;
        let inside = format!("{name}{SUFFIX}");
        let device = CheckedDevice::device(core, (&name, &inside), below, opened, to_write);
        let (device, facts) = device.await.map_err(|error| unreachable(&name, &error))?;
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

/// Whether a member is a device of bcache. What has a partition table or a file system before the
/// superblock of bcache is that, over what is left of one.
fn is_bcache(seen: &MemberScan) -> bool {
    let found = seen.signatures.iter().find(|signature| signature.kind == Some(SignatureKind::Bcache));
    let is_first = found
        .is_some_and(|found| seen.signatures.iter().all(|other| other.offset_bytes >= found.offset_bytes));
    is_first
        && seen.facts.is_none()
        && seen.container.is_none()
        && seen.problem.is_none()
        && seen.table.is_none()
        && seen.physical.is_none()
}

fn unreachable(name: &str, error: &impl std::fmt::Display) -> Problem {
    Problem::new(
        Code::VolumeFailed,
        format!("{name}: {error}"),
        "what is on it cannot be reached",
        "see what is wrong with its members (`wattle scan`)",
    )
}
