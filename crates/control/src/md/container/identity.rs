//! Which drive of an IMSM container a member is.
//!
//! The metadata is the same on every drive and tells drives apart by serial numbers that only the
//! hardware knows. A block device tells its own, or that of the USB bridge that it is behind: a
//! number that is in no table says nothing, and then only its name does. Of a file what counts is,
//! in this order: a serial number in its name; that the metadata leaves only one drive which it can
//! be; that only one drive of the table has its size.
//!
//! Invariant: a drive is taken for another only if a name says so. What cannot be told is not
//! guessed.

use wattle_format::imsm::{Imsm, ImsmDisk};

use super::ContainerDrive;

/// Bytes of a serial number in the metadata; of longer ones the last.
const SERIAL_BYTES: usize = 16;

/// The serial number of each of these drives, as the metadata that is on it has it; `None` where it
/// is not known.
pub(super) fn identify(drives: &[(&ContainerDrive<'_>, &Imsm)]) -> Vec<Option<String>> {
    let mut found: Vec<_> = drives.iter().map(|(drive, imsm)| by_number(drive, imsm)).collect();
    for (ix, found) in found.iter_mut().enumerate() {
        if found.is_some() || drives[ix].0.serial.is_some() {
            continue;
        }
        *found = by_exclusion(drives, ix).or_else(|| by_size(drives, ix));
    }
    found
}

/// What the hardware says, or else the name.
fn by_number(drive: &ContainerDrive<'_>, imsm: &Imsm) -> Option<String> {
    let own = drive.serial.as_deref().map(reduced);
    let same = |disk: &&ImsmDisk| own.as_ref() == Some(&reduced(disk.own_serial()));
    if let Some(disk) = imsm.disks.iter().find(same) {
        return Some(disk.own_serial().to_owned());
    }
    let mut named = imsm.disks.iter().filter(|disk| is_named(drive.name, disk.own_serial()));
    let disk = named.next()?;
    named.next().is_none().then(|| disk.own_serial().to_owned())
}

/// Metadata is written to drives that work. If only one of the table does, it is that one.
fn by_exclusion(drives: &[(&ContainerDrive<'_>, &Imsm)], ix: usize) -> Option<String> {
    let (_, imsm) = drives[ix];
    let alike = drives.iter().filter(|(_, other)| other.generation == imsm.generation).count();
    let mut working = imsm.disks.iter().filter(|disk| !disk.has_failed());
    let disk = working.next()?;
    (alike == 1 && working.next().is_none()).then(|| disk.own_serial().to_owned())
}

/// The only drive of this size that works, and the only member of this size.
fn by_size(drives: &[(&ContainerDrive<'_>, &Imsm)], ix: usize) -> Option<String> {
    let (drive, imsm) = drives[ix];
    let alike = drives.iter().filter(|(other, _)| other.size_sectors == drive.size_sectors).count();
    let mut fitting = imsm.disks.iter().filter(|disk| disk.total_sectors == drive.size_sectors);
    let disk = fitting.next()?;
    (alike == 1 && fitting.next().is_none() && !disk.has_failed()).then(|| disk.own_serial().to_owned())
}

/// Whether a file's name has the serial number in it, with nothing that would make it a longer one
/// beside it.
fn is_named(name: &str, serial: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    // mdadm may have taken a device's path for a serial number.
    let serial = serial.rsplit('/').next().unwrap_or(serial).trim();
    if serial.is_empty() {
        return false;
    }
    let is_apart = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    file.match_indices(serial).any(|(at, _)| {
        is_apart(file[..at].chars().next_back()) && is_apart(file[at + serial.len()..].chars().next())
    })
}

/// A serial number as the metadata has it: without blanks, the last 16 bytes.
fn reduced(serial: &str) -> String {
    let visible: Vec<u8> = serial.bytes().filter(u8::is_ascii_graphic).collect();
    String::from_utf8_lossy(&visible[visible.len().saturating_sub(SERIAL_BYTES)..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_in_a_name_stands_alone() {
        for (name, serial, named) in [
            ("/x/WD-WCC4E1234567.img", "WD-WCC4E1234567", true),
            ("/x/sdb_S2R6NX0H1234.dd", "S2R6NX0H1234", true),
            ("dm-1.img", "/dev/dm-1", true),
            ("dm-10.img", "/dev/dm-1", false),
            ("/x/S1/disk.img", "S1", false),
            ("xS2R6.img", "S2R6", false),
            ("disk.img", "", false),
        ] {
            assert_eq!(is_named(name, serial), named, "{serial} in {name}");
        }
    }

    #[test]
    fn of_a_long_serial_number_the_end_counts() {
        assert_eq!(reduced("  WD-WMAVU 1234567890AB "), "MAVU1234567890AB");
        assert_eq!(reduced("S1\n"), "S1");
    }
}
