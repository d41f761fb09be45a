//! The server against the clients people use: libnbd's tools, QEMU's, fio. None of them is told
//! anything but the URI.
//!
//! A tool that is not installed skips its test, loudly; with `CI` in the environment it fails it.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use crate::support::{MIB, Rig, pattern, with_server};
use wattle_export::nbd::Limits;

const SIZE: u64 = 64 * MIB;
const ONE: &[(&str, u64, bool)] = &[("disk", SIZE, false)];

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

/// Runs a command to its end while the server serves; returns what it wrote, and fails the test if
/// it failed.
async fn run(rig: &Rig, program: &str, arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("output");
    let file = File::create(&output).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory.path()).stdout(file.try_clone().unwrap()).stderr(file);
    let status = rig.core.spawn_child(command).unwrap().wait(&rig.core).await.unwrap();
    let output = fs::read_to_string(&output).unwrap();
    assert!(status.success(), "{program} {arguments:?}: {status}\n{output}");
    output
}

fn uri(rig: &Rig, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", rig.socket.display())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn nbdinfo_sees_what_is_offered() {
    if !installed("nbdinfo") {
        return;
    }
    with_server(1, Limits::default(), &[("disk", SIZE, false), ("vg/lv", MIB, true)], async |rig: Rig| {
        let disk = run(&rig, "nbdinfo", &[&uri(&rig, "disk")]).await;
        for line in [
            "export-size: 67108864",
            "protocol: newstyle-fixed without TLS, using structured packets",
            "description: volume disk",
            "is_read_only: false",
            "can_fua: true",
            "can_flush: true",
            "can_multi_conn: true",
            "can_trim: true",
            "can_zero: true",
            "can_df: true",
            "block_size_minimum: 1",
            "block_size_maximum: 33554432",
        ] {
            assert!(disk.contains(line), "`{line}` is not in:\n{disk}");
        }
        let read_only = run(&rig, "nbdinfo", &[&uri(&rig, "vg/lv")]).await;
        assert!(
            read_only.contains("is_read_only: true") && read_only.contains("can_trim: false"),
            "{read_only}"
        );
        let list = run(&rig, "nbdinfo", &["--list", &uri(&rig, "")]).await;
        assert!(list.contains("export=\"disk\"") && list.contains("export=\"vg/lv\""), "{list}");
    });
}

#[test]
fn nbdcopy_brings_an_image_there_and_back() {
    if !installed("nbdcopy") {
        return;
    }
    with_server(2, Limits::default(), ONE, async |rig: Rig| {
        let directory = tempfile::tempdir().unwrap();
        let (there, back) = (directory.path().join("there"), directory.path().join("back"));
        let mut image = pattern(1, SIZE as usize);
        image[10 << 20..20 << 20].fill(0);
        fs::write(&there, &image).unwrap();
        run(&rig, "nbdcopy", &["--flush", text(&there), &uri(&rig, "disk")]).await;
        run(&rig, "nbdcopy", &["--connections=4", &uri(&rig, "disk"), text(&back)]).await;
        assert!(fs::read(&back).unwrap() == image);
    });
}

#[test]
fn qemu_io_finds_its_patterns() {
    if !installed("qemu-io") {
        return;
    }
    with_server(1, Limits::default(), ONE, async |rig: Rig| {
        let commands = [
            "write -P 0x5a 4096 64k",
            "write -P 0xa5 -f 10001 777",
            "read -P 0x5a 4096 5905",
            "read -P 0xa5 10001 777",
            "read -P 0x5a 10778 10000",
            "write -z 8k 4k",
            "read -P 0 8k 4k",
            "write -z -u 16k 4k",
            "read -P 0 16k 4k",
            "discard 32M 16M",
            "write -P 1 0 32M",
            "read -P 1 0 32M",
            "flush",
        ];
        let uri = uri(&rig, "disk");
        let mut arguments = vec!["-f", "raw", uri.as_str()];
        commands.iter().for_each(|command| arguments.extend(["-c", command]));
        let output = run(&rig, "qemu-io", &arguments).await;
        assert!(!output.contains("ailed"), "{output}");
    });
}

#[test]
fn qemu_img_converts_and_compares() {
    if !installed("qemu-img") {
        return;
    }
    with_server(1, Limits::default(), ONE, async |rig: Rig| {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        let mut bytes = pattern(2, SIZE as usize);
        bytes[5 << 20..40 << 20].fill(0);
        fs::write(&image, &bytes).unwrap();
        let uri = uri(&rig, "disk");
        let convert = ["convert", "-n", "-f", "raw", "-O", "raw", text(&image), uri.as_str()];
        run(&rig, "qemu-img", &convert).await;
        run(&rig, "qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&image), &uri]).await;
        // With several coroutines, out of order.
        run(
            &rig,
            "qemu-img",
            &["convert", "-n", "-W", "-m", "16", "-f", "raw", "-O", "raw", text(&image), &uri],
        )
        .await;
        run(&rig, "qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&image), &uri]).await;
    });
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !installed("fio") {
        return;
    }
    with_server(1, Limits::default(), ONE, async |rig: Rig| {
        let uri = format!("--uri={}", uri(&rig, "disk"));
        for mix in ["--bs=4k", "--bsrange=512-128k"] {
            let arguments = [
                "--name=verify",
                "--ioengine=nbd",
                &uri,
                "--rw=randrw",
                "--verify=crc32c",
                "--iodepth=32",
                "--size=16M",
                "--fsync=64",
                "--randseed=1",
                mix,
            ];
            let output = run(&rig, "fio", &arguments).await;
            assert!(output.contains("err= 0"), "{output}");
        }
    });
}
