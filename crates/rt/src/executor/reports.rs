//! Flushes and forced writes in flight, which may take a drive's report of a loss
//! (`device/losses.rs`).

use std::task::{Context, Poll};

use crate::base::error::{IoError, IoErrorKind};
use crate::device::Device;
use crate::executor::wake::Wake;
use crate::op::{Durability, Op, Transfer};
use crate::planted::{self, Bug};

/// One operation that may take such a report.
pub(super) struct Reporting {
    /// The drive that does it.
    drive: Device,
    /// Its number, until it has ended.
    number: Option<u64>,
    /// The device that was asked to flush, and where its cursor stood.
    asked: Option<(Device, u64)>,
    /// The flush ended well; all that began before this number are waited for.
    answered_after: Option<u64>,
    /// What waits for that, to be told if it is not to wait any more.
    pub wake: Option<Wake>,
}

impl Reporting {
    /// For flushes and forced writes that a drive does.
    pub fn of(op: &Op) -> Option<Box<Reporting>> {
        let drive = match op {
            Op::Flush { device: Some(drive) } => drive,
            Op::Write(Transfer { device: Some(drive), .. }, Durability::Fua) => drive,
            _ => return None,
        };
        let number = Some(drive.losses().begin(matches!(op, Op::Flush { .. })));
        let drive = drive.clone();
        Some(Box::new(Reporting { drive, number, asked: None, answered_after: None, wake: None }))
    }

    /// The flush is for the user of this device.
    pub fn asked_through(&mut self, device: &Device) {
        self.asked = Some((device.clone(), device.losses().position(device.cursor())));
    }

    /// The operation ended, and how it failed.
    pub fn end(&mut self, failure: Option<IoError>) {
        let is_flush = self.asked.is_some();
        self.ended(failure.is_some_and(|error| is_flush || self.may_be_lost(error)));
        if is_flush && failure.is_none() {
            self.answered_after = Some(self.drive.losses().next());
        }
    }

    fn ended(&mut self, lost: bool) {
        if let Some(number) = self.number.take() {
            self.drive.losses().end(number, lost);
        }
    }

    /// Whether the error of a forced write may be about more than what it was to write. A lack of
    /// space is its own, unless the page cache had promised that space before.
    fn may_be_lost(&self, error: IoError) -> bool {
        if planted::is(Bug::ForcedLossUncounted) {
            return false;
        }
        match error.kind() {
            IoErrorKind::NoSpace => self.drive.is_page_cached(),
            IoErrorKind::ReadOnly | IoErrorKind::Unsupported | IoErrorKind::EndOfDevice => false,
            _ => true,
        }
    }

    /// Whether it is under way, or waits for what others report.
    pub fn is_waiting(&self) -> bool {
        let waits = |after| !self.drive.losses().have_ended(after, self.drive.loses_write_backs());
        self.number.is_some() || self.answered_after.is_some_and(waits)
    }

    /// Turns what the drive answered into what the user of the asked device is told.
    pub fn poll(&mut self, result: &mut Result<usize, IoError>, context: &Context<'_>) -> Poll<()> {
        let Some((device, position)) = &self.asked else { return Poll::Ready(()) };
        let losses = device.losses();
        if let Some(after) = self.answered_after
            && losses.poll_ended(after, self.drive.loses_write_backs(), context).is_pending()
        {
            return Poll::Pending;
        }
        if losses.since(device.cursor(), *position) && result.is_ok() {
            *result = Err(IoError::MEDIUM);
        }
        Poll::Ready(())
    }
}

impl Drop for Reporting {
    /// The runtime ended before the operation.
    fn drop(&mut self) {
        self.ended(false);
    }
}
