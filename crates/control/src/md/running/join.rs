//! How a device comes into an array that runs.

use wattle_engine::ArrayStatus;
use wattle_engine::error::JoinError;
use wattle_engine::units::{MemberIx, SECTOR_BYTES, Sector};
use wattle_engine::{BadRanges, MemberKey, MemberSpec, MemberState};
use wattle_format::md::badblocks::BadBlocks;
use wattle_format::md::{DeviceFlags, Features, Superblock, Uuid};
use wattle_rt::{BufMut, Device, Durability, Either, IoError, race};

use super::look::shown;
use super::spares::Returning;
use super::{Known, MemberTaken, Newcomer, RunningArray, Terms};
use crate::events::{ArrayEvent, EventPlace, Filling};
use crate::md::admit::{self, Admission, ArrayNow, OfferedDevice, Seat, WantedSeat, admit};
use crate::md::assemble::MemberRecovery;
use crate::md::badblocks::{self, in_data};
use crate::md::bitmap;
use crate::md::bookkeeping;
use crate::md::commit::{self, MdMetadata};
use crate::md::create::PlannedWrite;
use crate::md::facts::{BitmapContent, SuperblockFacts};
use crate::md::lineage::SeatedMember;
use crate::md::ppl;
use crate::problem::{Code, Forced, Problem, shell_word};
use crate::signature::FoundSignature;
use crate::undo::{self, UndoDirectory, UndoSite};

impl RunningArray {
    /// A device by its name: one that may come back, or one that is opened. That may take a while,
    /// so no order waits for it.
    pub(super) async fn open(
        &self,
        name: &str,
        typed: Option<&str>,
        device_uuid: Uuid,
    ) -> Result<Newcomer, Problem> {
        // Those that may come back are open already. One across a network may have ended since, and
        // is opened anew.
        let found = self.find_returning(name, typed).await;
        let is_named = |away: &&Returning| found.as_ref() == Some(&away.member.name);
        let returning = self.returning.borrow().iter().find(is_named).map(|away| away.member.clone());
        if let Some(member) = returning
            && !self.has_ended(&member.device).await
        {
            let superblock = member.written_superblock()?;
            return Newcomer::known(&self.core, &member.name, &member.device, superblock).await;
        }
        self.is_new(name).await?;
        // Another may hold it, and stopping the array does not wait for that.
        let opened =
            race(self.stopping.wait(), Newcomer::open(&self.core, &self.access, name, device_uuid)).await;
        match opened {
            Either::Second(newcomer) => newcomer,
            Either::First(()) => Err(self.join_problem(name, JoinError::Stopped)),
        }
    }

    /// Takes in what was opened, unless that became the array's meanwhile.
    pub(super) async fn join_opened(
        &self,
        newcomer: Newcomer,
        place: WantedSeat,
        terms: Terms<'_>,
    ) -> Result<MemberTaken, Problem> {
        let name = newcomer.offer.name.clone();
        if self.is_stopping() {
            return Err(self.join_problem(&name, JoinError::Stopped));
        }
        self.is_new(&name).await?;
        let device = newcomer.device.clone();
        let seat = self.in_time(&device, self.join(newcomer, None, place, terms)).await?;
        let returned = self.same_place(&name, self.returning_names()).await;
        self.returning.borrow_mut().retain(|away| Some(&away.member.name) != returned.as_ref());
        Ok(MemberTaken { name, seat })
    }

    /// Whether a name is none of a device of the array.
    async fn is_new(&self, name: &str) -> Result<(), Problem> {
        let names = {
            let (devices, away) = (self.devices.borrow(), self.away.borrow());
            let here = devices.iter().filter(|(key, _)| !away.contains_key(key));
            here.map(|(_, known)| known.name.clone()).collect()
        };
        if self.same_place(name, names).await.is_some() {
            let next = format!(
                "name another device; one that failed has to be removed first: `wattle remove {} {}`",
                shell_word(&self.name),
                shell_word(name)
            );
            return Err(self.problem(
                Code::GivenTwice,
                format!("{name} belongs to the array already"),
                "a member counted twice is redundancy that is not there",
                next,
            ));
        }
        Ok(())
    }

    /// Takes in a device that is open; `spare` says which one it is of the array, if it is.
    pub(super) async fn join(
        &self,
        newcomer: Newcomer,
        spare: Option<MemberKey>,
        place: WantedSeat,
        terms: Terms<'_>,
    ) -> Result<Seat, Problem> {
        let books = self.books()?;
        let Newcomer { mut offer, device, device_uuid } = newcomer;
        offer.bitmap = self.bitmap_on(&device, &offer).await;
        // A spare that is offered again is one device still: known twice, it would be written as
        // two.
        let spare = spare.or_else(|| self.spare_on(&device));
        let mut saved = None;
        let admission = loop {
            let mut admission = self.decide(&offer, place, device_uuid, terms.forced).await?;
            if terms.only_missed && admission.recovery != MemberRecovery::Regions {
                return Err(self.misses_all(&offer.name));
            }
            if terms.write_mostly {
                admission.superblock.set_device_flags(write_mostly_set(&admission.superblock, true));
            }
            let Some(recorder) = terms.undo else { break admission };
            let overwritten = self.overwritten(&device, &admission);
            if saved.as_ref() == Some(&overwritten) {
                break admission;
            }
            let (writes, kept) = &overwritten;
            recorder.record(&self.core, &[UndoSite::named(&offer.name, &device)], writes, kept).await?;
            // That took a while, and members may be gone: what is decided is decided after it.
            saved = Some(overwritten);
        };
        let written = self.write(&device, &admission).await;
        written.map_err(|error| self.not_taken(&offer.name, &error.to_string()))?;
        let bad = self.bad_blocks(&device, &admission).await;
        let bad = bad.map_err(|error| self.not_taken(&offer.name, &error.to_string()))?;

        let Admission { seat, recovery, superblock, .. } = admission;
        let is_spare = seat == Seat::Spare;
        let before = spare.and_then(|key| Some((key, books.state().superblock(key)?.clone())));
        let key = match spare {
            Some(key) => {
                books.prepare(key, superblock.clone(), is_spare).await;
                key
            }
            None => books
                .admit(commit::SuperblockPlace { device: device.clone() }, superblock.clone(), is_spare)
                .await
                .map_err(|error| self.not_taken(&offer.name, &error.to_string()))?,
        };
        let joined = match seat {
            Seat::Spare => {
                let written = books.write_spare(key).await;
                written.map_err(|error| self.not_taken(&offer.name, &error.to_string()))
            }
            Seat::Slot(slot) => {
                let who = member_spec(key, &device, &superblock, bad, recovery, books);
                let joined = self.handle.add(&self.core, MemberIx(slot), who).await;
                joined.map_err(|error| self.join_problem(&offer.name, error))
            }
            Seat::Replacement(slot) => {
                let who = member_spec(key, &device, &superblock, bad, recovery, books);
                let joined = self.handle.replace(&self.core, MemberIx(slot), who).await;
                joined.map_err(|error| self.join_problem(&offer.name, error))
            }
        };
        if let Err(problem) = joined {
            match before {
                Some((key, superblock)) => books.prepare(key, superblock, true).await,
                None => books.forget(key).await,
            }
            return Err(problem);
        }
        self.forget_gone().await;
        self.set_paths_of(&device).await;
        let known = Known { name: offer.name.clone(), spare: is_spare, refused: None };
        self.devices.borrow_mut().insert(key, known);
        self.ordered_out.borrow_mut().remove(&key);
        // A spare may be the first device across a network.
        self.spares_back.1.notify_all();
        let member = self.event_member(Some(key), &offer.name);
        if terms.comes_back {
            self.tell(ArrayEvent::RemoteBack { member: member.clone() });
        }
        let filling = match recovery {
            MemberRecovery::Full => Filling::Full,
            MemberRecovery::Regions => Filling::Missed,
        };
        self.tell(match seat {
            Seat::Spare => ArrayEvent::Spare { member },
            Seat::Slot(slot) => ArrayEvent::Joined { member, place: EventPlace::Slot(slot), filling },
            Seat::Replacement(slot) => {
                ArrayEvent::Joined { member, place: EventPlace::Replacement(slot), filling: Filling::Full }
            }
        });
        Ok(seat)
    }

    /// What a device that was of the array might show of its content.
    async fn shown(&self, books: &MdMetadata, offer: &OfferedDevice) -> Vec<FoundSignature> {
        let state = books.state();
        let own = state.devices().next().and_then(|(_, superblock)| offer.own(superblock));
        match (own, books.geometry()) {
            (Some(own), Some(geometry)) => {
                shown(&self.core, &self.handle.volume(), geometry, offer, own).await
            }
            _ => Vec::new(),
        }
    }

    /// What the bitmap of a device that was of the array says.
    async fn bitmap_on(&self, device: &Device, offer: &OfferedDevice) -> Option<BitmapContent> {
        let books = self.books.as_ref()?;
        let bits = books.bitmap()?.bits().regions.count();
        let own = books.state().devices().find_map(|(_, superblock)| offer.own(superblock).cloned())?;
        bitmap::content_on(&self.core, device, &own, bits).await
    }

    /// The spare on a device, if it is one.
    fn spare_on(&self, device: &Device) -> Option<MemberKey> {
        let books = self.books.as_ref()?;
        let same = |key: &MemberKey| books.device(*key).is_some_and(|known| known.same(device));
        self.devices.borrow().iter().find(|(key, known)| known.spare && same(key)).map(|(key, _)| *key)
    }

    /// Forgets devices that were in a seat and are in none any more.
    async fn forget_gone(&self) {
        let Some(books) = &self.books else { return };
        let state = books.state();
        let seated = |key: &MemberKey| state.seats().iter().any(|seat| seat.key == Some(*key));
        let gone = |(key, known): &(&MemberKey, &Known)| !known.spare && !seated(key);
        let gone: Vec<MemberKey> = self.devices.borrow().iter().filter(gone).map(|(key, _)| *key).collect();
        for key in gone {
            books.forget(key).await;
            self.devices.borrow_mut().remove(&key);
        }
    }

    /// Whether a device may join as the array is now, and how.
    async fn decide(
        &self,
        offer: &OfferedDevice,
        place: WantedSeat,
        device_uuid: Uuid,
        forced: Forced,
    ) -> Result<Admission, Problem> {
        // That reads the array, which may find that members are gone: what is decided here is
        // decided after that.
        let shown = self.shown(self.books()?, offer).await;
        let status = self.handle.status(&self.core).await;
        let running = ArrayNow { shown, ..self.view(&status)? };
        if status.broken {
            // Nothing is written on it either: what a member that failed last holds may be all
            // there is.
            return Err(self.join_problem(&offer.name, JoinError::Broken));
        }
        admit(offer, &running, place, device_uuid, forced)
    }

    /// What is written on a device before the array has it, and where the array will write what
    /// belongs to it, or may write over what tells what it was.
    fn overwritten(
        &self,
        device: &Device,
        admission: &Admission,
    ) -> (Vec<undo::CoveredWrite>, Vec<UndoDirectory>) {
        let write = |write: &PlannedWrite| undo::CoveredWrite {
            site: 0,
            step: 0,
            offset_bytes: write.offset_bytes,
            bytes: write.bytes.clone(),
        };
        let bitmap = self.books.as_ref().and_then(|books| books.bitmap());
        let regions = bitmap.map(|bitmap| bitmap.bits().regions.count());
        let metadata = bookkeeping::metadata(0, device, &admission.superblock, regions);
        (admission.writes.iter().map(write).collect(), undo::ends(0, device).chain(metadata).collect())
    }

    /// What has to be on a device before its superblock says that it is a member.
    async fn write(&self, device: &Device, admission: &Admission) -> Result<(), IoError> {
        for write in &admission.writes {
            let bytes = BufMut::copy_of(&write.bytes).freeze();
            self.core.write(device, write.offset_bytes, bytes, Durability::Cached).await?;
        }
        self.core.flush(device).await
    }

    /// The bad sectors of a device that keeps its log.
    async fn bad_blocks(&self, device: &Device, admission: &Admission) -> Result<BadRanges, IoError> {
        let superblock = &admission.superblock;
        let area =
            superblock.bad_block_log().filter(|_| superblock.features().contains(Features::BAD_BLOCKS));
        let Some(area) = area else { return Ok(BadRanges::NONE) };
        let at = superblock.sector_from_superblock(area.offset_sectors).ok_or(IoError::END_OF_DEVICE)?;
        let buf = BufMut::zeroed(usize::from(area.size_sectors) * SECTOR_BYTES as usize);
        let (read, bytes) = self.core.read(device, at * SECTOR_BYTES, buf).await;
        read?;
        // A log that makes no sense may mean any sector.
        let listed = BadBlocks::decode(&bytes, area.shift).map_err(|_| IoError::MEDIUM)?;
        let start = superblock.data_offset_sectors();
        Ok(in_data(&listed, &(start..start.saturating_add(superblock.data_size_sectors()))))
    }

    /// The array as the admission of newcomers sees it.
    fn view(&self, status: &ArrayStatus) -> Result<ArrayNow, Problem> {
        let books = self.books()?;
        let state = books.state();
        let slots = status.members.len();
        let state_in =
            |seat: usize| status.members.iter().chain(&status.replacements).nth(seat).map(|who| who.state);
        let template = (0..slots)
            .filter(|slot| state_in(*slot) == Some(MemberState::InSync))
            .find_map(|slot| state.superblock(state.seats().get(slot)?.key?));
        let Some(template) = template else {
            return Err(self.problem(
                Code::VolumeFailed,
                format!("{}: no member is whole", self.name),
                "nothing could fill a new member",
                "`wattle status` shows the members' states",
            ));
        };
        let working = |key: &MemberKey| {
            (0..)
                .zip(state.seats())
                .any(|(seat, who)| who.key == Some(*key) && state_in(seat).is_some_and(MemberState::writable))
        };
        let known = self.devices.borrow();
        let devices =
            known.iter().filter(|(key, known)| known.spare || working(key)).filter_map(|(key, known)| {
                let superblock = state.superblock(*key)?;
                Some(admit::RunningDevice {
                    name: known.name.clone(),
                    dev_number: superblock.dev_number(),
                    device_uuid: superblock.device_uuid(),
                    spare: known.spare,
                })
            });
        let slots_where = |matches: &dyn Fn(usize) -> bool| {
            (0..slots as u16).filter(|slot| matches(usize::from(*slot))).collect()
        };
        let in_sync = (0..slots as u16).filter_map(|slot| {
            let at = usize::from(slot);
            let who = state.seats().get(at).filter(|_| state_in(at) == Some(MemberState::InSync))?;
            let superblock = state.superblock(who.key?)?;
            Some(SeatedMember::new(&SuperblockFacts::of(superblock), slot))
        });
        Ok(ArrayNow {
            template: template.clone(),
            devices: devices.collect(),
            in_sync: in_sync.collect(),
            in_sync_at_start: state.in_sync_at_start().to_vec(),
            left_with: state.left_with().cloned().collect(),
            empty: slots_where(&|slot| !state_in(slot).is_some_and(MemberState::writable)),
            replacing: slots_where(&|slot| state_in(slots + slot).is_some_and(MemberState::writable)),
            bitmap: books.bitmap().map(|bitmap| bitmap.bits()),
            logical_block_bytes: self.block_bytes,
            shown: Vec::new(),
        })
    }
}

/// A newcomer as the engine takes it: nothing of it is current, or nothing but what the bitmap has
/// bits for is not.
fn member_spec(
    key: MemberKey,
    device: &Device,
    superblock: &Superblock,
    bad: BadRanges,
    recovery: MemberRecovery,
    books: &MdMetadata,
) -> MemberSpec {
    let stale =
        books.bitmap().filter(|_| recovery == MemberRecovery::Regions).map(|bitmap| bitmap.bits().regions);
    MemberSpec {
        key: Some(key),
        log: ppl::area(superblock, device.size_bytes()),
        stale,
        bad,
        bad_entries_max: badblocks::entries_max(superblock, device),
        write_mostly: superblock.device_flags().contains(DeviceFlags::WRITE_MOSTLY),
        ..MemberSpec::blank(device.clone(), Sector(superblock.data_offset_sectors()))
    }
}

/// The flags of a device with this one set or cleared.
pub(super) fn write_mostly_set(superblock: &Superblock, on: bool) -> DeviceFlags {
    let DeviceFlags(flags) = superblock.device_flags();
    let DeviceFlags(flag) = DeviceFlags::WRITE_MOSTLY;
    DeviceFlags(if on { flags | flag } else { flags & !flag })
}
