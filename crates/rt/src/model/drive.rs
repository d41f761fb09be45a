//! A drive in memory that takes the time its model says, on the machine's clock.
//!
//! There is no thread behind it: every core that has something in flight on it watches it, and the
//! first that finds something complete executes it and tells whose it is. The model counts in its
//! own time, so a core that looks late delays nothing but its own answer.

use crate::base::clock::Clock;
use crate::base::error::IoError;
use crate::base::rng::Rng;
use crate::device::{BlockGeometry, Device, Hosted, Kind};
use crate::memory::pages::Pages;
use crate::model::{DriveModel, Request, Server};
use crate::op::{Completion, Op, OpKey};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

/// Makes the drives of a process different from each other, and each process alike.
static DRIVES: AtomicU64 = AtomicU64::new(0);

pub(crate) struct ModelledDrive {
    clock: Clock,
    sector_bytes: u64,
    state: Mutex<State>,
}

struct State {
    contents: Pages,
    server: Server<Waiting>,
    /// How many operations the server has.
    waiting: usize,
    /// Executed, but not by the core that waits for it.
    done: Vec<(Waker, Completion)>,
}

/// An operation in flight and whose it is.
struct Waiting {
    core: Waker,
    key: OpKey,
    op: Op,
}

impl ModelledDrive {
    pub(crate) fn new(size_bytes: u64, sector_bytes: u32, model: &DriveModel) -> ModelledDrive {
        let mut rng = Rng::new(DRIVES.fetch_add(1, Ordering::Relaxed));
        let server = Server::new(model, size_bytes, &mut rng);
        let state = State { contents: Pages::default(), server, waiting: 0, done: Vec::new() };
        ModelledDrive {
            clock: Clock::start(),
            sector_bytes: u64::from(sector_bytes),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in an operation of `core`, which has to look at the drive from now on.
    pub(crate) fn submit(&self, core: Waker, key: OpKey, op: Op) {
        let mut state = self.state();
        self.advance(&mut state, &core);
        let request = Request::of(&op, 1);
        state.server.submit(request, Waiting { core, key, op }, self.clock.now());
        state.waiting += 1;
    }

    /// Takes what completed for `core`; answers how long until something completes next, if
    /// anything is in flight.
    pub(crate) fn look(&self, core: &Waker, done: &mut Vec<Completion>) -> Option<Duration> {
        let mut state = self.state();
        self.advance(&mut state, core);
        done.extend(state.done.extract_if(.., |(owner, _)| same(owner, core)).map(|(_, done)| done));
        let next = state.server.next().filter(|_| state.waiting > 0)?;
        Some(next - self.clock.now())
    }

    /// Executes what is due; tells cores other than the one that does it.
    fn advance(&self, state: &mut State, core: &Waker) {
        let mut due = Vec::new();
        state.server.advance(self.clock.now(), &mut due);
        state.waiting -= due.len();
        for Waiting { core: owner, key, mut op } in due {
            let result = self.execute(&mut state.contents, &mut op);
            let elsewhere = (!same(&owner, core)).then(|| owner.clone());
            state.done.push((owner, Completion { key, result, op }));
            if let Some(elsewhere) = elsewhere {
                elsewhere.wake();
            }
        }
    }

    fn execute(&self, contents: &mut Pages, op: &mut Op) -> Result<usize, IoError> {
        let (offset, len) = op.extent();
        if !offset.is_multiple_of(self.sector_bytes) || !len.is_multiple_of(self.sector_bytes) {
            return Err(IoError::INVALID);
        }
        let mut at = offset;
        match op {
            Op::Read(transfer) => {
                for buf in transfer.bufs.as_mut_slice() {
                    contents.read(at, buf);
                    at += buf.len() as u64;
                }
                Ok(len as usize)
            }
            Op::Write(transfer, _) => {
                for buf in transfer.bufs.as_slice() {
                    contents.write(at, buf);
                    at += buf.len() as u64;
                }
                Ok(len as usize)
            }
            Op::WriteZeroes { .. } => {
                contents.write_zeroes(offset, len);
                Ok(0)
            }
            _ => Ok(0),
        }
    }
}

/// Whether both wake the same core.
fn same(one: &Waker, other: &Waker) -> bool {
    std::ptr::eq(one.data(), other.data())
}

/// At once, whatever the model says.
impl Hosted for ModelledDrive {
    fn read_blocking(&self, offset: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        self.state().contents.read(offset, bytes);
        Ok(())
    }

    fn write_blocking(&self, offset: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.state().contents.write(offset, bytes);
        Ok(())
    }

    fn sync_blocking(&self) -> Result<(), IoError> {
        Ok(())
    }
}

impl Device {
    /// A drive in memory of zeros that takes as long as `model` says, in real time; only what is
    /// written takes space. Panics if the size is not whole sectors of 512 or 4096 bytes.
    pub fn modelled(
        name: impl Into<String>,
        size_bytes: u64,
        sector_bytes: u32,
        model: &DriveModel,
    ) -> Device {
        assert!(matches!(sector_bytes, 512 | 4096), "sectors are 512 or 4096 bytes");
        assert!(size_bytes.is_multiple_of(u64::from(sector_bytes)), "a drive is whole sectors");
        let geometry =
            BlockGeometry { rotational: model.rotational(), ..BlockGeometry::of_sectors(sector_bytes) };
        let drive = ModelledDrive::new(size_bytes, sector_bytes, model);
        Device::with_kind(name.into(), size_bytes, geometry, Kind::Hosted(Box::new(drive)))
    }
}
