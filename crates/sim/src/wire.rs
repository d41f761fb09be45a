//! A drive behind a server across a network: for a while nothing comes or goes, and what was sent
//! before may be carried out late, or never.
//!
//! The connection keeps what docs/media.md says of one: a drive that was given up answers nothing,
//! and is had again only once nothing that it was sent can be carried out any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wattle_engine::units::MemberIx;
use wattle_rt::{
    Buf, BufMut, Core, Device, DriveControl, Durability, Either, Instant, IoError, Link, LinkState,
    ReopenError, Reply, Rng, Serve, Unmap, race,
};

use crate::lock::lock;
use crate::watch::SharedWatch;

/// So much later than it could a server may carry out what it was sent, at most.
const LATE_MAX: Duration = Duration::from_millis(500);
/// After so long a connection ends that nothing comes over, if the array has counted its member
/// out. One that it has not is waited for: connections have more patience than wires are cut for.
const ENDS_AFTER: Duration = Duration::from_millis(60);
/// Between two looks of a task that waits.
const LOOK: Duration = Duration::from_millis(1);

/// The way to one drive.
pub struct Wire {
    slot: MemberIx,
    control: DriveControl,
    watch: SharedWatch,
    /// It is had again too soon: a planted bug.
    hasty: bool,
    now: Mutex<WireNow>,
}

struct WireNow {
    rng: Rng,
    away: Option<(Instant, Instant)>,
    /// Requests that may still be carried out.
    outstanding: u64,
}

impl Wire {
    /// The way to the drive of a slot.
    #[must_use]
    pub fn new(
        slot: MemberIx,
        control: DriveControl,
        watch: SharedWatch,
        hasty: bool,
        rng: Rng,
    ) -> Arc<Wire> {
        Arc::new(Wire {
            slot,
            control,
            watch,
            hasty,
            now: Mutex::new(WireNow { rng, away: None, outstanding: 0 }),
        })
    }

    /// Nothing comes or goes for so long.
    pub fn cut(&self, core: &Core, length: Duration) {
        let now = core.now();
        let mut wire = lock(&self.now);
        let since = wire.away.filter(|(_, until)| now < *until).map_or(now, |(since, _)| since);
        wire.away = Some((since, now + length));
    }

    /// Whether it is there, and everything that was sent over it is done.
    #[must_use]
    pub fn is_quiet(&self, core: &Core) -> bool {
        self.away(core).is_none() && lock(&self.now).outstanding == 0
    }

    /// A first connection to `drive` over it.
    #[must_use]
    pub fn connect(self: &Arc<Wire>, core: &Core, drive: &Device) -> Device {
        let far = Far { wire: self.clone(), drive: drive.clone(), line: Arc::default() };
        let (name, block_bytes) = (drive.name().to_owned(), drive.logical_block_bytes());
        Device::served(name, drive.size_bytes(), block_bytes, true, core, Arc::new(far))
    }

    fn away(&self, core: &Core) -> Option<Instant> {
        let now = core.now();
        lock(&self.now).away.filter(|(_, until)| now < *until).map(|(since, _)| since)
    }
}

/// A connection.
struct Far {
    wire: Arc<Wire>,
    drive: Device,
    line: Arc<Mutex<Line>>,
}

#[derive(Default)]
struct Line {
    ended: bool,
    begun: u64,
    /// Requests without an answer, and since when.
    waiting: BTreeMap<u64, Instant>,
    next: Option<Device>,
}

impl Far {
    /// Sends a request, and waits for its answer as long as the connection lives.
    fn ask<T: Send + 'static>(
        &self,
        core: &Core,
        work: impl AsyncFnOnce(Core, Device) -> Result<T, IoError> + 'static,
    ) -> Reply<Result<T, IoError>> {
        let (wire, line, drive, core) =
            (self.wire.clone(), self.line.clone(), self.drive.clone(), core.clone());
        Box::pin(async move {
            if lock(&line).ended {
                return Err(IoError::GONE);
            }
            let number = {
                let mut line = lock(&line);
                line.begun += 1;
                let number = line.begun;
                line.waiting.insert(number, core.now());
                number
            };
            lock(&wire.now).outstanding += 1;
            let carried_out = {
                let (wire, line, core) = (wire, line.clone(), core.clone());
                core.clone().spawn(async move {
                    let result = match reaches(&wire, &line, &core).await {
                        true => work(core, drive).await,
                        false => Err(IoError::GONE),
                    };
                    lock(&wire.now).outstanding -= 1;
                    result
                })
            };
            let mut carried_out = std::pin::pin!(carried_out);
            let result = loop {
                match race(&mut carried_out, core.sleep(LOOK)).await {
                    Either::First(result) => break result,
                    Either::Second(()) if lock(&line).ended => break Err(IoError::GONE),
                    Either::Second(()) => {}
                }
            };
            lock(&line).waiting.remove(&number);
            result
        })
    }
}

/// Whether a request is carried out; at once, or late if the wire was cut meanwhile.
async fn reaches(wire: &Wire, line: &Mutex<Line>, core: &Core) -> bool {
    if wire.away(core).is_none() {
        return true;
    }
    while wire.away(core).is_some() {
        core.sleep(LOOK).await;
    }
    let late = lock(&wire.now).rng.below(LATE_MAX.as_micros() as u64);
    if lock(line).ended {
        core.sleep(Duration::from_micros(late)).await;
    }
    // What came over a connection that was given up may also be dropped with it.
    !lock(line).ended || lock(&wire.now).rng.coin()
}

impl Serve for Far {
    fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let (len, mut buf) = (buf.len(), buf);
        let read = self.ask(core, async move |core, drive| {
            let (read, bytes) = core.read(&drive, offset, BufMut::alloc(len)).await;
            read.map(|()| bytes)
        });
        Box::pin(async move { (read.await.map(|bytes| buf.copy_from_slice(&bytes)), buf) })
    }

    fn write(&self, core: &Core, offset: u64, buf: Buf, how: Durability) -> Reply<Result<(), IoError>> {
        self.ask(core, async move |core, drive| core.write(&drive, offset, buf, how).await)
    }

    fn flush(&self, core: &Core) -> Reply<Result<(), IoError>> {
        self.ask(core, async |core, drive| core.flush(&drive).await)
    }

    fn write_zeroes(&self, core: &Core, offset: u64, len: u64, unmap: Unmap) -> Reply<Result<(), IoError>> {
        self.ask(core, async move |core, drive| core.write_zeroes(&drive, offset, len, unmap).await)
    }

    fn link(&self) -> Option<&dyn Link> {
        Some(self)
    }
}

impl Link for Far {
    fn look(&self, core: &Core) -> Reply<Option<LinkState>> {
        let (mut line, now) = (lock(&self.line), core.now());
        let away = self.wire.away(core).filter(|_| !line.ended);
        let is_out = || lock(&self.wire.watch).out.contains(self.wire.slot);
        line.ended |= away.is_some_and(|since| now - since > ENDS_AFTER) && is_out();
        let since = line.waiting.values().copied().chain(away).min().unwrap_or(now);
        let ended = line.ended.then_some(IoError::GONE);
        let state =
            LinkState { overdue: now - since, ended, changed: None, settled: false, paths: Vec::new() };
        Box::pin(async move { Some(state) })
    }

    fn give_up(&self, _core: &Core) -> Reply<()> {
        lock(&self.line).ended = true;
        Box::pin(async {})
    }

    fn take_turns(&self, _core: &Core, _on: bool) -> Reply<()> {
        Box::pin(async {})
    }

    fn reopen(&self, core: &Core) -> Reply<Result<Device, ReopenError>> {
        let reopened = self.open_again(core);
        Box::pin(async move { reopened })
    }
}

impl Far {
    fn open_again(&self, core: &Core) -> Result<Device, ReopenError> {
        let mut line = lock(&self.line);
        if let Some(next) = &line.next {
            return Ok(next.clone());
        }
        if !line.ended {
            return Err(ReopenError::Unsettled);
        }
        if self.wire.away(core).is_some() {
            return Err(ReopenError::Connection(IoError::GONE));
        }
        let outstanding = lock(&self.wire.now).outstanding;
        if outstanding > 0 && !self.wire.hasty {
            return Err(ReopenError::Unsettled);
        }
        // The server may be another one by now, without what the old one had in its cache. The
        // array counts the member out, so it has to make up for that.
        if lock(&self.wire.watch).out.contains(self.wire.slot) && lock(&self.wire.now).rng.coin() {
            self.wire.control.lose_cache();
        }
        let next = self.wire.connect(core, &self.drive);
        line.next = Some(next.clone());
        Ok(next)
    }
}
