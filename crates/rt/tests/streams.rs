//! Sockets, pipes, signals and children on both real backends.
#![allow(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::needless_pass_by_value,
    clippy::semicolon_if_nothing_returned,
    reason = "tests"
)]

use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::Duration;
use wattle_rt::{
    BackendChoice, BackendError, Buf, BufMut, Core, CoreIx, Either, ListenError, Listener, RingMode, Rng,
    RuntimeConfig, Signal, Stream, race, run,
};

/// Runs `test` on io_uring in each of its modes, and on plain system calls.
fn on_both_backends(test: impl AsyncFn(Core)) {
    for (backend, ring) in [
        (BackendChoice::Uring, RingMode::Deferred),
        (BackendChoice::Uring, RingMode::Cooperative),
        (BackendChoice::Uring, RingMode::Plain),
        (BackendChoice::Syscall, RingMode::Best),
    ] {
        match run(RuntimeConfig { backend, ring, cores: 2, ..RuntimeConfig::default() }, async |core| {
            test(core).await
        }) {
            Ok(()) => {}
            Err(BackendError::UringForbidden { errno }) => println!("no {ring:?} here: errno {errno}"),
            Err(error) => panic!("{ring:?}: {error}"),
        }
    }
}

/// Reads until the peer closes.
async fn read_all(core: &Core, stream: &Stream) -> Vec<u8> {
    let (mut all, mut buf) = (Vec::new(), BufMut::alloc(10_000));
    loop {
        let (result, back) = core.recv(stream, buf).await;
        buf = back;
        match result.unwrap() {
            0 => return all,
            count => all.extend_from_slice(&buf[..count]),
        }
    }
}

fn noise(len: usize) -> Buf {
    let mut buf = BufMut::alloc(len);
    Rng::new(5).fill(&mut buf);
    buf.freeze()
}

async fn echo(core: &Core, listener: &Listener, client: Stream) {
    let server = core.accept(listener).await.unwrap();
    // Far more than a socket buffer holds, in unequal pieces: short sends must be continued.
    let data = noise(5 << 20);
    let pieces =
        vec![data.slice(..1), data.slice(1..100_000), data.slice(100_000..100_000), data.slice(100_000..)];
    let (core2, sender) = (core.clone(), client.clone());
    let sending = core.spawn(async move {
        core2.send(&sender, pieces).await.unwrap();
        sender.shutdown();
    });
    let seen = read_all(core, &server).await;
    sending.await;
    assert!(seen[..] == data[..]);
    // The peer is gone: an error, not a signal that kills the process.
    drop(client);
    let lost = async {
        loop {
            core.send(&server, vec![noise(1 << 20)]).await?;
        }
    };
    let lost: Result<(), wattle_rt::IoError> = lost.await;
    assert!(lost.is_err());
}

#[test]
#[cfg_attr(miri, ignore = "streams of the system")]
fn unix_streams_carry_every_byte_and_report_the_end() {
    on_both_backends(async |core| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = Listener::unix(&path).unwrap();
        let client = Stream::connect_unix(&path).unwrap();
        // Our own user is the owner of what we just made.
        let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(dir.path()).unwrap());
        assert_eq!(client.peer_uid(), Some(uid));
        echo(&core, &listener, client).await;
        assert_eq!(listener.local_addr(), None);
        drop(listener);
        assert!(!path.exists(), "a listener removes its path");
    });
}

#[test]
#[cfg_attr(miri, ignore = "streams of the system")]
fn tcp_streams_carry_every_byte_over_both_families() {
    on_both_backends(async |core| {
        for host in ["127.0.0.1", "[::1]", "localhost"] {
            let listener = match Listener::tcp(host, 0) {
                Ok(listener) => listener,
                Err(_) if host.contains(':') => continue, // A machine without IPv6.
                Err(error) => panic!("{host}: {error}"),
            };
            let address = listener.local_addr().unwrap();
            let client = Stream::connect_tcp(&address.ip().to_string(), address.port()).unwrap();
            assert_eq!(client.peer_uid(), None);
            echo(&core, &listener, client).await;
        }
    });
}

/// Where packets vanish, as before a queue that is full, nothing is waited for longer than it may
/// take.
#[test]
#[cfg_attr(miri, ignore = "streams of the system")]
#[expect(clippy::disallowed_methods, reason = "the system waits in real time")]
fn a_connection_that_nothing_answers_is_given_up() {
    use std::os::fd::AsRawFd;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: listen only takes integers.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let port = listener.local_addr().unwrap().port();
    let connect = |millis| Stream::connect_tcp_within("127.0.0.1", port, Duration::from_millis(millis));
    let mut taken = Vec::new();
    while let Ok(stream) = connect(200) {
        taken.push(stream);
        assert!(taken.len() < 10, "its queue has no end");
    }
    let since = std::time::Instant::now();
    assert_eq!(connect(300).unwrap_err().errno(), libc::ETIMEDOUT);
    assert!(since.elapsed() < Duration::from_secs(20), "the system waits for two minutes");
    drop(listener);
    assert_eq!(connect(300).unwrap_err().errno(), libc::ECONNREFUSED);
}

#[test]
#[cfg_attr(miri, ignore = "streams of the system")]
#[expect(clippy::disallowed_methods, reason = "it waits for another process, in real time")]
fn a_live_socket_is_not_replaced_and_a_dead_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let first = Listener::unix(&path).unwrap();
    assert_eq!(Listener::unix(&path).unwrap_err(), ListenError::InUse);
    assert!(path.exists());
    drop(first);
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap()); // std leaves its path behind.
    assert!(path.exists());
    // A child that another test starts meanwhile has it too, until it has become another program.
    let replaced = (0..500).find_map(|_| {
        let listener = Listener::unix(&path);
        if listener.is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        listener.ok()
    });
    drop(replaced.expect("nobody listens there"));
    std::fs::write(&path, "precious").unwrap();
    assert_eq!(Listener::unix(&path).unwrap_err(), ListenError::NotASocket);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let taken = Listener::tcp("127.0.0.1", 0).unwrap();
    let port = taken.local_addr().unwrap().port();
    assert_eq!(Listener::tcp("127.0.0.1", port).unwrap_err(), ListenError::InUse);
}

#[test]
#[cfg_attr(miri, ignore = "streams of the system")]
fn a_listener_leaves_the_socket_of_its_successor_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let first = Listener::unix(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let second = Listener::unix(&path).unwrap();
    drop(first);
    assert!(Stream::connect_unix(&path).is_ok(), "the second one listens there");
    assert!(!Listener::remove_dead(&path));
    drop(second);
    assert!(!path.exists());
}

/// The value of an integer option.
fn option(stream: &Stream, level: i32, name: i32) -> i32 {
    let (mut value, mut len) = (-1_i32, 4);
    let fd = std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(stream));
    // SAFETY: `value` and `len` are live and `len` is the size of `value`.
    let rc = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    assert_eq!(rc, 0);
    value
}

#[test]
#[cfg_attr(miri, ignore = "streams of the system")]
fn peers_over_tcp_that_went_without_a_word_are_given_up() {
    on_both_backends(async |core| {
        let listener = Listener::tcp("127.0.0.1", 0).unwrap();
        let client = Stream::connect_tcp("127.0.0.1", listener.local_addr().unwrap().port()).unwrap();
        let server = core.accept(&listener).await.unwrap();
        for stream in [client, server] {
            assert_eq!(option(&stream, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
            assert_eq!(option(&stream, libc::IPPROTO_TCP, libc::TCP_NODELAY), 1);
            let asked_for_seconds = option(&stream, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL)
                * option(&stream, libc::IPPROTO_TCP, libc::TCP_KEEPCNT);
            let idle_seconds = option(&stream, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE);
            assert!(idle_seconds + asked_for_seconds <= 300, "{idle_seconds} + {asked_for_seconds}");
            let untaken = option(&stream, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT);
            assert!((1_000..=300_000).contains(&untaken), "{untaken}");
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "streams of the system")]
fn waiting_on_a_peer_ends_when_nobody_wants_it() {
    let outlives = RefCell::new(None);
    // A receive that outlived its future once took the bytes meant for the next one.
    on_both_backends(async |core| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = Listener::unix(&path).unwrap();
        drop(core.accept(&listener));
        let waiting = core.accept(&listener);
        core.sleep(Duration::from_millis(5)).await;
        drop(waiting);
        core.sleep(Duration::from_millis(5)).await;
        assert_eq!(core.ops_in_flight(), 0);

        let client = Stream::connect_unix(&path).unwrap();
        let server = core.accept(&listener).await.unwrap();
        for _ in 0..10 {
            let waiting = core.recv(&server, BufMut::alloc(100));
            core.sleep(Duration::from_millis(1)).await;
            drop(waiting);
        }
        core.sleep(Duration::from_millis(5)).await;
        core.send(&client, vec![Buf::copy_of(b"hello")]).await.unwrap();
        let (result, buf) = core.recv(&server, BufMut::alloc(100)).await;
        assert_eq!((result, &buf[..5]), (Ok(5), &b"hello"[..]));

        // Shutting down ends a pending receive of our own.
        let waiting = core.recv(&server, BufMut::alloc(100));
        core.sleep(Duration::from_millis(1)).await;
        server.shutdown();
        assert_eq!(waiting.await.0, Ok(0));
        // Left waiting when the runtime ends: it must end all the same.
        let left = (server, client, listener.clone());
        drop(core.call(CoreIx(1), move |core| async move {
            let (server, _client, listener) = left;
            let _ = core.accept(&listener).await;
            drop(server);
        }));
        outlives.replace(Some(core.accept(&listener)));
        core.sleep(Duration::from_millis(5)).await;
    });
}

#[test]
#[cfg_attr(miri, ignore = "streams of the system")]
fn pipes_are_streams_too_also_in_non_blocking_mode() {
    on_both_backends(async |core| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (mut out, out_writer) = std::io::pipe().unwrap();
        let reader = Stream::from_fd(OwnedFd::from(reader));
        let waiting = core.recv(&reader, BufMut::alloc(100));
        core.sleep(Duration::from_millis(2)).await;
        writer.write_all(b"abc").unwrap();
        let (result, buf) = waiting.await;
        assert_eq!((result, &buf[..3]), (Ok(3), &b"abc"[..]));
        drop(writer);
        assert!(read_all(&core, &reader).await.is_empty());

        let data = noise(1 << 20);
        let expected = data.clone();
        let drain = core.call(CoreIx(1), move |_core| async move {
            let mut all = Vec::new();
            out.read_to_end(&mut all).unwrap();
            all[..] == expected[..]
        });
        let writer = Stream::from_fd(OwnedFd::from(out_writer));
        core.send(&writer, vec![data.slice(..500_001), data.slice(500_001..)]).await.unwrap();
        drop(writer);
        assert!(drain.await);

        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        a.set_nonblocking(true).unwrap();
        b.set_nonblocking(true).unwrap();
        let (a, b) = (Stream::from(a), Stream::from(b));
        let (core2, data2) = (core.clone(), data.clone());
        let sending = core.spawn(async move {
            core2.send(&a, vec![data2]).await.unwrap();
        });
        assert!(read_all(&core, &b).await[..] == data[..]);
        sending.await;
    });
}

#[test]
#[cfg_attr(miri, ignore = "streams of the system")]
fn descriptors_become_readable() {
    on_both_backends(async |core| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let readable = core.readable(&reader);
        drop(reader); // The wait has a descriptor of its own.
        core.sleep(Duration::from_millis(1)).await;
        writer.write_all(b"x").unwrap();
        readable.await.unwrap();
    });
}

#[test]
#[cfg_attr(miri, ignore = "streams of the system")]
fn a_hang_up_is_seen_behind_bytes_that_wait() {
    on_both_backends(async |core| {
        let (ours, theirs) = Stream::pair().unwrap();
        core.send(&theirs, vec![Buf::copy_of(b"abc")]).await.unwrap();
        let early = race(core.hung_up(&ours), core.sleep(Duration::from_millis(20))).await;
        assert!(matches!(early, Either::Second(())), "it is only readable");
        drop(theirs);
        core.hung_up(&ours).await.unwrap();
        assert_eq!(&read_all(&core, &ours).await[..], b"abc");
    });
}

#[test]
#[cfg_attr(miri, ignore = "streams of the system")]
fn children_are_awaited_with_open_signals() {
    on_both_backends(async |core| {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 0.05; exit 7"]);
        let mut child = core.spawn_child(command).unwrap();
        assert_eq!(child.wait(&core).await.unwrap().code(), Some(7));
        assert_eq!(child.wait(&core).await.unwrap().code(), Some(7));

        // From a helper thread, where every signal is blocked: the child must not inherit that.
        let code = core.call(CoreIx(1), |core| async move {
            let mut command = Command::new("sleep");
            command.arg("60");
            let mut child = core.spawn_child(command).unwrap();
            child.signal(15);
            let status = child.wait(&core).await.unwrap();
            child.signal(15);
            std::os::unix::process::ExitStatusExt::signal(&status)
        });
        assert_eq!(code.await, Some(15));
    });
}

#[test]
#[cfg_attr(miri, ignore = "streams of the system")]
fn a_signal_reaches_what_a_child_has_started() {
    on_both_backends(async |core| {
        let dir = tempfile::tempdir().unwrap();
        let (started, pipe) = (dir.path().join("started"), std::io::pipe().unwrap());
        let (mut reader, writer) = pipe;
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; sleep 60 & touch \"$0\"; wait"]).arg(&started).stdout(writer);
        let mut child = core.spawn_child(command).unwrap();
        while !started.exists() {
            core.sleep(Duration::from_millis(5)).await;
        }
        child.signal(15);
        core.sleep(Duration::from_millis(20)).await;
        child.signal(9);
        let status = child.wait(&core).await.unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
        // The end of the pipe comes when every process that had its other end is gone.
        reader.read_to_end(&mut Vec::new()).unwrap();
    });
}

/// Whether this thread blocks a signal.
fn is_blocked_here(signal: i32) -> bool {
    // SAFETY: the set is plain integers; without a new set the call only fills it in.
    unsafe {
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut blocked), 0);
        libc::sigismember(&raw const blocked, signal) == 1
    }
}

/// The signals of a process concern all its threads, so this test runs itself again as a process of
/// its own.
#[test]
#[cfg_attr(miri, ignore = "streams of the system")]
fn termination_is_awaited_from_any_core() {
    const MARK: &str = "WATTLE_RT_TEST_TERMINATION";
    if std::env::var_os(MARK).is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // One test thread and its main thread would still take the signal: it is sent to this very
        // thread below.
        command.args(["--exact", "termination_is_awaited_from_any_core"]).env(MARK, "1");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    on_both_backends(async |core| {
        for (signal, expected) in [(15, Signal::Terminate), (2, Signal::Interrupt), (1, Signal::Hangup)] {
            let waiting = core.call(CoreIx(1), |core| async move { core.terminated().await });
            let (core2, mut waiting) = (core.clone(), std::pin::pin!(waiting));
            let kick = core.spawn(async move {
                // Not after a fixed time: on a busy machine the signal came first, and ended the
                // process.
                while !is_blocked_here(signal) {
                    core2.sleep(Duration::from_millis(1)).await;
                }
                // SAFETY: it only sends a signal to this thread, which blocks it.
                unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
            });
            assert_eq!(waiting.as_mut().await.unwrap(), expected);
            kick.await;
        }
    });
}

/// Under `nohup` a terminal may go. The hangup is sent first and would be told first.
#[test]
#[cfg_attr(miri, ignore = "streams of the system")]
fn a_hangup_that_is_ignored_ends_no_wait() {
    const MARK: &str = "WATTLE_RT_TEST_HANGUP";
    if std::env::var_os(MARK).is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_hangup_that_is_ignored_ends_no_wait"]).env(MARK, "1");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    // SAFETY: no function is called for it.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    on_both_backends(async |core| {
        let waiting = core.call(CoreIx(1), |core| async move { core.terminated().await });
        let (core2, mut waiting) = (core.clone(), std::pin::pin!(waiting));
        let kick = core.spawn(async move {
            while !is_blocked_here(15) {
                core2.sleep(Duration::from_millis(1)).await;
            }
            for signal in [1, 15] {
                // SAFETY: it only sends signals to this thread, which blocks or ignores them.
                unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
            }
        });
        assert_eq!(waiting.as_mut().await.unwrap(), Signal::Terminate);
        kick.await;
    });
}
