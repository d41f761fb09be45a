//! Reads and writes in requests as long as a connection takes them: a server that starts anew may
//! take shorter ones than it did.

use wattle_rt::{Buf, BufMut};

use crate::nbd::client::{Client, ClientError};
use crate::nbd::limits::REQUEST_BYTES_MAX;

/// What requests are multiples of, where one may be as long.
const PIECE_UNIT_BYTES: u32 = 4096;
const SECTOR_BYTES_MIN: u32 = 512;

/// The longest request of a connection, of whole sectors.
fn longest(max_bytes: u32) -> u32 {
    let max = max_bytes.min(REQUEST_BYTES_MAX);
    let unit = if max < PIECE_UNIT_BYTES { SECTOR_BYTES_MIN } else { PIECE_UNIT_BYTES };
    (max / unit * unit).max(SECTOR_BYTES_MIN)
}

pub(super) async fn read(client: &Client, at: u64, len: u32) -> Result<BufMut, ClientError> {
    let longest = longest(client.blocks().max_bytes);
    if len <= longest {
        return client.read(at, len).await;
    }
    let mut all = BufMut::alloc(len as usize);
    for from in (0..len).step_by(longest as usize) {
        let piece = client.read(at + u64::from(from), longest.min(len - from)).await?;
        all[from as usize..][..piece.len()].copy_from_slice(&piece);
    }
    Ok(all)
}

/// A write that fails may have been carried out in part.
pub(super) async fn write(client: &Client, at: u64, data: &Buf, flags: u16) -> Result<(), ClientError> {
    let longest = longest(client.blocks().max_bytes) as usize;
    for from in (0..data.len()).step_by(longest) {
        let piece = data.slice(from..data.len().min(from + longest));
        client.write(at + from as u64, piece, flags).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_of_whole_sectors() {
        let all = [u32::MAX, 65536, 65535, 4096, 4095, 512, 1].map(longest);
        assert_eq!(all, [REQUEST_BYTES_MAX, 65536, 61440, 4096, 3584, 512, 512]);
    }
}
