//! The light of a drive's bay, as the kernel's enclosure services show it.

use std::fs;
use std::path::{Path, PathBuf};

use wattle_control::{Code, Problem};

/// The file that switches the light of the drive that a member is on, or is a partition of.
///
/// # Errors
/// There is none that is known.
pub fn light(sys: &Path, member: &str) -> Result<PathBuf, Problem> {
    let device = fs::canonicalize(member).unwrap_or_else(|_| PathBuf::from(member));
    let name = device.file_name().filter(|_| device.starts_with("/dev"));
    let found = name.and_then(|name| {
        let block = sys.join("class/block").join(name);
        // A partition's directory lies in its drive's.
        let whole = match block.join("partition").exists() {
            true => fs::canonicalize(&block).ok()?.parent()?.to_owned(),
            false => block,
        };
        let entries = fs::read_dir(whole.join("device")).ok()?;
        let bays = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let is_bay = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("enclosure_device:"))
        };
        bays.filter(is_bay).map(|bay| bay.join("locate")).find(|file| file.exists())
    });
    found.ok_or_else(|| {
        Problem::new(
            Code::NoLocateLight,
            format!("no light is known for {member}"),
            "the kernel shows no enclosure with a light for it (module ses, /sys/class/enclosure)",
            "find the drive by the serial number on its label, or try `ledctl locate=DEVICE` of the package ledmon",
        )
    })
}

/// Lights it, or puts it out.
///
/// # Errors
/// The kernel refuses.
pub fn switch(file: &Path, on: bool) -> Result<(), Problem> {
    fs::write(file, if on { "1\n" } else { "0\n" }).map_err(|error| {
        Problem::new(
            Code::NoLocateLight,
            format!("the light cannot be switched: {}: {error}", file.display()),
            "enclosures are switched by root, and not all of them can be",
            "run the page as root, or find the drive by the serial number on its label",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_light_of_a_drive_is_that_of_its_bay() {
        let sys = tempfile::tempdir().unwrap();
        let drive = sys.path().join("devices/pci/block/sdq");
        let bay = sys.path().join("devices/pci/enclosure_device:Slot 3");
        fs::create_dir_all(drive.join("sdq1")).unwrap();
        fs::create_dir_all(&bay).unwrap();
        fs::create_dir_all(sys.path().join("class/block")).unwrap();
        symlink("../..", drive.join("device")).unwrap();
        fs::write(drive.join("sdq1/partition"), "1").unwrap();
        fs::write(bay.join("locate"), "0\n").unwrap();
        symlink(&drive, sys.path().join("class/block/sdq")).unwrap();
        symlink(drive.join("sdq1"), sys.path().join("class/block/sdq1")).unwrap();
        for member in ["/dev/sdq", "/dev/sdq1"] {
            let file = light(sys.path(), member).unwrap();
            switch(&file, true).unwrap();
            assert_eq!(fs::read_to_string(bay.join("locate")).unwrap(), "1\n", "{member}");
            switch(&file, false).unwrap();
            assert_eq!(fs::read_to_string(bay.join("locate")).unwrap(), "0\n", "{member}");
        }
        for other in ["/dev/sdr", "disk.img", "/dev/../etc/passwd", "nbd+unix:///?socket=x", ""] {
            assert_eq!(light(sys.path(), other).unwrap_err().code, Code::NoLocateLight, "{other}");
        }
    }
}
