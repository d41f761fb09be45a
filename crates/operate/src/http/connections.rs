//! Which connections there are, what each waits for, and which one makes way for another.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::server::HttpLimits;

/// A connection that has kept the server waiting for so long makes way for others.
const WAIT_TIME_MIN: Duration = Duration::from_millis(100);

/// All connections of a server.
pub(super) struct Connections {
    limits: HttpLimits,
    all: RefCell<BTreeMap<u64, Rc<Connection>>>,
    count_made: Cell<u64>,
    streams: Cell<usize>,
    pub(super) one_less: Notify,
}

/// What the server knows of one connection.
pub(super) struct Connection {
    /// Notified when it has to end.
    pub(super) end: Notify,
    /// Since when its peer is to do something; `None` while the server is to.
    waiting_since: Cell<Option<Instant>>,
    /// Since when a request has begun to come.
    head_since: Cell<Option<Instant>>,
    /// What comes belongs to a request whose head came.
    is_in_request: Cell<bool>,
    /// Since when its peer takes nothing of what was sent.
    stalled_since: Cell<Option<Instant>>,
}

/// Keeps a connection among those that are counted.
pub(super) struct Counted {
    connections: Rc<Connections>,
    number: u64,
    pub(super) connection: Rc<Connection>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.connections.all.borrow_mut().remove(&self.number);
        self.connections.one_less.notify_one();
    }
}

/// A stream that is counted until its reply has ended.
pub(super) struct CountedStream(Rc<Connections>);

impl Drop for CountedStream {
    fn drop(&mut self) {
        self.0.streams.set(self.0.streams.get() - 1);
    }
}

impl Connections {
    pub(super) fn new(limits: HttpLimits) -> Rc<Self> {
        let (all, count_made, streams) = (RefCell::default(), Cell::new(0), Cell::new(0));
        Rc::new(Self { limits, all, count_made, streams, one_less: Notify::new() })
    }

    /// Room for one more, once there is: the connection whose peer has been waited for longest
    /// makes way.
    pub(super) async fn admit(self: &Rc<Self>) -> Counted {
        while self.all.borrow().len() >= self.limits.connections {
            let due = self.oldest().map(|(oldest, since)| (oldest, since + WAIT_TIME_MIN));
            match due {
                Some((oldest, due)) if due <= Instant::now() => {
                    oldest.end.notify_one();
                    self.one_less.notified().await;
                }
                Some((_, due)) => {
                    tokio::select! {
                        () = self.one_less.notified() => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
                // All are being answered: that is bounded in time, and looked at again.
                None => {
                    let _ = tokio::time::timeout(WAIT_TIME_MIN, self.one_less.notified()).await;
                }
            }
        }
        let number = self.count_made.replace(self.count_made.get() + 1);
        let connection = Rc::new(Connection {
            end: Notify::new(),
            waiting_since: Cell::new(None),
            head_since: Cell::new(None),
            is_in_request: Cell::new(false),
            stalled_since: Cell::new(None),
        });
        self.all.borrow_mut().insert(number, connection.clone());
        Counted { connections: self.clone(), number, connection }
    }

    fn oldest(&self) -> Option<(Rc<Connection>, Instant)> {
        let all = self.all.borrow();
        let waiting = all.values().filter_map(|one| Some((one.clone(), one.waiting_since.get()?)));
        waiting.min_by_key(|(_, since)| *since)
    }

    /// A place for a reply that goes on, if there is one.
    pub(super) fn stream(self: &Rc<Self>) -> Option<CountedStream> {
        let streams = self.streams.get();
        (streams < self.limits.streams).then(|| {
            self.streams.set(streams + 1);
            CountedStream(self.clone())
        })
    }

    /// Ends connections that took too long, for ever.
    pub(super) async fn watch(self: Rc<Self>) {
        let limits = &self.limits;
        let tick = (limits.head_time.min(limits.stall_time).min(limits.idle_time) / 4)
            .clamp(Duration::from_millis(10), Duration::from_secs(1));
        loop {
            tokio::time::sleep(tick).await;
            let now = Instant::now();
            let is_over = |since: Option<Instant>, max| since.is_some_and(|since| since + max < now);
            for one in self.all.borrow().values() {
                if is_over(one.head_since.get(), limits.head_time)
                    || is_over(one.stalled_since.get(), limits.stall_time)
                    || is_over(one.waiting_since.get(), limits.idle_time)
                {
                    one.end.notify_one();
                }
            }
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.borrow().len()
    }
}

impl Connection {
    /// It was accepted: the peer is to begin.
    pub(super) fn begins(&self) {
        self.waiting_since.set(Some(Instant::now()));
        self.head_since.set(self.waiting_since.get());
    }

    /// A request came; its body may still be on the way.
    pub(super) fn head_came(&self) {
        self.is_in_request.set(true);
        self.head_since.set(None);
    }

    /// The request is whole: it is the server's turn.
    pub(super) fn answers(&self) {
        self.waiting_since.set(None);
    }

    /// The reply is made: it is the peer's turn to take it.
    pub(super) fn answered(&self) {
        self.is_in_request.set(false);
        self.waiting_since.set(Some(Instant::now()));
    }

    fn received(&self) {
        if !self.is_in_request.get() && self.head_since.get().is_none() {
            self.head_since.set(Some(Instant::now()));
        }
    }

    fn wrote(&self, is_pending: bool) {
        match (is_pending, self.stalled_since.get()) {
            (false, _) => self.stalled_since.set(None),
            (true, None) => self.stalled_since.set(Some(Instant::now())),
            (true, Some(_)) => {}
        }
    }
}

/// What bytes come and go through.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Transport for T {}

/// A transport that tells its connection what moves.
pub(super) struct Observed {
    pub(super) transport: Box<dyn Transport>,
    pub(super) connection: Rc<Connection>,
}

impl AsyncRead for Observed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.transport).poll_read(context, buf);
        if buf.filled().len() > before {
            self.connection.received();
        }
        read
    }
}

impl AsyncWrite for Observed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.transport).poll_write(context, bytes);
        self.connection.wrote(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.transport).poll_write_vectored(context, slices);
        self.connection.wrote(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.transport).poll_flush(context);
        self.connection.wrote(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.transport).poll_shutdown(context);
        self.connection.wrote(ended.is_pending());
        ended
    }
}
