//! Write intent: which regions may have writes that are not on every member yet.
//!
//! md's write-intent bitmap has a bit for each region (docs/formats.md §2). After a crash only
//! regions whose bit is set need a resync, and a member that was away only misses regions whose bit
//! is set.
//!
//! **Invariant.** Whenever a sector of a region may differ between members, or from its parity (a
//! write is in flight, or was acknowledged and is not durable on some member yet), the region's bit
//! is durable on every member in use.
//!
//! A write enters the regions it touches on its core ([`enter`]) and leaves them when it has ended
//! on the members. Each core keeps a word for each region ([`IntentShard`]): where the home has
//! granted the region, entering is a check and a count. Otherwise the core asks the home, which
//! sets the bits of everything that was asked for while the last write of the bitmap was under way
//! with one write ([`IntentHome`]). At every sweep (md's `daemon_sleep`) the home takes back what
//! cores have not used for two sweeps. A bit is cleared when no core holds its region, nothing
//! there needs a resync, and every member was flushed; never while a member is missing or not
//! whole: the bits that are set are then just what a member that returns lacks. Clearing need not
//! be durable: a bit too many costs a little resync.
//!
//! A bitmap may come and go while the array runs ([`Home::change_intent`]). A new one has all bits
//! set: what is in flight as it comes is covered, and sweeps clear what need not be. Nothing is in
//! flight when cores begin or end to keep it, so that no write is in a region of another one.
//!
//! Grants and releases happen at home in the array's turn, like every change of state; a core that
//! is asked to release a region answers in that turn, so a grant and a release never cross.

mod grants;
mod home;
mod shard;

use std::ops::Range;
use std::rc::Rc;

use crate::model::error::VolumeError;
use crate::model::geometry::{Geometry, LevelKind};
pub use crate::model::intent::IntentSpec;
use crate::model::units::Sector;
use crate::planted::{self, Bug};
use crate::state::sums;
use crate::state::{Home, StateShard};
pub(crate) use home::{Asking, IntentHome};
pub(crate) use shard::{IntentGuard, IntentShard};

/// Enters the regions of a range for a write, in the space of [`Geometry::sync_sectors`]: returns
/// when their bits are durable on every member, and they are noted for recorded scrubs. `None` if
/// the array has no bitmap. The guard is
/// dropped when the write has ended on the members, and when the failure of those where it went
/// wrong is recorded.
///
/// # Errors
/// The bits could not be set: the array is broken or stopped.
pub(crate) async fn enter(
    shard: &Rc<StateShard>,
    range: Range<Sector>,
) -> Result<Option<IntentGuard>, VolumeError> {
    if !planted::is(Bug::SumsUnnoted) {
        sums::enter(shard, range.clone()).await?;
    }
    enter_regions(shard, range).await
}

/// As [`enter`], for a write that sums of a recorded scrub have proved: it is not noted for them.
///
/// # Errors
/// As of [`enter`].
pub(crate) async fn enter_regions(
    shard: &Rc<StateShard>,
    range: Range<Sector>,
) -> Result<Option<IntentGuard>, VolumeError> {
    let Some(intent) = shard.intent() else { return Ok(None) };
    let regions = intent.regions_of(range);
    loop {
        if let Some(guard) = intent.enter(regions.clone()) {
            return Ok(Some(guard));
        }
        let wanted = intent.ask(regions.clone());
        if wanted.is_empty() {
            // Another write of this core asks for what is missing.
            intent.answered().await;
            continue;
        }
        // A task of its own: a grant is noted even if the write that asked for it has gone.
        let (asker, asking, core) = (shard.clone(), intent.clone(), shard.core.index());
        let asked = shard.core.spawn(async move {
            let (generation, for_home) = (asking.generation, wanted.clone());
            let marked = move |home: Rc<Home>| async move { home.mark(core, generation, for_home).await };
            let result = asker.home(marked).await;
            asking.answer(&wanted, result.is_ok());
            result
        });
        asked.await?;
    }
}

/// The range of the space of [`Geometry::sync_sectors`] that a range of array sectors lies in.
pub(crate) fn sync_range(geometry: &Geometry, range: Range<Sector>) -> Range<Sector> {
    match geometry.kind() {
        LevelKind::Parity => {
            let (width, chunk) = (geometry.stripe_data_sectors().0, geometry.chunk().0);
            Sector(range.start.0 / width * chunk)..Sector(range.end.0.div_ceil(width) * chunk)
        }
        LevelKind::Mirrored | LevelKind::Striped => range,
    }
}
