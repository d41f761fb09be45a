//! Every bound of the ublk export, in one place, with its arithmetic.
//!
//! Memory: every tag of a queue has a buffer for the longest request, of which memory is used as
//! far as requests have filled it: [`DEPTH`] × [`REQUEST_BYTES_MAX`] are 64 MiB for a core and
//! device at most.

use std::time::Duration;

/// Requests of one queue that may be under way.
pub(super) const DEPTH: u16 = 128;

/// The longest read or write; the kernel cuts longer ones, and sends the parts side by side.
pub(super) const REQUEST_BYTES_MAX: u32 = 512 << 10;

/// The longest range that is discarded or zeroed by one request, in sectors: 2 GiB.
pub(super) const RANGE_SECTORS_MAX: u32 = 4 << 20;

/// The same where the kernel kills a server that has not answered a request within 30 s, in
/// sectors: 64 MiB, which is 2.2 MB/s.
pub(super) const HURRIED_RANGE_SECTORS_MAX: u32 = 128 << 10;

/// How long the end of a server waits for a device that is in use to be gone.
pub(super) const LAST_LOOK: Duration = Duration::from_secs(1);

/// Queues that the kernel may be told of.
pub(super) const QUEUES_MAX: usize = 64;

/// How long a device whose server has ended may take until it can be taken over, and its node
/// until udev has made it ready.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether it can.
pub(super) const LOOK: Duration = Duration::from_millis(50);
