//! Everything that lies on the members given, layer on layer: arrays, what is in them, volume
//! groups, what is in their volumes, and so on up to what clients read and write.
//!
//! A layer is opened before what is on it can be looked at, so looking means running: read-only,
//! and without a single write. Each round opens the arrays and groups that the members found so far
//! make, and scans their volumes as members of the next.
//!
//! Rounds end: each opens something that was not open, and nothing is looked at that lies on more
//! than [`LAYERS_MAX`] layers. How many rounds there are is no bound: of arrays that lack a member
//! each takes a round.
//!
//! Invariant: what lacks a member is opened only when nothing else is left that could hold it. That
//! may be encrypted, or, where those that were given are too few, a volume of a group that is
//! opened later; an array that was started without it would leave it behind at its first write.

mod change;
mod find;
mod follow;
mod layered;
mod sites;
mod unlock;

pub use find::{Below, LogicalId, LogicalVolume, NamedVolume};
pub use sites::{MemberIdentity, key};

use std::collections::{BTreeMap, BTreeSet};

use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::Sector;
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec, VolumeRef};
use wattle_format::lvm::Id;
use wattle_format::md::Uuid;
use wattle_rt::{Core, Device};

use crate::layer::Layer;
use crate::lvm::group::{self, GroupScan};
use crate::lvm::open::Opener;
use crate::md::assemble::Policy;
use crate::md::start::Claimed;
use crate::members::Keyring;
use crate::members::{Claim, Member};
use crate::nodes::{ArrayId, GroupId, MemberId, Nodes};
use crate::problem::{Check, Code, Problem};
use crate::scan::{MemberOrigin, Scan, claim};

/// Layers one on another. No stack has more; members that are made to hold more, of which each
/// takes but a few kilobytes, must not keep a server at it.
const LAYERS_MAX: usize = 256;

/// How a stack is opened.
#[derive(Debug, Clone)]
pub struct StackOptions {
    /// What the operator wants to be so of arrays that are not whole.
    pub policy: Policy,
    /// What it is opened for.
    pub purpose: Purpose,
    /// Only these; `None` for everything.
    pub wanted: Option<WantedLayers>,
    /// What opens what is encrypted.
    pub keys: Keyring,
}

/// What a stack is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To see what there is. Nothing is locked: others may be writing.
    Look,
    /// To read: no other process may write meanwhile.
    Read,
    /// To write.
    Write,
}

/// What is used of a stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedLayers {
    /// Arrays.
    pub arrays: BTreeSet<Uuid>,
    /// Volume groups.
    pub groups: BTreeSet<Id>,
    /// Encrypted members, by the UUID in their headers.
    pub encrypted: BTreeSet<String>,
    /// Members that others lie on as [`MemberOrigin::Layered`], by their names.
    pub layered: BTreeSet<String>,
}

/// How arrays are started by their owner.
pub trait Starter {
    /// Starts an array of [`Scan::arrays`] that was claimed, of the stack as far as that is open.
    ///
    /// # Errors
    /// A [`Problem`]: it does not start.
    fn start(
        &mut self,
        core: &Core,
        stack: &Stack,
        array: ArrayId,
        claimed: Claimed,
    ) -> impl Future<Output = Result<ArrayHandle, Problem>>;
}

/// What is opened in a step of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Completeness {
    /// What has all its members.
    Whole,
    /// What lacks some too.
    Any,
}

/// Starts arrays that no owner looks after: they are read. A command that writes saves first what a
/// start that was forced writes over.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl Starter for Plain {
    async fn start(
        &mut self,
        core: &Core,
        _: &Stack,
        _: ArrayId,
        claimed: Claimed,
    ) -> Result<ArrayHandle, Problem> {
        Ok(claimed.launch(core).await?.handle)
    }
}

/// A stack that runs.
#[derive(Debug)]
pub struct Stack {
    /// Every member of every layer, and the arrays they make.
    pub scan: Scan,
    /// The volume groups.
    pub groups: Nodes<GroupId, GroupScan>,
    /// Arrays that run, or why not.
    arrays: BTreeMap<ArrayId, Result<ArrayHandle, Problem>>,
    /// Logical volumes that run.
    logical: BTreeMap<(GroupId, Id), VolumeRef>,
    /// How many layers a member lies on, of those that lie on any.
    depths: BTreeMap<MemberId, usize>,
    /// The volumes of members, once they were used.
    volumes: BTreeMap<MemberId, VolumeRef>,
    /// Members that were looked at for whether they are encrypted.
    looked: BTreeSet<MemberId>,
    /// Members that were looked at for whether they are devices of dm-integrity or bcache.
    looked_for_layers: BTreeSet<MemberId>,
    /// Volumes that are only read, because it is in doubt where a power cut would find them.
    in_doubt: BTreeSet<(GroupId, Id)>,
    /// Everything that runs, in the order in which it was started.
    running: Vec<Layer>,
    options: StackOptions,
}

impl Stack {
    /// Opens what lies on the members of a scan.
    ///
    /// # Errors
    /// A [`Problem`] of the machine; what is wrong with single layers is theirs.
    pub async fn open(
        core: &Core,
        scan: Scan,
        options: StackOptions,
        starter: &mut impl Starter,
    ) -> Result<Self, Problem> {
        let mut stack = Self {
            scan,
            groups: Nodes::default(),
            arrays: BTreeMap::new(),
            logical: BTreeMap::new(),
            depths: BTreeMap::new(),
            volumes: BTreeMap::new(),
            looked: BTreeSet::new(),
            looked_for_layers: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            running: Vec::new(),
            options,
        };
        loop {
            let mut found = Vec::new();
            for which in [Completeness::Whole, Completeness::Any] {
                if found.is_empty() {
                    found = stack.start_arrays(core, which, starter).await;
                }
                if found.is_empty() {
                    found = stack.start_groups(core, which).await?;
                }
                if found.is_empty() && which == Completeness::Whole {
                    found = stack.unlock(core).await?;
                    found.extend(stack.open_layered(core).await?);
                }
            }
            if found.is_empty() {
                break;
            }
            stack.look_at(core, found).await?;
        }
        Ok(stack)
    }

    /// Stops everything, the upper layers first.
    ///
    /// # Errors
    /// The first array that could not be recorded clean; the others are stopped all the same.
    pub async fn close(self, core: &Core) -> Result<(), Problem> {
        self.close_by(core, async |_| None).await
    }

    /// As [`Self::close`], where arrays have owners: `stop` stops an array in its turn, or leaves
    /// it to the stack by answering `None`. An array that is stopped before what lies on it could
    /// not take what that still has to write.
    ///
    /// # Errors
    /// As [`Self::close`].
    pub async fn close_by(
        self,
        core: &Core,
        mut stop: impl AsyncFnMut(&ArrayHandle) -> Option<Result<(), Problem>>,
    ) -> Result<(), Problem> {
        let mut result = Ok(());
        for running in self.running.iter().rev() {
            let by_owner = match running {
                Layer::Array(array) => stop(array).await,
                Layer::Mapped(_) => None,
            };
            let stopped = match by_owner {
                Some(stopped) => stopped,
                None => running.stop(core).await,
            };
            result = result.and(stopped);
        }
        result
    }

    /// Scans the volumes of what was opened.
    async fn look_at(&mut self, core: &Core, found: Vec<(Member, MemberOrigin)>) -> Result<(), Problem> {
        let policy = self.options.policy;
        let settled = self.arrays.keys().copied().collect();
        let first = self.scan.members.next_id();
        let (found, too_deep): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(_, origin)| self.depth(*origin) <= LAYERS_MAX);
        self.beside(core, move |scan| scan.add(found, policy, &settled)).await?;
        for (member, origin) in too_deep {
            let (id, problem) = (self.scan.members.next_id(), too_many_layers(&member.name));
            self.scan.add_made(member, origin);
            self.scan.members[id].problem = Some(problem);
        }
        let new: Vec<_> = self.scan.members.ids().rev().take_while(|id| *id >= first).collect();
        for id in new.into_iter().rev() {
            let depth = self.depth(self.scan.members[id].origin);
            self.depths.insert(id, depth);
        }
        Ok(())
    }

    /// How many layers a member of this origin lies on. Those that it lies on are known before it.
    fn depth(&self, origin: MemberOrigin) -> usize {
        let of = |id: &MemberId| self.depths.get(id).copied().unwrap_or(0);
        match origin {
            MemberOrigin::Given => 0,
            MemberOrigin::Partition { of: whole, .. } | MemberOrigin::Container { of: whole, .. } => {
                of(&whole)
            }
            MemberOrigin::Decrypted { of: below } | MemberOrigin::Layered { of: below } => of(&below) + 1,
            MemberOrigin::Array(array) => {
                self.scan.arrays[array].members.iter().map(of).max().unwrap_or(0) + 1
            }
            MemberOrigin::Logical { group, .. } => {
                self.groups[group].devices.iter().flatten().map(of).max().unwrap_or(0) + 1
            }
        }
    }

    /// Reads members beside the cores: what serves them must be able to answer.
    async fn beside<T: Send + 'static>(
        &mut self,
        core: &Core,
        read: impl FnOnce(&mut Scan) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let mut scan = std::mem::take(&mut self.scan);
        let done = core.offload(move || {
            let value = read(&mut scan);
            (scan, value)
        });
        let (scan, value) = done.await.map_err(Problem::no_thread)?;
        self.scan = scan;
        Ok(value)
    }

    /// Starts the arrays that do not run yet; their volumes.
    async fn start_arrays(
        &mut self,
        core: &Core,
        which: Completeness,
        starter: &mut impl Starter,
    ) -> Vec<(Member, MemberOrigin)> {
        let mut found = Vec::new();
        let waiting = self.scan.arrays.entries().filter(|(ix, _)| !self.arrays.contains_key(ix));
        let next: Vec<ArrayId> = match which {
            Completeness::Whole => {
                waiting.filter(|(_, array)| array.assembly.missing().is_empty()).map(|(ix, _)| ix).collect()
            }
            // What one of them lacks may lie on another, which is larger then.
            Completeness::Any => {
                let mut by_size: Vec<_> = waiting.collect();
                by_size.sort_by_key(|(_, array)| std::cmp::Reverse(array.assembly.size_sectors()));
                by_size.into_iter().map(|(ix, _)| ix).collect()
            }
        };
        for ix in next {
            let started = self.start_array(core, ix, starter).await;
            if let Ok(handle) = &started {
                self.running.push(Layer::Array(handle.clone()));
                let name = self.scan.arrays[ix].assembly.name();
                if let Ok(device) = handle.volume().device(core, name) {
                    found.push((Member::layer(name, device), MemberOrigin::Array(ix)));
                }
            }
            self.arrays.insert(ix, started);
            // One that cannot be started keeps no other from it.
            if which == Completeness::Any && !found.is_empty() {
                break;
            }
        }
        found
    }

    async fn start_array(
        &mut self,
        core: &Core,
        ix: ArrayId,
        starter: &mut impl Starter,
    ) -> Result<ArrayHandle, Problem> {
        let array = &self.scan.arrays[ix];
        let uuid = array.assembly.array.set_uuid;
        if self.is_copy(ix) {
            return Err(copied(array.assembly.name(), uuid));
        }
        let claimed = match self.options.purpose {
            Purpose::Look => Claimed::look(&self.scan, array)?,
            _ if self.wants(|wanted| wanted.arrays.contains(&uuid)) => {
                let read_only = self.options.purpose == Purpose::Read;
                self.beside(core, move |scan| claim(scan, &scan.arrays[ix], read_only)).await??
            }
            _ => return Err(not_wanted(array.assembly.name())),
        };
        starter.start(core, self, ix, claimed).await
    }

    /// Whether another array of the stack, which lies lower, has the same UUID.
    fn is_copy(&self, ix: ArrayId) -> bool {
        let uuid = self.scan.arrays[ix].assembly.array.set_uuid;
        self.scan.arrays.find(|other| other.assembly.array.set_uuid == uuid) != Some(ix)
    }

    /// The first problem of what was wanted: why what lies on it is not there.
    #[must_use]
    pub fn blocked_by(&self) -> Option<&Problem> {
        let of_arrays = self.arrays.iter().filter(|(ix, _)| {
            let uuid = self.scan.arrays[**ix].assembly.array.set_uuid;
            self.wants(|wanted| wanted.arrays.contains(&uuid)) && !self.is_copy(**ix)
        });
        let of_groups = self.groups.iter().filter_map(|group| group.problem.as_ref());
        of_arrays.filter_map(|(_, started)| started.as_ref().err()).chain(of_groups).next()
    }

    fn wants(&self, is_wanted: impl Fn(&WantedLayers) -> bool) -> bool {
        self.options.wanted.as_ref().is_none_or(is_wanted)
    }

    /// Opens the groups that are not open yet; their volumes.
    async fn start_groups(
        &mut self,
        core: &Core,
        which: Completeness,
    ) -> Result<Vec<(Member, MemberOrigin)>, Problem> {
        let in_group = |ix: MemberId| {
            let mut groups = self.groups.iter();
            groups.any(|group| group.devices.contains(&Some(ix)) || group.copies.contains(&ix))
        };
        let physical = self.scan.members.entries().filter_map(|(ix, member)| {
            let physical = member.physical.as_ref().filter(|_| member.facts.is_none() && !in_group(ix))?;
            Some((ix, member.member.name.as_str(), physical))
        });
        let group::Groups { mut groups, problems } = group::assemble(&physical.collect::<Vec<_>>());
        for (ix, problem) in problems {
            self.scan.members[ix].problem.get_or_insert(problem);
        }
        for group in &mut groups {
            let taken = self.groups.iter().filter(|open| open.vg.id != group.vg.id);
            let taken = taken.flat_map(|open| group::has_taken(open, group, &self.scan));
            group.notes = taken.chain(group.notes.clone()).collect();
        }
        let mut found = Vec::new();
        let forced = self.options.policy.forced.has(Check::OlderPhysical);
        for mut group in groups {
            group.older.iter_mut().flatten().for_each(|older| older.is_forced = forced);
            if let Some(open) = self.groups.iter().find(|other| other.vg.id == group.vg.id).cloned() {
                for ix in group.devices.into_iter().flatten().chain(group.copies) {
                    let lies_on_it = self.below(&[ix]).wanted.groups.contains(&group.vg.id);
                    let seen = &mut self.scan.members[ix];
                    if !lies_on_it && seen.physical.as_ref().is_some_and(|found| open.has_left(found)) {
                        seen.note = Some(has_left(&seen.member.name, &group.vg.name));
                        continue;
                    }
                    let found = |name: &str| copied_physical(name, &group.vg.name, lies_on_it);
                    seen.problem.get_or_insert_with(|| found(&seen.member.name));
                }
            } else if which == Completeness::Any || group.devices.iter().all(Option::is_some) {
                for &ix in &group.copies {
                    let seen = &mut self.scan.members[ix];
                    seen.problem = seen.problem.take().or_else(|| group.problem.clone());
                }
                found.extend(self.open_group(core, group).await?);
            }
        }
        Ok(found)
    }

    async fn open_group(
        &mut self,
        core: &Core,
        mut group: GroupScan,
    ) -> Result<Vec<(Member, MemberOrigin)>, Problem> {
        let id = self.groups.next_id();
        let looked = self.options.purpose == Purpose::Look;
        let wanted = looked || self.wants(|wanted| wanted.groups.contains(&group.vg.id));
        let mut found = Vec::new();
        let mut physical = Vec::new();
        if group.problem.is_none() && wanted {
            for device in &group.devices {
                match device {
                    None => physical.push(None),
                    Some(ix) => match self.volume(core, *ix).await {
                        Ok(volume) => physical.push(Some(volume)),
                        Err(problem) => group.problem = Some(problem),
                    },
                }
            }
        }
        if group.problem.is_none() && wanted {
            let read_only = self.options.purpose != Purpose::Write;
            let opener = Opener::new(core, &group, read_only, physical).await?;
            let mut opener = opener.with_forced(self.options.policy.forced);
            let mut states = group.volumes.clone();
            for lv in group.vg.lvs.iter().filter(|lv| group.vg.is_visible(lv)) {
                let opened = opener.open(&lv.name).await;
                let name = group.full_name(lv);
                let device = opened.as_ref().ok().and_then(|opened| opened.volume.device(core, &name).ok());
                found.extend(device.map(|device| {
                    (Member::layer(name, device), MemberOrigin::Logical { group: id, volume: lv.id })
                }));
                let state = states.entry(lv.id).or_default();
                match opened {
                    Ok(opened) => {
                        (state.partial, state.notes) = (opened.partial, opened.notes);
                        (state.lost_bytes, state.images_out) = (opened.lost_bytes, opened.images_out);
                        self.logical.insert((id, lv.id), opened.volume);
                    }
                    Err(problem) => state.problem = Some(problem),
                }
            }
            self.running.extend(opener.into_running());
            group.volumes = states;
        }
        self.groups.push(group);
        Ok(found)
    }

    /// The volume of a member: of a drive or partition as a whole, of an array, a logical volume.
    ///
    /// # Errors
    /// A [`Problem`]: it is in use elsewhere, does not run, or is to be written and lies on a
    /// member whose superblock is not used.
    pub async fn volume(&mut self, core: &Core, ix: MemberId) -> Result<VolumeRef, Problem> {
        if let Some(volume) = self.volumes.get(&ix) {
            return Ok(volume.clone());
        }
        if self.options.purpose == Purpose::Write {
            self.scan.check_below(ix)?;
        }
        let seen = &self.scan.members[ix];
        let volume = match seen.origin {
            MemberOrigin::Array(array) => self.arrays[&array].clone()?.volume(),
            MemberOrigin::Logical { group, volume } => {
                self.logical.get(&(group, volume)).cloned().expect("a volume that became a member is open")
            }
            MemberOrigin::Decrypted { .. } | MemberOrigin::Layered { .. } => {
                let read_only = self.options.purpose != Purpose::Write;
                let claim = if read_only { Claim::Read } else { Claim::Write };
                let claimed = seen.member.claim(claim).map_err(|error| self.scan.not_claimed(ix, error))?;
                let handle = bare(core, &claimed.name, claimed.device, read_only).await?;
                self.running.push(Layer::Array(handle.clone()));
                handle.volume()
            }
            MemberOrigin::Given | MemberOrigin::Partition { .. } | MemberOrigin::Container { .. } => {
                let claim = match self.options.purpose {
                    Purpose::Look => None,
                    Purpose::Read => Some(Claim::Read),
                    Purpose::Write => Some(Claim::Write),
                };
                let claimed = match claim {
                    None => seen.member.clone(),
                    Some(claim) => {
                        self.beside(core, move |scan| scan.members[ix].claim_as_seen(claim)).await??
                    }
                };
                let read_only = self.options.purpose != Purpose::Write;
                let handle = bare(core, &claimed.name, claimed.device, read_only).await?;
                self.running.push(Layer::Array(handle.clone()));
                handle.volume()
            }
        };
        self.volumes.insert(ix, volume.clone());
        Ok(volume)
    }
}

/// What lies on a member is not looked at.
fn too_many_layers(name: &str) -> Problem {
    Problem::new(
        Code::NotSupportedYet,
        format!("{name}: it lies on {LAYERS_MAX} layers of arrays, groups and encryption"),
        "what lies on it is not looked at: no storage is built so",
        "give only the layer that holds what you want, or a copy of it",
    )
    .of_member(name)
}

/// A drive or partition as it is: an array of one member without metadata.
async fn bare(core: &Core, name: &str, device: Device, read_only: bool) -> Result<ArrayHandle, Problem> {
    let sectors = Sector(device.size_bytes() / 512);
    let geometry = Geometry::new(&Params {
        level: Level::Linear,
        layout: 0,
        chunk: Sector(0),
        raid_disks: 1,
        component_size: sectors,
        member_sizes: vec![sectors],
    });
    let geometry = geometry.map_err(|error| {
        Problem::new(
            Code::TooSmall,
            format!("{name}: {error}"),
            "it holds no whole sector",
            "check the copy or download it came from",
        )
        .of_member(name)
    })?;
    let spec = ArraySpec {
        read_only,
        ..ArraySpec::new(name, geometry, vec![MemberSpec::in_sync(device, Sector(0))])
    };
    Ok(ArrayHandle::start(core, spec, Box::new(NoMetadata)).await)
}

/// An array whose UUID another one has, which lies lower. A UUID is what tells arrays apart: what
/// is asked of one would be done to both.
fn copied(name: &str, uuid: Uuid) -> Problem {
    Problem::new(
        Code::SeveralVolumes,
        format!("{name}: what it lies on holds a copy of members of an array that is here too ({uuid})"),
        "by their superblocks the two are one array, and only the lower one is used",
        "to read the copy, give only what it lies on",
    )
}

/// A physical volume of a group that is open without it: a copy in one of the group's own volumes,
/// or one beside them that was found only later, as what is encrypted is.
fn copied_physical(name: &str, group: &str, lies_on_it: bool) -> Problem {
    if !lies_on_it {
        return Problem::new(
            Code::DuplicatePhysical,
            format!("{name}: it is a physical volume of group {group}, which is open without it"),
            "it is a copy of one that the group has, or the group is a copy, and they may have diverged",
            "give only the one you trust",
        )
        .of_member(name);
    }
    Problem::new(
        Code::DuplicatePhysical,
        format!("{name}: it is a physical volume of group {group}, and lies on that group"),
        "a copy of a member of a group, kept in one of its own volumes, is not used as that member",
        "to read the copy, give only what it lies on",
    )
    .of_member(name)
}

fn has_left(name: &str, group: &str) -> String {
    format!("{name} left the group {group}, and still has an older text of it: it is in no group")
}

fn not_wanted(name: &str) -> Problem {
    Problem::new(
        Code::NoSuchVolume,
        format!("{name} is not used"),
        "nothing that was asked for lies on it",
        "name it with -V to use it too",
    )
}
