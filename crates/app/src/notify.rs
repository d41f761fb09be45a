//! What a service manager is told of a server: systemd's protocol, a datagram for each message.
//!
//! A server is ready when clients can connect, and alive while all of its cores take a message and
//! answer it. The watchdog looks at cores, not at drives: a drive that does not answer is the
//! array's to judge, and ending the process would not help.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::rc::Rc;
use std::time::Duration;

use wattle_rt::{Core, CoreIx};
use wattle_server::protocol::report::ServerReport;
use wattle_server::serving::Serving;

use crate::environment::{self, ManagerWish};
use crate::output::text::printable;

/// Between two looks at what the status says.
const STATUS_LOOK: Duration = Duration::from_secs(5);

/// A connection to the service manager; says nothing where there is none.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// The one that the environment names.
    pub fn from_environment() -> Self {
        environment::manager().map_or(Self { socket: None, watchdog: None }, |wish| Self::new(&wish))
    }

    fn new(wish: &ManagerWish) -> Self {
        // A manager that cannot be told anything does not keep anything from being served.
        Self { socket: connect(&wish.socket).ok(), watchdog: wish.watchdog }
    }

    fn tell(&self, message: &str) {
        if let Some(socket) = &self.socket {
            // The manager may be restarting; the next message says it again.
            let _ = socket.send(message.as_bytes());
        }
    }

    /// Shows a line in `systemctl status`.
    pub fn status(&self, line: &str) {
        self.tell(&format!("STATUS={}", one_line(line)));
    }

    /// Drives are waited for: so much more time is asked for than is common for a start.
    pub fn waiting(&self, line: &str, patience: Duration) {
        self.tell(&format!("STATUS={}\nEXTEND_TIMEOUT_USEC={}", one_line(line), patience.as_micros()));
    }

    /// It is being stopped.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping: clients are drained, arrays are recorded clean");
    }
}

fn connect(address: &OsStr) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match address.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(address)?,
    }
    // A manager that does not read must not hold up a core.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Names come from drives, and a line break would begin another message.
fn one_line(text: &str) -> String {
    printable(text).replace('\n', " ")
}

/// Tells that clients can connect, and from then on that the cores answer and how the arrays are,
/// until the server ends.
pub async fn ready(core: &Core, serving: &Rc<Serving>, notifier: &Rc<Notifier>) {
    if notifier.socket.is_none() {
        return;
    }
    let line = status_line(&serving.status().await);
    notifier.tell(&format!("READY=1\nSTATUS={line}"));
    if let Some(limit) = notifier.watchdog {
        let (core_, notifier) = (core.clone(), notifier.clone());
        core.spawn(async move {
            loop {
                answers(&core_).await;
                notifier.tell("WATCHDOG=1");
                core_.sleep(limit / 3).await;
            }
        });
    }
    let (core_, serving, notifier) = (core.clone(), Rc::downgrade(serving), notifier.clone());
    core.spawn(async move {
        let mut told = line;
        loop {
            core_.sleep(STATUS_LOOK).await;
            let Some(serving) = serving.upgrade().filter(|serving| !serving.is_ending()) else { return };
            let line = status_line(&serving.status().await);
            if line != told && !serving.is_ending() {
                notifier.status(&line);
                told = line;
            }
        }
    });
}

/// Returns once every core has taken a message and answered it.
async fn answers(core: &Core) {
    for ix in 0..core.cores() {
        core.call(CoreIx(ix), |_| async {}).await;
    }
}

/// What a server does, in a line.
fn status_line(report: &ServerReport) -> String {
    let array = |array: &wattle_server::protocol::report::ArrayReport| {
        let mut line =
            format!("{} {} {} {}", array.name, array.level, array.slots, array.health.word(array.synced));
        if let Some(sync) = &array.sync {
            let percent = sync.done_bytes.saturating_mul(100).checked_div(sync.total_bytes).unwrap_or(100);
            line += &format!(", {} {percent}%", sync.action);
        }
        line
    };
    let arrays: Vec<_> = report.arrays.iter().map(array).collect();
    match arrays.as_slice() {
        [] => format!("serving {} volumes", report.volumes.len()),
        arrays => one_line(&arrays.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use wattle_rt::{Either, race};

    use super::*;

    #[test]
    fn a_message_is_a_datagram_and_a_name_is_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(&ManagerWish { socket: path.into(), watchdog: None });
        notifier.status("a\nREADY=1");
        let mut buffer = [0; 64];
        let len = manager.recv(&mut buffer).unwrap();
        let text = std::str::from_utf8(&buffer[..len]).unwrap();
        assert!(text.starts_with("STATUS=a") && !text.contains('\n'), "{text:?}");
    }

    #[test]
    fn names_behind_an_at_are_abstract() {
        let name = format!("wattle-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let notifier = Notifier::new(&ManagerWish { socket: format!("@{name}").into(), watchdog: None });
        notifier.stopping();
        let mut buffer = [0; 200];
        let len = manager.recv(&mut buffer).unwrap();
        assert!(buffer[..len].starts_with(b"STOPPING=1\nSTATUS=stopping"));
    }

    #[test]
    fn one_core_that_does_not_answer_is_enough_for_silence() {
        let config = wattle_rt::RuntimeConfig { cores: 2, ..wattle_rt::RuntimeConfig::default() };
        wattle_rt::run(config, async |core: Core| {
            let patience = Duration::from_secs(20);
            assert!(matches!(race(answers(&core), core.sleep(patience)).await, Either::First(())));
            let (block, unblock) = (std::sync::mpsc::channel::<()>(), Duration::from_millis(300));
            let (unblocked, blocked) = block;
            let busy = core.call(CoreIx(1), |_| async move { blocked.recv().is_ok() });
            let busy = core.spawn(busy);
            assert!(matches!(race(answers(&core), core.sleep(unblock)).await, Either::Second(())));
            unblocked.send(()).unwrap();
            assert!(busy.await);
            assert!(matches!(race(answers(&core), core.sleep(patience)).await, Either::First(())));
        })
        .unwrap();
    }

    #[test]
    fn without_a_manager_nothing_is_said() {
        Notifier { socket: None, watchdog: None }.status("x");
        Notifier::new(&ManagerWish { socket: "/nowhere/notify".into(), watchdog: None }).stopping();
    }
}
