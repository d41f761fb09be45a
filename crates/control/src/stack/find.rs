//! Which volume an operator means.

use std::fmt;

use wattle_engine::VolumeRef;
use wattle_format::lvm::Id;
use wattle_format::probe::SignatureKind;

use super::{Stack, WantedLayers};
use crate::crypt::{Encryption, LockState};
use crate::lvm::flags::is_skipped;
use crate::nodes::{ArrayId, MemberId};
use crate::problem::{Code, Forced, Problem};
use crate::scan::{MemberOrigin, MemberScan};

/// A volume that could be meant.
#[derive(Debug, Clone)]
pub struct NamedVolume {
    /// What it is called: an array's name, `group/volume`, `member:pN`, a member's name.
    pub name: String,
    /// A name that nothing else has: with a UUID.
    unique: String,
    /// What else it is found by.
    also: Vec<String>,
    /// Which of [`crate::Scan::arrays`] it is, if it is one.
    pub array: Option<ArrayId>,
    /// Its place among [`crate::Scan::members`]; or why it cannot be used.
    pub member: Result<MemberId, Problem>,
    /// Nothing else lies on it, and there is something on it: what is meant where no name is given.
    pub is_top: bool,
    /// It says of itself that it is left out unless it is named.
    pub is_skipped: bool,
}

/// What tells a logical volume from all others, whatever it is called. The volumes of a copied
/// group keep their ids: only the group's tells them from the originals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogicalId {
    /// The group's id.
    pub group: Id,
    /// Its own.
    pub volume: Id,
}

impl fmt::Display for LogicalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.volume)
    }
}

/// A logical volume that runs.
#[derive(Debug, Clone)]
pub struct LogicalVolume {
    /// Which it is.
    pub id: LogicalId,
    /// What it is called now, with its group.
    pub name: String,
    /// Itself.
    pub volume: VolumeRef,
    /// Nothing else lies on it.
    pub is_top: bool,
    /// Something that runs does.
    pub is_relied_on: bool,
    /// It says of itself that it is left out unless it is named.
    pub is_skipped: bool,
}

impl NamedVolume {
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.unique == name || self.also.iter().any(|also| also == name)
    }
}

impl Stack {
    /// Whether a volume, or a member of whatever, is called so.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        let is_last = |path: &str| path.rsplit('/').next() == Some(name);
        self.volumes().iter().any(|volume| volume.is_called(name))
            || self.scan.members.iter().any(|seen| seen.member.name == name || is_last(&seen.member.name))
    }

    /// Every volume there is, or would be.
    #[must_use]
    pub fn volumes(&self) -> Vec<NamedVolume> {
        let mut volumes = Vec::new();
        for (ix, array) in self.scan.arrays.entries() {
            let facts = &array.assembly.array;
            let member = self.member_of(MemberOrigin::Array(ix));
            let problem = self.arrays.get(&ix).and_then(|array| array.as_ref().err().cloned());
            volumes.push(NamedVolume {
                name: array.assembly.name().to_owned(),
                array: Some(ix),
                unique: facts.set_uuid.to_string(),
                is_skipped: false,
                also: vec![facts.set_name.clone(), facts.short_name().to_owned()],
                is_top: member.is_none_or(|member| !self.is_below(member)),
                member: member.ok_or_else(|| problem.unwrap_or_else(|| self.scan.nothing_found())),
            });
        }
        for (id, group) in self.groups.entries() {
            for lv in group.vg.lvs.iter().filter(|lv| group.vg.is_visible(lv)) {
                let member = self.member_of(MemberOrigin::Logical { group: id, volume: lv.id });
                let problem = group.volumes[&lv.id].problem.clone().or_else(|| group.problem.clone());
                volumes.push(NamedVolume {
                    name: group.full_name(lv),
                    array: None,
                    unique: format!("{}/{}", group.vg.id, lv.name),
                    is_skipped: is_skipped(lv),
                    also: vec![lv.id.to_string()],
                    is_top: member.is_none_or(|member| !self.is_below(member)),
                    member: member.ok_or_else(|| problem.unwrap_or_else(|| self.scan.nothing_found())),
                });
            }
        }
        for (ix, seen) in self.scan.members.entries() {
            let name = &seen.member.name;
            if let MemberOrigin::Decrypted { of } = seen.origin {
                volumes.push(self.decrypted(ix, of));
                continue;
            }
            let is_layered = matches!(seen.origin, MemberOrigin::Layered { .. });
            let is_drive = matches!(seen.origin, MemberOrigin::Given | MemberOrigin::Partition { .. })
                && seen.facts.is_none()
                && seen.container.is_none();
            if !is_layered && !is_drive {
                continue;
            }
            volumes.push(NamedVolume {
                name: name.clone(),
                array: None,
                unique: name.clone(),
                is_skipped: false,
                also: name.rsplit('/').next().map(str::to_owned).into_iter().collect(),
                is_top: !self.is_below(ix) && (is_layered || seen.has_file_system()),
                member: seen.problem.clone().map_or(Ok(ix), Err),
            });
        }
        volumes
    }

    /// What is in an encrypted member that is open.
    fn decrypted(&self, ix: MemberId, of: MemberId) -> NamedVolume {
        let name = &self.scan.members[ix].member.name;
        let header = self.scan.members[of].encryption.as_ref().map(|encryption| &encryption.header);
        let label = header.and_then(|header| header.label.clone());
        let base = name.rsplit('/').next().map(str::to_owned);
        NamedVolume {
            name: name.clone(),
            unique: self.encrypted_name(of),
            also: header.map(|header| header.uuid.clone()).into_iter().chain(label).chain(base).collect(),
            array: None,
            member: self.scan.members[ix].problem.clone().map_or(Ok(ix), Err),
            is_top: !self.is_below(ix),
            is_skipped: false,
        }
    }

    /// Why there is no way into the first encrypted member that is not open.
    fn locked(&self) -> Option<Problem> {
        self.not_opened().next()
    }

    /// Why there is no way into each encrypted member that is not open.
    pub fn not_opened(&self) -> impl Iterator<Item = Problem> + '_ {
        self.scan.members.iter().filter_map(MemberScan::not_opened)
    }

    /// A member that is not open, without a key or with one that is not its, while an array that
    /// `volumes` lie on lacks a member.
    ///
    /// # Errors
    /// That it may be what the array lacks.
    pub fn check_not_opened(&self, volumes: &[MemberId]) -> Result<(), Problem> {
        let lacking = self.below(volumes).arrays.into_iter();
        let lacking = lacking.filter(|&array| !self.scan.arrays[array].assembly.missing().is_empty());
        // What lies on an array is no member of that.
        let closed = lacking.flat_map(|array| {
            let elsewhere = move |ix: &MemberId| !self.below(&[*ix]).arrays.contains(&array);
            let closed = self.scan.members.ids().filter(elsewhere);
            closed.map(move |ix| (array, &self.scan.members[ix]))
        });
        let mut closed =
            closed.filter_map(|(array, seen)| Some((array, &seen.member.name, seen.not_opened()?)));
        let Some((array, name, problem)) = closed.next() else { return Ok(()) };
        let array = &self.scan.arrays[array].assembly;
        Err(Problem::new(
            problem.code,
            format!("{} lacks a member, and {}", array.name(), problem.what),
            "it may be what the array lacks, and what is written without it leaves it behind",
            format!("have {name} opened, with its key if that is it, or leave {name} out of the members; --read-only needs neither"),
        )
        .of_member(name))
    }

    /// Refuses to write to `volumes` where an array that they lie on would leave members behind.
    ///
    /// # Errors
    /// As [`Assembly::check_left_behind`](crate::assemble::Assembly::check_left_behind).
    pub fn check_left_behind(&self, volumes: &[MemberId], forced: Forced) -> Result<(), Problem> {
        let mut arrays = self.below(volumes).arrays.into_iter();
        arrays.try_for_each(|array| self.scan.arrays[array].assembly.check_left_behind(forced))
    }

    /// Why there is no way into the volumes of a container: which drive is which is not known.
    fn unknown_drive(&self) -> Option<Problem> {
        let mut problems = self.scan.members.iter().filter_map(|seen| seen.problem.as_ref());
        problems.find(|problem| problem.code == Code::ContainerDriveUnknown).cloned()
    }

    /// The volume called `name`; without a name the only one that nothing else lies on.
    ///
    /// # Errors
    /// A [`Problem`]: there is none, none of that name, several, or it cannot be used.
    pub fn find(&self, name: Option<&str>) -> Result<NamedVolume, Problem> {
        let all = self.volumes();
        let meant = |volume: &&NamedVolume| name.map_or(volume.is_top, |name| volume.is_called(name));
        let found: Vec<_> = all.iter().filter(meant).collect();
        // Names that are there twice are told apart by what else their volumes are called.
        let shown = |volume: &&NamedVolume| match all.iter().filter(|other| other.name == volume.name).count()
        {
            1 => volume.name.clone(),
            _ => format!("{} ({})", volume.name, volume.unique),
        };
        let list = |volumes: &[&NamedVolume]| volumes.iter().map(shown).collect::<Vec<_>>().join(", ");
        let named: Vec<_> = all.iter().filter(|volume| volume.is_top || !volume.also.is_empty()).collect();
        match (found.as_slice(), name) {
            ([volume], None) => {
                let member = volume.member.clone()?;
                // A key was given and does not open it: its encrypted bytes are not what is meant.
                match &self.scan.members[member].encryption {
                    Some(Encryption { state: LockState::Refused(problem), .. }) => Err(problem.clone()),
                    _ => Ok((*volume).clone()),
                }
            }
            ([volume], Some(_)) => {
                volume.member.clone()?;
                Ok((*volume).clone())
            }
            ([], None) => Err(self.locked().unwrap_or_else(|| self.scan.nothing_found())),
            ([], Some(name)) => Err(
                match self.blocked_by().cloned().or_else(|| self.locked()).or_else(|| self.unknown_drive()) {
                    // What is asked for may lie on what cannot be looked into.
                    Some(blocked) => Problem {
                        what: format!(
                            "no volume is called {name}, and not everything can be looked into: {}",
                            blocked.what
                        ),
                        force: None,
                        ..blocked
                    },
                    None => Problem::new(
                        Code::NoSuchVolume,
                        format!("no volume is called {name}"),
                        if named.is_empty() {
                            "there is no volume on these members".to_owned()
                        } else {
                            format!("these members hold {}", list(&named))
                        },
                        "name one of them, or give the members of the one you mean",
                    ),
                },
            ),
            (several, _) => Err(Problem::new(
                Code::SeveralVolumes,
                format!("{} volumes to choose from", several.len()),
                format!("these members hold {}", list(several)),
                "name one with -V (a UUID tells volumes of one name apart), or give only its members",
            )),
        }
    }

    /// The volume whose files are meant. It is the one called `name`; without a name the only one
    /// there is, or among several the only one that a file system is on, or the first of those that
    /// one file system is on.
    ///
    /// # Errors
    /// As [`Stack::find`]; and what cannot be looked into might be what is meant.
    pub fn find_files(&self, name: Option<&str>) -> Result<NamedVolume, Problem> {
        let several = match self.find(name) {
            Err(problem) if name.is_none() && problem.code == Code::SeveralVolumes => problem,
            Ok(found) => {
                let seen = found.member.as_ref().map(|&member| &self.scan.members[member]);
                let locked = seen.ok().and_then(MemberScan::not_opened);
                return locked.map_or(Ok(found), Err);
            }
            Err(problem) => return Err(problem),
        };
        let (mut with_files, mut unknown) = (Vec::new(), false);
        for volume in self.volumes().into_iter().filter(|volume| volume.is_top) {
            match self.file_system(&volume) {
                Ok(Some((kind, id))) => with_files.push((volume, kind, id)),
                Ok(None) => {}
                Err(()) => unknown = true,
            }
        }
        type WithFiles = (NamedVolume, SignatureKind, Option<String>);
        let shown = |(volume, kind, _): &WithFiles| format!("{} ({})", volume.name, kind.name());
        let is_one = |one: &WithFiles, other: &WithFiles| {
            one.1 == SignatureKind::Btrfs && other.1 == one.1 && one.2.is_some() && one.2 == other.2
        };
        match &with_files[..] {
            [first, others @ ..] if !unknown && others.iter().all(|other| is_one(first, other)) => {
                Ok(first.0.clone())
            }
            [] => Err(self.locked().unwrap_or(several)),
            known => {
                let known = known.iter().map(shown).collect::<Vec<_>>().join(", ");
                Err(Problem { why: format!("{}; files are on {known}", several.why), ..several })
            }
        }
    }

    /// Which file system is on a volume, with its id, `None` if none is; an error if not all of it
    /// could be looked at.
    fn file_system(&self, volume: &NamedVolume) -> Result<Option<(SignatureKind, Option<String>)>, ()> {
        let seen = &self.scan.members[*volume.member.as_ref().map_err(|_| ())?];
        let mut found = seen.signatures.iter().filter_map(|signature| {
            let kind = signature.kind.filter(|kind| kind.is_file_system())?;
            Some((kind, signature.uuid.clone()))
        });
        match found.next() {
            None if seen.problem.is_some() || seen.not_opened().is_some() => Err(()),
            found => Ok(found),
        }
    }

    /// The members that may be further devices of the file system on a member: of a btrfs every one
    /// that has a btrfs too, whatever its id (a seed has another one), or that nothing is known of
    /// (its first superblock is perhaps gone).
    #[must_use]
    pub fn further_devices(&self, member: MemberId) -> Vec<MemberId> {
        let is_btrfs = |ix: MemberId| {
            let signatures = &self.scan.members[ix].signatures;
            signatures.iter().any(|signature| signature.kind == Some(SignatureKind::Btrfs))
        };
        if !is_btrfs(member) && !self.is_blank(member) {
            return Vec::new();
        }
        let others = self.scan.members.ids().filter(|&ix| ix != member && !self.is_below(ix));
        others.filter(|&ix| is_btrfs(ix) || self.is_blank(ix)).collect()
    }

    /// Every volume that nothing else lies on and that a file system is on, with which.
    #[must_use]
    pub fn file_systems(&self) -> Vec<(NamedVolume, SignatureKind)> {
        let top = self.volumes().into_iter().filter(|volume| volume.is_top);
        top.filter_map(|volume| self.file_system(&volume).ok()?.map(|(kind, _)| (volume, kind))).collect()
    }

    /// The logical volumes of open groups that run.
    #[must_use]
    pub fn logical_volumes(&self) -> Vec<LogicalVolume> {
        let mut found = Vec::new();
        for (id, group) in self.groups.entries() {
            if !self.wants(|wanted| wanted.groups.contains(&group.vg.id)) {
                continue;
            }
            for lv in &group.vg.lvs {
                let member = self.member_of(MemberOrigin::Logical { group: id, volume: lv.id });
                let running = self.logical.get(&(id, lv.id)).cloned();
                let (Some(volume), Some(member)) = (running, member) else { continue };
                let (is_top, is_relied_on) = (!self.is_below(member), self.is_relied_on(member));
                let (name, is_skipped) = (group.full_name(lv), is_skipped(lv));
                let id = LogicalId { group: group.vg.id, volume: lv.id };
                found.push(LogicalVolume { id, name, volume, is_top, is_relied_on, is_skipped });
            }
        }
        found
    }

    /// What has to run so that these members do.
    #[must_use]
    pub fn below(&self, members: &[MemberId]) -> Below {
        let mut below = Below::default();
        let mut todo = members.to_vec();
        while let Some(ix) = todo.pop() {
            match self.scan.members[ix].origin {
                MemberOrigin::Given => {}
                MemberOrigin::Partition { of, .. } | MemberOrigin::Container { of, .. } => todo.push(of),
                MemberOrigin::Decrypted { of } => {
                    let encryption = self.scan.members[of].encryption.as_ref();
                    below.wanted.encrypted.extend(encryption.map(|found| found.header.uuid.clone()));
                    todo.push(of);
                }
                MemberOrigin::Layered { of } => {
                    below.wanted.layered.insert(self.scan.members[of].member.name.clone());
                    todo.push(of);
                }
                MemberOrigin::Array(array) => {
                    if !below.arrays.contains(&array) {
                        below.arrays.push(array);
                        below.wanted.arrays.insert(self.scan.arrays[array].assembly.array.set_uuid);
                        todo.extend(&self.scan.arrays[array].members);
                    }
                }
                MemberOrigin::Logical { group, .. } => {
                    let group = &self.groups[group];
                    if below.wanted.groups.insert(group.vg.id) {
                        todo.extend(group.devices.iter().flatten());
                    }
                }
            }
        }
        below.arrays.sort_unstable();
        below
    }

    /// Whether what is written to one member is written to the other: that one lies below it.
    #[must_use]
    pub fn lies_on(&self, upper: MemberId, lower: MemberId) -> bool {
        self.all_below(upper).iter().any(|(_, below)| *below == lower)
    }

    /// The drive of which one of two members has a partition, and the other one what lies on it as
    /// a whole: only one of them is what is there.
    #[must_use]
    pub fn shared_with_partition(&self, one: MemberId, other: MemberId) -> Option<MemberId> {
        let is_part = |of: MemberId| matches!(self.scan.members[of].origin, MemberOrigin::Partition { .. });
        let (one, other) = (self.all_below(one), self.all_below(other));
        let shared = |(upper, drive): &(MemberId, MemberId)| {
            other.iter().any(|(of, same)| same == drive && is_part(*of) != is_part(*upper))
        };
        one.iter().find(|used| shared(used)).map(|(_, drive)| *drive)
    }

    /// Every member that lies below another one, with what lies on it right there.
    pub(super) fn all_below(&self, upper: MemberId) -> Vec<(MemberId, MemberId)> {
        let below = |ix: MemberId| -> Vec<MemberId> {
            match self.scan.members[ix].origin {
                MemberOrigin::Given => Vec::new(),
                MemberOrigin::Partition { of, .. }
                | MemberOrigin::Container { of, .. }
                | MemberOrigin::Decrypted { of }
                | MemberOrigin::Layered { of } => vec![of],
                MemberOrigin::Array(array) => self.scan.arrays[array].members.clone(),
                MemberOrigin::Logical { group, .. } => {
                    self.groups[group].devices.iter().flatten().copied().collect()
                }
            }
        };
        let (mut todo, mut found) = (vec![upper], Vec::new());
        while let Some(of) = todo.pop() {
            for ix in below(of) {
                if !found.iter().any(|(_, known)| *known == ix) {
                    todo.push(ix);
                }
                if !found.contains(&(of, ix)) {
                    found.push((of, ix));
                }
            }
        }
        found
    }

    /// What to know of a volume: of a logical one parts that are missing and what was done without,
    /// of what has checksums below it where none count, of what had a cache what it had.
    #[must_use]
    pub fn notes(&self, member: MemberId) -> Vec<String> {
        let mut notes = Vec::new();
        let below = self.below(&[member]).wanted.layered;
        for seen in self.scan.members.iter().filter(|seen| below.contains(&seen.member.name)) {
            notes.extend(seen.integrity.iter().flat_map(|device| device.notes(&seen.member.name)));
            notes.extend(seen.bcache.iter().filter_map(|device| device.note.clone()));
        }
        let MemberOrigin::Logical { group, volume } = self.scan.members[member].origin else {
            return notes;
        };
        let group = &self.groups[group];
        let state = &group.volumes[&volume];
        notes.extend(state.notes.iter().cloned());
        if state.partial {
            let (name, lacking) = (group.full_name(group.lv(volume)), group.lacking().join(", "));
            notes.push(format!(
                "{name}: what is on physical volumes that are missing cannot be read: {lacking}"
            ));
        }
        notes
    }

    /// The member that a running volume is: what it lies on is told by [`Self::below`].
    #[must_use]
    pub fn member_at(&self, volume: &VolumeRef) -> Option<MemberId> {
        let running = |ix: MemberId| match self.scan.members[ix].origin {
            MemberOrigin::Array(array) => Some(self.arrays.get(&array)?.as_ref().ok()?.volume()),
            MemberOrigin::Logical { group, volume } => self.logical.get(&(group, volume)).cloned(),
            _ => self.volumes.get(&ix).cloned(),
        };
        self.scan.members.ids().find(|&ix| running(ix).is_some_and(|running| running.is(volume)))
    }

    pub(super) fn member_of(&self, origin: MemberOrigin) -> Option<MemberId> {
        self.scan.members.find(|member| member.origin == origin)
    }

    /// Whether a member was read and nothing was recognised on it.
    #[must_use]
    pub fn is_blank(&self, ix: MemberId) -> bool {
        let member = &self.scan.members[ix];
        let read = member.problem.is_none() && member.unreadable.is_empty();
        read && member.signatures.is_empty() && member.damaged.is_empty() && !self.is_below(ix)
    }

    /// What is encrypted, checked or cached on a member and open, by its name.
    #[must_use]
    pub fn opened_on(&self, ix: MemberId) -> Option<&str> {
        let mut members = self.scan.members.iter();
        members.find(|seen| is_inside(seen, ix)).map(|seen| seen.member.name.as_str())
    }

    /// Whether something lies on a member, so that the member itself is not what is meant.
    #[must_use]
    pub fn is_below(&self, ix: MemberId) -> bool {
        let member = &self.scan.members[ix];
        member.facts.is_some()
            || member.container.is_some()
            || member.table.is_some()
            || self.opened_on(ix).is_some()
            || self.groups.iter().any(|group| group.devices.contains(&Some(ix)))
    }
}

/// Whether it is what was opened on another.
fn is_inside(seen: &MemberScan, other: MemberId) -> bool {
    matches!(seen.origin, MemberOrigin::Decrypted { of } | MemberOrigin::Layered { of } if of == other)
}

/// What lies below some volumes.
#[derive(Debug, Clone, Default)]
pub struct Below {
    /// Which of [`crate::Scan::arrays`].
    pub arrays: Vec<ArrayId>,
    /// The same, and groups, for [`super::StackOptions::wanted`].
    pub wanted: WantedLayers,
}
