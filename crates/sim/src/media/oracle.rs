//! What each sector of the volume holds, and which of them redundancy covers.
//!
//! A sector's data is *lost where it is* if its member failed, if it is listed as bad and was not
//! written since, or if the drive cannot read it. What is not lost there is what was written last.
//! What is lost comes from redundancy: it must be had if redundancy covers what is lost beside it,
//! and it must be right if no copy and no parity that may be used for it is silently wrong.

use std::collections::BTreeSet;

use wattle_engine::VolumeError;
use wattle_engine::geometry::{BlockRole, Geometry, LevelKind};
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_rt::DriveControl;

/// What a sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// This version; 0 is zeros.
    Version(u32),
    /// Zeros, or this version: it was discarded.
    ZerosOr(u32),
    /// Anything.
    Any,
}

/// Writes are made of whole pages: what is lost beside a write in its page may keep it from being
/// done.
const PAGE: u64 = 8;

pub(super) struct Oracle {
    geometry: Geometry,
    controls: Vec<DriveControl>,
    unit: u64,
    expected: Vec<Expected>,
    /// Sectors of members that are listed as bad.
    listed: BTreeSet<(u16, u64)>,
    /// Sectors of members that are silently wrong: parity, and copies other than the first.
    wrong_at: BTreeSet<(u16, u64)>,
    failed: MemberSet,
    /// Sectors that could not be read when the present request began.
    unreadable: BTreeSet<(u16, u64)>,
    versions: u32,
    pub wrong: Option<String>,
    pub requests: u64,
    pub errors: u64,
    pub log: Option<Vec<String>>,
}

/// The contents of sectors in a version.
pub(super) fn contents(version: u32, first: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; (len * 512) as usize];
    if version > 0 {
        for (sector, bytes) in (first..).zip(bytes.chunks_exact_mut(512)) {
            let mut word = (sector << 32 | u64::from(version)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for bytes in bytes.chunks_exact_mut(8) {
                word = word.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1) ^ word >> 29;
                bytes.copy_from_slice(&word.to_le_bytes());
            }
        }
    }
    bytes
}

impl Oracle {
    pub fn new(
        geometry: Geometry,
        controls: Vec<DriveControl>,
        sector_bytes: u32,
        listed: &[(MemberIx, u64, u64)],
        verbose: bool,
    ) -> Oracle {
        let listed =
            listed.iter().flat_map(|&(member, at, len)| (at..at + len).map(move |at| (member.0, at)));
        Oracle {
            expected: vec![Expected::Version(0); geometry.array_sectors().0 as usize],
            geometry,
            controls,
            unit: u64::from(sector_bytes) / 512,
            listed: listed.collect(),
            wrong_at: BTreeSet::new(),
            failed: MemberSet::EMPTY,
            unreadable: BTreeSet::new(),
            versions: 0,
            wrong: None,
            requests: 0,
            errors: 0,
            log: verbose.then(Vec::new),
        }
    }

    pub fn accuse(&mut self, what: impl Into<String>) {
        if self.wrong.is_none() {
            self.wrong = Some(what.into());
        }
    }

    pub fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(what());
        }
    }

    pub fn next_version(&mut self) -> u32 {
        self.versions += 1;
        self.versions
    }

    pub fn fail(&mut self, member: MemberIx) {
        self.failed.insert(member);
    }

    /// Looks at what cannot be read now.
    pub fn look(&mut self) {
        self.unreadable.clear();
        let sectors = self.geometry.member_sectors(MemberIx(0)).0;
        for (member, control) in (0..).zip(&self.controls) {
            for at in (0..sectors / self.unit).filter(|at| control.is_unreadable(*at)) {
                self.unreadable.extend((at * self.unit..(at + 1) * self.unit).map(|sector| (member, sector)));
            }
        }
    }

    /// Where a sector is, and where all that may make up for it is: copies, or its row.
    fn places(&self, lba: u64) -> (Vec<(u16, u64)>, usize) {
        match self.geometry.kind() {
            LevelKind::Mirrored => {
                let copies = self.geometry.copies(Sector(lba));
                (copies.iter().map(|copy| (copy.member.0, copy.sector.0)).collect(), usize::MAX)
            }
            _ => {
                let own = self.geometry.data_place(Sector(lba));
                let others = (0..self.controls.len() as u16).filter(|member| *member != own.member.0);
                let own = (own.member.0, own.sector.0);
                (
                    std::iter::once(own).chain(others.map(|member| (member, own.1))).collect(),
                    self.geometry.redundancy(),
                )
            }
        }
    }

    fn lost(&self, place: (u16, u64)) -> bool {
        self.failed.contains(MemberIx(place.0))
            || self.listed.contains(&place)
            || self.unreadable.contains(&place)
    }

    /// Whether a sector must be readable.
    fn covered(&self, lba: u64) -> bool {
        let (places, redundancy) = self.places(lba);
        let lost = places.iter().filter(|place| self.lost(**place)).count();
        !self.lost(places[0]) || (lost <= redundancy && lost < places.len())
    }

    /// Whether what is read of a sector is known: it is there, or comes from what is right.
    fn certain(&self, lba: u64) -> bool {
        let (places, _) = self.places(lba);
        !self.lost(places[0]) || !places.iter().any(|place| self.wrong_at.contains(place))
    }

    /// Whether a sector of a member may be made silently wrong: it is no data that is read where it
    /// is, and nothing is to be made of it now.
    pub fn may_spoil(&mut self, member: MemberIx, sector: u64) -> bool {
        self.look();
        let data = match self.geometry.kind() {
            LevelKind::Mirrored => {
                let lba = self.geometry.array_sector_at(member, Sector(sector));
                lba.is_none_or(|lba| self.places(lba.0).0[0].0 == member.0)
            }
            _ => matches!(self.role(member, sector), BlockRole::Data { .. }),
        };
        !data && self.is_sound(member, sector)
    }

    fn role(&self, member: MemberIx, sector: u64) -> BlockRole {
        let chunk = self.geometry.chunk().0;
        self.geometry.role_in_stripe(wattle_engine::units::StripeNo(sector / chunk), member)
    }

    /// Whether nothing is lost or wrong in the blocks that belong together with one of a member.
    fn is_sound(&self, member: MemberIx, sector: u64) -> bool {
        let block = |sector: u64| sector / self.unit * self.unit..(sector / self.unit + 1) * self.unit;
        let sound = |place: (u16, u64)| !self.lost(place) && !self.wrong_at.contains(&place);
        match self.geometry.kind() {
            LevelKind::Mirrored => block(sector)
                .filter_map(|sector| self.geometry.array_sector_at(member, Sector(sector)))
                .flat_map(|lba| block(lba.0))
                .filter(|lba| *lba < self.expected.len() as u64)
                .all(|lba| self.places(lba).0.into_iter().all(sound)),
            _ => block(sector)
                .filter(|sector| *sector < self.geometry.member_sectors(member).0)
                .all(|sector| (0..self.controls.len() as u16).all(|member| sound((member, sector)))),
        }
    }

    pub fn spoilt(&mut self, member: MemberIx, sector: u64) {
        self.wrong_at.insert((member.0, sector));
    }

    /// Whether sectors of a member may become unreadable: redundancy has them, and right.
    pub fn may_become_unreadable(&mut self, member: MemberIx, first: u64, len: u64) -> bool {
        self.look();
        (first..first + len).all(|sector| self.is_sound(member, sector))
    }

    /// A request that changes sectors ended.
    pub fn changed(
        &mut self,
        what: &str,
        first: u64,
        len: u64,
        now: Expected,
        result: Result<(), VolumeError>,
    ) {
        self.requests += 1;
        self.look();
        if let Err(error) = result {
            self.errors += 1;
            let size = self.expected.len() as u64;
            let pages = first / PAGE * PAGE..(first + len).next_multiple_of(PAGE).min(size);
            let beyond = |lba: u64| {
                let (places, redundancy) = self.places(lba);
                places.iter().filter(|place| self.lost(**place)).count() > redundancy.min(places.len() - 1)
            };
            if !pages.clone().any(beyond) {
                self.accuse(format!(
                    "{what} of {first}+{len}: {error}, though redundancy covers what is lost"
                ));
            }
            (first..first + len).for_each(|lba| self.expected[lba as usize] = Expected::Any);
            return;
        }
        for lba in first..first + len {
            let before = self.expected[lba as usize];
            self.expected[lba as usize] = match (now, before) {
                (Expected::ZerosOr(_), Expected::Version(version) | Expected::ZerosOr(version)) => {
                    Expected::ZerosOr(version)
                }
                (Expected::ZerosOr(_), Expected::Any) => Expected::Any,
                (now, _) => now,
            };
            if matches!(now, Expected::ZerosOr(_)) {
                continue;
            }
            let (places, _) = self.places(lba);
            match self.geometry.kind() {
                LevelKind::Mirrored => {
                    for place in places {
                        self.listed.remove(&place);
                        self.wrong_at.remove(&place);
                    }
                }
                _ => {
                    self.listed.remove(&places[0]);
                    self.wrong_at.remove(&places[0]);
                }
            }
        }
    }

    /// A read ended.
    pub fn read(&mut self, first: u64, len: u64, result: Result<(), VolumeError>, bytes: &[u8]) {
        self.requests += 1;
        if let Err(error) = result {
            self.errors += 1;
            if (first..first + len).all(|lba| self.covered(lba)) {
                self.accuse(format!("read of {first}+{len}: {error}, though redundancy covers what is lost"));
            }
            return;
        }
        for (lba, bytes) in (first..first + len).zip(bytes.chunks_exact(512)) {
            let is = |version| contents(version, lba, 1) == bytes;
            let known = match self.expected[lba as usize] {
                // What redundancy made of it is what it is from now on.
                _ if !self.certain(lba) => Expected::Any,
                Expected::ZerosOr(version) if is(0) => {
                    if version == 0 || !is(version) {
                        Expected::Version(0)
                    } else {
                        Expected::Version(version)
                    }
                }
                Expected::ZerosOr(version) => Expected::Version(version),
                known => known,
            };
            self.expected[lba as usize] = known;
            if let Expected::Version(version) = known
                && !is(version)
            {
                let (places, _) = self.places(lba);
                let found = (0..=self.versions).find(|version| is(*version));
                self.accuse(format!(
                    "sector {lba} (member {}, sector {}) is read as {found:?} and was v{version}, \
                     and is not lost where it is: {}",
                    places[0].0,
                    places[0].1,
                    !self.lost(places[0]),
                ));
                return;
            }
        }
    }
}
