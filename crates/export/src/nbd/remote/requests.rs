//! Requests to the drive: sent until they are answered, writes only where they can undo nothing,
//! and what was acknowledged kept until a flush covers it.

use std::cell::RefCell;
use std::rc::Rc;

use wattle_rt::{Buf, BufMut, Durability, Either, Instant, IoError, Unmap, race};

use super::identity::Identity;
use super::log::{Connection, Kept, LOG_BYTES_MAX, What, Write};
use super::pending::Pending;
use super::{Link, State, pieces, within};
use crate::nbd::client::{Client, ClientError};
use crate::nbd::limits::REQUEST_BYTES_MAX;
use crate::nbd::protocol::{command_flags, transmission_flags};

/// The longest range that one request makes zeros.
const ZEROES_BYTES_MAX: u64 = 1 << 30;

/// A write that was begun. Where its task ends before it is acknowledged, nothing is known of its
/// bytes.
struct Begun<'a> {
    identity: &'a RefCell<Identity>,
    write: Write,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.identity.borrow_mut().failed(&self.write);
    }
}

impl Link {
    /// The connection, as soon as there is one.
    async fn up(&self) -> Result<Rc<Client>, IoError> {
        loop {
            match &*self.state.borrow() {
                State::Up(client) => return Ok(client.clone()),
                State::Ended(error) => return Err(*error),
                State::Down(_) => {}
            }
            self.changed.wait().await;
        }
    }

    /// Asks until there is an answer: a request whose answer was lost with the connection is sent
    /// again. So many bytes go one way or the other.
    async fn ask<T>(
        self: &Rc<Self>,
        bytes: u64,
        request: impl AsyncFn(&Client) -> Result<T, ClientError>,
    ) -> Result<T, IoError> {
        self.ask_settled(bytes, None, request).await
    }

    /// Asks for a write, each time only once it can undo no newer one and no older one can undo it.
    async fn ask_write(
        self: &Rc<Self>,
        write: &Write,
        request: impl AsyncFn(&Client) -> Result<(), ClientError>,
    ) -> Result<(), IoError> {
        let bytes = write.bytes.end - write.bytes.start;
        self.ask_settled(bytes, Some(write), async |client| {
            self.in_doubt_until(self.connection.get(), write, request(client)).await
        })
        .await
    }

    async fn ask_settled<T>(
        self: &Rc<Self>,
        bytes: u64,
        write: Option<&Write>,
        request: impl AsyncFn(&Client) -> Result<T, ClientError>,
    ) -> Result<T, IoError> {
        let pending = Pending::begin(&self.pending, self.core.now(), bytes);
        let may_take = match self.paths.len() {
            1 => self.patience.answer,
            _ => self.patience.path + pending.allowance,
        };
        let mut give_up = None;
        loop {
            let client = self.up().await?;
            // While the connection was waited for, what was written again over another one may have
            // come into doubt: from here to the request nothing else runs.
            if let Some(write) = write.filter(|write| self.in_doubt(write).is_some()) {
                self.settled(write).await;
                continue;
            }
            let answer = within(&self.core, may_take, request(&client));
            match race(answer, self.left(&client)).await {
                Either::First(Some(Ok(answer))) => return Ok(answer),
                Either::First(Some(Err(ClientError::Failed(errno)))) if !is_ending(errno) => {
                    return Err(io_error(errno));
                }
                Either::First(Some(Err(_))) => self.lost(&client),
                Either::First(None) if self.paths.len() > 1 => self.lost(&client),
                Either::First(None) => self.end(IoError::GONE),
                Either::Second(()) => {}
            }
            // A request that ends every connection would be sent for ever.
            let now = self.core.now();
            if now >= *give_up.get_or_insert(now + self.patience.reconnect) {
                self.end(IoError::GONE);
            }
        }
    }

    /// Until a connection is not the one in use any more.
    async fn left(&self, client: &Rc<Client>) {
        while matches!(&*self.state.borrow(), State::Up(current) if Rc::ptr_eq(current, client)) {
            self.changed.wait().await;
        }
    }

    /// Numbers a write of these data, or of zeros.
    fn begin_write(&self, offset: u64, len: u64, data: Option<&[u8]>) -> Begun<'_> {
        self.writes.set(self.writes.get() + 1);
        let write = Write { number: self.writes.get(), bytes: offset..offset + len };
        self.identity.borrow_mut().begin(&write, data);
        Begun { identity: &self.identity, write }
    }

    /// Until when a write has to wait for older ones.
    fn in_doubt(&self, write: &Write) -> Option<Instant> {
        self.doubts.borrow_mut().until(write, self.core.now())
    }

    /// Waits until no older write of any of the same bytes is in doubt, or the drive has ended.
    pub(super) async fn settled(&self, write: &Write) {
        while let Some(until) = self.in_doubt(write) {
            if matches!(&*self.state.borrow(), State::Ended(_)) {
                return;
            }
            race(self.core.sleep_until(until), self.changed.wait()).await;
        }
    }

    /// Sends a write: it is in doubt from then on if its answer does not come, also where the
    /// answer is no longer waited for.
    pub(super) async fn in_doubt_until(
        &self,
        connection: Connection,
        write: &Write,
        answer: impl Future<Output = Result<(), ClientError>>,
    ) -> Result<(), ClientError> {
        struct Unanswered<'a>(&'a Link, Connection, Option<&'a Write>);
        impl Drop for Unanswered<'_> {
            fn drop(&mut self) {
                let Self(link, connection, unanswered) = self;
                link.unanswered.update(|count| count - 1);
                if let Some(write) = unanswered {
                    let until = link.core.now() + link.patience.answer;
                    link.doubts.borrow_mut().add(write, until, *connection);
                }
            }
        }
        self.unanswered.update(|count| count + 1);
        let mut unanswered = Unanswered(self, connection, Some(write));
        let answer = answer.await;
        if matches!(answer, Ok(()) | Err(ClientError::Failed(_))) {
            unanswered.2 = None;
        }
        answer
    }

    /// Whole sectors are asked for, whatever part of them is wanted.
    pub(super) async fn read(self: &Rc<Self>, offset: u64, buf: &mut BufMut) -> Result<(), IoError> {
        let sector = u64::from(self.facts.sector_bytes);
        let wanted = offset..offset + buf.len() as u64;
        let mut at = wanted.start / sector * sector;
        while at < wanted.end {
            let left = wanted.end.next_multiple_of(sector) - at;
            let len = left.min(u64::from(REQUEST_BYTES_MAX)) as u32;
            let bytes = match self.read_in_turn(at, len).await {
                Some(bytes) => bytes,
                None => self.ask(len.into(), async |client| pieces::read(client, at, len).await).await?,
            };
            let (from, to) = (at.max(wanted.start), wanted.end.min(at + u64::from(len)));
            let target = (from - wanted.start) as usize..(to - wanted.start) as usize;
            buf[target].copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
            at += u64::from(len);
        }
        Ok(())
    }

    pub(super) async fn write(
        self: &Rc<Self>,
        offset: u64,
        buf: Buf,
        durability: Durability,
    ) -> Result<(), IoError> {
        let fua = durability == Durability::Fua && self.facts.can(transmission_flags::SEND_FUA);
        let flags = if fua { command_flags::FUA } else { 0 };
        let mut done = 0;
        while done < buf.len() {
            let piece = buf.slice(done..buf.len().min(done + REQUEST_BYTES_MAX as usize));
            let at = offset + done as u64;
            done += piece.len();
            self.room(piece.len()).await?;
            let begun = self.begin_write(at, piece.len() as u64, Some(&piece));
            let write = begun.write.clone();
            self.ask_write(&write, async |client| pieces::write(client, at, &piece, flags).await).await?;
            // A copy of what is kept: the buffer goes back to its owner.
            let data = if fua { piece } else { Buf::copy_of(&piece) };
            self.acknowledged(Kept { write, what: What::Data(data) }, fua);
        }
        // Flushing makes durable what could not be written so.
        if durability == Durability::Fua && !fua { self.flush().await } else { Ok(()) }
    }

    pub(super) async fn write_zeroes(
        self: &Rc<Self>,
        offset: u64,
        len: u64,
        unmap: Unmap,
    ) -> Result<(), IoError> {
        if !self.facts.can(transmission_flags::SEND_WRITE_ZEROES) {
            return Err(IoError::UNSUPPORTED);
        }
        let mut at = offset;
        while at < offset + len {
            let piece = (offset + len - at).min(ZEROES_BYTES_MAX) as u32;
            self.room(0).await?;
            let begun = self.begin_write(at, piece.into(), None);
            let kept = Kept { write: begun.write.clone(), what: What::Zeroes(unmap) };
            self.ask_write(&kept.write, async |client| kept.send(client).await).await?;
            self.acknowledged(kept, false);
            at += u64::from(piece);
        }
        Ok(())
    }

    /// Makes durable what was acknowledged before. A flush that fails may have lost any of it, and
    /// the server would not say so a second time.
    pub(super) async fn flush(self: &Rc<Self>) -> Result<(), IoError> {
        if !self.facts.can(transmission_flags::SEND_FLUSH) {
            return Ok(());
        }
        let covered = self.log.borrow().appended;
        let flushed = self.ask(0, async |client| client.flush().await).await;
        match flushed {
            Ok(()) => {
                self.log.borrow_mut().drop_up_to(covered);
                self.identity.borrow_mut().flushed(covered);
            }
            Err(error) => self.end(error),
        }
        self.log_shrank.notify_all();
        flushed
    }

    /// Waits until a write may be kept.
    async fn room(self: &Rc<Self>, len: usize) -> Result<(), IoError> {
        while self.log.borrow().is_full_for(len) {
            self.flush_unasked();
            self.log_shrank.wait().await;
            self.up().await?;
        }
        Ok(())
    }

    /// Keeps what was acknowledged until a flush covers it, in the place of what was kept of the
    /// same bytes. A forced write is durable, and a server that knows no flush has nothing to lose.
    fn acknowledged(self: &Rc<Self>, kept: Kept, forced: bool) {
        let is_durable = forced || !self.facts.can(transmission_flags::SEND_FLUSH);
        let mut log = self.log.borrow_mut();
        let entry = (!is_durable).then_some(log.appended + 1);
        self.identity.borrow_mut().done(&kept.write, kept.data(), entry);
        match is_durable {
            true => log.forget(&kept.write.bytes),
            false => log.append(kept),
        }
        if log.bytes() > LOG_BYTES_MAX / 2 {
            self.flush_unasked();
        }
    }

    fn flush_unasked(self: &Rc<Self>) {
        if !self.flushing.replace(true) {
            let link = self.clone();
            self.core.spawn(async move {
                // A failure has ended the drive, and every caller gets the error.
                let _ = link.flush().await;
                link.flushing.set(false);
                link.log_shrank.notify_all();
            });
        }
    }
}

/// Error numbers of the protocol, which are Linux's.
mod errnos {
    pub(super) const EPERM: u32 = 1;
    pub(super) const EINVAL: u32 = 22;
    pub(super) const ENOSPC: u32 = 28;
    pub(super) const ENOTSUP: u32 = 95;
    pub(super) const ESHUTDOWN: u32 = 108;
}

/// Whether the server says that it ends: the next one may have the drive.
pub(super) fn is_ending(errno: u32) -> bool {
    errno == errnos::ESHUTDOWN
}

/// What a drive would say.
pub(super) fn io_error(errno: u32) -> IoError {
    match errno {
        errnos::EPERM => IoError::READ_ONLY,
        errnos::EINVAL => IoError::INVALID,
        errnos::ENOSPC => IoError::NO_SPACE,
        errnos::ENOTSUP => IoError::UNSUPPORTED,
        errnos::ESHUTDOWN => IoError::GONE,
        // EIO, and whatever else a server makes up.
        _ => IoError::MEDIUM,
    }
}
