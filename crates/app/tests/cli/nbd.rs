//! An NBD client that knows what was acknowledged: it fills blocks with versions, and afterwards
//! each sector of a block must hold a version that is not older than the last one acknowledged and
//! not newer than the last one sent.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes that are written at once.
pub const BLOCK: usize = 4096;
const SECTOR: usize = 512;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;

/// A connection to the default export.
pub struct Client {
    stream: UnixStream,
    pub size_bytes: u64,
}

impl Client {
    pub fn connect(uri: &str) -> io::Result<Self> {
        let path = uri.split_once("socket=").expect("the socket of a Unix URI").1;
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        // Fixed newstyle without padding; then the option that names the export and goes on.
        stream.write_all(&3u32.to_be_bytes())?;
        stream.write_all(&[&b"IHAVEOPT"[..], &1u32.to_be_bytes(), &0u32.to_be_bytes()].concat())?;
        let mut export = [0; 10];
        stream.read_exact(&mut export)?;
        Ok(Self { stream, size_bytes: u64::from_be_bytes(export[..8].try_into().unwrap()) })
    }

    fn request(&mut self, kind: u16, offset: u64, len: usize, data: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(28 + data.len());
        bytes.extend_from_slice(&0x2560_9513u32.to_be_bytes());
        bytes.extend_from_slice(&0u16.to_be_bytes());
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&7u64.to_be_bytes());
        bytes.extend_from_slice(&offset.to_be_bytes());
        bytes.extend_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
        bytes.extend_from_slice(data);
        self.stream.write_all(&bytes)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        assert_eq!(reply[..4], 0x6744_6698u32.to_be_bytes());
        match u32::from_be_bytes(reply[4..8].try_into().unwrap()) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(i32::try_from(error).unwrap())),
        }
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.request(WRITE, offset, data.len(), data)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.request(FLUSH, 0, 0, &[])
    }

    pub fn read(&mut self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.request(READ, offset, len, &[])?;
        let mut data = vec![0; len];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }
}

/// What may be in each block.
pub struct Versions {
    sent: Vec<AtomicU64>,
    acknowledged: Vec<AtomicU64>,
}

impl Versions {
    /// Nothing was written to any of `blocks` blocks.
    pub fn new(blocks: usize) -> Arc<Self> {
        let zeros = || (0..blocks).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { sent: zeros(), acknowledged: zeros() })
    }

    pub fn acknowledged(&self) -> usize {
        self.acknowledged.iter().filter(|version| version.load(Ordering::SeqCst) > 0).count()
    }

    fn content(block: usize, version: u64) -> Vec<u8> {
        let sector = [block as u64, version, version ^ 0x5A5A, !version].map(u64::to_le_bytes).concat();
        sector.iter().copied().cycle().take(BLOCK).collect()
    }

    /// Writes blocks at random, of every `of` those with the rest `ix`, until the server is gone.
    pub fn write_until_gone(&self, uri: &str, seed: u64, ix: usize, of: usize) {
        let Ok(mut client) = Client::connect(uri) else { return };
        let mut state = seed * 1_000_003 + ix as u64 + 1;
        for count in 0u64.. {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let mine = self.sent.len() / of;
            let block = (state as usize % mine) * of + ix;
            let version = self.sent[block].fetch_add(1, Ordering::SeqCst) + 1;
            if client.write((block * BLOCK) as u64, &Self::content(block, version)).is_err() {
                return;
            }
            self.acknowledged[block].store(version, Ordering::SeqCst);
            if count % 64 == 63 && client.flush().is_err() {
                return;
            }
        }
    }

    /// Every sector holds what it may.
    pub fn verify(&self, uri: &str) {
        let mut client = Client::connect(uri).unwrap();
        for block in 0..self.sent.len() {
            let (least, most) =
                (self.acknowledged[block].load(Ordering::SeqCst), self.sent[block].load(Ordering::SeqCst));
            if most == 0 {
                continue;
            }
            let data = client.read((block * BLOCK) as u64, BLOCK).unwrap();
            for (sector, bytes) in data.chunks(SECTOR).enumerate() {
                let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
                assert!(
                    (least..=most).contains(&version),
                    "block {block} sector {sector}: version {version}, expected {least} to {most}"
                );
                let expected = if version == 0 {
                    vec![0; SECTOR]
                } else {
                    Self::content(block, version)[..SECTOR].to_vec()
                };
                assert!(bytes == expected, "block {block} sector {sector} holds garbage");
            }
            // What was in flight is decided now.
            let version = u64::from_le_bytes(data[8..16].try_into().unwrap());
            let whole = data.chunks(SECTOR).all(|bytes| bytes[8..16] == version.to_le_bytes());
            if whole {
                self.acknowledged[block].store(version, Ordering::SeqCst);
            }
        }
    }
}
