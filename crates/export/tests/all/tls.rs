//! NBD through TLS: the server against clients that are not trusted or play foul, the member
//! against servers that are not trusted, and both against libnbd and nbdkit.
#![allow(clippy::disallowed_methods, reason = "real processes take real time")]

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::tls::{certificates, uri, whole};
use crate::support::{Client, MIB, Rig, info_query, pattern, with_secured_server, within};
use tempfile::TempDir;
use wattle_export::nbd::protocol::{self as proto, options, replies};
use wattle_export::nbd::remote::{Patience, RemoteError, connect};
use wattle_export::nbd::{ClientError, Limits, TlsNote, Uri};
use wattle_rt::{Buf, BufMut, Core, Device, Durability, IoError, RuntimeConfig, Stream};
use wattle_tls::{ServerTls, TlsClients, TlsFault};

const VOLUMES: &[(&str, u64, bool)] = &[("disk", 64 * MIB, false)];

const SHORT: Patience = Patience {
    answer: Duration::from_secs(5),
    reconnect: Duration::from_secs(5),
    path: Duration::from_secs(2),
    back: Duration::from_secs(5),
};

fn with_server(limits: Limits, test: impl AsyncFnOnce(Rig)) {
    let dir = whole();
    let tls = ServerTls::open(dir.path(), TlsClients::Certified).unwrap();
    with_secured_server(2, limits, VOLUMES, Some(Arc::new(tls)), test);
}

async fn open(core: &Core, uri: Uri) -> Result<Device, RemoteError> {
    connect(core, &[uri], "member", SHORT).await
}

async fn read(core: &Core, drive: &Device, offset: u64, len: usize) -> Result<Vec<u8>, IoError> {
    let (result, buf) = core.read(drive, offset, BufMut::alloc(len)).await;
    result.map(|()| buf.to_vec())
}

async fn write(core: &Core, drive: &Device, offset: u64, data: &[u8]) -> Result<(), IoError> {
    core.write(drive, offset, Buf::copy_of(data), Durability::Cached).await
}

/// Whether a client that is trusted is served.
async fn is_served(rig: &Rig, dir: &TempDir) -> bool {
    let drive = open(&rig.core, uri(&rig.socket, dir, "")).await.unwrap();
    read(&rig.core, &drive, 0, 4096).await.is_ok()
}

/// A client that has begun TLS, as far as the protocol goes in clear.
async fn agreed(rig: &Rig) -> Client {
    let mut client = Client::dial(&rig.core, &rig.socket);
    client.greet().await;
    client.option(options::STARTTLS, &[]).await;
    assert_eq!(client.option_reply().await, (options::STARTTLS, replies::ACK, vec![]));
    client
}

#[test]
fn a_member_reads_and_writes_through_tls() {
    with_server(Limits::default(), async |rig: Rig| {
        let dir = whole();
        let drive = open(&rig.core, uri(&rig.socket, &dir, "")).await.unwrap();
        let data = pattern(1, 40 * MIB as usize);
        write(&rig.core, &drive, 4096, &data).await.unwrap();
        write(&rig.core, &drive, 0, &data[..512]).await.unwrap();
        rig.core.flush(&drive).await.unwrap();
        assert!(read(&rig.core, &drive, 4096, data.len()).await.unwrap() == data);
        assert!(read(&rig.core, &drive, 0, 512).await.unwrap() == data[..512]);
        // Both directions at once, with more than fits into any buffer.
        let tasks = (0..8).map(|ix| {
            let (core, drive) = (rig.core.clone(), drive.clone());
            rig.core.spawn(async move {
                let (at, data) = (ix * 8 * MIB, pattern(ix, 2 * MIB as usize));
                for _ in 0..4 {
                    write(&core, &drive, at, &data).await.unwrap();
                    assert!(read(&core, &drive, at, data.len()).await.unwrap() == data);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await;
        }
    });
}

#[test]
fn clients_that_are_not_trusted_are_refused_and_told() {
    with_server(Limits::default(), async |rig: Rig| {
        let notes = Rc::new(RefCell::new(Vec::new()));
        let told = notes.clone();
        rig.server.on_tls(move |note| {
            if let TlsNote::Refused(_, fault) = note {
                told.borrow_mut().push(*fault);
            }
        });
        let bare = certificates("ca.pem", None, None);
        let refused = open(&rig.core, uri(&rig.socket, &bare, "")).await.unwrap_err();
        let wanted = ClientError::Tls(TlsFault::CertificateWanted);
        assert!([wanted, ClientError::TlsClosed].map(RemoteError::Client).contains(&refused), "{refused}");
        let stranger = certificates("ca.pem", None, Some("stranger"));
        let refused = open(&rig.core, uri(&rig.socket, &stranger, "")).await.unwrap_err();
        assert_eq!(refused, RemoteError::Client(ClientError::Tls(TlsFault::CertificateRefused)));
        // It wants to know which server that is, too.
        let other = certificates("other-ca.pem", None, Some("client"));
        let refused = open(&rig.core, uri(&rig.socket, &other, "")).await.unwrap_err();
        assert_eq!(refused, RemoteError::Client(ClientError::Tls(TlsFault::UnknownAuthority)));
        let dir = whole();
        let wrong = uri(&rig.socket, &dir, "&tls-hostname=nas.example");
        let refused = open(&rig.core, wrong).await.unwrap_err();
        assert_eq!(refused, RemoteError::Client(ClientError::Tls(TlsFault::WrongName)));
        let blind = uri(&rig.socket, &dir, "&tls-hostname=nas.example&tls-verify-peer=no");
        open(&rig.core, blind).await.unwrap();
        let gone = uri(&rig.socket, &tempfile::tempdir().unwrap(), "");
        assert_eq!(open(&rig.core, gone).await.unwrap_err(), RemoteError::Client(ClientError::TlsFiles));
        // In clear.
        let plain = format!("nbd+unix:///disk?socket={}", rig.socket.display()).parse().unwrap();
        let refused = open(&rig.core, plain).await.unwrap_err();
        assert_eq!(refused, RemoteError::Client(ClientError::TlsRequired));
        assert!(is_served(&rig, &dir).await);
        assert_eq!(notes.borrow()[..], [TlsFault::NoCertificate], "the others within ten seconds");
    });
}

/// A server that does not speak TLS is not spoken with.
#[test]
fn nothing_goes_on_in_clear() {
    with_secured_server(1, Limits::default(), VOLUMES, None, async |rig: Rig| {
        let dir = whole();
        let refused = open(&rig.core, uri(&rig.socket, &dir, "")).await.unwrap_err();
        assert_eq!(refused, RemoteError::Client(ClientError::NoTls));
    });
    // One that says more in clear, which might be taken for what came through TLS.
    let config = RuntimeConfig { cores: 1, ..RuntimeConfig::default() };
    let test = async |core: Core| {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let listener = wattle_rt::Listener::unix(&socket).unwrap();
        let (task, dir) = (core.clone(), whole());
        let server = core.spawn(async move {
            let stream = task.accept(&listener).await.unwrap();
            let mut out = proto::greeting().to_vec();
            proto::push_option_reply(&mut out, options::STARTTLS, replies::ACK, &[]);
            proto::push_option_reply(&mut out, options::GO, replies::ACK, &[]);
            task.send(&stream, vec![Buf::copy_of(&out)]).await.unwrap();
            while task.recv(&stream, BufMut::alloc(100)).await.0.is_ok_and(|count| count > 0) {}
        });
        let refused = open(&core, uri(&socket, &dir, "")).await.unwrap_err();
        assert_eq!(refused, RemoteError::Client(ClientError::Protocol));
        server.await;
    };
    wattle_rt::run(config, test).unwrap();
}

#[test]
fn clients_that_play_foul_get_nowhere_and_disturb_no_other() {
    let limits = Limits { handshake_time_max: Duration::from_secs(2), ..Limits::default() };
    with_server(limits, async |rig: Rig| {
        let dir = whole();
        let drive = open(&rig.core, uri(&rig.socket, &dir, "")).await.unwrap();
        write(&rig.core, &drive, 0, &[7; 4096]).await.unwrap();
        let second = Duration::from_secs(1);
        // TLS at once, without the greeting.
        let mut client = Client::dial(&rig.core, &rig.socket);
        client.send(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).await;
        assert_eq!(client.exactly(proto::GREETING_BYTES).await.unwrap(), proto::greeting());
        assert!(client.is_closed_within(second).await);
        // Options before TLS.
        let mut client = Client::dial(&rig.core, &rig.socket);
        client.greet().await;
        for (kind, data) in [(options::LIST, vec![]), (options::GO, info_query("disk"))] {
            client.option(kind, &data).await;
            assert_eq!(client.option_reply().await, (kind, replies::ERR_TLS_REQD, vec![]));
        }
        client.option(options::EXPORT_NAME, b"disk").await;
        assert!(client.is_closed_within(second).await);
        // Bytes behind STARTTLS, with it or a little later: what would be an export, in clear.
        for later in [false, true] {
            let mut client = Client::dial(&rig.core, &rig.socket);
            client.greet().await;
            let mut bytes = proto::start_tls();
            if later {
                client.send(&bytes).await;
                bytes.clear();
                assert_eq!(client.option_reply().await.1, replies::ACK);
            }
            bytes.extend(proto::go("disk"));
            client.send(&bytes).await;
            if !later {
                assert_eq!(client.option_reply().await.1, replies::ACK);
            }
            let mut answer = Vec::new();
            let ended = async {
                while let Some(byte) = client.exactly(1).await {
                    answer.extend(byte);
                }
            };
            within(&rig.core, second, ended).await.expect("closed at once, not when its time is over");
            // At most an alert of TLS, and nothing of NBD.
            assert!(answer.len() < 10 && (later || answer.is_empty()), "{answer:?}");
        }
        // Records that are cut, or garbage.
        for bytes in [&[0x16, 3, 1, 0][..], &[0x16, 3, 1, 0, 5, 1], &[0xff; 1000], &[0x17, 3, 3, 0, 1, 0]] {
            let mut client = agreed(&rig).await;
            client.send(bytes).await;
            assert!(client.is_closed_within(3 * second).await, "{bytes:?}");
        }
        // A handshake that stalls, and one that trickles, end with their time.
        let mut silent = agreed(&rig).await;
        let mut trickling = agreed(&rig).await;
        let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[0; 505]].concat();
        let (core, stream) = (rig.core.clone(), trickling.stream.clone());
        rig.core.spawn(async move {
            for byte in hello {
                core.sleep(Duration::from_millis(100)).await;
                if core.send(&stream, vec![Buf::copy_of(&[byte])]).await.is_err() {
                    return;
                }
            }
        });
        assert!(is_served(&rig, &dir).await);
        assert!(silent.is_closed_within(3 * second).await && trickling.is_closed_within(3 * second).await);
        assert_eq!(read(&rig.core, &drive, 0, 4096).await, Ok(vec![7; 4096]), "the connection from before");
    });
}

/// Bytes that another puts into a connection in clear, behind what a client says in clear, are not
/// answered as if the client had sent them through TLS.
#[test]
fn what_is_put_behind_starttls_on_the_way_is_not_taken_for_the_clients() {
    with_server(Limits::default(), async |rig: Rig| {
        let dir = whole();
        for is_put_in in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let between = directory.path().join("between");
            let listener = wattle_rt::Listener::unix(&between).unwrap();
            let (core, server) = (rig.core.clone(), Client::dial(&rig.core, &rig.socket).stream);
            rig.core.spawn(async move {
                let client = core.accept(&listener).await.unwrap();
                core.spawn(pass_on(core.clone(), server.clone(), client.clone(), None));
                let behind = is_put_in.then(|| (proto::start_tls(), proto::go("disk")));
                pass_on(core, client, server, behind).await;
            });
            let opened = open(&rig.core, uri(&between, &dir, "")).await;
            assert_eq!(opened.is_err(), is_put_in, "{opened:?}");
            assert!(is_served(&rig, &dir).await);
        }
    });
}

/// Passes on what comes, and once puts bytes behind those that are looked for.
async fn pass_on(core: Core, from: Stream, to: Stream, mut behind: Option<(Vec<u8>, Vec<u8>)>) {
    loop {
        let (received, buf) = core.recv(&from, BufMut::alloc(64 << 10)).await;
        let count = received.unwrap_or(0);
        let mut bytes = buf[..count].to_vec();
        if let Some((wanted, more)) = behind.take_if(|(wanted, _)| bytes.ends_with(wanted)) {
            assert!(!wanted.is_empty());
            bytes.extend(more);
        }
        if count == 0 || core.send(&to, vec![Buf::copy_of(&bytes)]).await.is_err() {
            from.shutdown();
            to.shutdown();
            return;
        }
    }
}

/// Whether to go on with a test that needs `tool`.
fn installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(tool).is_file());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "{tool} is not installed, and this is CI");
        eprintln!("SKIPPED: {tool} is not installed");
    }
    found
}

/// How a command ends while the server serves, and what it says.
async fn run(core: &Core, program: &str, args: &[&str]) -> (bool, String) {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("output");
    let file = File::create(&output).unwrap();
    let mut command = Command::new(program);
    command.args(args).current_dir(directory.path()).stdout(file.try_clone().unwrap()).stderr(file);
    let status = core.spawn_child(command).unwrap().wait(core).await.unwrap();
    (status.success(), fs::read_to_string(&output).unwrap())
}

#[test]
fn libnbd_reads_and_writes_through_tls() {
    if !installed("nbdcopy") || !installed("nbdinfo") {
        return;
    }
    with_server(Limits::default(), async |rig: Rig| {
        let dir = whole();
        let secured = uri(&rig.socket, &dir, "").to_string();
        let (ok, info) = run(&rig.core, "nbdinfo", &[&secured]).await;
        assert!(ok && info.contains("newstyle-fixed with TLS, using structured packets"), "{info}");
        let files = tempfile::tempdir().unwrap();
        let (there, back) = (files.path().join("there"), files.path().join("back"));
        let image = pattern(3, 64 * MIB as usize);
        fs::write(&there, &image).unwrap();
        let (there, back) = (there.to_str().unwrap(), back.to_str().unwrap());
        let (ok, said) = run(&rig.core, "nbdcopy", &["--flush", there, &secured]).await;
        assert!(ok, "{said}");
        let (ok, said) = run(&rig.core, "nbdcopy", &["--connections=4", &secured, back]).await;
        assert!(ok, "{said}");
        assert!(fs::read(back).unwrap() == image);
        // In clear, without a certificate, and with one of a stranger.
        let plain = format!("nbd+unix:///disk?socket={}", rig.socket.display());
        let (ok, said) = run(&rig.core, "nbdinfo", &[&plain]).await;
        assert!(!ok && said.contains("TLS"), "{said}");
        for client in [None, Some("stranger")] {
            let dir = certificates("ca.pem", None, client);
            let (ok, said) = run(&rig.core, "nbdinfo", &[&uri(&rig.socket, &dir, "").to_string()]).await;
            assert!(!ok, "{client:?}: {said}");
        }
        assert!(is_served(&rig, &dir).await);
    });
}

/// nbdkit that speaks TLS; killed when it goes.
struct Kit(Child);

impl Kit {
    fn start(socket: &Path, dir: &TempDir, args: &[&str]) -> Self {
        let kit = Command::new("nbdkit")
            .args(["--foreground", "--exit-with-parent", "--tls=require", "-U"])
            .arg(socket)
            .arg(format!("--tls-certificates={}", dir.path().display()))
            .args(args)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let kit = Self(kit.unwrap());
        for _ in 0..200 {
            if std::os::unix::net::UnixStream::connect(socket).is_ok() {
                return kit;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("nbdkit does not start");
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_member_of_nbdkit_proves_what_it_is_and_comes_back() {
    if !installed("nbdkit") {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let (socket, disk) = (files.path().join("nbd"), files.path().join("disk"));
    File::create(&disk).unwrap().set_len(8 * MIB).unwrap();
    let args = ["--tls-verify-peer", "file", disk.to_str().unwrap()];
    let dir = whole();
    let config = RuntimeConfig { cores: 1, ..RuntimeConfig::default() };
    let test = async |core: Core| {
        let mut kit = Kit::start(&socket, &dir, &args);
        let drive = open(&core, uri(&socket, &dir, "")).await.unwrap();
        let data = pattern(5, 3 * MIB as usize);
        write(&core, &drive, MIB, &data).await.unwrap();
        // What was acknowledged and not flushed is written again, through a new session.
        kit.0.kill().unwrap();
        kit.0.wait().unwrap();
        fs::remove_file(&socket).unwrap();
        fs::write(&disk, vec![0; 8 * MIB as usize]).unwrap();
        let kit = Kit::start(&socket, &dir, &args);
        assert!(read(&core, &drive, MIB, data.len()).await.unwrap() == data);
        core.flush(&drive).await.unwrap();
        assert!(fs::read(&disk).unwrap()[MIB as usize..][..data.len()] == data);
        let bare = certificates("ca.pem", None, None);
        let refused = open(&core, uri(&socket, &bare, "")).await.unwrap_err();
        let wanted = [ClientError::Tls(TlsFault::CertificateWanted), ClientError::TlsClosed];
        assert!(wanted.map(RemoteError::Client).contains(&refused), "{refused:?}");
        let plain = format!("nbd+unix:///?socket={}", socket.display()).parse().unwrap();
        let refused = open(&core, plain).await.unwrap_err();
        assert_eq!(refused, RemoteError::Client(ClientError::TlsRequired));
        drop(kit);
        // The same place with certificates that are not valid today, or another host's.
        for (name, fault) in [
            ("expired", TlsFault::Expired),
            ("early", TlsFault::NotYetValid),
            ("elsewhere", TlsFault::WrongName),
        ] {
            let _ = fs::remove_file(&socket);
            let _kit = Kit::start(&socket, &certificates("ca.pem", Some(name), None), &args[1..]);
            let refused = open(&core, uri(&socket, &dir, "")).await.unwrap_err();
            assert_eq!(refused, RemoteError::Client(ClientError::Tls(fault)), "{name}");
        }
    };
    wattle_rt::run(config, test).unwrap();
}
