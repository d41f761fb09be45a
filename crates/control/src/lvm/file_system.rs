//! How large a file system says it is: what a volume may not become smaller than.

/// How much of a volume's start this takes.
pub const HEAD_BYTES: usize = 68 << 10;

const EXT_AT: usize = 1024;
const BTRFS_AT: usize = 64 << 10;
const EXT_64BIT: u32 = 0x80;

/// The size of the ext2, ext3, ext4, XFS or btrfs whose start this is. `None` if it is none of
/// these, or says something impossible.
#[must_use]
pub fn size_bytes(head: &[u8]) -> Option<u64> {
    ext(head).or_else(|| xfs(head)).or_else(|| btrfs(head))
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn ext(head: &[u8]) -> Option<u64> {
    let superblock = head.get(EXT_AT..)?;
    let number = |at| Some(u32::from_le_bytes(field(superblock, at)?));
    if field(superblock, 0x38)? != [0x53, 0xEF] {
        return None;
    }
    let block_bytes =
        1024_u64.checked_shl(number(0x18)?).filter(|bytes| *bytes <= 64 << 10 && *bytes != 0)?;
    let high = if number(0x60)? & EXT_64BIT != 0 { number(0x150)? } else { 0 };
    (u64::from(high) << 32 | u64::from(number(0x4)?)).checked_mul(block_bytes)
}

fn xfs(head: &[u8]) -> Option<u64> {
    if !head.starts_with(b"XFSB") {
        return None;
    }
    let block_bytes = u32::from_be_bytes(field(head, 4)?);
    u64::from_be_bytes(field(head, 8)?).checked_mul(block_bytes.into())
}

/// What it uses of this device, of which it may have others.
fn btrfs(head: &[u8]) -> Option<u64> {
    let superblock = head.get(BTRFS_AT..)?;
    if field(superblock, 0x40)? != *b"_BHRfS_M" {
        return None;
    }
    Some(u64::from_le_bytes(field(superblock, 0xd1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; HEAD_BYTES];
        parts.iter().for_each(|(at, bytes)| head[*at..*at + bytes.len()].copy_from_slice(bytes));
        head
    }

    #[test]
    fn sizes_that_file_systems_state() {
        let ext = head(&[(1024 + 4, &[0, 0, 1, 0]), (1024 + 0x18, &[2]), (1024 + 0x38, &[0x53, 0xEF])]);
        assert_eq!(size_bytes(&ext), Some(256 << 20), "65536 blocks of 4 KiB");
        let mut large = ext.clone();
        large[1024 + 0x60] = 0x80;
        large[1024 + 0x150] = 1;
        assert_eq!(size_bytes(&large), Some((256 << 20) + (1 << 44)));
        let xfs = head(&[(0, b"XFSB"), (4, &[0, 0, 16, 0]), (8, &[0, 0, 0, 0, 0, 1, 0, 0])]);
        assert_eq!(size_bytes(&xfs), Some(256 << 20));
        let btrfs = head(&[(BTRFS_AT + 0x40, b"_BHRfS_M"), (BTRFS_AT + 0xd1, &[0, 0, 0, 16])]);
        assert_eq!(size_bytes(&btrfs), Some(256 << 20));
        assert_eq!(size_bytes(&head(&[])), None);
        assert_eq!(size_bytes(&xfs[..6]), None);
        assert_eq!(size_bytes(&head(&[(1024 + 0x18, &[60]), (1024 + 0x38, &[0x53, 0xEF])])), None);
        assert_eq!(size_bytes(&head(&[(0, b"XFSB"), (4, &[255; 12])])), None, "past 64 bits");
    }
}
