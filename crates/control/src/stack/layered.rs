//! The step of a round that opens devices of dm-integrity, and backing devices of bcache, for the
//! same reason where encrypted ones are: what an array lacks may be in there.

use std::sync::Arc;

use wattle_engine::VolumeError;
use wattle_format::bcache::{BackingState, CachedRun};
use wattle_format::probe::SignatureKind;
use wattle_rt::Core;

use super::{Purpose, Stack};
use crate::bcache::{self, BackingData, BackingPlace, BcacheDevice, CacheSet, UsedCache};
use crate::integrity::{CheckedDevice, IntegrityDevice, IntegrityFacts, IntegrityState, OpenedTags};
use crate::members::{Member, MemberError};
use crate::nodes::MemberId;
use crate::problem::{Check, Code, Problem};
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

    /// Opens the backing devices among `new`; and those that lacked their cache, if one is among
    /// `new`.
    async fn open_backing(
        &mut self,
        core: &Core,
        new: Vec<MemberId>,
    ) -> Result<Vec<(Member, MemberOrigin)>, Problem> {
        let found = self.beside(core, move |scan| {
            for &ix in &new {
                let seen = &mut scan.members[ix];
                if !is_bcache(seen) {
                    continue;
                }
                match BcacheDevice::read(&seen.member) {
                    Ok(device) => seen.bcache = Some(device),
                    Err(problem) => _ = seen.problem.get_or_insert(problem),
                }
            }
            let is_cache = |ix: &MemberId| {
                scan.members[*ix].bcache.as_ref().is_some_and(|device| device.state().is_none())
            };
            let has_cache = new.iter().any(is_cache);
            let is_due = |(ix, seen): (MemberId, &MemberScan)| {
                let device = seen.bcache.as_ref().filter(|device| device.state().is_some())?;
                let lacked = device.problem.as_ref().is_some_and(|found| found.code == Code::BcacheDirty);
                (new.contains(&ix) || (has_cache && lacked)).then_some(ix)
            };
            scan.members.entries().filter_map(is_due).collect::<Vec<_>>()
        });
        let mut opened = Vec::new();
        for ix in found.await? {
            let name = self.scan.members[ix].member.name.clone();
            if !self.wants(|wanted| wanted.layered.contains(&name)) {
                continue;
            }
            let Some(mut device) = self.scan.members[ix].bcache.clone() else { continue };
            device.problem = None;
            match self.backing(core, ix, &mut device).await {
                Ok(inside) => opened.push((inside, MemberOrigin::Layered { of: ix })),
                Err(problem) => device.problem = Some(problem),
            }
            self.scan.members[ix].bcache = Some(device);
        }
        Ok(opened)
    }

    /// What is on a backing device, with what its cache has of it.
    async fn backing(
        &mut self,
        core: &Core,
        ix: MemberId,
        device: &mut BcacheDevice,
    ) -> Result<Member, Problem> {
        let (member, forced) = (self.scan.members[ix].member.clone(), self.options.policy.forced);
        let name = member.name.clone();
        let below = self.volume(core, ix).await?;
        let again = core.offload(move || BcacheDevice::read(&member)).await.map_err(Problem::no_thread)??;
        if again.superblock != device.superblock {
            return Err(MemberError::Changed { name }.into());
        }
        let cache = match device.state() {
            Some(BackingState::Clean | BackingState::Dirty) => self.cache_of(core, &name, device).await,
            _ => Ok(None),
        };
        let cache = match cache {
            Ok(Some((ix, runs))) => {
                let dirty = runs.iter().filter(|run| run.is_dirty);
                let sectors: u64 = dirty.map(|run| run.end_sector - run.start_sector).sum();
                let name = self.scan.members[ix].member.name.clone();
                device.cache = Some(UsedCache { name, dirty_bytes: sectors * 512 });
                Some((self.volume(core, ix).await?, runs))
            }
            Ok(None) => {
                let lacking =
                    (device.state() == Some(BackingState::Dirty)).then(|| self.lacking(&name, device));
                device.judge_alone(&name, forced, lacking).map(|()| None)?
            }
            Err(problem) => device.judge_alone(&name, forced, Some(problem)).map(|()| None)?,
        };
        let data_at_bytes = device.data_at_bytes().unwrap_or_default();
        let block_bytes = device.superblock.block_bytes;
        let inside = format!("{name}{BCACHE_SUFFIX}");
        match BackingData::device(core, &inside, BackingPlace { below, data_at_bytes, block_bytes, cache }) {
            Ok(Some(device)) => Ok(Member::layer(inside, device)),
            Ok(None) => Err(Problem::new(
                Code::TooSmall,
                format!(
                    "{name}: the data of this backing device of bcache begins at byte {data_at_bytes}, behind its end",
                ),
                "the device is smaller than its superblock says",
                "check the copy or download it came from",
            )
            .of_member(name)),
            Err(error) => Err(unreachable(&name, &error)),
        }
    }

    /// The cache device of a backing device, if it is there, and what that has of it.
    async fn cache_of(
        &mut self,
        core: &Core,
        name: &str,
        device: &mut BcacheDevice,
    ) -> Result<Option<(MemberId, Arc<[CachedRun]>)>, Problem> {
        let set_uuid = device.superblock.set_uuid;
        let is_its = |seen: &MemberScan| {
            let cache = seen.bcache.as_ref().filter(|found| found.state().is_none());
            cache.is_some_and(|found| found.superblock.set_uuid == set_uuid)
        };
        let caches: Vec<_> = self.scan.members.entries().filter(|(_, seen)| is_its(seen)).collect();
        let ix = match caches[..] {
            [] => return Ok(None),
            [(ix, _)] => ix,
            _ => {
                let names: Vec<_> = caches.iter().map(|(_, seen)| seen.member.name.as_str()).collect();
                return Err(bcache::several_caches(name, &names));
            }
        };
        let contents = self.contents_of(core, ix).await?;
        let cache_name = self.scan.members[ix].member.name.clone();
        if contents.set_magic.to_le_bytes() != set_uuid[..8] {
            return Err(MemberError::Changed { name: cache_name }.into());
        }
        device.note = contents.passed_over.as_ref().map(|entry| {
            format!(
                "{cache_name}: --force={}: entry {} of its journal, which is not whole, is passed over; what it has is missed",
                Check::Journal,
                entry.seq
            )
        });
        let runs = contents.runs_of(device.superblock.uuid);
        let runs = runs.ok_or_else(|| bcache::not_known(name, &cache_name))?;
        Ok(Some((ix, runs)))
    }

    /// That the cache of a dirty backing device is not here, and which others are.
    fn lacking(&self, name: &str, device: &BcacheDevice) -> Problem {
        let other = |seen: &MemberScan| {
            let found = seen.bcache.as_ref().filter(|found| found.state().is_none())?;
            Some(format!("{} is of the set {}", seen.member.name, found.set_uuid()))
        };
        let others: Vec<_> = self.scan.members.iter().filter_map(other).collect();
        let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
        bcache::dirty(name, &device.set_uuid(), &others)
    }

    /// What is on a cache device. It is claimed first, and read once.
    async fn contents_of(&mut self, core: &Core, ix: MemberId) -> Result<Arc<CacheSet>, Problem> {
        if let Some(known) = self.scan.members[ix].bcache.as_ref().and_then(|device| device.contents.clone())
        {
            return known;
        }
        self.volume(core, ix).await?;
        let member = self.scan.members[ix].member.clone();
        let passes_over_torn = self.options.policy.forced.has(Check::Journal);
        let read = core.offload(move || {
            let read = |at_bytes, len_bytes| member.read(at_bytes, len_bytes);
            let contents = CacheSet::read(member.device.size_bytes(), passes_over_torn, &read);
            contents.map(Arc::new).map_err(|fault| fault.problem(&member.name))
        });
        let contents = read.await.map_err(Problem::no_thread)?;
        if let Some(device) = &mut self.scan.members[ix].bcache {
            device.contents = Some(contents.clone());
        }
        contents
    }

    async fn check(&mut self, core: &Core, ix: MemberId) -> Result<(Member, IntegrityFacts), Problem> {
        let seen = &self.scan.members[ix];
        let (member, device) = (seen.member.clone(), seen.integrity.clone().expect("it was just read"));
        let below = self.volume(core, ix).await?;
        let (keys, forced) = (self.options.keys.clone(), self.options.policy.forced);
        let to_write = self.options.purpose == Purpose::Write;
        let name = member.name.clone();
        let read = core.offload(move || {
            // Before it was claimed another program may have formatted it anew.
            if IntegrityDevice::read(&member)?.superblock != device.superblock {
                return Err(MemberError::Changed { name: member.name }.into());
            }
            OpenedTags::read(&device, &member, &keys, (forced, to_write))
        });
        let opened = read.await.map_err(Problem::no_thread)??;
        let inside = format!("{name}{SUFFIX}");
        let volume = below.open(core).map_err(|error| unreachable(&name, &error))?;
        let device = CheckedDevice::device(core, (&name, &inside), (below, volume), opened, to_write);
        let (device, facts) = device.await?;
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

fn unreachable(name: &str, error: &VolumeError) -> Problem {
    Problem::new(
        Code::VolumeFailed,
        format!("{name}: {error}"),
        "what is on it cannot be reached",
        "see what is wrong with its members (`wattle scan`)",
    )
}
