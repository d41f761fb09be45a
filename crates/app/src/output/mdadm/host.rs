//! How metadata 0.90 knows its host: the last two words of an array's UUID are the start of the
//! SHA-1 of the host's name.

/// These words, as mdadm prints them.
pub fn uuid_words(host: &str) -> String {
    let [first, second, ..] = sha1(host.as_bytes());
    // The digest is a string of bytes, the UUID is words of the machine that wrote it.
    format!("{:08x}:{:08x}", first.swap_bytes(), second.swap_bytes())
}

/// FIPS 180-4. For names, not for secrets.
fn sha1(message: &[u8]) -> [u32; 5] {
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    let mut hash = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded.chunks_exact(64) {
        let mut words = [0_u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
        for t in 16..80 {
            words[t] = (words[t - 3] ^ words[t - 8] ^ words[t - 14] ^ words[t - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = hash;
        for (t, word) in words.into_iter().enumerate() {
            let (f, k) = match t {
                0..=19 => (b & c | !b & d, 0x5a82_7999),
                20..=39 => (b ^ c ^ d, 0x6ed9_eba1),
                40..=59 => (b & c | b & d | c & d, 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6),
            };
            let next = a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (sum, add) in hash.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(add);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        let hex = |text: &str| sha1(text.as_bytes()).map(|word| format!("{word:08x}")).concat();
        assert_eq!(hex("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(two_blocks), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(hex(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    }

    /// As mdadm made it on a host of this name.
    #[test]
    fn a_host_gives_two_words() {
        assert_eq!(uuid_words("guest"), "685e6735:7bafb5f4");
    }
}
