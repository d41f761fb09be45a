//! LZNT1, in which NTFS compresses: chunks of 4 KiB, each by itself.

use crate::bytes::le16;

/// What a chunk comes to at most.
const CHUNK_BYTES: usize = 4096;

/// Unpacks into `out`; what is not reached is zeros.
///
/// # Errors
/// What is packed refers to what is not there, or is longer than its place.
pub(super) fn unpack(mut packed: &[u8], out: &mut [u8]) -> Result<(), &'static str> {
    out.fill(0);
    let mut chunks = out.chunks_mut(CHUNK_BYTES);
    while let Some(head) = le16(packed, 0).filter(|head| *head != 0) {
        let Some(to) = chunks.next() else { break };
        let len = usize::from(head & 0xfff) + 1;
        let chunk = packed.get(2..2 + len).ok_or("a compressed chunk is cut off")?;
        match head & 0x8000 {
            0 => {
                let len = len.min(to.len());
                to[..len].copy_from_slice(&chunk[..len]);
            }
            _ => unpack_chunk(chunk, to)?,
        }
        packed = &packed[2 + len..];
    }
    Ok(())
}

fn unpack_chunk(mut chunk: &[u8], out: &mut [u8]) -> Result<(), &'static str> {
    let mut at = 0;
    while let Some((&tags, rest)) = chunk.split_first() {
        chunk = rest;
        for bit in 0..8 {
            let Some((&byte, rest)) = chunk.split_first() else { return Ok(()) };
            if tags >> bit & 1 == 0 {
                *out.get_mut(at).ok_or("a compressed chunk is longer than 4 KiB")? = byte;
                (at, chunk) = (at + 1, rest);
                continue;
            }
            let token = usize::from(le16(chunk, 0).ok_or("a compressed chunk is cut off")?);
            chunk = &chunk[2..];
            // The more there is to refer to, the more bits the distance has.
            let distance_bits = (usize::BITS - at.saturating_sub(1).leading_zeros()).max(4);
            let len_bits = 16_u32.saturating_sub(distance_bits).max(4);
            let (distance, len) = ((token >> len_bits) + 1, (token & ((1 << len_bits) - 1)) + 3);
            if distance > at || at + len > out.len() {
                return Err("a compressed chunk refers to what is not there");
            }
            for _ in 0..len {
                out[at] = out[at - distance];
                at += 1;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_and_plain_chunks_come_out() {
        // From Microsoft's description of the format (MS-XCA 3.2).
        let packed = [
            0x38, 0xb0, 0x88, 0x46, 0x23, 0x20, 0x00, 0x20, 0x47, 0x20, 0x41, 0x00, 0x10, 0xa2, 0x47, 0x01,
            0xa0, 0x45, 0x20, 0x44, 0x00, 0x08, 0x45, 0x01, 0x50, 0x79, 0x00, 0xc0, 0x45, 0x20, 0x05, 0x24,
            0x13, 0x88, 0x05, 0xb4, 0x02, 0x4a, 0x44, 0xef, 0x03, 0x58, 0x02, 0x8c, 0x09, 0x16, 0x01, 0x48,
            0x45, 0x00, 0xbe, 0x00, 0x9e, 0x00, 0x04, 0x01, 0x18, 0x90, 0x00,
        ];
        let mut out = [1; 4096];
        unpack(&packed, &mut out).unwrap();
        let text = b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E E F# D E F# G F# D E F# G \
                     F# E D E A F# F# G A A G F# E D D E F# E D D\0";
        assert_eq!(String::from_utf8_lossy(&out[..text.len()]), String::from_utf8_lossy(text));
        let plain = [&[0x03, 0x30][..], b"abcd", &[0, 0]].concat();
        let mut out = [1; 8];
        unpack(&plain, &mut out).unwrap();
        assert_eq!(&out, b"abcd\0\0\0\0");
        assert!(unpack(&[0x02, 0xb0, 0x01, 0x00, 0x00], &mut [0; 4096]).is_err(), "nothing to refer to");
    }
}
