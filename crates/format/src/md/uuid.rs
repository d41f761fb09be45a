//! Array and device ids as mdadm shows them: `d4456855:878c1153:a132709f:86ddf6a8`.
//!
//! A [`Uuid`] keeps the 16 bytes in *printed* order, so one `Display`, one parser and one
//! comparison serve all versions. 1.x stores exactly these bytes; 0.90 stores four 32-bit numbers
//! whose printed form is the number, not its bytes (docs/formats.md §1.4), so `superblock0`
//! converts at the door.

use std::fmt;
use std::str::FromStr;

/// A 16-byte id in printed order.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The id of a 0.90 superblock from its words 5, 13, 14, 15.
    #[must_use]
    pub fn from_words(words: [u32; 4]) -> Self {
        let mut bytes = [0; 16];
        for (target, word) in bytes.chunks_exact_mut(4).zip(words) {
            target.copy_from_slice(&word.to_be_bytes());
        }
        Uuid(bytes)
    }

    /// The four numbers a 0.90 superblock stores.
    #[must_use]
    pub fn words(self) -> [u32; 4] {
        std::array::from_fn(|i| crate::bytes::be32(&self.0, 4 * i))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.words();
        write!(f, "{a:08x}:{b:08x}:{c:08x}:{d:08x}")
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 32 hexadecimal digits (with any of `:`, `-`, `.` or space between them).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a uuid is 32 hexadecimal digits, with or without separators (`:`, `-`, `.`, space)")]
pub struct ParseUuidError;

impl FromStr for Uuid {
    type Err = ParseUuidError;

    /// Takes mdadm's form, the dashed form of blkid, and bare digits.
    fn from_str(text: &str) -> Result<Self, ParseUuidError> {
        let mut bytes = [0; 16];
        let mut digits = 0;
        for character in text.chars() {
            if matches!(character, ':' | '-' | '.' | ' ') {
                continue;
            }
            let digit = character.to_digit(16).ok_or(ParseUuidError)?;
            let byte: &mut u8 = bytes.get_mut(digits / 2).ok_or(ParseUuidError)?;
            *byte = *byte << 4 | digit as u8;
            digits += 1;
        }
        if digits != 32 {
            return Err(ParseUuidError);
        }
        Ok(Uuid(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_both_ways() {
        let text = "d4456855:878c1153:a132709f:86ddf6a8";
        let uuid: Uuid = text.parse().unwrap();
        assert_eq!(uuid.0[..4], [0xd4, 0x45, 0x68, 0x55], "1.x: bytes in order");
        assert_eq!(uuid.to_string(), text);
        assert_eq!("d4456855-878c-1153-a132-709f86ddf6a8".parse(), Ok(uuid));
        for bad in ["", "d4456855", "g4456855:878c1153:a132709f:86ddf6a8", &format!("{text}00")] {
            assert_eq!(bad.parse::<Uuid>(), Err(ParseUuidError), "{bad}");
        }
    }

    /// 0.90 stores 05 f2 28 8f and mdadm shows 8f28f205.
    #[test]
    fn version_0_prints_numbers() {
        let word = u32::from_le_bytes([0x05, 0xf2, 0x28, 0x8f]);
        let uuid = Uuid::from_words([word, 1, 2, 3]);
        assert_eq!(uuid.to_string(), "8f28f205:00000001:00000002:00000003");
        assert_eq!(uuid.words(), [word, 1, 2, 3]);
    }
}
