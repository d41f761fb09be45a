//! Files and the loop devices over them have one owner together.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use wattle_control::members::{Claim, Member, MemberAccess, MemberError};
use wattle_rt::{Device, Lock, OpenError, OpenOptions};

/// A loop device, until it is dropped.
struct Loop(String);

impl Loop {
    /// `None` where there are none.
    fn over(file: &Path, options: &[&str]) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output().ok();
        let made = made.filter(|made| made.status.success());
        if made.is_none() {
            assert!(std::env::var_os("CI").is_none(), "no loop device can be had, and this is CI");
            eprintln!("SKIPPED: no loop device can be had");
        }
        Some(Self(String::from_utf8(made?.stdout).unwrap().trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

fn file(room: &tempfile::TempDir, name: &str) -> PathBuf {
    let path = room.path().join(name);
    fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
    path
}

fn claim(name: &str) -> Result<Member, MemberError> {
    MemberAccess::local().look(name).unwrap().claim(Claim::Write)
}

fn refused(name: &str, word: &str) {
    let error = claim(name).unwrap_err().to_string();
    assert!(error.contains("in use") && error.contains(word), "{error}");
}

#[test]
fn an_idle_loop_device_is_held_with_its_file() {
    let room = tempfile::tempdir().unwrap();
    let path = file(&room, "a");
    let name = path.to_str().unwrap();
    let Some(device) = Loop::over(&path, &[]) else { return };
    // What mounts, assembles or formats a device opens it like this.
    let exclusive = OpenOptions { lock: Lock::Exclusive, ..OpenOptions::default() };
    let open = || Device::open(&device.0, exclusive);

    let link = room.path().join("link");
    fs::hard_link(&path, &link).unwrap();
    let claimed = claim(link.to_str().unwrap()).unwrap();
    let copy = claimed.device.clone();
    drop(claimed);
    assert_eq!(open().unwrap_err(), OpenError::Locked);
    refused(&device.0, "");
    drop(copy);
    let other = open().unwrap();
    refused(name, &format!("{} is over it", device.0));
    // Looking is always allowed, and reading together.
    MemberAccess::local().look(name).unwrap().claim(Claim::Read).unwrap();
    drop(other);
    claim(name).unwrap();
}

#[test]
fn a_loop_device_is_locked_by_its_part_of_the_file() {
    let room = tempfile::tempdir().unwrap();
    let path = file(&room, "a");
    let name = path.to_str().unwrap();
    let Some(whole) = Loop::over(&path, &[]) else { return };
    let half = (4 << 20).to_string();
    let first = Loop::over(&path, &["--sizelimit", &half]).unwrap();
    let second = Loop::over(&path, &["--offset", &half]).unwrap();

    let claimed = claim(&whole.0).unwrap();
    refused(name, "");
    refused(&second.0, &format!("it is over {name}"));
    drop(claimed);
    let parts = [&first, &second].map(|part| claim(&part.0).unwrap());
    refused(&whole.0, &format!("it is over {name}"));
    refused(name, "");
    drop(parts);

    // What uses the same bytes by another loop device has no lock.
    let swap = Command::new("mkswap").arg(&first.0).output().is_ok_and(|made| made.status.success());
    if swap && Command::new("swapon").arg(&first.0).status().is_ok_and(|on| on.success()) {
        let results = [&whole, &second].map(|other| claim(&other.0).err().map(|error| error.to_string()));
        let file = claim(name).err().map(|error| error.to_string());
        assert!(Command::new("swapoff").arg(&first.0).status().unwrap().success());
        let [whole, second] = results;
        let told = format!("{} is over it and used for swap", first.0);
        assert!(whole.as_ref().is_some_and(|whole| whole.contains(&told)), "{whole:?}");
        assert!(file.as_ref().is_some_and(|file| file.contains(&told)), "{file:?}");
        assert_eq!(second, None, "other bytes");
    } else {
        eprintln!("SKIPPED: no swap can be had");
    }
    drop((whole, first, second));
    claim(name).unwrap();
}

#[test]
fn a_file_is_in_use_with_what_is_mounted_over_it() {
    let room = tempfile::tempdir().unwrap();
    let (path, mount) = (file(&room, "a"), room.path().join("mount"));
    fs::create_dir(&mount).unwrap();
    let name = path.to_str().unwrap();
    let Some(device) = Loop::over(&path, &[]) else { return };
    let run = |command: &str| {
        let status = Command::new("sh").args(["-ec", command, "sh", &device.0]).arg(&mount).status();
        status.is_ok_and(|status| status.success())
    };
    if !run("mkfs.ext4 -q $1 && mount $1 $2") {
        assert!(std::env::var_os("CI").is_none(), "nothing can be mounted, and this is CI");
        eprintln!("SKIPPED: nothing can be mounted");
        return;
    }
    let error = claim(name).err().map(|error| error.to_string());
    assert!(run("umount $2"));
    let told = format!("{} is over it and mounted on {}", device.0, mount.display());
    assert!(error.as_ref().is_some_and(|error| error.contains(&told)), "{error:?}");
    let claimed = claim(name).unwrap();
    assert!(!run("mount $1 $2 2>/dev/null"), "mounted while it is claimed");
    drop(claimed);
    assert!(run("mount $1 $2 && umount $2"));
}
