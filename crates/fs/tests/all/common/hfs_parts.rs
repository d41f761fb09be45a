//! What volumes of HFS+ have besides files and folders: hard links, compressed files, journals.

use super::hfs::{ROOT, Volume, be16, be32, put};

/// Where what hard links lead to is kept, and their numbers.
pub fn private(volume: &mut Volume) -> (u32, u32) {
    let files = volume.folder(ROOT, "\0\0\0\0HFS+ Private Data");
    let folders = volume.folder(ROOT, ".HFS+ Private Directory Data\r");
    (files, folders)
}

/// What Linux and macOS write to a volume in a few transactions of its journal.
pub struct Journal {
    pub is_little: bool,
    /// With numbers and checksums, as macOS writes it today.
    pub is_new: bool,
    /// The first transaction begins there in the ring.
    pub start: usize,
    /// The header knows of so many.
    pub named: usize,
}

const SECTOR: usize = 512;
const LIST: usize = 1024;

impl Journal {
    fn bytes<const N: usize>(&self, big: [u8; N]) -> [u8; N] {
        let mut bytes = big;
        if self.is_little {
            bytes.reverse();
        }
        bytes
    }

    /// Writes transactions of blocks, by their places, into the ring.
    pub fn write(&self, image: &mut [u8], at: usize, len: usize, transactions: &[Vec<(usize, Vec<u8>)>]) {
        let (mut place, mut end) = (self.start, self.start);
        let mut put_in_ring = |place: &mut usize, bytes: &[u8]| {
            for byte in bytes {
                image[at + *place] = *byte;
                *place = if *place + 1 == len { SECTOR } else { *place + 1 };
            }
        };
        for (number, blocks) in transactions.iter().enumerate() {
            let mut list = vec![0; LIST];
            let taken: usize = blocks.iter().map(|block| block.1.len()).sum();
            put(&mut list, 0, &self.bytes(be16(60)));
            put(&mut list, 2, &self.bytes(be16(blocks.len() + 1)));
            put(&mut list, 4, &self.bytes(be32(LIST + taken)));
            put(&mut list, 12, &self.bytes(be32(if self.is_new { 3 } else { 0 })));
            put(&mut list, 28, &self.bytes(be32(if self.is_new { 100 + number } else { 0 })));
            for (entry, (place, bytes)) in (1..).zip(blocks) {
                let at = 16 + entry * 16;
                put(&mut list, at, &self.bytes(((place / SECTOR) as u64).to_be_bytes()));
                put(&mut list, at + 8, &self.bytes(be32(bytes.len())));
                let sum = if self.is_new { sum(bytes) } else { 0 };
                put(&mut list, at + 12, &self.bytes(sum.to_be_bytes()));
            }
            let of_list = self.bytes(sum(&list[..32]).to_be_bytes());
            put(&mut list, 8, &of_list);
            put_in_ring(&mut place, &list);
            blocks.iter().for_each(|(_, bytes)| put_in_ring(&mut place, bytes));
            end = if number < self.named { place } else { end };
        }
        let mut head = vec![0; 48];
        put(&mut head, 0, &self.bytes(be32(0x4a4e_4c78)));
        put(&mut head, 4, &self.bytes(be32(0x1234_5678)));
        for (at, number) in [(8, self.start), (16, end), (24, len)] {
            put(&mut head, at, &self.bytes((number as u64).to_be_bytes()));
        }
        put(&mut head, 32, &self.bytes(be32(LIST)));
        put(&mut head, 40, &self.bytes(be32(SECTOR)));
        let of_head = self.bytes(sum(&head[..44]).to_be_bytes());
        put(&mut head, 36, &of_head);
        put(image, at, &head);
    }
}

fn sum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(0_u32, |sum, &byte| sum << 8 ^ sum.wrapping_add(byte.into()))
}

/// A small volume that has all that is read: for damage.
pub fn example(block: usize) -> Vec<u8> {
    let mut volume = Volume::new((2 << 20) / block, block);
    let ring = volume.journal(64 << 10);
    let (files, folders) = private(&mut volume);
    let kept = volume.file(files, "iNode77", b"linked");
    volume.set(kept, 44, &be32(2));
    volume.link(ROOT, "one", 77);
    volume.link(ROOT, "two", 77);
    let folder = volume.folder(folders, "dir_9");
    volume.file(folder, "within", b"a folder with two names");
    volume.link_of_folder(ROOT, "here", 9);
    let many = volume.folder(ROOT, "many");
    for number in 0..120 {
        volume.file(many, &format!("number {number}"), b"few");
    }
    let pieces = volume.fragmented(ROOT, "pieces", &vec![7; 40 * block], 40);
    volume.resource(pieces, &vec![8; 20 * block], 20);
    volume.attribute(pieces, "small", b"value");
    volume.large_attribute(pieces, "large", &vec![9; 12 * block], 12);
    let link = volume.file(ROOT, "soft", b"many/number 1");
    volume.mode(link, 0o120_777);
    let plain = [b"again and again ".repeat(8000), vec![1; 5000]].concat();
    zlib_in_resource(&mut volume, "packed", &plain);
    let file = volume.file(ROOT, "packed with LZVN", b"");
    volume.compressed(file, 7, 13, &[0xe3, b'a', b'b', b'c', 0x00, 3, 0xe1, b'x', 0x06]);
    volume.flags(0, 0x100);
    let mut image = volume.build();
    let end = image.len();
    let header = image[1024..1536].to_vec();
    let journal = Journal { is_little: true, is_new: true, start: 60 << 10, named: 1 };
    journal.write(&mut image, ring, 64 << 10, &[vec![(1024, header.clone())], vec![(end - 1024, header)]]);
    image
}

/// A file that is compressed in pieces of 64 KiB: each as it is behind a byte that says so, or as
/// one block of zlib that is stored.
pub fn zlib_in_resource(volume: &mut Volume, name: &str, plain: &[u8]) -> u32 {
    let packed: Vec<Vec<u8>> = plain
        .chunks(64 << 10)
        .enumerate()
        .map(|(number, piece)| match number % 2 {
            0 => [&[0xff][..], piece].concat(),
            _ => stored_zlib(piece),
        })
        .collect();
    let mut table = (packed.len() as u32).to_le_bytes().to_vec();
    let mut at = 4 + 8 * packed.len();
    for piece in &packed {
        table.extend([(at as u32).to_le_bytes(), (piece.len() as u32).to_le_bytes()].concat());
        at += piece.len();
    }
    let mut fork = vec![0; 256];
    put(&mut fork, 0, &be32(256));
    fork.extend(be32(at));
    fork.extend(table);
    fork.extend(packed.concat());
    let file = volume.file(ROOT, name, b"");
    volume.resource(file, &fork, 3);
    volume.compressed(file, 4, plain.len() as u64, b"");
    file
}

/// A stream of zlib whose blocks are stored.
pub fn stored_zlib(plain: &[u8]) -> Vec<u8> {
    let mut packed = vec![0x78, 0x01];
    let parts: Vec<&[u8]> = plain.chunks(60_000).collect();
    for (number, part) in (1..).zip(&parts) {
        let len = part.len() as u16;
        packed.push(u8::from(number == parts.len()));
        packed.extend(len.to_le_bytes());
        packed.extend((!len).to_le_bytes());
        packed.extend(*part);
    }
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in plain {
        a = (a + u32::from(byte)) % 65521;
        b = (b + a) % 65521;
    }
    packed.extend((b << 16 | a).to_be_bytes());
    packed
}
