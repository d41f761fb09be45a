//! A real Linux kernel as judge. Arrays that md made are read and written by wattle and then
//! checked by md; arrays that wattle made are assembled, checked and written by md and then read
//! back. Degraded ones and failures under wattle included, and every state that either leaves
//! behind when it is interrupted.
//!
//! Boots the project's guest (guest/README.md) a few times, each time for many arrays: case K has
//! member M in slice K of disk M.

mod audits;
mod bcache;
mod cases;
mod client;
mod compat;
mod crypt;
mod cuts;
mod drives;
mod groups;
mod hfs;
mod history;
mod images;
mod integrity;
mod judge;
mod left;
mod logs;
mod nbd;
mod nvme;
mod pattern;
mod plans;
mod programs;
mod reshapes;
mod server;
mod shown;
mod states;
mod suite;
mod ublk;
mod vhost;
mod volumes;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use cases::{Case, made_by_wattle};
use judge::{Guest, Slices};
use pattern::Pattern;

/// Runs the binary under test and returns its standard output.
fn wattle(args: &[&str], members: &[PathBuf]) -> Vec<u8> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_wattle")).args(args).args(members).output().expect("wattle runs");
    assert!(
        output.status.success(),
        "wattle {args:?} {members:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// Serves `members` while `script` runs in a shell, with `$uri` and `$wattle` (the binary with its
/// runtime directory) set.
fn serve(members: &[PathBuf], dir: &Path, script: &str) {
    let runtime = dir.join("run");
    let binary = env!("CARGO_BIN_EXE_wattle");
    let script = format!("set -e; runtime='{}'; wattle='{binary}'; {script}", runtime.display());
    let args = ["serve", "--runtime-dir", runtime.to_str().expect("utf-8"), "--run", &script];
    wattle(&args, members);
}

/// Writes every range of `pattern` through qemu-io, then flushes.
fn write_script(pattern: &Pattern, sectors: u64, dir: &Path) -> String {
    let mut script = String::from("qemu-io -f raw");
    for (number, (start, bytes)) in pattern.ranges(sectors).into_iter().enumerate() {
        let file = dir.join(format!("write-{number}"));
        std::fs::write(&file, &bytes).expect("scratch space");
        let fua = if number % 3 == 0 { "-f" } else { "" };
        script += &format!(" -c 'write -q {fua} -s {} {} {}'", file.display(), start * 512, bytes.len());
    }
    script + " -c flush \"$uri\"; "
}

fn check_content(what: &str, members: &[PathBuf], expected: &[u8]) {
    let bytes = wattle(&["cat"], members);
    assert_eq!(bytes.len(), expected.len(), "{what}: size");
    if let Some(at) = bytes.chunks(512).zip(expected.chunks(512)).position(|(a, b)| a != b) {
        panic!("{what}: sector {at} differs");
    }
}

/// What wattle does with one array that md made; returns the line by which md judges the result, if
/// there is something to judge.
fn take_over(case: &Case, facts: &BTreeMap<String, String>, slices: &Slices, k: usize) -> Option<String> {
    let id = &case.id;
    let sectors: u64 = facts["array_sectors"].parse().expect("a number");
    let mut pattern = Pattern::parse(&facts["pattern"]);
    let members = slices.extract(k, case);
    let dir = slices.dir(k);
    shown::examined(id, &members);
    if case.reshaping() {
        // Only read: the kernel finishes it.
        reshapes::read(case, facts, &members);
        return None;
    }
    let mut shuffled = members.clone();
    shuffled.rotate_left(k % members.len().max(1));
    check_content(id, &shuffled, &pattern.bytes(sectors));
    if case.whole() && case.redundant() {
        for left_out in 0..case.raid_disks() {
            let rest: Vec<_> =
                (0..members.len()).filter(|&m| m != left_out).map(|m| members[m].clone()).collect();
            check_content(&format!("{id} without {left_out}"), &rest, &pattern.bytes(sectors));
        }
    }
    if case.journal() {
        return None; // read-only: its journal is not kept
    }
    let before = Pattern::scattered(3000 + k as u64, sectors, case.chunk_sectors());
    let mut script = write_script(&before, sectors, &dir);
    if case.comes_back() {
        script += "for try in $(seq 300); do \"$wattle\" status --check --runtime-dir \"$runtime\" > /dev/null && break; sleep 0.1; done; ";
    }
    pattern.extend(&before);
    let loses = case.whole() && case.redundant() && k % 2 == 1;
    let lost = k / 2 % case.raid_disks();
    if loses {
        let after = Pattern::scattered(5000 + k as u64, sectors, case.chunk_sectors() + 24);
        let after_dir = dir.join("after");
        std::fs::create_dir_all(&after_dir).expect("scratch space");
        script += &format!(
            "name=$(\"$wattle\" status --json --runtime-dir \"$runtime\" | sed -n 's/^.*\"uuid\": *\"\\([^\"]*\\)\".*$/\\1/p' | head -1); \
             \"$wattle\" fail \"$name\" '{}' --runtime-dir \"$runtime\"; ",
            members[lost].display()
        );
        script += &write_script(&after, sectors, &after_dir);
        pattern.extend(&after);
    }
    serve(&members, &dir, &script);
    check_content(&format!("{id} after writing"), &members, &pattern.bytes(sectors));
    slices.put_back(k, case, &members);
    Some(case.judged(&pattern, loses.then_some(lost), sectors))
}

#[test]
fn linux_and_wattle_take_turns() {
    let Some(guest) = Guest::ready("6.12") else { return };
    let scratch = tempfile::tempdir().expect("scratch space");
    let theirs = Case::read("matrix.txt");
    let ours = made_by_wattle();
    let slices = Slices::new(scratch.path(), theirs.len() + ours.len());

    let facts = guest.make_arrays(Path::new("matrix.txt"), &slices);
    let mut lines = vec![format!("slice {}", judge::SLICE_SECTORS)];
    for (k, case) in theirs.iter().enumerate() {
        let facts = facts.get(&case.id).unwrap_or_else(|| panic!("{}: the kernel made nothing", case.id));
        let line = if facts["ok"] == "yes" { take_over(case, facts, &slices, k) } else { None };
        // A case that is not judged keeps its place: slices go by number.
        lines.push(line.unwrap_or_else(|| format!("skip-{} level=none members=1", case.id)));
    }
    for (number, array) in ours.iter().enumerate() {
        let k = theirs.len() + number;
        lines.push(array.make(&slices, k));
    }
    let cases = scratch.path().join("cases.txt");
    std::fs::write(&cases, lines.join("\n") + "\n").expect("scratch space");
    let verdicts = guest.run("check-arrays", &[cases], &slices);
    let judged = verdicts.values().filter(|facts| facts["ok"] == "yes").count();
    assert!(judged >= 60 + ours.len(), "the kernel judged only {judged} arrays");

    // What the kernel wrote to wattle's arrays comes back through wattle.
    for (number, array) in ours.iter().enumerate() {
        array.reread(&slices, theirs.len() + number);
    }
}

/// What md leaves behind in every state is served and made whole by wattle, and judged by md; what
/// wattle leaves behind in every state is made whole by md.
#[test]
fn every_state_goes_both_ways() {
    let Some(guest) = Guest::ready("6.12") else { return };
    let scratch = tempfile::tempdir().expect("scratch space");
    let theirs = Case::read("matrix-states.txt");
    let ours = left::all();
    let slices = Slices::new(scratch.path(), theirs.len() + ours.len());
    // The job reads one name.
    let matrix = scratch.path().join("matrix.txt");
    std::fs::copy(judge::root().join("guest/matrix-states.txt"), &matrix).expect("scratch space");
    let facts = guest.make_arrays(&matrix, &slices);

    let mut lines = vec![format!("slice {}", judge::SLICE_SECTORS)];
    let mut failed = Vec::new();
    let mut attempt = |id: &str, make: &dyn Fn() -> String| {
        // One that fails says so, and keeps its place; the others are tried all the same.
        let line = catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|_| {
            failed.push(id.to_owned());
            format!("failed-{id} level=none members=1")
        });
        lines.push(line);
    };
    for (k, case) in theirs.iter().enumerate() {
        attempt(&case.id, &|| states::take_over(case, &facts[&case.id], &slices, k));
    }
    for (number, array) in ours.iter().enumerate() {
        attempt(&array.id, &|| array.make(&slices, theirs.len() + number));
    }
    let cases = scratch.path().join("cases.txt");
    std::fs::write(&cases, lines.join("\n") + "\n").expect("scratch space");
    let verdicts = guest.run("check-arrays", &[cases], &slices);
    assert!(failed.is_empty(), "wattle failed: {failed:?}");
    for case in &theirs {
        if let Some(verdict) = verdicts.get(&case.id) {
            states::check(case, verdict);
        }
    }
    for array in &ours {
        array.check(&verdicts[&array.id]);
    }
    let judged = verdicts.values().filter(|facts| facts["ok"] == "yes").count();
    assert!(judged >= theirs.len() + ours.len() - 2, "the kernel judged only {judged} arrays");
}

/// A handful of the kinds of reshape; [`every_reshape_is_read_where_it_stopped`] has them all.
#[test]
fn arrays_in_the_middle_of_a_reshape_are_read() {
    let Some(guest) = Guest::ready("6.12") else { return };
    let few = ["r5-grow", "r6-shrink", "r5-chunk-back", "r5to6", "r10-grow-odd", "r5-past-cut"];
    reshapes::judge(&guest, |id| few.contains(&id));
}

/// Every kind of reshape, in good order and cut off: minutes.
#[test]
#[ignore = "minutes: part of the long run"]
fn every_reshape_is_read_where_it_stopped() {
    let Some(guest) = Guest::ready("6.12") else { return };
    reshapes::judge(&guest, |_| true);
}

/// Linux 6.8 to 6.13 have no linear level, so another kernel judges it.
#[test]
fn linear_arrays_go_both_ways() {
    let Some(guest) = Guest::ready("6.1") else { return };
    let scratch = tempfile::tempdir().expect("scratch space");
    let theirs = Case::read("matrix-linear.txt");
    let slices = Slices::new(scratch.path(), theirs.len());
    // The job reads one name.
    let matrix = scratch.path().join("matrix.txt");
    std::fs::copy(judge::root().join("guest/matrix-linear.txt"), &matrix).expect("scratch space");
    let facts = guest.make_arrays(&matrix, &slices);
    let mut lines = vec![format!("slice {}", judge::SLICE_SECTORS)];
    for (k, case) in theirs.iter().enumerate() {
        lines.push(take_over(case, &facts[&case.id], &slices, k).expect("linear arrays are served"));
    }
    let cases = scratch.path().join("cases.txt");
    std::fs::write(&cases, lines.join("\n") + "\n").expect("scratch space");
    let verdicts = guest.run("check-arrays", &[cases], &slices);
    assert_eq!(verdicts.values().filter(|facts| facts["ok"] == "yes").count(), theirs.len());
}

/// Some of mdadm's own tests pass on wattle's block devices.
#[test]
fn mdadms_own_tests_pass() {
    let Some(guest) = Guest::ready("6.12") else { return };
    suite::run(&guest);
}

/// The guest's own NBD client mounts file systems on arrays that wattle serves over TCP.
#[test]
fn the_kernels_nbd_client_mounts_what_wattle_serves() {
    let Some(guest) = Guest::ready("6.12") else { return };
    nbd::mount(&guest);
}

/// Firmware, boot loader, kernel and file system of a machine on a volume whose server is killed.
#[test]
fn a_machine_boots_from_a_volume_and_survives_its_server() {
    let Some(guest) = Guest::ready("6.12") else { return };
    vhost::boots_and_survives(&guest, "5", &["--chunk", "64K"]);
}

/// The guest's own NVMe/TCP host loses a path and then the server, and goes on.
#[test]
fn the_kernels_nvme_host_goes_on_without_a_path_and_over_a_killed_server() {
    let Some(guest) = Guest::ready("6.12") else { return };
    nvme::two_paths(&guest);
}

/// The guest's own NVMe/TCP host, as two hosts that fence each other.
#[test]
fn a_host_that_another_one_preempted_writes_nothing_more() {
    let Some(guest) = Guest::ready("6.12") else { return };
    nvme::reservations(&guest);
}

/// Drives of two kinds, one of which expects to fail, as far as an emulator has such.
#[test]
fn drives_say_what_smartctl_shows_and_one_that_fails_is_told() {
    let Some(guest) = Guest::ready("6.12") else { return };
    drives::say_of_themselves(&guest);
}

/// The server runs in the guest here: ublk is a matter of one machine.
#[test]
fn block_devices_of_a_killed_server_go_on_and_md_takes_the_array_over() {
    let Some(guest) = Guest::ready("6.12") else { return };
    ublk::devices(&guest);
}

/// btrfs as a crash leaves it.
#[test]
fn what_comes_out_of_a_cut_btrfs_is_what_linux_shows() {
    let Some(guest) = Guest::ready("6.12") else { return };
    cuts::judge(&guest, cuts::Kind::Btrfs);
}

/// XFS of version 4 as a crash leaves it.
#[test]
fn what_comes_out_of_a_cut_xfs_of_version_4_is_what_linux_shows() {
    let Some(guest) = Guest::ready("6.12") else { return };
    cuts::judge(&guest, cuts::Kind::XfsOfVersion4);
}

/// Volumes of Macs, as Linux fills them.
#[test]
fn what_linux_writes_to_hfs_plus_is_read() {
    let Some(guest) = Guest::ready("6.12") else { return };
    hfs::judge(&guest);
}

/// Every kind of volume that LVM2 makes.
#[test]
fn volumes_of_every_kind_are_read() {
    let Some(guest) = Guest::ready("6.12") else { return };
    volumes::read_all(&guest);
}

/// RAID volumes whose images are gone, images with checksums, writecaches.
#[test]
fn volumes_without_some_of_their_images_are_read() {
    let Some(guest) = Guest::ready("6.12") else { return };
    images::read_all(&guest);
}

/// Partial parity logs and journals after a crash, in memory.
#[test]
#[ignore = "minutes: part of the long run"]
fn what_was_in_flight_is_read_as_linux_recovers_it() {
    let Some(guest) = Guest::ready("6.12") else { return };
    logs::judge(&guest, 4, 2);
}

/// The same for more arrays, cut more often: minutes.
#[test]
#[ignore = "minutes: part of the long run"]
fn whatever_was_in_flight_is_read_as_linux_recovers_it() {
    let Some(guest) = Guest::ready("6.12") else { return };
    logs::judge(&guest, usize::MAX, 4);
}

/// Ciphers, modes and sizes of sectors, by dm-crypt.
#[test]
fn linux_decrypts_what_wattle_encrypted_and_the_other_way_round() {
    let Some(guest) = Guest::ready("6.12") else { return };
    crypt::judge(&guest);
}

/// What Linux 6.19 writes into superblocks, taken back.
#[test]
fn linux_takes_superblocks_again_that_were_made_ready_for_it() {
    let Some(guest) = Guest::of("6.12") else { return };
    compat::judge(&guest);
}

/// Volume groups that wattle lays out.
#[test]
fn linux_activates_groups_that_wattle_laid_out() {
    let Some(guest) = Guest::ready("6.12") else { return };
    groups::judge(&guest);
}

/// What `wattle plan` prints for Linux.
#[test]
fn linux_builds_what_is_planned_with_the_commands_that_are_printed() {
    let Some(guest) = Guest::ready("6.12") else { return };
    plans::judge(&guest);
}

#[test]
fn what_linux_runs_is_audited_while_it_runs() {
    let Some(guest) = Guest::ready("6.12") else { return };
    audits::judge(&guest);
}

/// `detail --format` and `examine --format` are for scripts that know mdadm.
#[test]
fn what_mdadm_shows_of_arrays_that_run_is_shown_alike() {
    let Some(guest) = Guest::ready("6.12") else { return };
    shown::judge(&guest);
}

/// Checksums, modes and journals of dm-integrity.
#[test]
fn devices_with_checksums_are_read_as_linux_reads_them() {
    let Some(guest) = Guest::ready("6.12") else { return };
    integrity::judge(&guest);
}

/// Backing devices of bcache, with their caches and without.
#[test]
fn backing_devices_are_read_where_they_have_all_data() {
    let Some(guest) = Guest::ready("6.12") else { return };
    bcache::judge(&guest);
}

/// The same with what only their caches have: Linux stopped in the middle of a load, and in order.
#[test]
fn what_only_a_cache_has_is_what_linux_reads() {
    let Some(guest) = Guest::ready("6.12") else { return };
    bcache::judge_stopped(&guest);
    bcache::judge_loads(&guest);
}
