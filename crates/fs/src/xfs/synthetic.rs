//! Images for fuzzing: checksums that are made right, and a log without more of a file system than
//! it needs.

use crate::bytes::{be32, be64};
use crate::xfs::log::record::seal_records;
use crate::xfs::log::words::LogWords;

const BLOCK_BYTES: usize = 4096;
const LOG_BLOCK: usize = 128;
const LOG_BLOCKS: usize = 128;

/// Makes the checksums of all records of the log right that have one, in an image.
pub fn seal(image: &mut [u8]) {
    let place = || {
        let (block_bytes, start) = (u64::from(be32(image, 4)?), be64(image, 48)?);
        let (group_blocks, len) = (u64::from(be32(image, 84)?), u64::from(be32(image, 96)?));
        let group_log = u32::from(*image.get(124)?).min(63);
        let (group, within) = (start >> group_log, start & ((1 << group_log) - 1));
        let start = group.checked_mul(group_blocks)?.checked_add(within)?.checked_mul(block_bytes)?;
        let end = start.checked_add(len.checked_mul(block_bytes)?)?;
        Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    };
    if let Some(log) = place().and_then(|log| image.get_mut(log)) {
        seal_records(log);
    }
}

/// An image of version 5 that has a superblock and a log of one record, with these operations, in
/// that order of bytes.
pub fn with_log_of(operations: &[u8], words: LogWords) -> Vec<u8> {
    let mut image = vec![0; (LOG_BLOCK + LOG_BLOCKS) * BLOCK_BYTES];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    let number = |number: usize| (number as u64).to_be_bytes();
    put(0, b"XFSB");
    put(4, &number(BLOCK_BYTES)[4..]);
    put(8, &number(LOG_BLOCK + LOG_BLOCKS));
    put(32, &[7; 16]);
    put(48, &number(LOG_BLOCK));
    put(56, &number(64));
    put(84, &number(LOG_BLOCK + LOG_BLOCKS)[4..]);
    put(88, &number(1)[4..]);
    put(96, &number(LOG_BLOCKS)[4..]);
    put(100, &[0xb4, 0xa5]);
    put(102, &[2, 0]);
    // Logarithms: of blocks, sectors, inodes, inodes in a block, and blocks in a group.
    put(120, &[12, 9, 9, 3, 8]);
    put(216, &number(3)[4..]);
    crate::xfs::log::seal_at(&mut image[..512], 224);
    let log = &mut image[LOG_BLOCK * BLOCK_BYTES..];
    let data = &operations[..operations.len().min(32 << 10)];
    let mut put = |at: usize, bytes: &[u8]| log[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0xfe, 0xed, 0xba, 0xbe, 0, 0, 0, 1, 0, 0, 0, 2]);
    put(12, &number(data.len().max(1))[4..]);
    put(16, &[0, 0, 0, 1]);
    put(24, &[0, 0, 0, 1]);
    put(40, &number(20)[4..]);
    put(300, &number(if words == LogWords::Little { 1 } else { 2 })[4..]);
    put(304, &[7; 16]);
    put(320, &number(32 << 10)[4..]);
    for (ix, sector) in data.chunks(512).enumerate() {
        put(512 * (ix + 1), sector);
        put(44 + ix * 4, &sector[..sector.len().min(4)]);
        put(512 * (ix + 1), &[0, 0, 0, 1]);
    }
    if data.is_empty() {
        put(512, &[0, 0, 0, 1]);
    }
    seal(&mut image);
    image
}

/// Writes operations of a log in an order of bytes.
struct Operations {
    words: LogWords,
    bytes: Vec<u8>,
}

impl Operations {
    fn number(&self, number: u64, len: usize) -> Vec<u8> {
        match self.words {
            LogWords::Little => number.to_le_bytes()[..len].to_vec(),
            LogWords::Big => number.to_be_bytes()[8 - len..].to_vec(),
        }
    }

    fn operation(&mut self, flags: u8, body: &[u8]) {
        self.bytes.extend([0, 0, 0, 9]);
        self.bytes.extend((body.len() as u32).to_be_bytes());
        self.bytes.extend([0x69, flags, 0, 0]);
        self.bytes.extend(body);
    }

    /// A region of fields: each a number and its length in bytes.
    fn region(&mut self, fields: &[(u64, usize)]) {
        let region: Vec<u8> = fields.iter().flat_map(|&(number, len)| self.number(number, len)).collect();
        self.operation(0, &region);
    }

    /// An inode: number, mode, format, size; what is not given is 0.
    fn inode(&mut self, number: u64, mode: u64, format: u64, size: u64, fork: Option<&[u8]>) {
        let (regions, fields) = if fork.is_some() { (3, 0x3) } else { (2, 0x1) };
        let (sector, at) = (64 + (number - 64) / 16 * 16, (number - 64) % 16 * 512);
        self.region(&[
            (0x123b, 2),
            (regions, 2),
            (fields, 4),
            (0, 8),
            (number, 8),
            (0, 8),
            (0, 8),
            (sector, 8),
            (16, 4),
            (at, 4),
        ]);
        let core = [(0x494e, 2), (mode, 2), (3, 1), (format, 1), (0, 2), (0, 8), (1, 4), (0, 8)];
        let times = [(0, 8), (0, 8), (0, 8), (size, 8), (0, 8), (0, 8), (0, 8), (0, 8), (0, 8)];
        let rest = [(0, 8), (0, 8), (0, 8), (0, 8), (0, 8), (0, 8), (number, 8), (0, 8), (0, 8)];
        let fields: Vec<_> = [&core[..], &[(0, 4)], &times, &rest].concat();
        self.region(&fields);
        fork.iter().for_each(|fork| self.operation(0, fork));
    }
}

/// Operations that make a root directory with a file in it, whose block is mapped by an intent.
pub fn example(words: LogWords) -> Vec<u8> {
    let mut log = Operations { words, bytes: Vec::new() };
    log.operation(0x01, &[]);
    log.region(&[(0x5452_414e, 4), (40, 4), (9, 4), (5, 4)]);
    // A chunk of inodes at block 8; its fields are big-endian everywhere.
    let created = [8_u32, 64, 512, 8, 1].map(u32::to_be_bytes).concat();
    let head = [log.number(0x123f, 2), log.number(1, 2), vec![0; 4], created].concat();
    log.operation(0, &head);
    let directory = [1, 0, 0, 0, 0, 64, 1, 0, 0x60, b'f', 1, 0, 0, 0, 65, 0];
    log.inode(64, 0o40755, 1, 15, Some(&directory));
    log.inode(65, 0o100_644, 2, 5000, None);
    // The first 128 bytes of block 100.
    log.region(&[(0x123c, 2), (2, 2), (0, 2), (8, 2), (800, 8), (1, 4), (1, 4)]);
    log.operation(0, &[b'x'; 128]);
    log.region(&[(0x1244, 2), (1, 2), (1, 4), (3, 8), (65, 8), (100, 8), (0, 8), (2, 4), (1, 4)]);
    log.operation(0x02, &[]);
    log.bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileSystem, FsNode, Note};

    fn shown(words: LogWords, operations: &[u8]) -> Box<dyn FileSystem> {
        crate::open(Box::new(with_log_of(operations, words)), None).unwrap()
    }

    #[test]
    fn a_log_of_either_order_of_bytes_is_applied() {
        for words in [LogWords::Little, LogWords::Big] {
            let fs = shown(words, &example(words));
            assert_eq!(fs.about().notes, [Note::LogApplied { transactions: 1 }], "{words:?}");
            let mut entries = Vec::new();
            fs.list(fs.root(), &mut |entry| {
                entries.push(entry);
                Ok(())
            })
            .unwrap();
            let file = FsNode { tree: 0, inode: 65 };
            assert_eq!(entries, [crate::DirEntry { name: b"f".to_vec(), node: file }]);
            let mut data = Vec::new();
            fs.read(file, 0..u64::MAX, &mut |_, bytes| {
                data.extend_from_slice(bytes);
                Ok(())
            })
            .unwrap();
            assert_eq!((data.len(), &data[..129]), (5000, &[&[b'x'; 128][..], &[0]].concat()[..]));
        }
    }

    #[test]
    fn what_has_no_commit_never_was() {
        let operations = example(LogWords::Little);
        let fs = shown(LogWords::Little, &operations[..operations.len() - 12]);
        assert_eq!(fs.about().notes, []);
        assert!(fs.metadata(fs.root()).is_err());
    }

    #[test]
    fn an_item_of_an_unknown_kind_ends_what_is_applied() {
        let mut operations = example(LogWords::Little);
        let at = operations.windows(2).position(|two| two == [0x44, 0x12]).unwrap();
        operations[at] = 0x90;
        let fs = shown(LogWords::Little, &operations);
        assert!(matches!(fs.not_as_mounted()[..], [Note::LogCutShort { transactions: 0, .. }]));
    }
}
