//! The FUSE export against the kernel: real mounts, real programs. Where FUSE cannot be had (no
//! device, no rights) every test says so and is skipped.

#![allow(clippy::needless_pass_by_value, reason = "tests read better with the closure itself")]
#![allow(clippy::disallowed_methods, reason = "programs that use the mount wait for the cores that serve it")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use crate::support::{MIB, pattern, volume, within};
use wattle_engine::volume::qos::QosSite;
use wattle_export::fuse::{FuseServer, FuseServerHandle, StartError, Stopped, Transport};
use wattle_rt::fuse::{FuseMount, MountError, mount_at};
use wattle_rt::{BackendChoice, Core, Latch, RuntimeConfig, mailbox};

const SIZE: u64 = 64 * MIB;
const ONE: &[(&str, u64, bool)] = &[("disk", SIZE, false)];

/// What a test gets.
struct Rig {
    core: Core,
    dir: PathBuf,
    server: FuseServerHandle,
}

impl Rig {
    /// Does something with the files on a thread of its own: on a core it would wait for itself.
    async fn beside<T: Send + 'static>(&self, work: impl FnOnce(&Path) -> T + Send + 'static) -> T {
        beside(&self.dir, work).await
    }

    async fn stop(self) -> Stopped {
        self.server.stop(&self.core).await
    }
}

async fn beside<T: Send + 'static>(dir: &Path, work: impl FnOnce(&Path) -> T + Send + 'static) -> T {
    let (sender, mut receiver) = mailbox();
    let dir = dir.to_owned();
    std::thread::spawn(move || drop(sender.send(work(&dir))));
    receiver.recv().await.expect("the work panicked")
}

/// A mount, or `None` where there can be none.
fn mount(dir: &Path, read_only: bool) -> Option<FuseMount> {
    match FuseMount::new(dir, read_only) {
        Ok(mount) => Some(mount),
        Err(error @ (MountError::NoFuse | MountError::NoHelper)) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(MountError::Other(error)) if error.errno() == libc::EPERM => {
            eprintln!("SKIPPED: mounting is forbidden here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Unmounts by force when a test fails: no server answers then, and a process that looks at them
/// waits for ever.
struct Unmounted<'a>(&'a Path);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = Command::new("umount").args(["--force", "--lazy"]).arg(self.0).status();
        }
    }
}

/// Runs a test on files of these volumes, and unmounts: over the device, and over io_uring where
/// the kernel offers that.
fn with_files(cores: usize, volumes: &'static [(&'static str, u64, bool)], test: impl AsyncFn(&Rig)) {
    on_backend(cores, BackendChoice::Auto, volumes, test);
}

fn on_backend(
    cores: usize,
    backend: BackendChoice,
    volumes: &'static [(&'static str, u64, bool)],
    test: impl AsyncFn(&Rig),
) {
    for transport in [Transport::Device, Transport::Best] {
        let directory = tempfile::tempdir().unwrap();
        let _unmounted = Unmounted(directory.path());
        let offered = transport == Transport::Best && io_uring_is_offered();
        let Some(mount) = mount(directory.path(), false) else { return };
        let config = RuntimeConfig { cores, backend, ..RuntimeConfig::default() };
        let run = async |core: Core| {
            let server = serve(&core, mount, volumes, transport).await.unwrap();
            assert_eq!(server.over_io_uring(), offered);
            let rig = Rig { core: core.clone(), dir: server.dir().to_owned(), server };
            within(&core, Duration::from_secs(60), test(&rig)).await.expect("the test hangs");
            assert_eq!(rig.stop().await, Stopped::Unmounted);
        };
        wattle_rt::run(config, run).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "the mount is still there");
    }
}

/// Whether the kernel offers FUSE over io_uring. It is off by default,
/// which CI does here.
fn io_uring_is_offered() -> bool {
    const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
    if std::env::var_os("CI").is_some() {
        // A kernel that does not know it, or rights that do not suffice: then it is not offered.
        let _ = fs::write(SWITCH, "Y");
    }
    let offered = fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "Y");
    if !offered {
        eprintln!("SKIPPED: this kernel does not offer FUSE over io_uring, or {SWITCH} is N");
    }
    offered
}

async fn serve(
    core: &Core,
    mount: FuseMount,
    volumes: &[(&str, u64, bool)],
    transport: Transport,
) -> Result<FuseServerHandle, StartError> {
    let mut opened = Vec::new();
    for (name, size_bytes, read_only) in volumes {
        opened.push(volume(core, name, *size_bytes, *read_only).await);
    }
    FuseServer::start(core, mount, opened, transport).await
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

fn run(program: &str, arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(program).args(arguments).current_dir(directory.path()).output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{text}", output.status);
    text
}

fn errno<T>(result: io::Result<T>) -> i32 {
    result.err().expect("an error").raw_os_error().expect("of the system")
}

fn read_write(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn names_sizes_and_modes() {
    with_files(2, &[("disk", SIZE, false), ("vg/lv", MIB, true), ("vg/other", MIB, false)], async |rig| {
        rig.beside(|dir| {
            let list = |dir: &Path| {
                let entries = fs::read_dir(dir).unwrap();
                let mut names: Vec<_> =
                    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
                names.sort();
                names
            };
            assert_eq!(list(dir), ["disk", "vg"]);
            assert_eq!(list(&dir.join("vg")), ["lv", "other"]);
            let disk = fs::metadata(dir.join("disk")).unwrap();
            assert_eq!((disk.len(), disk.blocks()), (SIZE, SIZE / 512));
            assert_eq!(disk.permissions().mode() & 0o7777, 0o600);
            // The chunk: what a copy should ask for at once.
            assert_eq!(disk.blksize(), 64 << 10);
            let lv = fs::metadata(dir.join("vg/lv")).unwrap();
            assert_eq!((lv.len(), lv.permissions().mode() & 0o7777), (MIB, 0o400));
            assert_eq!(errno(fs::metadata(dir.join("lv"))), libc::ENOENT);
            assert_eq!(errno(File::create(dir.join("new"))), libc::ENOSYS);
            run("df", &[dir.to_str().unwrap()]);
        })
        .await;
    });
}

#[test]
fn bytes_go_there_and_come_back_on_every_backend() {
    for backend in [BackendChoice::Auto, BackendChoice::Syscall] {
        for cores in [1, 2] {
            on_backend(cores, backend, ONE, async |rig| {
                rig.beside(|dir| {
                    let file = read_write(&dir.join("disk"));
                    let bytes = pattern(3, 5 * MIB as usize + 17);
                    // Unaligned, longer than one request; then a small one inside.
                    file.write_all_at(&bytes, 12_345).unwrap();
                    file.write_all_at(b"inside", 20_001).unwrap();
                    file.sync_all().unwrap();
                    let mut expected = bytes;
                    expected[20_001 - 12_345..][..6].copy_from_slice(b"inside");
                    let mut back = vec![0; expected.len()];
                    read_write(&dir.join("disk")).read_exact_at(&mut back, 12_345).unwrap();
                    assert!(back == expected);
                })
                .await;
            });
        }
    }
}

#[test]
fn the_end_is_that_of_a_block_device() {
    with_files(1, ONE, async |rig| {
        rig.beside(|dir| {
            let path = dir.join("disk");
            let mut file = read_write(&path);
            assert_eq!(file.write_at(&[7; 100], SIZE - 10).unwrap(), 10);
            assert_eq!(errno(file.write_at(&[7], SIZE)), libc::ENOSPC);
            assert_eq!(file.read_at(&mut [0; 100], SIZE - 10).unwrap(), 10);
            assert_eq!(file.read_at(&mut [0; 100], SIZE).unwrap(), 0);
            assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), SIZE);
            // Its size is the volume's.
            file.set_len(SIZE).unwrap();
            assert_eq!(errno(file.set_len(SIZE - 1)), libc::EPERM);
            assert_eq!(errno(File::create(&path)), libc::EPERM);
            assert_eq!(fs::metadata(&path).unwrap().len(), SIZE);
            assert_eq!(errno(fs::remove_file(&path)), libc::ENOSYS);
        })
        .await;
    });
}

#[test]
fn what_is_only_read_is_not_written() {
    with_files(1, &[("disk", SIZE, true)], async |rig| {
        rig.beside(|dir| {
            let path = dir.join("disk");
            assert_eq!(errno(OpenOptions::new().write(true).open(&path)), libc::EROFS);
            let mut byte = [1];
            File::open(&path).unwrap().read_exact(&mut byte).unwrap();
            assert_eq!(byte, [0]);
            assert_eq!(errno(File::create(&path)), libc::EROFS);
        })
        .await;
    });
}

#[test]
fn holes_and_zeroed_ranges_read_as_zeros() {
    if !installed("fallocate") {
        return;
    }
    with_files(2, ONE, async |rig| {
        rig.beside(|dir| {
            let path = dir.join("disk");
            let file = read_write(&path);
            let mut expected = pattern(5, 4 * MIB as usize);
            file.write_all_at(&expected, 0).unwrap();
            for (how, offset, length) in
                [("--punch-hole", MIB, MIB), ("--zero-range", 1000, 5), ("--punch-hole", 3 * MIB + 1, 4099)]
            {
                let (offset_text, length_text) = (offset.to_string(), length.to_string());
                let path = path.to_str().unwrap();
                run("fallocate", &[how, "--keep-size", "-o", &offset_text, "-l", &length_text, path]);
                expected[offset as usize..][..length as usize].fill(0);
            }
            let mut back = vec![1; expected.len()];
            file.read_exact_at(&mut back, 0).unwrap();
            assert!(back == expected);
        })
        .await;
    });
}

/// Programs that ask for durability with the write send no flush: it has to come with the write.
#[test]
fn synchronous_and_direct_writes() {
    with_files(1, ONE, async |rig| {
        rig.beside(|dir| {
            for flags in [libc::O_DSYNC, libc::O_SYNC, libc::O_DIRECT, libc::O_DIRECT | libc::O_DSYNC] {
                let mut options = OpenOptions::new();
                let file = options.read(true).write(true).custom_flags(flags).open(dir.join("disk")).unwrap();
                let bytes = pattern(u64::from(flags.cast_unsigned()), 8192);
                // Aligned, as direct I/O of other file systems would want it.
                let mut room = vec![0; 8192 + 4096];
                let start = room.as_ptr().align_offset(4096);
                room[start..start + 8192].copy_from_slice(&bytes);
                file.write_all_at(&room[start..start + 8192], 4096).unwrap();
                room[start..start + 8192].fill(0);
                file.read_exact_at(&mut room[start..start + 8192], 4096).unwrap();
                assert!(room[start..start + 8192] == bytes);
            }
        })
        .await;
    });
}

#[test]
fn many_programs_at_once_on_two_cores() {
    if !installed("fio") {
        return;
    }
    with_files(2, ONE, async |rig| {
        rig.beside(|dir| {
            let file = format!("--filename={}", dir.join("disk").display());
            for (engine, direct) in
                [("libaio", "--direct=1"), ("io_uring", "--direct=1"), ("psync", "--direct=0")]
            {
                let engine = format!("--ioengine={engine}");
                let arguments = [
                    "--name=verify",
                    &engine,
                    direct,
                    &file,
                    "--rw=randrw",
                    "--bsrange=512-256k",
                    "--verify=crc32c",
                    "--iodepth=32",
                    "--numjobs=2",
                    "--size=16M",
                    "--offset_increment=32M",
                    "--fsync=64",
                    "--randseed=1",
                ];
                let output = run("fio", &arguments);
                assert!(output.contains("err= 0"), "{output}");
            }
        })
        .await;
    });
}

#[test]
fn qemu_opens_it() {
    if !installed("qemu-io") {
        return;
    }
    with_files(2, ONE, async |rig| {
        rig.beside(|dir| {
            let path = dir.join("disk");
            let commands = [
                "write -P 0x5a 4096 64k",
                "write -P 0xa5 -f 10001 777",
                "read -P 0x5a 4096 5905",
                "read -P 0xa5 10001 777",
                "write -z 8k 4k",
                "read -P 0 8k 4k",
                "write -z -u 16k 4k",
                "read -P 0 16k 4k",
                "write -P 1 0 32M",
                "discard 32M 16M",
                "read -P 1 0 32M",
                "flush",
            ];
            for cache in ["none", "writeback", "directsync"] {
                let mut arguments = vec!["-f", "raw", "-t", cache];
                let aligned = |command: &&&str| cache == "writeback" || !command.contains("10001");
                commands.iter().filter(aligned).for_each(|command| arguments.extend(["-c", command]));
                arguments.push(path.to_str().unwrap());
                if cache != "writeback" {
                    let at = arguments.iter().position(|word| *word == "read -P 0x5a 4096 5905").unwrap();
                    arguments[at] = "read -P 0x5a 4096 64k";
                }
                let output = run("qemu-io", &arguments);
                assert!(!output.contains("ailed"), "{output}");
            }
        })
        .await;
    });
}

/// A caller that is killed while it waits takes its request with it; no other caller may notice.
#[test]
fn callers_that_are_killed_leave_nothing_behind() {
    with_files(2, ONE, async |rig| {
        rig.beside(|dir| {
            let path = dir.join("disk");
            for _ in 0..20 {
                let from = format!("if={}", path.display());
                let mut command = Command::new("dd");
                let mut reader =
                    command.args([&from, "of=/dev/null", "bs=1M", "status=none"]).spawn().unwrap();
                std::thread::sleep(Duration::from_millis(3));
                reader.kill().unwrap();
                reader.wait().unwrap();
            }
            read_write(&path).write_all(b"still here").unwrap();
        })
        .await;
        // The last close of a killed program comes a little later.
        while rig.server.files().opens("disk") > 0 {
            rig.core.sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn a_file_in_use_is_counted_and_a_stop_gives_the_directory_back_all_the_same() {
    for transport in [Transport::Device, Transport::Best] {
        io_uring_is_offered();
        let directory = tempfile::tempdir().unwrap();
        let Some(mount) = mount(directory.path(), false) else { return };
        let run = async |core: Core| {
            let server = serve(&core, mount, ONE, transport).await.unwrap();
            let file = beside(directory.path(), |dir| read_write(&dir.join("disk"))).await;
            assert_eq!((server.files().opens("disk"), server.files().opens("other")), (1, 0));
            assert_eq!(server.stop(&core).await, Stopped::InUse);
            assert!(mount_at(directory.path()).is_none());
            // Held to the end: dropping it sooner would let the unmount finish.
            file
        };
        let config = RuntimeConfig { cores: 2, ..RuntimeConfig::default() };
        let file = wattle_rt::run(config, run).unwrap();
        // Everything of the server is closed now, and a program that kept the file is told. Not at
        // once: a request that comes while Linux 6.18 takes a ring down may be lost, and then the
        // program waits for ever, and cannot be killed.
        std::thread::sleep(Duration::from_millis(500));
        assert!(matches!(errno(file.read_at(&mut [0; 1], 0)), libc::ENOTCONN | libc::ECONNABORTED));
    }
}

/// A program that has a file open as the connection is aborted cannot even say that it closes it.
#[test]
fn a_mount_that_another_program_takes_away_is_noticed_and_nothing_is_open_there() {
    for (transport, is_open) in
        [Transport::Device, Transport::Best].into_iter().flat_map(|how| [(how, false), (how, true)])
    {
        io_uring_is_offered();
        let directory = tempfile::tempdir().unwrap();
        let _unmounted = Unmounted(directory.path());
        let Some(mount) = mount(directory.path(), false) else { return };
        let run = async |core: Core| {
            let server = serve(&core, mount, ONE, transport).await.unwrap();
            let (files, told) = (server.files(), Rc::new(Latch::new()));
            let tell = told.clone();
            server.on_gone(move || tell.set());
            let file = beside(directory.path(), move |dir| is_open.then(|| read_write(&dir.join("disk"))));
            let file = file.await;
            assert_eq!((files.opens_of_all(), files.are_gone()), (u32::from(is_open), false));
            beside(directory.path(), |dir| {
                // It aborts, and is refused where a file is open.
                let _ = Command::new("umount").arg("--force").arg(dir).output().unwrap();
            })
            .await;
            within(&core, Duration::from_secs(10), told.wait()).await.expect("it is told");
            assert!(files.are_gone() && files.was_opened());
            drop(file);
            assert_eq!(
                (files.opens_of_all(), files.opens("disk"), files.hide(&core, "disk", true).await),
                (0, 0, 0)
            );
            let late = volume(&core, "late", MIB, false).await;
            assert!(files.add(&core, late).await.is_err(), "no program would find it");
            assert_eq!(server.stop(&core).await, Stopped::Unmounted);
        };
        let config = RuntimeConfig { cores: 2, ..RuntimeConfig::default() };
        wattle_rt::run(config, run).unwrap();
        assert!(mount_at(directory.path()).is_none());
    }
}

/// Such as a program that was started beside one that has it open, until it is another program.
#[test]
fn a_file_that_is_in_use_for_a_moment_is_waited_for() {
    with_files(1, ONE, async |rig| {
        let file = rig.beside(|dir| read_write(&dir.join("disk"))).await;
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(file);
        });
    });
}

/// What a client that has gone had under way may be carried out until it is answered: a program
/// that opens the file begins when nothing of it can come over what it writes.
#[test]
fn a_file_opens_when_what_other_clients_left_behind_is_answered() {
    const MOMENT: Duration = Duration::from_millis(300);
    for transport in [Transport::Device, Transport::Best] {
        io_uring_is_offered();
        let directory = tempfile::tempdir().unwrap();
        let _unmounted = Unmounted(directory.path());
        let Some(mount) = mount(directory.path(), false) else { return };
        let run = async |core: Core| {
            let volume = QosSite::new(2).govern(volume(&core, "disk", SIZE, false).await);
            let server = FuseServer::start(&core, mount, vec![volume.clone()], transport).await.unwrap();
            let left = volume.remains().hold();
            let open = || {
                let path = directory.path().to_owned();
                core.spawn(async move { beside(&path, |dir| File::open(dir.join("disk")).map(drop)).await })
            };
            let mut opened = open();
            assert!(within(&core, MOMENT, &mut opened).await.is_none(), "it waits");
            assert_eq!(server.files().opens("disk"), 1, "and counts as open");
            drop(left);
            assert!(within(&core, MOMENT, opened).await.expect("it goes on").is_ok());
            // A server that ends leaves no program waiting, and waits for none.
            let _left = volume.remains().hold();
            let opened = open();
            core.sleep(MOMENT).await;
            assert_eq!(within(&core, 10 * MOMENT, server.stop(&core)).await, Some(Stopped::InUse));
            assert_eq!(errno(opened.await), libc::ENODEV);
        };
        wattle_rt::run(RuntimeConfig { cores: 2, ..RuntimeConfig::default() }, run).unwrap();
    }
}

#[test]
fn a_directory_that_cannot_be_mounted_on_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dir");
    assert_eq!(FuseMount::new(&path, false).unwrap_err(), MountError::Missing);
    fs::write(&path, "x").unwrap();
    assert_eq!(FuseMount::new(&path, false).unwrap_err(), MountError::NotADirectory);
    assert_eq!(FuseMount::new(&path.join("deeper"), false).unwrap_err(), MountError::NotADirectory);
    assert_eq!(FuseMount::new(directory.path(), false).unwrap_err(), MountError::NotEmpty);
    assert_eq!(FuseMount::new(Path::new("/"), false).unwrap_err(), MountError::NotEmpty);
    fs::remove_file(&path).unwrap();
    // One that is not served yet goes with its handle.
    let Some(first) = mount(directory.path(), false) else { return };
    assert_eq!(FuseMount::new(directory.path(), false).unwrap_err(), MountError::InUse);
    drop(first);
    assert!(mount_at(directory.path()).is_none());
}

#[test]
fn volumes_that_would_be_one_file_are_refused_and_nothing_stays_mounted() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mount) = mount(directory.path(), false) else { return };
    let run = async |core: Core| {
        let started =
            serve(&core, mount, &[("vg", MIB, false), ("vg/lv", MIB, false)], Transport::Best).await;
        assert!(matches!(started, Err(StartError::Names(_))));
        assert!(mount_at(directory.path()).is_none());
    };
    wattle_rt::run(RuntimeConfig::default(), run).unwrap();
}
