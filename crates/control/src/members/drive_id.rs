//! Whether two block devices are one drive: by the WWID or the serial number that it tells of
//! itself, and by what is on it, since enclosures of one kind often give all drives one number.

use std::fs;
use std::path::Path;

use wattle_rt::Device;

use super::Member;

/// Where superblocks, labels and partition tables are: at the beginning, and at the end.
const HEAD_BYTES: u64 = 16 << 10;
const TAIL_BYTES: u64 = 128 << 10;

/// Where a drive's own number is, below its directory in sysfs: NVMe, SCSI and SATA, virtio.
const FILES: [&str; 4] = ["wwid", "device/wwid", "device/serial", "serial"];

/// The number that the drive of a device number tells of itself; of a partition, with its number
/// there. `sys` is where sysfs is.
pub(super) fn drive_id(sys: &Path, rdev: u64) -> Option<String> {
    let node = format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let directory = sys.join("dev/block").join(node).canonicalize().ok()?;
    let partition = fs::read_to_string(directory.join("partition")).ok();
    let drive = if partition.is_some() { directory.parent()? } else { &directory };
    let told = FILES.iter().filter_map(|file| fs::read_to_string(drive.join(file)).ok());
    let id = told.map(|text| text.trim().to_owned()).find(|text| !text.is_empty())?;
    Some(match partition {
        Some(number) => format!("{id}, partition {}", number.trim()),
        None => id,
    })
}

/// What a device of the kernel's own is made of, which has no number: the id of a map of the device
/// mapper or of an array, the file behind a loop device.
pub(super) fn made_of(sys: &Path, rdev: u64) -> Option<String> {
    let node = format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let directory = sys.join("dev/block").join(node);
    let told =
        ["dm/uuid", "md/uuid", "loop/backing_file"].map(|file| fs::read_to_string(directory.join(file)).ok());
    told.into_iter().flatten().map(|text| text.trim().to_owned()).find(|text| !text.is_empty())
}

/// Serial numbers alone: NVMe, virtio, SATA and SCSI (the page that the drive answers with, behind
/// a head of four bytes).
const SERIALS: [(&str, usize); 3] = [("device/serial", 0), ("serial", 0), ("device/vpd_pg80", 4)];

/// The serial number of the drive of a device number; a partition has none.
pub(super) fn serial(sys: &Path, rdev: u64) -> Option<String> {
    let node = format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let directory = sys.join("dev/block").join(node).canonicalize().ok()?;
    if directory.join("partition").exists() {
        return None;
    }
    let told = SERIALS.iter().filter_map(|(file, head)| {
        let bytes = fs::read(directory.join(file)).ok()?;
        let text = String::from_utf8_lossy(bytes.get(*head..)?);
        Some(text.trim_matches(|c: char| c.is_whitespace() || c.is_control()).to_owned())
    });
    told.into_iter().find(|text| !text.is_empty())
}

/// Whether two members show the same where superblocks would be.
pub(super) fn show_the_same(one: &Member, other: &Member) -> bool {
    ends_are_the_same(one.device.size_bytes(), other.device.size_bytes(), |second, at, len| {
        if second { other } else { one }.read(at, len).ok()
    })
}

/// What two devices show where superblocks would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Same,
    /// The same, and nothing but zeros: one blank drive is like another.
    Blank,
    Different,
}

/// Compares two devices.
pub(super) fn compare(one: &Device, other: &Device) -> Comparison {
    let mut blank = true;
    let same = ends_are_the_same(one.size_bytes(), other.size_bytes(), |second, at, len| {
        let mut bytes = vec![0; len];
        let read = if second { other } else { one }.read_blocking(at, &mut bytes);
        blank &= bytes.iter().all(|byte| *byte == 0);
        read.ok().map(|()| bytes)
    });
    match (same, blank) {
        (false, _) => Comparison::Different,
        (true, true) => Comparison::Blank,
        (true, false) => Comparison::Same,
    }
}

fn ends_are_the_same(
    size_bytes: u64,
    other_bytes: u64,
    mut read: impl FnMut(bool, u64, usize) -> Option<Vec<u8>>,
) -> bool {
    let (head, tail) = (HEAD_BYTES.min(size_bytes), TAIL_BYTES.min(size_bytes));
    size_bytes == other_bytes
        && [(0, head), (size_bytes - tail, tail)].into_iter().all(|(at, len)| {
            let first = read(false, at, len as usize);
            first.is_some() && first == read(true, at, len as usize)
        })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_drive_is_known_by_the_number_that_it_tells() {
        let sys = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = sys.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("devices/sdb/device/wwid", "naa.5000c500a1b2c3d4\n");
        put("devices/sdb/sdb1/partition", "1\n");
        put("devices/sdc/device/wwid", "naa.5000c500a1b2c3d4\n");
        put("devices/nvme0n1/wwid", "eui.0025385a91b0c1d2\n");
        put("devices/vda/serial", "\n");
        fs::create_dir_all(sys.path().join("dev/block")).unwrap();
        for (number, drive) in
            [("8:16", "sdb"), ("8:17", "sdb/sdb1"), ("8:32", "sdc"), ("259:0", "nvme0n1"), ("254:0", "vda")]
        {
            symlink(sys.path().join("devices").join(drive), sys.path().join("dev/block").join(number))
                .unwrap();
        }
        let id = |major, minor| drive_id(sys.path(), rustix::fs::makedev(major, minor));
        assert_eq!(id(8, 16).as_deref(), Some("naa.5000c500a1b2c3d4"));
        assert_eq!(id(8, 16), id(8, 32), "two ways to one drive");
        assert_eq!(id(8, 17).as_deref(), Some("naa.5000c500a1b2c3d4, partition 1"));
        assert_eq!(id(259, 0).as_deref(), Some("eui.0025385a91b0c1d2"));
        assert_eq!((id(254, 0), id(7, 0)), (None, None), "it tells none");

        put("devices/sdb/device/vpd_pg80", "\0\u{80}\0\u{14}     WD-WCC4E1234567\n");
        put("devices/nvme0n1/device/serial", "S2R6NX0H123456  \n");
        let serial = |major, minor| serial(sys.path(), rustix::fs::makedev(major, minor));
        assert_eq!(serial(259, 0).as_deref(), Some("S2R6NX0H123456"));
        assert!(serial(8, 16).is_some_and(|serial| serial.ends_with("WD-WCC4E1234567")));
        assert_eq!((serial(8, 17), serial(8, 32), serial(254, 0)), (None, None, None));
    }
}
