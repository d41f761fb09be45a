//! A write-intent bitmap that is put on an array that runs, or taken off.
//!
//! The order of writes, and what a crash leaves after each:
//!
//! 1. A new bitmap is written on every member, with all bits set: first to see whether there is
//!    room, then durably. No superblock names it.
//! 2. The engine holds the array alone, and superblocks name it in the next generation. Members
//!    that were not reached are one event behind and do not know it; the others have all bits, and
//!    nothing was in flight ([`ArrayHandle::set_intent`](wattle_engine::ArrayHandle::set_intent)).
//! 3. From then on bits are cleared and set as always.
//!
//! Taken off, it is named no more in the next generation; what is left of it is not looked at.

use std::rc::Rc;

use wattle_engine::geometry::Geometry;
use wattle_engine::intent::IntentSpec;
use wattle_engine::{MemberKey, VolumeError};
use wattle_format::md::bitmap::{self as format, Header, NewBitmap};
use wattle_format::md::{Features, Superblock, defaults};
use wattle_rt::Device;

use super::RunningArray;
use crate::md::bitmap::{BitmapCopies, BitmapLayout, BitmapPlace};
use crate::md::commit::MdMetadata;
use crate::problem::{Code, Problem, shell_word};
use crate::size::Iec;

/// The bitmap that an array is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitmapChoice {
    /// One beside each superblock, of chunks of this size in bytes or of mdadm's choice.
    Internal {
        /// What a bit stands for.
        chunk_bytes: Option<u64>,
        /// Seconds between sweeps that clear bits; md's 5 if it is not said.
        sweep_secs: Option<u32>,
    },
    /// None: a crash costs a resync of all of it.
    Off,
}

impl RunningArray {
    /// Puts a bitmap on the array, or takes it off. What the array has already stays as it is.
    ///
    /// # Errors
    /// A [`Problem`]; the array is as it was, or could not be recorded and is broken.
    pub async fn set_bitmap(&self, choice: BitmapChoice) -> Result<(), Problem> {
        let _turn = self.turn.acquire(1).await;
        if self.is_stopping() {
            // Its members are no longer ours to write.
            return Err(self.not_turned(VolumeError::Stopped));
        }
        let books = self.books()?;
        let has = books.bitmap();
        match choice {
            BitmapChoice::Off if has.is_none() => Ok(()),
            BitmapChoice::Off => self.take_bitmap_off(books).await,
            BitmapChoice::Internal { chunk_bytes, sweep_secs } => match has.map(|bitmap| bitmap.spec()) {
                None => {
                    let sweep_secs = sweep_secs.unwrap_or(defaults::DAEMON_SLEEP_SECS);
                    self.put_bitmap_on(books, chunk_bytes, sweep_secs).await
                }
                Some(spec) => {
                    let (chunk, sweep) = (spec.marked.size().0 * 512, spec.sweep.as_secs());
                    let other_chunk = chunk_bytes.is_some_and(|asked| asked != chunk);
                    let other_sweep = sweep_secs.is_some_and(|asked| u64::from(asked) != sweep);
                    if other_chunk || other_sweep { Err(self.has_other_bitmap(chunk, sweep)) } else { Ok(()) }
                }
            },
        }
    }

    async fn put_bitmap_on(
        &self,
        books: &MdMetadata,
        chunk_bytes: Option<u64>,
        sweep_secs: u32,
    ) -> Result<(), Problem> {
        let geometry = books.geometry().ok_or_else(|| self.no_bitmap("its layout is not known"))?;
        let state = books.state();
        let members: Vec<(MemberKey, Device, Superblock)> = state
            .seats()
            .iter()
            .filter(|who| who.state.writable())
            .filter_map(|who| {
                let key = who.key?;
                Some((key, books.device(key)?, state.superblock(key)?.clone()))
            })
            .collect();
        if members.iter().any(|(_, _, superblock)| logs_parity(superblock)) {
            return Err(self.no_bitmap("it has a partial parity log, which md has in the bitmap's place"));
        }
        let layout = self.lay_out(geometry, &members, chunk_bytes)?;
        let header = header(&members, geometry, layout, sweep_secs)
            .ok_or_else(|| self.no_bitmap("it fits no member"))?;
        let placed = members.iter().map(|(key, device, superblock)| {
            let mut trial = superblock.clone();
            trial.set_bitmap_offset(Some(layout.offset_sectors)).ok()?;
            Some((*key, BitmapPlace::of(device, &trial)?))
        });
        let placed: Option<Vec<_>> = placed.collect();
        let placed = placed.ok_or_else(|| self.no_room(None))?;
        let copies = BitmapCopies::begin(&self.core, placed, header, state.events());
        let copies = Rc::new(copies.map_err(|_| self.no_room(None))?);
        let spec = copies.spec();
        // From here on an order to fail a member also ends what waits for it here.
        books.ready_bitmap(Some((copies.clone(), layout.offset_sectors)));
        let turned = self.turn_bitmap_on(books, &copies, spec).await;
        books.ready_bitmap(None);
        turned
    }

    async fn turn_bitmap_on(
        &self,
        books: &MdMetadata,
        copies: &BitmapCopies,
        spec: IntentSpec,
    ) -> Result<(), Problem> {
        // A member that does not take it is found out before anything depends on that.
        copies.reserve(&books.seated()).await.map_err(|seats| {
            let names = seats.iter().filter_map(|seat| self.names().get(seat.index())?.clone());
            self.problem(
                Code::BitmapNotChanged,
                format!(
                    "no bitmap was put on {}: {} did not take it",
                    self.name,
                    names.collect::<Vec<_>>().join(", ")
                ),
                "every member has a copy, and a write waits for all of them",
                "see what is wrong with that member (of a file: whether its file system has room), and repeat the order",
            )
        })?;
        self.handle.set_intent(&self.core, Some(spec)).await.map_err(|error| self.not_turned(error))
    }

    async fn take_bitmap_off(&self, books: &MdMetadata) -> Result<(), Problem> {
        let state = books.state();
        if state.seats().iter().any(|who| who.by_regions && who.state.writable()) {
            return Err(self.problem(
                Code::BitmapNotChanged,
                format!("the bitmap was not taken off {}: a member is brought up to date by it", self.name),
                "without its bits all of that member would have to be written",
                format!("wait until it is in sync: `wattle status {}`", shell_word(&self.name)),
            ));
        }
        self.handle.set_intent(&self.core, None).await.map_err(|error| self.not_turned(error))
    }

    fn lay_out(
        &self,
        geometry: &Geometry,
        members: &[(MemberKey, Device, Superblock)],
        chunk_bytes: Option<u64>,
    ) -> Result<BitmapLayout, Problem> {
        let free = members.iter().map(|(_, device, superblock)| BitmapPlace::free(device, superblock));
        let free: Option<Vec<_>> = free.collect();
        let free = free.filter(|free| !free.is_empty()).ok_or_else(|| self.no_room(None))?;
        let covered = geometry.sync_sectors().0;
        BitmapLayout::new(&free, covered, chunk_bytes).map_err(|smallest| self.no_room(smallest))
    }

    fn no_bitmap(&self, why: &str) -> Problem {
        self.problem(
            Code::BitmapNotChanged,
            format!("no bitmap was put on {}: {why}", self.name),
            "the array is as it was",
            format!("`wattle examine` of a member of {} shows what it has", shell_word(&self.name)),
        )
    }

    /// `smallest` is the smallest chunk, in bytes, for which there is room.
    fn no_room(&self, smallest: Option<u64>) -> Problem {
        let (why, next) = match smallest {
            Some(least) => (
                format!("its chunk is a power of two of at least {} here", Iec(least)),
                format!(
                    "leave the choice to wattle: `wattle set {} bitmap=internal`",
                    shell_word(&self.name)
                ),
            ),
            None => (
                "between the superblock and the data, or what else is there, a member has not 4 KiB"
                    .to_owned(),
                "replace that member by one that has room, or do without".to_owned(),
            ),
        };
        let what = format!("no bitmap was put on {}: there is no room for such a one", self.name);
        self.problem(Code::BitmapNotChanged, what, why, next)
    }

    fn has_other_bitmap(&self, chunk_bytes: u64, sweep_secs: u64) -> Problem {
        let chunk = Iec(chunk_bytes);
        self.problem(
            Code::BitmapNotChanged,
            format!("{} has a bitmap already: {chunk} a bit, swept every {sweep_secs} s", self.name),
            "bits of another size mean something else",
            format!("take it off first: `wattle set {} bitmap=none`", shell_word(&self.name)),
        )
    }

    fn not_turned(&self, error: VolumeError) -> Problem {
        self.problem(
            Code::MetadataNotWritten,
            format!("the bitmap of {} was not changed: {error}", self.name),
            "it counts only once the superblocks say so",
            format!("look at the members: `wattle status {}`", shell_word(&self.name)),
        )
    }
}

/// Whether a member has a partial parity log.
fn logs_parity(superblock: &Superblock) -> bool {
    superblock.features().intersects(Features(Features::PPL.0 | Features::MULTIPLE_PPLS.0))
}

fn header(
    members: &[(MemberKey, Device, Superblock)],
    geometry: &Geometry,
    layout: BitmapLayout,
    daemon_sleep_secs: u32,
) -> Option<Header> {
    let new = NewBitmap {
        uuid: members.first()?.2.stored_uuid(),
        sync_size_sectors: geometry.sync_sectors().0,
        chunk_bytes: layout.chunk_bytes,
        daemon_sleep_secs,
        write_behind: 0,
    };
    Header::decode(&format::new_image(&new, layout.room_bytes).ok()?).ok()
}
