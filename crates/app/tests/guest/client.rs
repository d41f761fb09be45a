//! A small NBD client: what was acknowledged, and which sectors cannot be read, are known here and
//! nowhere else.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
/// Sectors of one read while a device is read through.
const BATCH_SECTORS: u64 = 256;

/// A connection to an export.
pub struct Nbd {
    stream: UnixStream,
    sectors: u64,
    cookie: u64,
}

/// A range to write: the pattern's seed, its first sector and how many.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    pub seed: u64,
    pub start: u64,
    pub count: u64,
}

impl Nbd {
    /// Connects to the export `name`.
    pub fn connect(socket: &Path, name: &str) -> Self {
        let mut stream = UnixStream::connect(socket).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout can be set");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("a greeting");
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        let mut hello = Vec::new();
        hello.extend(3_u32.to_be_bytes()); // fixed newstyle, no zeroes
        hello.extend(b"IHAVEOPT");
        hello.extend(1_u32.to_be_bytes()); // the export's name, and then the transmission
        hello.extend((name.len() as u32).to_be_bytes());
        hello.extend(name.as_bytes());
        stream.write_all(&hello).expect("the server listens");
        let mut export = [0; 10];
        stream.read_exact(&mut export).expect("the export is there");
        let bytes = u64::from_be_bytes(export[..8].try_into().expect("eight bytes"));
        Self { stream, sectors: bytes / 512, cookie: 0 }
    }

    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    fn send(&mut self, kind: u16, start: u64, len: u32, data: &[u8]) -> std::io::Result<u64> {
        self.cookie += 1;
        let mut request = Vec::with_capacity(28 + data.len());
        request.extend(REQUEST.to_be_bytes());
        request.extend(0_u16.to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(self.cookie.to_be_bytes());
        request.extend((start * 512).to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request)?;
        Ok(self.cookie)
    }

    /// The next reply: cookie and error number.
    fn reply(stream: &mut UnixStream) -> std::io::Result<(u64, u32)> {
        let mut reply = [0; 16];
        stream.read_exact(&mut reply)?;
        assert_eq!(reply[..4], REPLY.to_be_bytes());
        let word = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().expect("four bytes"));
        Ok(((u64::from(word(8)) << 32) | u64::from(word(12)), word(4)))
    }

    fn read(&mut self, start: u64, count: u64) -> Result<Vec<u8>, u32> {
        self.send(READ, start, (count * 512) as u32, &[]).expect("the server listens");
        match Self::reply(&mut self.stream).expect("the server answers") {
            (_, 0) => {
                let mut bytes = vec![0; count as usize * 512];
                self.stream.read_exact(&mut bytes).expect("the bytes follow");
                Ok(bytes)
            }
            (_, error) => Err(error),
        }
    }

    /// Every sector; `None` for those that give an error by themselves.
    pub fn read_all(&mut self) -> Vec<Option<Vec<u8>>> {
        let mut all = Vec::with_capacity(self.sectors as usize);
        for start in (0..self.sectors).step_by(BATCH_SECTORS as usize) {
            let count = BATCH_SECTORS.min(self.sectors - start);
            match self.read(start, count) {
                Ok(bytes) => all.extend(bytes.chunks(512).map(|sector| Some(sector.to_vec()))),
                Err(_) => all.extend((start..start + count).map(|sector| self.read(sector, 1).ok())),
            }
        }
        all
    }

    fn payload(write: Range) -> Vec<u8> {
        (write.start..write.start + write.count)
            .flat_map(|at| crate::pattern::sector(write.seed, at))
            .collect()
    }

    /// Writes ranges one after the other, and flushes.
    pub fn write_all(&mut self, writes: &[Range]) {
        for &write in writes {
            let data = Self::payload(write);
            self.send(WRITE, write.start, data.len() as u32, &data).expect("the server listens");
            assert_eq!(Self::reply(&mut self.stream).expect("the server answers").1, 0, "{write:?}");
        }
        self.send(FLUSH, 0, 0, &[]).expect("the server listens");
        assert_eq!(Self::reply(&mut self.stream).expect("the server answers").1, 0, "flush");
    }

    /// Sends all writes without waiting for replies, and calls `enough` once so many were
    /// acknowledged: it ends the server. Returns which of them were acknowledged before the
    /// connection broke.
    pub fn write_until(mut self, writes: &[Range], acknowledged: usize, enough: impl FnOnce()) -> Vec<bool> {
        let mut replies = self.stream.try_clone().expect("a socket can be shared");
        let first = self.cookie + 1;
        let mut done = BTreeSet::new();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for &write in writes {
                    let data = Self::payload(write);
                    if self.send(WRITE, write.start, data.len() as u32, &data).is_err() {
                        return; // the server is gone
                    }
                }
            });
            let mut enough = Some(enough);
            while done.len() < writes.len() {
                let Ok((cookie, error)) = Self::reply(&mut replies) else { break };
                assert_eq!(error, 0, "a write failed");
                done.insert(cookie);
                if done.len() >= acknowledged
                    && let Some(enough) = enough.take()
                {
                    enough();
                }
            }
            assert!(enough.is_none(), "the server ended before {acknowledged} writes were acknowledged");
        });
        (first..).take(writes.len()).map(|cookie| done.contains(&cookie)).collect()
    }
}
