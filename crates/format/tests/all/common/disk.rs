//! Disks with partition tables, written here from the formats' own description, with a checksum of
//! its own.

/// One bit at a time.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// First and last sector of a partition, counted in sectors of the disk.
pub type Range = (u64, u64);

/// A disk in memory.
#[derive(Clone)]
pub struct Disk {
    pub bytes: Vec<u8>,
    pub sector_bytes: usize,
}

impl Disk {
    pub fn new(sectors: usize, sector_bytes: usize) -> Self {
        Self { bytes: vec![0; sectors * sector_bytes], sector_bytes }
    }

    pub fn sectors(&self) -> u64 {
        (self.bytes.len() / self.sector_bytes) as u64
    }

    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// An entry (type, start, length) of the MBR or extended boot record in a sector, and the mark.
    pub fn mbr_entry(&mut self, sector: u64, ix: usize, kind: u8, start: u32, len: u32) {
        let at = sector as usize * self.sector_bytes;
        let entry = at + 446 + 16 * ix;
        self.put(entry, &[0; 16]);
        self.put(entry + 4, &[kind]);
        self.put(entry + 8, &start.to_le_bytes());
        self.put(entry + 12, &len.to_le_bytes());
        self.put(at + 510, &[0x55, 0xaa]);
    }

    /// Protective MBR and both copies, of 128 entries.
    pub fn gpt(&mut self, partitions: &[Range]) {
        let last = self.sectors() - 1;
        self.mbr_entry(0, 0, 0xee, 1, u32::try_from(last).unwrap_or(u32::MAX));
        self.gpt_copy(1, 2, last, partitions, 128);
        let entries = (128 * 128_u64).div_ceil(self.sector_bytes as u64);
        self.gpt_copy(last, last - entries, 1, partitions, 128);
    }

    /// One copy: header at, entries at, the other header at.
    pub fn gpt_copy(
        &mut self,
        at: u64,
        entries_at: u64,
        other: u64,
        partitions: &[Range],
        entry_bytes: usize,
    ) {
        let sector = self.sector_bytes as u64;
        let mut entries = vec![0; 128 * entry_bytes];
        for (ix, (first, last)) in partitions.iter().enumerate() {
            let entry = &mut entries[ix * entry_bytes..];
            // a19d880f-05fc-4d3b-a006-743f0f84911e: Linux RAID.
            entry[..16].copy_from_slice(&[
                0x0f, 0x88, 0x9d, 0xa1, 0xfc, 0x05, 0x3b, 0x4d, 0xa0, 0x06, 0x74, 0x3f, 0x0f, 0x84, 0x91,
                0x1e,
            ]);
            entry[16..32].fill(ix as u8 + 1);
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
            entry[48] = 4;
            for (at, unit) in format!("part \u{e9} {ix}").encode_utf16().enumerate() {
                entry[56 + 2 * at..58 + 2 * at].copy_from_slice(&unit.to_le_bytes());
            }
        }
        let edge = (entries.len() as u64).div_ceil(sector) + 2;
        let end = at.max(other);
        let mut header = vec![0; 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
        for (field, value) in [(24, at), (32, other), (40, edge), (48, end - edge + 1), (72, entries_at)] {
            header[field..field + 8].copy_from_slice(&value.to_le_bytes());
        }
        header[56..72].fill(0xd1);
        header[80..84].copy_from_slice(&128_u32.to_le_bytes());
        header[84..88].copy_from_slice(&(entry_bytes as u32).to_le_bytes());
        header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
        let sum = crc32(&header);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        self.put((at * sector) as usize, &header);
        self.put((entries_at * sector) as usize, &entries);
    }
}
