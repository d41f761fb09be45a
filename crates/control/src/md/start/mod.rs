//! From claimed members to a running array: follows partial parity logs, and starts the engine.

mod recover;

use std::collections::BTreeMap;
use std::rc::Rc;

use wattle_engine::geometry::Geometry;
use wattle_engine::metadata::{ArrayRecord, Metadata, NoMetadata, RecordCause, SeatRecord};
use wattle_engine::model::sums::SumSpec;
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_engine::{ArrayHandle, ArraySpec, BadRanges, MemberKey, MemberSpec, MemberState, Regions};
use wattle_format::md::{DeviceFlags, Features, Superblock};
use wattle_rt::{Core, Device};

use crate::md::assemble::{Access, Assembly, Needs, ReAddCandidate, ReshapeAssembly, Slot, SyncState};
use crate::md::badblocks;
use crate::md::bitmap::{self, BitmapBits};
use crate::md::bookkeeping;
use crate::md::commit::{MdMetadata, SharedSuperblocks, SuperblockPlace};
use crate::md::container;
use crate::md::ppl;
use crate::md::reshape::{self, BackupFile, SideTrust};
use crate::md::sums::{self, ScrubSums};
use crate::problem::{Check, Code, Forced, Problem};
use crate::undo::{UndoDirectory, UndoSite};

/// The largest blocks that drives have.
const BLOCK_BYTES_MAX: u32 = 4096;

/// An array whose members are ours: locked, open for what is going to be done with them, and
/// unchanged since the decision.
#[derive(Debug)]
pub struct Claimed {
    assembly: Assembly,
    /// The slots, then a replacement for each.
    seats: Vec<Option<ClaimedMember>>,
    spares: Vec<ClaimedMember>,
    /// Members that may come back.
    returning: Vec<(ReAddCandidate, ClaimedMember)>,
    read_only: bool,
    /// Where the sums of recorded scrubs are.
    sums: Option<Device>,
    /// What was kept of it while it was reshaped.
    backups: Vec<BackupFile>,
    /// The journal, where it has to be replayed.
    journal: Option<ClaimedMember>,
    /// What the array does without.
    left_out: Vec<Problem>,
}

/// A member that is ours, and its superblock as it is on disk.
#[derive(Debug, Clone)]
pub struct ClaimedMember {
    /// As the operator named it.
    pub name: String,
    /// Open for writing, unless the array is only read.
    pub device: Device,
    /// As it is on disk; `None` of a member of a container, whose data begins with the device.
    pub superblock: Option<Superblock>,
    /// Its bad sectors.
    pub bad: BadRanges,
}

impl ClaimedMember {
    /// Where its data begins.
    fn data_offset(&self) -> Sector {
        self.superblock.as_ref().map_or(Sector(0), |own| Sector(own.data_offset_sectors()))
    }

    /// Its superblock, for what is written.
    ///
    /// # Errors
    /// A [`Problem`]: it has none, as a member of a container.
    pub(crate) fn written_superblock(&self) -> Result<&Superblock, Problem> {
        self.superblock.as_ref().ok_or_else(|| container::not_written(&self.name))
    }

    /// Its partial parity log.
    fn log_area(&self) -> Option<wattle_engine::state::ppl::LogArea> {
        ppl::area(self.superblock.as_ref()?, self.device.size_bytes())
    }
}

/// An array that was started, and what else belongs to it.
pub struct Started {
    /// The array.
    pub handle: ArrayHandle,
    /// What keeps its superblocks; `None` if nothing is recorded.
    pub books: Option<Rc<MdMetadata>>,
    /// Spares, by key.
    pub spares: Vec<(MemberKey, ClaimedMember)>,
    /// Members that may come back.
    pub returning: Vec<(ReAddCandidate, ClaimedMember)>,
    /// Names of the members in seats, by key.
    pub names: Vec<(MemberKey, String)>,
    /// Parity that was made right from the partial parity logs: how many pieces.
    pub replayed: Option<usize>,
}

impl Claimed {
    /// Its members and spares: their names, with their superblocks as they are on disk.
    pub fn superblocks(&self) -> impl Iterator<Item = (&str, &Superblock)> {
        let all = self.seats.iter().flatten().chain(&self.spares);
        all.filter_map(|member| Some((member.name.as_str(), member.superblock.as_ref()?)))
    }

    /// An array whose members are open and ours by other means: drives of a simulation. `seats` are
    /// the slots, then a replacement for each.
    #[must_use]
    pub fn of(
        assembly: Assembly,
        seats: Vec<Option<ClaimedMember>>,
        spares: Vec<ClaimedMember>,
        returning: Vec<(ReAddCandidate, ClaimedMember)>,
        read_only: bool,
    ) -> Self {
        let read_only = read_only || assembly.access != Access::ReadWrite;
        Self {
            assembly,
            seats,
            spares,
            returning,
            read_only,
            sums: None,
            backups: Vec::new(),
            journal: None,
            left_out: Vec::new(),
        }
    }

    /// The shape of the sums of recorded scrubs; `None` if this array can have none: without
    /// redundancy nothing tells whether something else wrote, and what is not written is not
    /// recorded either.
    #[must_use]
    pub fn sum_spec(&self) -> Option<SumSpec> {
        let geometry = self.assembly.geometry.as_ref().filter(|_| !self.read_only)?;
        SumSpec::of(geometry, sums::sum)
    }

    /// With the backup files of its reshape.
    pub(crate) fn with_backups(self, backups: Vec<BackupFile>) -> Self {
        Self { backups, ..self }
    }

    /// With the journal that its assembly says has to be replayed.
    pub(crate) fn with_journal(self, journal: Option<ClaimedMember>) -> Self {
        Self { journal, ..self }
    }

    /// Without these.
    pub(crate) fn with_left_out(self, left_out: Vec<Problem>) -> Self {
        Self { left_out, ..self }
    }

    /// Spares and members that might come back, and may only be read: the array does without them.
    #[must_use]
    pub fn left_out(&self) -> &[Problem] {
        &self.left_out
    }

    /// Keeps the sums of recorded scrubs on this device.
    #[must_use]
    pub fn with_sums(self, device: Device) -> Self {
        Self { sums: Some(device), ..self }
    }

    /// The map of what is served: the array's, and in the middle of a reshape one member, which the
    /// two sides make.
    #[must_use]
    pub fn served_geometry(&self) -> Option<Geometry> {
        match &self.assembly.reshape {
            Some(reshape) => reshape::whole(Sector(reshape.size_sectors)),
            None => match self.clipped_sectors() {
                Some(sectors) => reshape::whole(Sector(sectors)),
                None => self.assembly.geometry.clone(),
            },
        }
    }

    /// Where the array ends, if its container ends it before its members do.
    fn clipped_sectors(&self) -> Option<u64> {
        let whole = self.assembly.geometry.as_ref()?.array_sectors().0;
        self.assembly.ends_at_sectors().filter(|end| *end > 0 && *end < whole)
    }

    /// What the array is.
    #[must_use]
    pub fn assembly(&self) -> &Assembly {
        &self.assembly
    }

    /// Whether the array is written, and starts only because the operator insists on what is
    /// `forced`. Of two arrays' superblocks on a member one is taken then, and nothing of the
    /// array's own tells that; nor that members are left behind.
    #[must_use]
    pub fn is_forced(&self, forced: Forced) -> bool {
        let leaves_behind = forced.has(Check::MissingMember) && !self.assembly.counted_on().is_empty();
        let by_others = leaves_behind || forced.has(Check::NewestSuperblock);
        !self.read_only && (!self.assembly.overridden.is_empty() || by_others)
    }

    /// The members, and where on them the array writes what it keeps beside data: superblocks,
    /// bitmap, logs. For an undo log, before an array is started that was not to be. `site` says
    /// what a member is, of which its place among [`ArrayScan::members`](crate::ArrayScan::members)
    /// is given.
    #[must_use]
    pub fn bookkeeping(
        &self,
        site: impl Fn(usize, &ClaimedMember) -> UndoSite,
    ) -> (Vec<UndoSite>, Vec<UndoDirectory>) {
        let regions = self.assembly.bitmap.as_ref().map(|bitmap| bitmap.set.count());
        let slots = self.assembly.slots.iter().map(|slot| slot.member());
        let replacements = self.assembly.replacements.iter().map(|who| who.map(|who| who.member));
        let seats = slots.chain(replacements).zip(&self.seats);
        let seats = seats.filter_map(|(ix, member)| Some((ix?, member.as_ref()?)));
        let spares = self.assembly.spares.iter().copied().zip(&self.spares);
        let returning = self.returning.iter().map(|(who, member)| (who.member, member));
        let (mut sites, mut kept) = (Vec::new(), Vec::new());
        for (ix, member) in seats.chain(spares).chain(returning) {
            let Some(superblock) = &member.superblock else { continue };
            kept.extend(bookkeeping::metadata(sites.len(), &member.device, superblock, regions));
            sites.push(site(ix, member));
        }
        (sites, kept)
    }

    /// Whether nothing will be written: asked for, or all that its state allows.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Starts the array on every core of the runtime, with `core` as its home. Nothing is written
    /// before the first write, but where partial parity logs have to be followed, or something is
    /// to be rebuilt or resynced.
    ///
    /// # Errors
    /// A [`Problem`]: partial parity logs do not make up for a missing member, or the bitmap cannot
    /// be kept.
    ///
    /// # Panics
    /// Never: an array that may be read has a geometry and enough members.
    pub async fn launch(self, core: &Core) -> Result<Started, Problem> {
        self.launch_as(core, |spec, metadata, _| (spec, metadata)).await
    }

    /// As [`Self::launch`], with what the engine is started from, and what it records in, changed
    /// at the last moment.
    ///
    /// # Errors
    /// As [`Self::launch`].
    ///
    /// # Panics
    /// As [`Self::launch`].
    pub async fn launch_as(
        mut self,
        core: &Core,
        adapt: impl FnOnce(ArraySpec, Box<dyn Metadata>, Option<Rc<MdMetadata>>) -> (ArraySpec, Box<dyn Metadata>),
    ) -> Result<Started, Problem> {
        if let Some(reshape) = self.assembly.reshape.clone() {
            return self.launch_joined(core, &reshape, adapt).await;
        }
        let geometry = self.assembly.geometry.clone().expect("an array that is not refused has a geometry");
        // Without redundancy there is nothing that could be dirty, and md writes nothing either.
        let recorded = !self.read_only && geometry.redundancy() > 0;
        let mut trust = Trust::of(&self.assembly);
        let replayed = if self.assembly.replay_log { self.replay(core, &mut trust).await? } else { None };
        if let Some(journal) = self.journal.take() {
            self.replay_journal(core, &journal).await?;
        }
        if recorded {
            self.align_bitmap();
        }
        let books = if recorded { Some(self.books(core).await?) } else { None };
        let sums = self.keep_sums(core, books.as_deref()).await;
        let intent = books.as_ref().and_then(|books| books.bitmap()).map(|bitmap| bitmap.spec());
        let members = self.specs();
        let log = if recorded { self.log_spec(&members) } else { None };
        if let (Some(books), Some(_)) = (&books, &log) {
            books.keep_logs();
        }
        if let (Some(books), Some(_)) = (&books, replayed) {
            record_replayed(books, &members, &trust).await?;
        }
        let mut seats = members;
        let replacements = seats.split_off(geometry.raid_disks());
        let spec = ArraySpec {
            replacements,
            synced_below: trust.below,
            needs: trust.needs,
            unclean: self.assembly.state != SyncState::Clean,
            block_bytes_min: self.stated_block_bytes(),
            read_only: self.read_only,
            intent,
            log,
            sums,
            ..ArraySpec::new(self.assembly.name(), geometry, seats)
        };
        let (spec, below) = match self.clipped_sectors() {
            Some(sectors) => container::clip(core, spec, sectors).await?,
            None => (spec, Vec::new()),
        };
        let metadata: Box<dyn Metadata> = match &books {
            Some(books) => Box::new(SharedSuperblocks(books.clone())),
            None => Box::new(NoMetadata),
        };
        let (spec, metadata) = adapt(spec, metadata, books.clone());
        let handle = ArrayHandle::start(core, spec, metadata).await;
        let handle = if below.is_empty() { handle } else { handle.over(below) };
        let first = 2 * self.assembly.slots.len() as u32;
        let clipped = self.clipped_sectors().map(|_| (MemberKey(0), "the volume's drives".to_owned()));
        let names = (0..).zip(&self.seats).filter(|_| clipped.is_none());
        let names = names.filter_map(|(seat, who)| Some((MemberKey(seat), who.as_ref()?.name.clone())));
        Ok(Started {
            handle,
            books,
            names: names.chain(clipped.clone()).collect(),
            spares: (first..).map(MemberKey).zip(self.spares).collect(),
            returning: self.returning,
            replayed,
        })
    }

    /// Has every superblock name a bitmap where the array has one: a crash as it was put on, or
    /// taken off, may have left members that do not know it yet, or still do.
    fn align_bitmap(&mut self) {
        let has = self.assembly.array.has(Features::BITMAP);
        let all = || self.seats.iter().flatten().chain(&self.spares);
        let known = all().filter_map(|member| member.superblock.as_ref());
        let newest = known.filter(|superblock| superblock.bitmap_offset_sectors().is_some() == has);
        let Some(newest) = newest.max_by_key(|superblock| superblock.events()) else { return };
        let offset = newest.bitmap_offset_sectors();
        let all = self.seats.iter_mut().flatten().chain(&mut self.spares);
        for superblock in all.filter_map(|member| member.superblock.as_mut()) {
            if superblock.bitmap_offset_sectors().is_some() != has {
                // One that cannot name it has no copy of it, which is said where it is opened.
                let _ = superblock.set_bitmap_offset(offset);
            }
        }
    }

    /// What keeps the superblocks, and the bitmap if there is one.
    async fn books(&self, core: &Core) -> Result<Rc<MdMetadata>, Problem> {
        let split = |member: &ClaimedMember| {
            Some((SuperblockPlace { device: member.device.clone() }, member.superblock.clone()?))
        };
        let seats = self.seats.iter().map(|member| member.as_ref().and_then(split)).collect();
        let spares = self.spares.iter().filter_map(split).collect();
        let books = MdMetadata::new(core, &self.assembly, seats, spares);
        for (seat, member) in (0..).map(MemberIx).zip(&self.seats) {
            if let Some(member) = member {
                books.know_bad(seat, member.bad.clone());
            }
        }
        if let Some(kept) = &self.assembly.bitmap {
            let bits = BitmapBits {
                regions: kept.set.clone(),
                events_cleared: kept.events_cleared,
                stale: kept.distrust.is_some(),
            };
            let members = (0..).zip(&self.seats).filter_map(|(seat, member)| {
                let member = member.as_ref()?;
                let slot = self.assembly.slots.get(seat as usize);
                let in_sync = matches!(slot, Some(Slot::InSync { .. }));
                Some((
                    MemberKey(seat),
                    bitmap::BitmapPlace::of(&member.device, member.superblock.as_ref()?),
                    in_sync,
                ))
            });
            let uuid = self.stored_uuid();
            let copies = bitmap::BitmapCopies::open(core, members.collect(), &uuid, &bits)
                .await
                .map_err(|error| bitmap_problem(self.assembly.name(), error))?;
            books.keep_bitmap(copies);
        }
        Ok(Rc::new(books))
    }

    /// Opens what recorded scrubs remember. What the superblocks say now is what the members were
    /// found with: replaying logs comes later.
    async fn keep_sums(&self, core: &Core, books: Option<&MdMetadata>) -> Option<SumSpec> {
        let (device, books, spec) = (self.sums.clone()?, books?, self.sum_spec()?);
        let found = books.signatures();
        let store = ScrubSums::open(core, device, self.stored_uuid(), spec.clone(), &found).await?;
        books.keep_sums(store);
        Some(spec)
    }

    /// The logical block size that superblocks state: what was written over such blocks is found
    /// again in no smaller ones, whatever drives the members are on now. Larger ones than drives
    /// have are not told.
    fn stated_block_bytes(&self) -> u32 {
        let stated =
            self.seats.iter().flatten().filter_map(|member| member.superblock.as_ref()?.logical_block_size());
        stated.filter(|bytes| bytes.is_power_of_two()).max().unwrap_or(512).clamp(512, BLOCK_BYTES_MAX)
    }

    fn stored_uuid(&self) -> [u8; 16] {
        let any = self.seats.iter().flatten().next();
        any.and_then(|member| Some(member.superblock.as_ref()?.stored_uuid())).unwrap_or_default()
    }

    /// By seat.
    fn specs(&self) -> Vec<MemberSpec> {
        let slots = self.assembly.slots.iter().map(|slot| match *slot {
            Slot::Missing => (MemberState::Missing, false),
            Slot::InSync { .. } => (MemberState::InSync, false),
            Slot::Rebuilding { valid_below_sectors, by_bitmap, .. } => {
                (MemberState::Rebuilding { valid_below: Sector(valid_below_sectors) }, by_bitmap)
            }
        });
        let replacements = self.assembly.replacements.iter().map(|who| match who {
            None => (MemberState::Missing, false),
            Some(who) => (MemberState::Rebuilding { valid_below: Sector(who.valid_below_sectors) }, false),
        });
        let stale = |by_bitmap: bool| by_bitmap.then(|| self.assembly.stale_regions().cloned()).flatten();
        (0..)
            .zip(slots.chain(replacements).zip(&self.seats))
            .map(|(seat, ((state, by_bitmap), member))| {
                let Some(member) = member else { return MemberSpec::missing() };
                MemberSpec { state, stale: stale(by_bitmap), ..spec_of(MemberKey(seat), member) }
            })
            .collect()
    }

    fn log_spec(&self, members: &[MemberSpec]) -> Option<wattle_engine::state::ppl::LogSpec> {
        let geometry = self.assembly.geometry.as_ref()?;
        let used = members.iter().filter(|member| member.state.writable());
        // A log that only some have says nothing.
        let areas: Option<Vec<_>> = used.map(|member| member.log).collect();
        ppl::log_spec(self.assembly.array.features, self.stored_uuid(), geometry, areas?)
    }
}

/// What the engine is started from, and what it records in.
type Adapted = (ArraySpec, Box<dyn Metadata>);

impl Claimed {
    /// Starts an array in the middle of a reshape: both sides, and one volume over them.
    async fn launch_joined(
        self,
        core: &Core,
        reshape: &ReshapeAssembly,
        adapt: impl FnOnce(ArraySpec, Box<dyn Metadata>, Option<Rc<MdMetadata>>) -> Adapted,
    ) -> Result<Started, Problem> {
        let slots = self.assembly.slots.iter().zip(&self.seats);
        let members: BTreeMap<_, _> =
            slots.filter_map(|(slot, seat)| Some((slot.member()?, seat.as_ref()?))).collect();
        let trust = Trust::of(&self.assembly);
        let parity = SideTrust { below: trust.below, unclean: self.assembly.state != SyncState::Clean };
        let joined =
            reshape::join(core, self.assembly.name(), reshape, &members, &parity, &self.backups).await?;
        let spec = ArraySpec { read_only: true, block_bytes_min: self.stated_block_bytes(), ..joined.spec };
        let (spec, metadata) = adapt(spec, Box::new(NoMetadata), None);
        let handle = ArrayHandle::start(core, spec, metadata).await.over(joined.below);
        let (books, replayed) = (None, None);
        let names = vec![(MemberKey(0), "old and new geometry".to_owned())];
        Ok(Started { handle, books, names, spares: Vec::new(), returning: Vec::new(), replayed })
    }
}

/// Where parity and copies agree.
struct Trust {
    below: Sector,
    needs: Option<Regions>,
}

impl Trust {
    fn of(assembly: &Assembly) -> Self {
        let below = Sector(assembly.synced_below_sectors);
        match &assembly.needs {
            Needs::Nothing => Self { below: Sector::MAX, needs: None },
            Needs::Everything | Needs::Above { .. } => Self { below, needs: None },
            Needs::Regions(regions) => Self { below, needs: Some(regions.clone()) },
        }
    }
}

/// A claimed member as the engine takes it, whole.
pub(crate) fn spec_of(key: MemberKey, member: &ClaimedMember) -> MemberSpec {
    let superblock = member.superblock.as_ref();
    MemberSpec {
        key: Some(key),
        log: member.log_area(),
        bad: member.bad.clone(),
        bad_entries_max: superblock.map_or(0, |own| badblocks::entries_max(own, &member.device)),
        write_mostly: superblock.is_some_and(|own| own.device_flags().contains(DeviceFlags::WRITE_MOSTLY)),
        ..MemberSpec::in_sync(member.device.clone(), member.data_offset())
    }
}

/// Records that parity is right, before anything else is written: from here on the logs may be
/// emptied.
async fn record_replayed(books: &MdMetadata, members: &[MemberSpec], trust: &Trust) -> Result<(), Problem> {
    let seats = members.iter().map(|member| SeatRecord {
        key: member.key,
        state: member.state,
        by_regions: member.stale.is_some(),
        bad: std::sync::Arc::new(member.bad.clone()),
    });
    let record = ArrayRecord {
        change: RecordCause::Checkpoint,
        dirty: true,
        synced_below: trust.below,
        failed: MemberSet::EMPTY,
        seats: seats.collect(),
    };
    let not_written = |failed: MemberSet| {
        Problem::new(
            Code::MetadataNotWritten,
            format!("the superblocks of {} could not be written", list(&failed)),
            "parity was made right from the partial parity logs, and that has to be recorded before anything is written",
            "see what is wrong with that member (`wattle examine`), or start the array without it",
        )
    };
    // First what is not known to be a copy any more, while the array is dirty: were some
    // superblocks written and a replacement's not, a clean array would believe what that still says
    // of itself.
    if members.iter().any(|member| matches!(member.state, MemberState::Rebuilding { .. })) {
        books.commit(&record).await.map_err(not_written)?;
    }
    books.commit(&ArrayRecord { dirty: false, ..record }).await.map_err(not_written)
}

fn list(seats: &MemberSet) -> String {
    let slots: Vec<_> = seats.iter().map(|MemberIx(slot)| format!("slot {slot}")).collect();
    slots.join(", ")
}

fn bitmap_problem(array: &str, error: bitmap::BitmapUnusable) -> Problem {
    Problem::new(
        Code::ForeignBitmap,
        format!("{array}: {error}"),
        "an array that is written without its bitmap would later be resynced in the wrong places",
        "serve it with --read-only, or let the kernel make a new bitmap (`mdadm --grow --bitmap=internal`)",
    )
}
