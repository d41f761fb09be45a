//! Headers of members of a tar archive: ustar (POSIX.1-1988), with what does not fit into that in a
//! header of its own before it (pax, POSIX.1-2001).

use wattle_fs::{DeviceNumber, FileMetadata, FileTime};

/// What everything in an archive is a multiple of.
pub const BLOCK_BYTES: usize = 512;
/// The longest name of ustar that needs no prefix.
const NAME_BYTES: usize = 100;
/// The largest size in eleven octal digits, and the largest id in seven.
const SIZE_MAX: u64 = 0o777_7777_7777;
const ID_MAX: u32 = 0o777_7777;

/// What a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TarKind<'a> {
    /// A file with so many bytes.
    File(u64),
    /// A further name of the file with this one.
    HardLink(&'a [u8]),
    /// A symbolic link that leads here.
    Symlink(&'a [u8]),
    Directory,
    Fifo,
    /// Its number is in the metadata.
    CharDevice,
    /// The same.
    BlockDevice,
}

/// The headers of a member. `attributes` are extended ones, by name.
#[must_use]
pub fn member(
    path: &[u8],
    kind: TarKind<'_>,
    metadata: &FileMetadata,
    attributes: &[(Vec<u8>, Vec<u8>)],
) -> Vec<u8> {
    let (flag, size, link): (u8, u64, &[u8]) = match kind {
        TarKind::File(size) => (b'0', size, b""),
        TarKind::HardLink(to) => (b'1', 0, to),
        TarKind::Symlink(to) => (b'2', 0, to),
        TarKind::Directory => (b'5', 0, b""),
        TarKind::Fifo => (b'6', 0, b""),
        TarKind::CharDevice => (b'3', 0, b""),
        TarKind::BlockDevice => (b'4', 0, b""),
    };
    let mut records = Vec::new();
    let name = match kind {
        // The slash tells programs that know nothing else what it is.
        TarKind::Directory => [path, b"/"].concat(),
        _ => path.to_vec(),
    };
    if [&name[..], link].iter().any(|text| std::str::from_utf8(text).is_err()) {
        record(&mut records, b"hdrcharset", b"BINARY");
    }
    let needs_record = |text: &[u8]| text.len() > NAME_BYTES || !text.is_ascii();
    if needs_record(&name) {
        record(&mut records, b"path", &name);
    }
    if needs_record(link) {
        record(&mut records, b"linkpath", link);
    }
    if size > SIZE_MAX {
        record(&mut records, b"size", size.to_string().as_bytes());
    }
    for (key, id) in [(&b"uid"[..], metadata.uid), (b"gid", metadata.gid)] {
        if id > ID_MAX {
            record(&mut records, key, id.to_string().as_bytes());
        }
    }
    let FileTime { seconds, nanoseconds } = metadata.modified;
    let whole = u64::try_from(seconds).ok().filter(|seconds| *seconds <= SIZE_MAX);
    if nanoseconds != 0 || whole.is_none() {
        record(&mut records, b"mtime", decimal(seconds, nanoseconds).as_bytes());
    }
    for (key, value) in attributes {
        record(&mut records, &attribute_key(key), value);
    }
    let mut bytes = Vec::new();
    if !records.is_empty() {
        let plain = FileMetadata { mode: 0o644, uid: 0, gid: 0, device: None, ..*metadata };
        let len = records.len() as u64;
        bytes.extend(block(b"././@PaxHeader", b'x', len, b"", &plain, whole.unwrap_or(0)));
        bytes.extend(&records);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    }
    let size = if size > SIZE_MAX { 0 } else { size };
    bytes.extend(block(&name, flag, size, link, metadata, whole.unwrap_or(0)));
    bytes
}

/// The key of an extended attribute, as GNU tar writes it and reads it back: an equals sign would
/// end it.
fn attribute_key(name: &[u8]) -> Vec<u8> {
    let mut key = b"SCHILY.xattr.".to_vec();
    for &byte in name {
        match byte {
            b'%' => key.extend(b"%25"),
            b'=' => key.extend(b"%3D"),
            byte => key.push(byte),
        }
    }
    key
}

/// A record of pax: its own length, the key, the value.
fn record(to: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // A blank, the equals sign and the line's end.
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while rest + len.to_string().len() > len {
        len = rest + len.to_string().len();
    }
    to.extend(format!("{len} ").as_bytes());
    to.extend([key, b"=", value, b"\n"].concat());
}

/// A time as a decimal number; one before 1970 counts its fraction backwards, as numbers do.
fn decimal(seconds: i64, nanoseconds: u32) -> String {
    let text = match (seconds, nanoseconds) {
        (_, 0) => return seconds.to_string(),
        (0.., _) => format!("{seconds}.{nanoseconds:09}"),
        _ => format!("-{}.{:09}", (seconds + 1).unsigned_abs(), 1_000_000_000 - nanoseconds),
    };
    text.trim_end_matches('0').to_owned()
}

fn block(
    name: &[u8],
    flag: u8,
    size: u64,
    link: &[u8],
    metadata: &FileMetadata,
    seconds: u64,
) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name[..name.len().min(NAME_BYTES)]);
    put(100, format!("{:07o}", metadata.mode & 0o7777).as_bytes());
    let id = |id: u32| if id > ID_MAX { 0 } else { id };
    put(108, format!("{:07o}", id(metadata.uid)).as_bytes());
    put(116, format!("{:07o}", id(metadata.gid)).as_bytes());
    put(124, format!("{size:011o}").as_bytes());
    put(136, format!("{seconds:011o}").as_bytes());
    put(148, b"        ");
    put(156, &[flag]);
    put(157, &link[..link.len().min(NAME_BYTES)]);
    put(257, b"ustar\x0000");
    let DeviceNumber { major, minor } = metadata.device.unwrap_or(DeviceNumber { major: 0, minor: 0 });
    put(329, format!("{major:07o}").as_bytes());
    put(337, format!("{minor:07o}").as_bytes());
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_itself() {
        // Around where the length gets one more digit.
        for value in [0, 1, 4, 5, 6, 92, 93, 94, 95, 96, 990, 991, 992, 993] {
            let mut to = Vec::new();
            record(&mut to, b"a", &vec![b'v'; value]);
            let len: usize = std::str::from_utf8(&to).unwrap().split(' ').next().unwrap().parse().unwrap();
            assert_eq!(len, to.len(), "{value}");
        }
    }

    #[test]
    fn names_of_attributes_come_back_as_they_were() {
        assert_eq!(attribute_key(b"user.a%3Db"), b"SCHILY.xattr.user.a%253Db");
        assert_eq!(attribute_key(b"user.eq=x"), b"SCHILY.xattr.user.eq%3Dx");
    }

    #[test]
    fn times_before_1970_are_decimal_numbers() {
        assert_eq!(decimal(5, 250_000_000), "5.25");
        assert_eq!(decimal(-1, 0), "-1");
        // A quarter before 1970 began.
        assert_eq!(decimal(-1, 750_000_000), "-0.25");
        assert_eq!(decimal(-3, 500_000_000), "-2.5");
    }
}
