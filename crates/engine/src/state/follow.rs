//! What the state tells the layers above: the state does not import them, they register with it.

use std::rc::Rc;
use std::time::Duration;

use wattle_rt::Core;

use crate::model::fixed::Fixed;
use crate::state::metadata::LocalBoxFuture;

/// A part of an array on one core that follows changes of its state. Called only on such changes,
/// never on the way of a request.
pub(crate) trait Follow {
    /// A member's state changed: what is in memory of the members may not be what they hold.
    fn members_changed(&self) {}

    /// Every gate is closed, and one request has the array to itself until [`Self::end_exclusive`].
    fn begin_exclusive(&self) {}

    /// No request has the array to itself any more; the gates are about to open.
    fn end_exclusive(&self) {}

    /// The array is about to stop: nothing may begin by itself any more. Returns when nothing that
    /// began by itself is under way, or after `given_up`.
    fn halt(self: Rc<Self>, _given_up: Duration) -> LocalBoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// The array is stopped and nothing is under way: the part leaves the core's registry.
    fn leave(&self, core: &Core, fixed: &Fixed);
}

/// The jobs of an array, as its home knows them.
pub(crate) trait JobSignals {
    /// The members changed: there may be something to do, or nothing any more.
    fn wake(&self);

    /// Ends what runs, records how far it came, and lets nothing begin any more.
    fn halt(&self) -> LocalBoxFuture<'_, ()>;
}
