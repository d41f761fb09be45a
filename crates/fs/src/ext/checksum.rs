//! The checksums of `metadata_csum`: CRC-32C, seeded with the file system's UUID and not inverted
//! at its end.

/// Goes on from `seed` over `bytes`.
pub fn crc(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// As [`crc`], with zeros in place of the bytes from `hole` on: where the checksum itself is.
pub fn crc_without(seed: u32, bytes: &[u8], hole: usize, hole_len: usize) -> u32 {
    let (before, rest) = bytes.split_at(hole.min(bytes.len()));
    let after = rest.get(hole_len..).unwrap_or_default();
    const ZEROS: [u8; 4] = [0; 4];
    crc(crc(crc(seed, before), &ZEROS[..hole_len.min(4)]), after)
}
