//! Notes of a server: written by a thread of their own, so that a terminal that was stopped or a
//! pipe that is not read holds up no client, no order and no signal.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use wattle_rt::helper_thread;

/// Lines that wait to be written.
const LINES_MAX: usize = 1024;
/// How long the end of a server waits until its last lines are written.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);

enum Item {
    Line(String),
    /// All that came before is written.
    Written(SyncSender<()>),
}

/// The way to the thread, while there is one.
static TO_WRITER: Mutex<Option<SyncSender<Item>>> = Mutex::new(None);
/// Lines that there was no room for, since it was last told.
static LOST: AtomicU64 = AtomicU64::new(0);

/// While this lives, notes are written by a thread. Dropping it waits for the last of them, but not
/// for long.
pub struct LogThread(());

impl LogThread {
    /// Starts the thread; without one, notes are written where they come up, as ever.
    pub fn start() -> Self {
        let (sender, lines) = sync_channel(LINES_MAX);
        if helper_thread("wattle-log", move || write(&lines)).is_ok() {
            *TO_WRITER.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        }
        Self(())
    }
}

impl Drop for LogThread {
    fn drop(&mut self) {
        let sender = TO_WRITER.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (tell, told) = sync_channel(1);
        // A full queue stands still: nothing is waited for.
        if sender.is_some_and(|sender| sender.try_send(Item::Written(tell)).is_ok()) {
            let _ = told.recv_timeout(FAREWELL_TIME_MAX);
        }
    }
}

/// Takes a line, if there is a thread for it.
///
/// # Errors
/// The line: there is no thread.
pub fn take(line: String) -> Result<(), String> {
    let to_writer = TO_WRITER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(sender) = &*to_writer else { return Err(line) };
    match sender.try_send(Item::Line(line)) {
        Ok(()) => Ok(()),
        Err(TrySendError::Full(_)) => {
            LOST.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        Err(TrySendError::Disconnected(Item::Line(line))) => Err(line),
        Err(TrySendError::Disconnected(Item::Written(_))) => Ok(()),
    }
}

fn write(lines: &Receiver<Item>) {
    for item in lines {
        match item {
            Item::Line(line) => {
                let mut stderr = io::stderr().lock();
                let _ = stderr.write_all(line.as_bytes());
                let lost = LOST.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    let _ =
                        writeln!(stderr, "{}{lost} lines are missing here: they were not read", super::NOTE);
                }
            }
            Item::Written(tell) => _ = tell.send(()),
        }
    }
}
