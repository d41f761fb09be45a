//! What a connection receives: one large buffer, parsed in place, many requests per system call.
//!
//! Invariant: bytes leave in the order they came, each exactly once; a payload is handed out
//! complete or not at all.

use wattle_rt::{BufMut, Core, IoError, Stream};

use super::limits::{COPY_BYTES_MAX, STREAM_BUFFER_BYTES};

/// Why nothing more comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The client closed its side, perhaps in the middle of a message.
    Closed,
    /// The connection broke.
    Broken(IoError),
}

/// The receiving side of a connection.
pub(super) struct Input {
    core: Core,
    stream: Stream,
    /// Empty only while the system fills it.
    buf: BufMut,
    start: usize,
    end: usize,
}

impl Input {
    pub(super) fn new(core: Core, stream: Stream) -> Self {
        Self { core, stream, buf: BufMut::alloc(STREAM_BUFFER_BYTES), start: 0, end: 0 }
    }

    /// What was received and not yet consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// Drops the first `count` bytes.
    pub(super) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start, "only received bytes are consumed");
        self.start += count;
    }

    /// Waits until at least one more byte was received.
    ///
    /// # Cancellation
    /// A dropped future loses bytes: the connection is then good for nothing but closing.
    pub(super) async fn fill(&mut self) -> Result<(), Ended> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buf.len() - self.end < COPY_BYTES_MAX {
            // An unfinished message is at most as long as a copied payload and its request, so this
            // moves a quarter of the buffer at most, and frees three quarters.
            self.buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let tail = self.buf.split_off(self.end);
        let (received, tail) = self.core.recv(&self.stream, tail).await;
        self.buf.unsplit(tail);
        self.end += received_some(received)?;
        Ok(())
    }

    /// Waits for all of a payload of `length` bytes and returns it in a buffer of its own.
    ///
    /// # Cancellation
    /// As [`Input::fill`].
    pub(super) async fn payload(&mut self, length: usize) -> Result<BufMut, Ended> {
        if length <= COPY_BYTES_MAX {
            while self.end - self.start < length {
                self.fill().await?;
            }
            let payload = BufMut::copy_of(&self.bytes()[..length]);
            self.consume(length);
            return Ok(payload);
        }
        let mut payload = BufMut::alloc(length);
        let mut done = length.min(self.end - self.start);
        payload[..done].copy_from_slice(&self.bytes()[..done]);
        self.consume(done);
        while done < length {
            let tail = payload.split_off(done);
            let (received, tail) = self.core.recv(&self.stream, tail).await;
            payload.unsplit(tail);
            done += received_some(received)?;
        }
        Ok(payload)
    }

    /// Waits for a payload of `length` bytes and drops it.
    ///
    /// # Cancellation
    /// As [`Input::fill`].
    pub(super) async fn skip(&mut self, length: usize) -> Result<(), Ended> {
        let mut left = length;
        loop {
            let skipped = left.min(self.end - self.start);
            self.consume(skipped);
            left -= skipped;
            if left == 0 {
                return Ok(());
            }
            self.fill().await?;
        }
    }
}

fn received_some(received: Result<usize, IoError>) -> Result<usize, Ended> {
    match received {
        Ok(0) => Err(Ended::Closed),
        Ok(count) => Ok(count),
        Err(error) => Err(Ended::Broken(error)),
    }
}
