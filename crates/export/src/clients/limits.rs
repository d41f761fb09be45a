//! What clients of a server over a network cost at most, in one place, with its arithmetic.
//!
//! Memory: a connection holds one stream buffer ([`STREAM_BUFFER_BYTES`]), a reserve of its own
//! ([`Limits::reserve_bytes`]) and, beyond that, what it borrows from its core's share of
//! [`Limits::shared_bytes_max`]. At the defaults: 256 connections x (256 KiB + 1 MiB) + 1 GiB = 1.3
//! GiB at most, whatever clients do. TLS adds [`TLS_RECEIVE_BYTES`] and what rustls keeps of an
//! unfinished message (64 KiB at most) to each connection, and [`TLS_SEND_BYTES`] while it sends.

use std::time::Duration;

/// The longest read or write: what the protocol lets a client assume that negotiated nothing. A
/// power of two, as buffers are.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// What a connection receives into. Large enough for 60 writes of 4 KiB in one system call.
pub const STREAM_BUFFER_BYTES: usize = 256 << 10;

/// Sealed bytes of a connection with TLS are received into a buffer of this size: eight records.
pub const TLS_RECEIVE_BYTES: usize = 128 << 10;

/// So many bytes are sealed before they are sent.
pub const TLS_SEND_BYTES: usize = 128 << 10;

/// Payloads up to this length pass through the stream buffer and are copied out of it, many per
/// system call; longer ones are received in place. A quarter of the stream buffer, so that a
/// payload that fits is never far from complete.
pub const COPY_BYTES_MAX: usize = STREAM_BUFFER_BYTES / 4;

/// Slices of one send; the kernel takes 1024 (`IOV_MAX`), and each reply is at most two.
pub const SLICES_PER_SEND_MAX: usize = 1024;

/// What one server grants its clients, all of them together and each alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time. A further one takes the place of the one that has been idle for
    /// longest; if none is idle, it is closed as soon as it is accepted.
    pub connections_max: u32,
    /// A connection that has had no request under way for so long may have to make way for a new
    /// one. Those that never asked for anything go first.
    pub idle_time_min: Duration,
    /// From accepting a connection to the end of its handshake; then it is closed.
    pub handshake_time_max: Duration,
    /// Requests of one connection that were read and not yet answered; the rest stays in the
    /// socket.
    pub requests_max: u32,
    /// Bytes of data of these requests, at least [`REQUEST_BYTES_MAX`].
    pub connection_bytes_max: u64,
    /// The part of it that a connection never waits for.
    pub reserve_bytes: u64,
    /// What all connections together hold beyond their reserves. Each core has an equal share, at
    /// least [`REQUEST_BYTES_MAX`].
    pub shared_bytes_max: u64,
    /// When a connection has waited this long for shared memory, the one that holds some and whose
    /// client has left its socket waiting for longest, at least this long, is closed. No client is
    /// closed while there is memory for all.
    pub stall_time_max: Duration,
    /// After a server was told to stop, clients have this long to take their last replies; NVMe
    /// hosts also after whatever else ended their connection.
    pub drain_time_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 256,
            idle_time_min: Duration::from_millis(250),
            handshake_time_max: Duration::from_secs(10),
            requests_max: 1024,
            connection_bytes_max: 64 << 20,
            reserve_bytes: 1 << 20,
            shared_bytes_max: 1 << 30,
            stall_time_max: Duration::from_secs(10),
            drain_time_max: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// One core's share of the shared memory.
    #[must_use]
    pub fn shared_bytes_per_core(&self, cores: usize) -> u64 {
        (self.shared_bytes_max / cores.max(1) as u64).max(u64::from(REQUEST_BYTES_MAX))
    }

    /// What one connection may hold: enough for the longest request, whatever was asked for.
    #[must_use]
    pub fn connection_bytes(&self) -> u64 {
        self.connection_bytes_max.max(u64::from(REQUEST_BYTES_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_request_fits_whatever_was_asked_for() {
        let tight = Limits { connection_bytes_max: 0, shared_bytes_max: 0, ..Limits::default() };
        assert!(tight.connection_bytes() >= u64::from(REQUEST_BYTES_MAX));
        assert!(tight.shared_bytes_per_core(64) >= u64::from(REQUEST_BYTES_MAX));
    }
}
