//! Ids as GPT has them: `a19d880f-05fc-4d3b-a006-743f0f84911e`.

use std::fmt;

/// A 16-byte id in printed order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub [u8; 16]);

/// Printed order to that on disk, and back.
const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];

impl Guid {
    /// On disk the first three groups are little-endian numbers.
    #[must_use]
    pub fn from_disk(bytes: &[u8; 16]) -> Self {
        Guid(ORDER.map(|at| bytes[at]))
    }

    /// The other way round.
    #[must_use]
    pub fn to_disk(self) -> [u8; 16] {
        ORDER.map(|at| self.0[at])
    }

    /// Of random bytes, marked as such (version 4 of RFC 9562).
    #[must_use]
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Guid(bytes)
    }

    /// Whether it is all zero, which is how GPT says "none".
    #[must_use]
    pub fn is_nil(self) -> bool {
        self.0 == [0; 16]
    }

    /// From the text of a specification; a mistake in it does not compile.
    pub(super) const fn of(text: &str) -> Self {
        let text = text.as_bytes();
        let (mut bytes, mut at, mut digits) = ([0; 16], 0, 0);
        while at < text.len() {
            let digit = match text[at] {
                c @ b'0'..=b'9' => c - b'0',
                c @ b'a'..=b'f' => c - b'a' + 10,
                c @ b'A'..=b'F' => c - b'A' + 10,
                b'-' => {
                    at += 1;
                    continue;
                }
                _ => panic!("not a hexadecimal digit"),
            };
            bytes[digits / 2] = bytes[digits / 2] << 4 | digit;
            at += 1;
            digits += 1;
        }
        assert!(digits == 32, "an id has 32 digits");
        Guid(bytes)
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_on_disk_and_in_print() {
        let disk = std::array::from_fn(|at| at as u8);
        let guid = Guid::from_disk(&disk);
        assert_eq!(guid.to_string(), "03020100-0504-0706-0809-0a0b0c0d0e0f");
        assert_eq!(guid.to_disk(), disk);
        assert_eq!(Guid::of("03020100-0504-0706-0809-0A0B0C0D0E0F"), guid);
        assert!(Guid::of("00000000-0000-0000-0000-000000000000").is_nil() && !guid.is_nil());
    }
}
