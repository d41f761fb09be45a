//! The UUID by which Linux knows a volume: blkid(8) makes it of the eight bytes that identify it,
//! by MD5 (RFC 1321, and RFC 4122 version 3) in a namespace of Apple's.

const NAMESPACE: [u8; 16] =
    [0xb3, 0xe2, 0x0f, 0x39, 0xf2, 0x92, 0x11, 0xd6, 0x97, 0xa4, 0x00, 0x30, 0x65, 0x43, 0xec, 0xac];

/// The UUID; zeros if nothing identifies the volume.
pub fn of(id: [u8; 8]) -> [u8; 16] {
    if id == [0; 8] {
        return [0; 16];
    }
    let mut block = [0; 64];
    block[..16].copy_from_slice(&NAMESPACE);
    block[16..24].copy_from_slice(&id);
    block[24] = 0x80;
    block[56..].copy_from_slice(&(24_u64 * 8).to_le_bytes());
    let mut uuid = md5_of_one(&block);
    uuid[6] = uuid[6] & 0x0f | 0x30;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// MD5 of what fits into one block, with its padding.
fn md5_of_one(block: &[u8; 64]) -> [u8; 16] {
    const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let word =
        |ix: usize| block[4 * ix..].first_chunk().map_or(0, |bytes: &[u8; 4]| u32::from_le_bytes(*bytes));
    let [mut a, mut b, mut c, mut d] = START;
    for step in 0..64 {
        let (mixed, ix) = match step / 16 {
            0 => (b & c | !b & d, step),
            1 => (d & b | !d & c, (5 * step + 1) % 16),
            2 => (b ^ c ^ d, (3 * step + 5) % 16),
            _ => (c ^ (b | !d), 7 * step % 16),
        };
        let sum = a.wrapping_add(mixed).wrapping_add(SINES[step]).wrapping_add(word(ix));
        let turned = b.wrapping_add(sum.rotate_left(SHIFTS[step / 16][step % 4]));
        (a, b, c, d) = (d, turned, b, c);
    }
    let mut digest = [0; 16];
    for (place, (start, end)) in digest.chunks_exact_mut(4).zip(START.into_iter().zip([a, b, c, d])) {
        place.copy_from_slice(&start.wrapping_add(end).to_le_bytes());
    }
    digest
}

/// 2^32 times the sine of 1, 2, 3 ..., without its sign.
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

#[cfg(test)]
mod tests {
    /// As blkid 2.38 has it.
    #[test]
    fn it_is_what_blkid_says() {
        let uuid = crate::uuid_text(super::of([1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(uuid, "6095e009-5132-3fc5-87c2-d5a01745283e");
    }
}
