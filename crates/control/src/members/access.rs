//! How this process opens members: as they are, or under overlays; across a network, where
//! something does that; and as the copies that they are, by their maps.
//!
//! Invariant: an access with overlays gives no member that is ever opened for writing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use wattle_format::md;
use wattle_format::partition::{Partition, PartitionTable};
use wattle_rt::{BackendError, CoreHandle, Device, OpenError, OpenOptions, beside, path_of_text};

use super::keys::Keyring;
use super::near;
use super::ways::Ways;
use super::{
    Copied, Identity, Member, MemberAddress, MemberError, Whole, identity_of, named_partition, not_empty,
    open, open_error, partitions_of, same_place,
};
use crate::overlay::{OverlayFiles, Overlays};
use crate::problem::{Code, Problem};
use crate::unread::{CopyMap, CopyMapError};

/// What the map of a copy is called: the copy's name and this.
const MAP_SUFFIX: &str = ".map";

/// Opens drives across a network by their URIs, each if it shows itself within a time, all at once.
/// The same drive is the same device each time, as long as it is there.
pub type OpenRemote = dyn Fn(&[&str], Option<Duration>) -> Vec<Result<Device, Problem>> + Send + Sync;

/// Takes a line that the operator should know of a member.
pub type TellNote = dyn Fn(&str) + Send + Sync;

/// Which map tells what is in a member that is a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapChoice {
    /// This file.
    At(PathBuf),
    /// None, whatever lies beside the member: it is taken as it is.
    Without,
}

/// The way to members. It is made once, when a command begins, and handed down.
#[derive(Clone)]
pub struct MemberAccess {
    remotes: Option<Arc<OpenRemote>>,
    /// How long a drive across a network may take to show itself, if not as long as it needs.
    remote_patience: Option<Duration>,
    overlays: Option<Arc<Overlays>>,
    /// By the names of members.
    maps: Arc<Mutex<Vec<(String, MapChoice)>>>,
    tell: Option<Arc<TellNote>>,
    /// Backup files of reshapes, looked at with all members.
    backups: Arc<[String]>,
    copies: Arc<Copies>,
    keys: Keyring,
    /// Where sysfs is.
    sys: PathBuf,
}

/// What members that are copies have in common.
#[derive(Default)]
struct Copies {
    /// Answers threads for all of them; there from the first one on.
    core: Mutex<Option<CoreHandle>>,
    /// What was said already.
    told: Mutex<BTreeSet<String>>,
}

impl Copies {
    fn core(&self) -> Result<CoreHandle, BackendError> {
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        if core.is_none() {
            *core = Some(beside()?);
        }
        Ok(core.clone().expect("it was made just now"))
    }
}

impl fmt::Debug for MemberAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberAccess")
            .field("remotes", &self.remotes.is_some())
            .field("overlays", &self.overlays)
            .finish()
    }
}

impl MemberAccess {
    /// Files, block devices and made-up drives of this machine, as they are.
    #[must_use]
    pub fn local() -> Self {
        let (remotes, overlays, tell, sys) = (None, None, None, PathBuf::from("/sys"));
        let (maps, backups, copies) = (Arc::default(), Arc::new([]), Arc::default());
        let (keys, remote_patience) = (Keyring::default(), None);
        Self { remotes, remote_patience, overlays, maps, tell, backups, copies, keys, sys }
    }

    /// The same, with what drives tell of themselves in another place than `/sys`.
    #[must_use]
    pub fn with_sys(self, sys: PathBuf) -> Self {
        Self { sys, ..self }
    }

    /// The memory node of this machine that most of these members are attached to; `None` where the
    /// system does not tell, or has but one.
    #[must_use]
    pub fn memory_node(&self, names: &[String]) -> Option<usize> {
        let paths: Vec<_> = names
            .iter()
            .filter_map(|name| name.parse().ok())
            .flat_map(|address| match address {
                MemberAddress::Path(path) => vec![path],
                MemberAddress::Paths(paths) => paths,
                _ => Vec::new(),
            })
            .collect();
        near::memory_node(&self.sys, paths.iter().map(PathBuf::as_path))
    }

    /// The same, with files that hold what was on members while an array was reshaped: they are
    /// looked at with every list of members.
    #[must_use]
    pub fn with_backups(self, files: Vec<String>) -> Self {
        Self { backups: files.into(), ..self }
    }

    /// The same, with maps for copies that are named and not looked for beside them.
    #[must_use]
    pub fn with_maps(self, maps: Vec<(String, MapChoice)>) -> Self {
        Self { maps: Arc::new(Mutex::new(maps)), ..self }
    }

    /// The same, with what opens what is encrypted.
    #[must_use]
    pub fn with_keys(self, keys: Keyring) -> Self {
        Self { keys, ..self }
    }

    /// What opens what is encrypted.
    #[must_use]
    pub fn keys(&self) -> Keyring {
        self.keys.clone()
    }

    /// Names the map of one more member, or none any more, for everything that has this access.
    /// Returns what was named before.
    pub fn name_map(&self, member: &str, choice: Option<MapChoice>) -> Option<MapChoice> {
        let before = self.named_map(member);
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        maps.retain(|(named, _)| !same_place(named, member));
        maps.extend(choice.map(|choice| (member.to_owned(), choice)));
        before
    }

    fn named_map(&self, member: &str) -> Option<MapChoice> {
        let maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        maps.iter().find(|(named, _)| same_place(named, member)).map(|(_, choice)| choice.clone())
    }

    /// The same; what is to be known of members is told, once of each.
    #[must_use]
    pub fn with_notes(self, tell: Arc<TellNote>) -> Self {
        Self { tell: Some(tell), ..self }
    }

    /// The same, and drives across a network as `open` opens them: nothing here speaks such a
    /// protocol.
    #[must_use]
    pub fn with_remotes(self, open: Arc<OpenRemote>) -> Self {
        Self { remotes: Some(open), ..self }
    }

    /// The same; drives across a network that do not show themselves within this time are away.
    #[must_use]
    pub fn with_remote_patience(self, patience: Duration) -> Self {
        Self { remote_patience: Some(patience), ..self }
    }

    /// The same, with those of these drives that lie across a network open: all at once, so that
    /// none waits for another that does not answer.
    fn with_opened(&self, names: &[&str]) -> Self {
        let Some(open) = &self.remotes else { return self.clone() };
        let wholes = names.iter().map(|name| named_partition(name).map_or(*name, |(whole, _)| whole));
        let mut remote: Vec<&str> = Vec::new();
        for name in wholes.filter(|name| matches!(name.parse(), Ok(MemberAddress::Remote))) {
            if !remote.contains(&name) {
                remote.push(name);
            }
        }
        if remote.len() < 2 {
            return self.clone();
        }
        let opened = open(&remote, self.remote_patience);
        let opened: BTreeMap<String, _> = remote.into_iter().map(str::to_owned).zip(opened).collect();
        let (opened, open) = (Mutex::new(opened), open.clone());
        let remotes: Arc<OpenRemote> = Arc::new(move |names, patience| {
            let opened = |name: &str| opened.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
            let each =
                names.iter().map(|name| opened(name).map_or_else(|| open(&[name], patience), |it| vec![it]));
            each.flatten().collect()
        });
        Self { remotes: Some(remotes), ..self.clone() }
    }

    /// The same, but whatever is written to members goes to files in `dir`, which is made if it is
    /// not there; and what is in it already.
    ///
    /// # Errors
    /// It is no directory and cannot be made, or there is no thread to serve from.
    pub fn keep_writes_in(self, dir: &Path) -> Result<(Self, OverlayFiles), Problem> {
        let (overlays, files) = Overlays::open(dir)?;
        Ok((Self { overlays: Some(Arc::new(overlays)), ..self }, files))
    }

    /// Opens a member to look at it: read-only, without a lock. Made-up drives can be written at
    /// once.
    ///
    /// # Errors
    /// [`MemberError`], naming the member.
    pub fn look(&self, name: &str) -> Result<Member, MemberError> {
        self.look_beside(name, &[])
    }

    /// The same beside other members: partitions of one drive are parts of the same, which is
    /// locked once.
    fn look_beside(&self, name: &str, others: &[Member]) -> Result<Member, MemberError> {
        match named_partition(name) {
            Some((whole, number)) => self.look_partition(name, whole, number, others),
            None => self.look_whole(name),
        }
    }

    fn look_partition(
        &self,
        name: &str,
        whole: &str,
        number: u32,
        others: &[Member],
    ) -> Result<Member, MemberError> {
        let parts = others.iter().filter_map(|other| other.part.as_ref());
        let known =
            parts.map(|part| &part.whole).find(|known| known.member.is_at(&path_of_text(whole))).cloned();
        let shared = match known {
            Some(known) => known,
            None => Whole::new(self.look_whole(whole)?),
        };
        let table = partitions_of(&shared.member);
        let partitions = table.iter().flat_map(|table| table.partitions.iter().map(move |of| (table, of)));
        let usable: Vec<_> = partitions.filter(|(_, of)| of.is_usable()).collect();
        let part = |(table, of): &(&PartitionTable, &Partition)| {
            Member::partition(&shared, name.to_owned(), table, of)
        };
        // As in a scan: a superblock near the end of the drive may be that of its last partition.
        // With any other one the table is what an array holds, and not the drive's.
        let is_of_partition = |place: &u64| {
            usable.iter().any(|usable @ (_, of)| {
                let inside = place.checked_sub(of.start_sectors).filter(|place| *place < of.len_sectors);
                inside.is_some_and(|place| {
                    part(usable).is_ok_and(|part| superblocks_at(&part).contains(&place))
                })
            })
        };
        if !superblocks_at(&shared.member).iter().all(is_of_partition) {
            return Err(MemberError::PartitionOfArray { name: name.to_owned(), whole: whole.to_owned() });
        }
        match usable.iter().find(|(_, of)| of.number == number) {
            Some(found) => part(found),
            None => Err(MemberError::NoPartition { name: name.to_owned(), whole: whole.to_owned() }),
        }
    }

    fn look_whole(&self, name: &str) -> Result<Member, MemberError> {
        let address: MemberAddress = name.parse()?;
        let (mut ways, mut linux_path) = (None, None);
        let (below, identity) = match &address {
            MemberAddress::Paths(paths) => {
                let (device, identity, found) = Ways::look(name, paths, &self.sys)?;
                ways = Some(found);
                (device, identity)
            }
            MemberAddress::Mem { size_bytes } => {
                (Device::mem(not_empty(name, *size_bytes)?), Identity::MadeUp)
            }
            MemberAddress::Null { size_bytes } => {
                (Device::null(not_empty(name, *size_bytes)?), Identity::MadeUp)
            }
            MemberAddress::Model | MemberAddress::Part | MemberAddress::Layer => {
                return Err(MemberError::OnlyMadeUp { name: name.to_owned() });
            }
            MemberAddress::Remote => {
                let Some(open) = &self.remotes else {
                    return Err(MemberError::NotSupportedYet { name: name.to_owned(), scheme: "nbd://" });
                };
                let opened = open(&[name], self.remote_patience).remove(0);
                let device = opened.map_err(|problem| MemberError::Remote { problem: Box::new(problem) })?;
                (device, Identity::Remote)
            }
            MemberAddress::Path(path) => {
                let device = open(name, path, OpenOptions::default())?;
                let metadata = std::fs::metadata(path).map_err(|_| open_error(name, OpenError::NotFound))?;
                linux_path = path.canonicalize().ok();
                (device, identity_of(&metadata))
            }
        };
        let copy = self.copy(name, &address, &below)?;
        let below = match (&copy, &address) {
            (Some(copy), MemberAddress::Path(path)) => {
                let on = open(name, path, Copied::options(Some(copy), OpenOptions::default()))?;
                copy.guard(name, on)?
            }
            (Some(copy), _) => copy.guard(name, below)?,
            (None, _) => below,
        };
        let overlays = self.overlays.clone().filter(|_| address.is_lasting());
        let device = match &overlays {
            Some(overlays) => overlays
                .look(name, &below, address.modified())
                .map_err(|source| MemberError::overlaid(name, &source))?,
            None => below.clone(),
        };
        Ok(Member {
            name: name.to_owned(),
            address,
            device,
            below,
            identity,
            part: None,
            copy,
            overlays,
            ways,
            linux_path,
        })
    }

    /// What is in a member that is a copy: by the map that was named for it, or by the one beside
    /// it.
    fn copy(
        &self,
        name: &str,
        address: &MemberAddress,
        below: &Device,
    ) -> Result<Option<Copied>, MemberError> {
        let named = self.named_map(name);
        let is_file = matches!(address, MemberAddress::Path(_)) && !below.is_block_device();
        let path = match (named, address) {
            (Some(MapChoice::Without), _) => return Ok(None),
            (Some(MapChoice::At(_)), MemberAddress::Mem { .. } | MemberAddress::Null { .. }) => {
                return Err(MemberError::NoCopy { name: name.to_owned() });
            }
            (Some(MapChoice::At(path)), _) => path,
            (None, MemberAddress::Path(path)) if is_file => {
                let mut beside = path.clone().into_os_string();
                beside.push(MAP_SUFFIX);
                let beside = PathBuf::from(beside);
                // A link that leads nowhere is there, and cannot be read.
                let there = beside.symlink_metadata();
                if there.is_err_and(|error| is_absent(&error)) {
                    return Ok(None);
                }
                beside
            }
            _ => return Ok(None),
        };
        let unusable = |source: CopyMapError| MemberError::of_map(name, &source);
        let map = CopyMap::read(&path, below.size_bytes(), is_file).map_err(unusable)?;
        let has_all = map.unread().is_empty() && map.size_bytes() == below.size_bytes();
        let core = (!has_all).then(|| self.copies.core()).transpose();
        let core = core.map_err(|error| {
            let problem = Problem::new(
                Code::BackendUnavailable,
                format!("{name}: {error}"),
                "a core looks at every read of a copy that lacks something",
                "free resources of this machine",
            );
            MemberError::CopyMap { problem: Box::new(problem.of_member(name)) }
        })?;
        self.tell(map.note(name));
        Ok(Some(Copied { map: Arc::new(map), core }))
    }

    /// Tells what was not told before.
    fn tell(&self, note: Option<String>) {
        let (Some(tell), Some(note)) = (&self.tell, note) else { return };
        let mut told = self.copies.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(note.clone()) {
            tell(&note);
        }
    }

    /// Opens members to look at them, in the order given.
    ///
    /// # Errors
    /// The first member that cannot be opened or is given twice.
    pub fn look_all<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<Member>, MemberError> {
        let (members, errors) = self.look_each(names)?;
        errors.into_iter().next().map_or(Ok(members), Err)
    }

    /// Opens those members that can be opened, in the order given; and why the others cannot. Of a
    /// dead machine's drives some are often dead too, and the others are what matters.
    ///
    /// # Errors
    /// One is given twice.
    pub fn look_each<S: AsRef<str>>(
        &self,
        names: &[S],
    ) -> Result<(Vec<Member>, Vec<MemberError>), MemberError> {
        let mut members: Vec<Member> = Vec::with_capacity(names.len());
        let mut errors = Vec::new();
        let names = names.iter().map(AsRef::as_ref);
        let names: Vec<_> = names.chain(self.backups.iter().map(String::as_str)).collect();
        let access = self.with_opened(&names);
        for name in names {
            let member = match access.look_beside(name, &members) {
                Ok(member) => member,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            if let Some(first) = members.iter().find(|other| member.shares_with(other)) {
                return Err(MemberError::GivenTwice { name: member.name, first: first.name.clone() });
            }
            if let Some((first, id)) =
                members.iter().find_map(|other| Some((other.name.clone(), member.same_drive(other)?)))
            {
                return Err(MemberError::SameDrive { name: member.name, first, id });
            }
            members.push(member);
        }
        Ok((members, errors))
    }
}

/// Where valid superblocks of md are on a member, in sectors.
pub(super) fn superblocks_at(member: &Member) -> Vec<u64> {
    let size_sectors = member.size_sectors();
    let place = |place: md::SuperblockRange| {
        let bytes = member.read(place.offset_bytes, place.len_bytes).ok()?;
        Some(md::identify(place.version, &bytes, size_sectors).ok()??.found_at_sectors())
    };
    md::scan_component(size_sectors).into_iter().filter_map(place).collect()
}

/// Also: a file of so long a name cannot be there.
fn is_absent(error: &std::io::Error) -> bool {
    let too_long = rustix::io::Errno::NAMETOOLONG.raw_os_error();
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(too_long)
}
