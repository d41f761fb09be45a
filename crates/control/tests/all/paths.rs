//! One drive by two block devices: loop devices of one file, with numbers in a directory that
//! stands for sysfs, because loop devices tell none.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use wattle_control::members::{Claim, MemberAccess, MemberError};

/// A loop device, until it is dropped.
struct Loop(String);

impl Loop {
    /// `None` where there are none.
    fn of(file: &Path) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok();
        let made = made.filter(|made| made.status.success());
        if made.is_none() {
            assert!(std::env::var_os("CI").is_none(), "no loop device can be had, and this is CI");
            eprintln!("SKIPPED: no loop device can be had");
        }
        Some(Self(String::from_utf8(made?.stdout).unwrap().trim().to_owned()))
    }

    /// Has it tell a number, or none.
    fn tell(&self, sys: &Path, number: Option<&str>) {
        let rdev = fs::metadata(&self.0).unwrap().rdev();
        let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
        let drive = sys.join("devices").join(self.0.trim_start_matches("/dev/"));
        fs::create_dir_all(drive.join("device")).unwrap();
        match number {
            Some(number) => fs::write(drive.join("device/wwid"), number).unwrap(),
            None => fs::remove_file(drive.join("device/wwid")).unwrap(),
        }
        fs::create_dir_all(sys.join("dev/block")).unwrap();
        let node = sys.join("dev/block").join(format!("{major}:{minor}"));
        let _ = fs::remove_file(&node);
        symlink(drive, node).unwrap();
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn two_block_devices_that_tell_one_number_are_one_drive() {
    let room = tempfile::tempdir().unwrap();
    let (file, other, sys) = (room.path().join("a"), room.path().join("b"), room.path().join("sys"));
    for file in [&file, &other] {
        fs::File::create(file).unwrap().set_len(8 << 20).unwrap();
    }
    let (Some(one), Some(two), Some(third)) = (Loop::of(&file), Loop::of(&file), Loop::of(&other)) else {
        return;
    };
    for path in [&one, &two, &third] {
        path.tell(&sys, Some("naa.5000c500a1b2c3d4"));
    }
    let access = MemberAccess::local().with_sys(sys.clone());
    let name = format!("{}|{}", one.0, two.0);
    // Two blank drives with one number would be alike, too.
    for other in [&two, &third] {
        let error = access.look(&format!("{}|{}", one.0, other.0)).unwrap_err();
        assert!(matches!(error, MemberError::PathsUnknown { .. }), "{error}");
    }
    let content = fs::File::options().write(true).open(&file).unwrap();
    content.write_all_at(b"a superblock", 4096).unwrap();
    content.sync_all().unwrap();
    let member = access.look(&name).unwrap();
    assert_eq!(member.device.size_bytes(), 8 << 20);

    let drive = member.claim(Claim::Write).unwrap().device;
    drive.write_blocking(4096, &[7; 4096]).unwrap();
    drive.sync_blocking().unwrap();
    assert_eq!(fs::read(&file).unwrap()[4096..8192], [7; 4096]);
    assert!(drive.link().is_some(), "its paths are shown");
    let error = access.look(&two.0).unwrap().claim(Claim::Write).unwrap_err();
    assert!(error.to_string().contains("in use"), "both ways are held: {error}");
    drop(drive);

    // A path that leads elsewhere since it was looked at.
    let member = access.look(&name).unwrap();
    assert!(Command::new("losetup").args(["-d", &two.0]).status().unwrap().success());
    let moved = Command::new("losetup").arg(&two.0).arg(&other).status().unwrap();
    assert!(moved.success());
    let error = member.claim(Claim::Write).unwrap_err();
    assert!(matches!(error, MemberError::PathsDiffer { .. }), "{error}");
    assert!(Command::new("losetup").args(["-d", &two.0]).status().unwrap().success());
    assert!(Command::new("losetup").arg(&two.0).arg(&file).status().unwrap().success());

    // Given as two members they are refused, and so is one beside both.
    let error = access.look_all(&[one.0.clone(), name.clone()]).unwrap_err();
    assert!(matches!(error, MemberError::GivenTwice { .. } | MemberError::SameDrive { .. }), "{error}");
    // One number is not enough: enclosures give it to all of their drives.
    fs::write(&other, vec![9; 8 << 20]).unwrap();
    let error = access.look(&format!("{}|{}", one.0, third.0)).unwrap_err();
    assert!(matches!(error, MemberError::PathsDiffer { .. }), "{error}");
    two.tell(&sys, Some("naa.5000c500a1b2c3d5"));
    let error = access.look(&name).unwrap_err();
    assert!(matches!(error, MemberError::PathsDiffer { .. }), "{error}");
    two.tell(&sys, None);
    let error = access.look(&name).unwrap_err();
    assert!(matches!(error, MemberError::PathsUnknown { .. }), "{error}");
    // A way that is not there now is left out.
    two.tell(&sys, Some("naa.5000c500a1b2c3d4"));
    let member = access.look(&format!("/dev/wattle-none|{}", two.0)).unwrap();
    let drive = member.claim(Claim::Write).unwrap().device;
    drive.write_blocking(0, &[5; 4096]).unwrap();
    assert_eq!(fs::read(&file).unwrap()[..4096], [5; 4096]);
}
