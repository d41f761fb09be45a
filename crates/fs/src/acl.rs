//! Access control lists: from the forms on disks to the one that programs see.
//!
//! Linux hands them on as version 2, and then of each entry its tag, permissions and number (`
//! include/uapi/linux/posix_acl_xattr.h` has the layout).

use crate::bytes::{be16, be32, le16, le32};

const VERSION: u32 = 2;
/// Entries that are about a user or group by its number; others have none.
const USER: u16 = 0x02;
const GROUP: u16 = 0x08;

fn to_program(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut list = VERSION.to_le_bytes().to_vec();
    for (tag, permissions, number) in entries {
        let number = if matches!(*tag, USER | GROUP) { *number } else { u32::MAX };
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(number.to_le_bytes());
    }
    list
}

/// From ext's: version 1, and entries without a number are short. `None` if it is none.
pub fn of_ext(value: &[u8]) -> Option<Vec<u8>> {
    if le32(value, 0)? != 1 {
        return None;
    }
    let (mut at, mut entries) = (4, Vec::new());
    while at < value.len() {
        let (tag, permissions) = (le16(value, at)?, le16(value, at + 2)?);
        at += 4;
        let mut number = u32::MAX;
        if matches!(tag, USER | GROUP) {
            number = le32(value, at)?;
            at += 4;
        }
        entries.push((tag, permissions, number));
    }
    Some(to_program(&entries))
}

/// From XFS's: big-endian, all entries alike. `None` if it is none.
pub fn of_xfs(value: &[u8]) -> Option<Vec<u8>> {
    const ENTRY_BYTES: usize = 12;
    let count = be32(value, 0)? as usize;
    let listed = value.get(4..4 + count.checked_mul(ENTRY_BYTES)?)?;
    let entry = |entry: &[u8]| {
        let tag = u16::try_from(be32(entry, 0)?).ok()?;
        Some((tag, be16(entry, 8)?, be32(entry, 4)?))
    };
    let entries: Option<Vec<_>> = listed.chunks_exact(ENTRY_BYTES).map(entry).collect();
    Some(to_program(&entries?))
}
