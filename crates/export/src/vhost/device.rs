//! What a guest is told about its disk: features, configuration, limits (virtio 1.2, 5.2).

/// Bits of virtio and of its block device that this server offers or looks at.
pub mod feature {
    /// Segments of a request are bounded.
    pub const SEG_MAX: u64 = 1 << 2;
    /// Cylinders, heads and sectors are told.
    pub const GEOMETRY: u64 = 1 << 4;
    /// The disk is only read.
    pub const READ_ONLY: u64 = 1 << 5;
    /// The logical block is told.
    pub const BLOCK_SIZE: u64 = 1 << 6;
    /// There is a cache, and a request that flushes it.
    pub const FLUSH: u64 = 1 << 9;
    /// Physical block and favourable sizes are told.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// More than one queue.
    pub const QUEUES: u64 = 1 << 12;
    /// Ranges may be given back.
    pub const DISCARD: u64 = 1 << 13;
    /// Ranges may be made zeros.
    pub const WRITE_ZEROES: u64 = 1 << 14;
    /// Descriptors in tables of their own.
    pub const INDIRECT: u64 = 1 << 28;
    /// Each side says at which index it wants to be told.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// Of vhost-user: extensions are negotiated.
    pub const PROTOCOL: u64 = 1 << 30;
    /// Virtio 1.0 and later.
    pub const VERSION_1: u64 = 1 << 32;
    /// Rings of one table.
    pub const PACKED: u64 = 1 << 34;
}

/// Queues that a guest may have.
pub const QUEUES_MAX: u16 = 64;
/// Data segments that a guest is told to put into one request.
const SEGMENTS_MAX: u32 = 126;
/// Sectors of one range that is discarded or zeroed: 2 GiB.
pub const RANGE_SECTORS_MAX: u32 = 4 << 20;
/// Ranges of one request.
pub const RANGES_MAX: u32 = 64;
/// A geometry for firmware that still asks for one, as QEMU makes it up for disks of its own.
const HEADS: u8 = 16;
const TRACK_SECTORS: u8 = 63;
/// The unit of sizes and places.
pub const SECTOR_BYTES: u64 = 512;
/// Bytes of the configuration, before what is not offered.
const CONFIG_BYTES: usize = 60;
/// What a hypervisor may ask for at once.
pub const CONFIG_BYTES_MAX: usize = 256;
/// Bytes of a serial.
pub const SERIAL_BYTES: usize = 20;

/// A disk, as a guest sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFacts {
    /// In bytes.
    pub size_bytes: u64,
    /// Every write is refused.
    pub read_only: bool,
    /// The logical block, in bytes, a power of two.
    pub block_bytes: u32,
    /// Requests below it cost more, in bytes.
    pub io_min_bytes: u32,
    /// Requests of it cost least, in bytes; 0 if there is no such size.
    pub io_opt_bytes: u32,
}

impl DiskFacts {
    /// The features to choose from.
    pub fn features(&self) -> u64 {
        let always = feature::SEG_MAX
            | feature::GEOMETRY
            | feature::BLOCK_SIZE
            | feature::FLUSH
            | feature::TOPOLOGY
            | feature::QUEUES
            | feature::INDIRECT
            | feature::EVENT_INDEX
            | feature::PROTOCOL
            | feature::VERSION_1
            | feature::PACKED;
        let changes = feature::DISCARD | feature::WRITE_ZEROES;
        always | if self.read_only { feature::READ_ONLY } else { changes }
    }

    /// Bytes `offset..offset + len` of the configuration; zeros where there is none.
    pub fn config(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut config = Vec::with_capacity(CONFIG_BYTES);
        let block = self.block_bytes.max(512);
        let physical = self.io_min_bytes.max(block);
        let in_blocks = |bytes: u32| bytes / block;
        // Which of the blocks that make up a physical one an array's first sector is in: the first.
        let (exponent, alignment) = ((physical.min(4096) / block).max(1).ilog2() as u8, 0u8);
        config.extend((self.size_bytes / SECTOR_BYTES).to_le_bytes());
        config.extend(0u32.to_le_bytes()); // Segments are not bounded in length.
        config.extend(SEGMENTS_MAX.to_le_bytes());
        let cylinders = self.size_bytes / SECTOR_BYTES / u64::from(HEADS) / u64::from(TRACK_SECTORS);
        config.extend(u16::try_from(cylinders).unwrap_or(u16::MAX).to_le_bytes());
        config.extend([HEADS, TRACK_SECTORS]);
        config.extend(block.to_le_bytes());
        config.extend([exponent, alignment]);
        config.extend(u16::try_from(in_blocks(physical)).unwrap_or(u16::MAX).to_le_bytes());
        config.extend(in_blocks(self.io_opt_bytes).to_le_bytes());
        config.extend([0, 0]); // Whether there is a cache is not the guest's to choose.
        config.extend(QUEUES_MAX.to_le_bytes());
        config.extend(RANGE_SECTORS_MAX.to_le_bytes());
        config.extend(RANGES_MAX.to_le_bytes());
        config.extend((block / 512).to_le_bytes());
        config.extend(RANGE_SECTORS_MAX.to_le_bytes());
        config.extend(RANGES_MAX.to_le_bytes());
        config.extend([1, 0, 0, 0]); // Zeroing may give space back.
        debug_assert_eq!(config.len(), CONFIG_BYTES, "the layout of virtio 1.2");
        (offset..offset.saturating_add(len)).map(|at| config.get(at).copied().unwrap_or(0)).collect()
    }
}

/// A volume's name, as far as it fits into a serial.
pub fn serial(name: &str) -> [u8; SERIAL_BYTES] {
    let mut serial = [0; SERIAL_BYTES];
    let shown = |byte: u8| if byte.is_ascii_graphic() { byte } else { b'_' };
    for (to, byte) in serial.iter_mut().zip(name.bytes()) {
        *to = shown(byte);
    }
    serial
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_its_fields_where_virtio_has_them() {
        let facts = DiskFacts {
            size_bytes: 10 << 30,
            read_only: false,
            block_bytes: 512,
            io_min_bytes: 65536,
            io_opt_bytes: 196_608,
        };
        let config = facts.config(0, 96);
        let word = |at: usize| u32::from_le_bytes(*config[at..].first_chunk().unwrap());
        assert_eq!(u64::from_le_bytes(*config.first_chunk().unwrap()), (10 << 30) / 512);
        assert_eq!((word(12), word(20)), (SEGMENTS_MAX, 512));
        assert_eq!((word(16), config[18], config[19]), (20805 | 16 << 16 | 63 << 24, 16, 63));
        assert_eq!((config[24], config[25]), (3, 0), "8 blocks make up a physical one");
        assert_eq!(u16::from_le_bytes([config[26], config[27]]), 128);
        assert_eq!(word(28), 384);
        assert_eq!(u16::from_le_bytes([config[34], config[35]]), QUEUES_MAX);
        assert_eq!((word(36), word(40), word(44)), (RANGE_SECTORS_MAX, RANGES_MAX, 1));
        assert_eq!((word(48), word(52), config[56]), (RANGE_SECTORS_MAX, RANGES_MAX, 1));
        assert_eq!(&config[60..], &[0; 36]);
        assert_eq!(facts.config(8, 8), &config[8..16]);
        assert_eq!(facts.config(usize::MAX, 2), [] as [u8; 0], "beyond every end is nothing");
    }

    #[test]
    fn a_disk_that_is_only_read_offers_no_changes() {
        let mut facts =
            DiskFacts { size_bytes: 0, read_only: true, block_bytes: 4096, io_min_bytes: 0, io_opt_bytes: 0 };
        assert_eq!(facts.features() & (feature::DISCARD | feature::WRITE_ZEROES), 0);
        assert_ne!(facts.features() & feature::READ_ONLY, 0);
        facts.read_only = false;
        assert_eq!(facts.features() & feature::READ_ONLY, 0);
    }

    #[test]
    fn a_serial_is_what_fits_of_a_name() {
        assert_eq!(&serial("vg/lv one"), b"vg/lv_one\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(&serial("a-name-that-is-far-too-long"), b"a-name-that-is-far-t");
    }
}
