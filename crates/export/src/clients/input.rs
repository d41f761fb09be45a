//! What a connection receives: one large buffer, parsed in place, many requests per system call.
//!
//! Invariant: bytes leave in the order they came, each exactly once; a payload is handed out
//! complete or not at all.

use std::rc::Rc;

use wattle_rt::{BufMut, Core, IoError};
use wattle_tls::TlsFault;

use super::channel::Channel;
use super::gather::Gathering;
use super::limits::{COPY_BYTES_MAX, STREAM_BUFFER_BYTES};
use super::memory::{Account, ClientWait};

/// Why nothing more comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The client closed its side, perhaps in the middle of a message.
    Closed,
    /// The connection broke.
    Broken(IoError),
    /// What came is not to be trusted.
    Tls(TlsFault),
}

/// The receiving side of a connection.
pub(crate) struct Input {
    core: Core,
    channel: Channel,
    /// Empty only while the system fills it.
    buf: BufMut,
    start: usize,
    end: usize,
    gathering: Gathering,
    /// Hears of what comes, while it waits for the rest of a payload.
    account: Option<Rc<Account>>,
}

impl Input {
    pub(crate) fn new(core: Core, channel: Channel) -> Self {
        let (buf, gathering) = (BufMut::alloc(STREAM_BUFFER_BYTES), Gathering::new(core.turn_time()));
        Self { core, channel, buf, start: 0, end: 0, gathering, account: None }
    }

    /// The same for a client with an account.
    pub(crate) fn of_client(core: Core, channel: Channel, account: Rc<Account>) -> Self {
        Self { account: Some(account), ..Self::new(core, channel) }
    }

    /// From now on bytes come through another channel. None may be left of the one before.
    pub(crate) fn switch(&mut self, channel: Channel) {
        debug_assert!(self.bytes().is_empty(), "what came in clear is not taken for what comes through TLS");
        self.channel = channel;
    }

    /// Some bytes to the front of `buf`, at least one.
    async fn receive(&self, buf: BufMut) -> (Result<usize, Ended>, BufMut) {
        let (received, buf) = match &self.channel {
            Channel::Plain(stream) => {
                let (received, buf) = self.core.recv(stream, buf).await;
                (received_some(received), buf)
            }
            Channel::Tls(line) => line.recv(buf).await,
        };
        if let Some(account) = &self.account {
            account.wait_goes_on(ClientWait::Payload, self.core.turn_time());
        }
        (received, buf)
    }

    /// What was received and not yet consumed.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// Drops the first `count` bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start, "only received bytes are consumed");
        self.start += count;
    }

    /// A request is taken. Where many of them come they are received together.
    pub(crate) fn took_request(&mut self) {
        self.gathering.took(1);
    }

    /// Waits until at least one more byte was received.
    ///
    /// # Cancellation
    /// A dropped future loses bytes: the connection is then good for nothing but closing.
    pub(crate) async fn fill(&mut self) -> Result<(), Ended> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if let Some(pause) = self.gathering.pause(self.core.turn_time()) {
                self.core.sleep(pause).await;
            }
        } else if self.buf.len() - self.end < COPY_BYTES_MAX {
            // An unfinished message is at most as long as a copied payload and its request, so this
            // moves a quarter of the buffer at most, and frees three quarters.
            self.buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let tail = self.buf.split_off(self.end);
        let (received, tail) = self.receive(tail).await;
        self.buf.unsplit(tail);
        self.end += received?;
        Ok(())
    }

    /// Waits for all of a payload of `length` bytes and returns it in a buffer of its own.
    ///
    /// # Cancellation
    /// As [`Input::fill`].
    pub(crate) async fn payload(&mut self, length: usize) -> Result<BufMut, Ended> {
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
            let (received, tail) = self.receive(tail).await;
            payload.unsplit(tail);
            done += received?;
        }
        Ok(payload)
    }

    /// Waits for a payload of `length` bytes and drops it.
    ///
    /// # Cancellation
    /// As [`Input::fill`].
    pub(crate) async fn skip(&mut self, length: usize) -> Result<(), Ended> {
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
