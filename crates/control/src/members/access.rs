//! How this process opens members: as they are, or under overlays; and across a network, where
//! something does that.
//!
//! Invariant: an access with overlays gives no member that is ever opened for writing.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use wattle_rt::{Device, OpenError, OpenOptions};

use super::{
    Identity, Member, MemberAddress, MemberError, Whole, identity_of, named_partition, not_empty, open,
    open_error, partitions_of,
};
use crate::overlay::{OverlayFiles, Overlays};
use crate::problem::Problem;

/// Opens a drive across a network by its URI. The same drive is the same device each time, as long
/// as it is there.
pub type OpenRemote = dyn Fn(&str) -> Result<Device, Problem> + Send + Sync;

/// The way to members. It is made once, when a command begins, and handed down.
#[derive(Clone)]
pub struct MemberAccess {
    remotes: Option<Arc<OpenRemote>>,
    overlays: Option<Arc<Overlays>>,
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
        Self { remotes: None, overlays: None }
    }

    /// The same, and drives across a network as `open` opens them: nothing here speaks such a
    /// protocol.
    #[must_use]
    pub fn with_remotes(self, open: Arc<OpenRemote>) -> Self {
        Self { remotes: Some(open), ..self }
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
        let known = parts.map(|part| &part.whole).find(|known| known.member.is_at(Path::new(whole))).cloned();
        let shared = match known {
            Some(known) => known,
            None => Whole::new(self.look_whole(whole)?),
        };
        let table = partitions_of(&shared.member);
        let found = table.iter().flat_map(|table| &table.partitions).find(|part| part.number == number);
        let Some(found) = found.filter(|part| part.is_usable()) else {
            return Err(MemberError::NoPartition { name: name.to_owned(), whole: whole.to_owned() });
        };
        Member::part(&shared, name.to_owned(), found.start_sectors, found.len_sectors)
    }

    fn look_whole(&self, name: &str) -> Result<Member, MemberError> {
        let address: MemberAddress = name.parse()?;
        let (below, identity) = match &address {
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
                let opened = open(name);
                let device = opened.map_err(|problem| MemberError::Remote { problem: Box::new(problem) })?;
                (device, Identity::Remote)
            }
            MemberAddress::Path(path) => {
                let device = open(name, path, OpenOptions::default())?;
                let metadata = std::fs::metadata(path).map_err(|_| open_error(name, OpenError::NotFound))?;
                (device, identity_of(&metadata))
            }
        };
        let overlays = self.overlays.clone().filter(|_| address.is_lasting());
        let device = match &overlays {
            Some(overlays) => overlays
                .look(name, &below, address.modified())
                .map_err(|source| MemberError::overlaid(name, &source))?,
            None => below.clone(),
        };
        Ok(Member { name: name.to_owned(), address, device, below, identity, part: None, overlays })
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
        for name in names {
            let member = match self.look_beside(name.as_ref(), &members) {
                Ok(member) => member,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            if let Some(first) = members.iter().find(|other| member.shares_with(other)) {
                return Err(MemberError::GivenTwice { name: member.name, first: first.name.clone() });
            }
            members.push(member);
        }
        Ok((members, errors))
    }
}
