//! The bytes of the FUSE protocol, as far as an export of volumes needs it: version 7, in the byte
//! order of the machine.
//!
//! Layouts and numbers are those of the kernel's interface header, `linux/fuse.h`. Offsets are from
//! the start of each structure.

/// The version we speak. The minor number only names structures: features are agreed on by flags.
pub const MAJOR: u32 = 7;
/// See [`MAJOR`].
pub const MINOR: u32 = 38;
/// From this minor version on the answer to INIT has its present length (Linux 3.15).
pub const MINOR_MIN: u32 = 23;

/// `fuse_in_header`.
pub const HEADER_BYTES: usize = 40;
/// `fuse_out_header`.
pub const REPLY_HEADER_BYTES: usize = 16;
/// The header of a write and its arguments: what is in front of the data. No other request that has
/// data has less.
pub const HEAD_BYTES: usize = HEADER_BYTES + 40;

/// The node of the mounted directory.
pub const ROOT_NODE: u64 = 1;

/// What is asked for.
#[allow(missing_docs, reason = "the protocol's names")]
pub mod opcodes {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const ACCESS: u32 = 34;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const FALLOCATE: u32 = 43;
    pub const LSEEK: u32 = 46;
    pub const BATCH_FORGET: u32 = 42;
}

/// Features that we ask for where the kernel offers them (`FUSE_…`).
#[allow(missing_docs, reason = "the protocol's names")]
pub mod features {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const MAX_PAGES: u64 = 1 << 22;
    /// Nothing of ours has set-user-id bits to lose: the kernel need not ask before every write.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const INIT_EXT: u64 = 1 << 30;
    /// Requests over io_uring instead of the device (Linux 6.14, and switched on).
    pub const OVER_IO_URING: u64 = 1 << 41;
    pub const WANTED: u64 =
        ASYNC_READ | BIG_WRITES | ASYNC_DIO | PARALLEL_DIROPS | MAX_PAGES | HANDLE_KILLPRIV_V2 | INIT_EXT;
}

/// How an opened file behaves (`FOPEN_…`).
#[allow(missing_docs, reason = "the protocol's names")]
pub mod open_flags {
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Closing need not tell us: there is nothing to flush.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Writes side by side: no write moves the end of the file.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// `FATTR_SIZE`, of SETATTR.
pub const SET_SIZE: u32 = 1 << 3;
/// `FATTR_MODE`, `FATTR_UID` and `FATTR_GID`, of SETATTR.
pub const SET_OWNERSHIP: u32 = 0b111;

/// The header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Of the whole message.
    pub length_bytes: u32,
    /// One of [`opcodes`], or one we do not know.
    pub opcode: u32,
    /// Comes back with the reply.
    pub unique: u64,
    /// What the request is about.
    pub node: u64,
}

impl Header {
    /// Decodes the first [`HEADER_BYTES`] of a message.
    #[must_use]
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let fields = StructReader(bytes);
        Self {
            length_bytes: fields.u32(0),
            opcode: fields.u32(4),
            unique: fields.u64(8),
            node: fields.u64(16),
        }
    }
}

/// Integers of a structure; what lies beyond its end is zero, as in the kernel's older, shorter
/// structures.
#[derive(Debug, Clone, Copy)]
pub struct StructReader<'a>(pub &'a [u8]);

impl StructReader<'_> {
    /// The 32-bit integer at an offset.
    #[must_use]
    pub fn u32(self, at: usize) -> u32 {
        self.0.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// The 64-bit integer at an offset.
    #[must_use]
    pub fn u64(self, at: usize) -> u64 {
        self.0.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }
}

/// A structure that is being written, field by field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Out(pub Vec<u8>);

impl Out {
    /// Appends 16-bit integers.
    #[must_use]
    pub fn u16s<const N: usize>(mut self, values: [u16; N]) -> Self {
        values.iter().for_each(|value| self.0.extend(value.to_ne_bytes()));
        self
    }

    /// Appends 32-bit integers.
    #[must_use]
    pub fn u32s<const N: usize>(mut self, values: [u32; N]) -> Self {
        values.iter().for_each(|value| self.0.extend(value.to_ne_bytes()));
        self
    }

    /// Appends 64-bit integers.
    #[must_use]
    pub fn u64s<const N: usize>(mut self, values: [u64; N]) -> Self {
        values.iter().for_each(|value| self.0.extend(value.to_ne_bytes()));
        self
    }
}

/// The header of a reply with so many bytes behind it, or with an error and none.
#[must_use]
pub fn reply_header(unique: u64, outcome: Result<usize, FuseErrno>) -> [u8; REPLY_HEADER_BYTES] {
    let (length, error) = match outcome {
        Ok(length) => (length, 0),
        Err(errno) => (0, -errno.0),
    };
    let length = u32::try_from(REPLY_HEADER_BYTES + length).expect("replies are far below 4 GiB");
    let mut bytes = [0; REPLY_HEADER_BYTES];
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..8].copy_from_slice(&error.to_ne_bytes());
    bytes[8..].copy_from_slice(&unique.to_ne_bytes());
    bytes
}

/// A message to the kernel: what it knows of a node's attributes holds no longer. Its cached data
/// does: to drop pages the kernel waits for reads of them, which come to this server.
#[must_use]
pub fn attributes_changed(node: u64) -> Vec<u8> {
    const INVALIDATE_NODE: u32 = 2;
    const NO_DATA: u64 = u64::MAX;
    const BYTES: u32 = REPLY_HEADER_BYTES as u32 + 24;
    Out::default().u32s([BYTES, INVALIDATE_NODE]).u64s([0, node, NO_DATA, 0]).0
}

/// Why a request was not done, as the program that made it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FuseErrno(pub i32);

/// What the kernel offers at the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelOffer {
    /// Its version.
    pub major: u32,
    /// Its version.
    pub minor: u32,
    /// Its [`features`].
    pub features: u64,
    max_readahead_bytes: u32,
}

impl KernelOffer {
    /// Decodes the arguments of INIT.
    #[must_use]
    pub fn decode(args: &[u8]) -> Self {
        let fields = StructReader(args);
        Self {
            major: fields.u32(0),
            minor: fields.u32(4),
            max_readahead_bytes: fields.u32(8),
            features: u64::from(fields.u32(12)) | u64::from(fields.u32(16)) << 32,
        }
    }

    /// The answer: what of the offer is taken.
    #[must_use]
    pub fn accept(&self, features: u64, request_bytes_max: usize, background_max: u16) -> Out {
        const PAGE_BYTES: usize = 4096;
        let features = self.features & features;
        let request_bytes = u32::try_from(request_bytes_max).expect("requests are far below 4 GiB");
        let pages = u16::try_from(request_bytes_max / PAGE_BYTES).expect("requests are far below 256 MiB");
        Out::default()
            .u32s([MAJOR, MINOR.min(self.minor), self.max_readahead_bytes, features as u32])
            .u16s([background_max, background_max / 4 * 3])
            .u32s([request_bytes, 1])
            .u16s([pages, 0])
            .u32s([(features >> 32) as u32, 0, 0, 0, 0, 0, 0, 0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_lengths_of_the_kernels() {
        let offer = KernelOffer { major: 7, minor: 45, features: u64::MAX, max_readahead_bytes: 131_072 };
        assert_eq!(offer.accept(features::WANTED, 1 << 20, 512).0.len(), 64);
    }

    #[test]
    fn a_real_init_is_understood() {
        // Of Linux 6.18: version 7.45, readahead of 128 KiB.
        let mut args = Vec::new();
        for word in [7u32, 45, 131_072, 0x73ff_fffb, 0x05fd] {
            args.extend(word.to_ne_bytes());
        }
        let offer = KernelOffer::decode(&args);
        assert_eq!((offer.major, offer.minor), (7, 45));
        assert_eq!(offer.features & features::WANTED, features::WANTED);
        assert_eq!(offer.features >> 32, 0x05fd);
        // A kernel that knows nothing of the second half of the features.
        assert_eq!(KernelOffer::decode(&args[..16]).features >> 32, 0);
        assert_eq!(KernelOffer::decode(&[]).major, 0);
    }

    #[test]
    fn the_header_of_a_reply() {
        let good = reply_header(7, Ok(24));
        assert_eq!(StructReader(&good).u32(0), 40);
        assert_eq!((StructReader(&good).u32(4), StructReader(&good).u64(8)), (0, 7));
        let bad = reply_header(8, Err(FuseErrno(5)));
        assert_eq!((StructReader(&bad).u32(0), StructReader(&bad).u32(4).cast_signed()), (16, -5));
        let told = attributes_changed(2);
        assert_eq!((told.len(), StructReader(&told).u32(0), StructReader(&told).u64(8)), (40, 40, 0));
    }
}
