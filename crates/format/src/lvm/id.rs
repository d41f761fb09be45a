//! Ids of PVs, VGs and LVs: 32 characters of `0-9a-zA-Z!#`, shown in groups of 6-4-4-4-4-4-6.
//! Labels hold them bare, texts hold them as shown.

use std::fmt;
use std::str::FromStr;

/// Lengths of the groups in which an id is shown.
const GROUPS: [usize; 7] = [6, 4, 4, 4, 4, 4, 6];
/// What LVM2 makes new ids of; `!` and `#` are accepted as well.
const ALPHABET: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// An id; only valid characters can be in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id([u8; 32]);

impl Id {
    /// The id that a label holds; `None` when a character is not one of an id's.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Option<Id> {
        bytes.iter().all(|&byte| is_id_byte(byte)).then_some(Id(bytes))
    }

    /// An id out of 32 random bytes. The slight preference for the first characters of the alphabet
    /// costs less than a hundredth of a bit each.
    #[must_use]
    pub fn from_random(random: [u8; 32]) -> Id {
        Id(random.map(|byte| ALPHABET[usize::from(byte) % ALPHABET.len()]))
    }

    /// As a label holds it.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'!' || byte == b'#'
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter();
        for (i, len) in GROUPS.into_iter().enumerate() {
            if i > 0 {
                f.write_str("-")?;
            }
            for &byte in rest.by_ref().take(len) {
                write!(f, "{}", char::from(byte))?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is no LVM2 id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an LVM2 id is 32 characters of 0-9, a-z, A-Z, ! and #, in groups of 6-4-4-4-4-4-6 or without dashes"
)]
pub struct ParseIdError;

impl FromStr for Id {
    type Err = ParseIdError;

    /// Takes the form with dashes and the bare one.
    fn from_str(text: &str) -> Result<Id, ParseIdError> {
        let bare: Vec<u8> = text.bytes().filter(|&byte| byte != b'-').collect();
        let id = bare.try_into().ok().and_then(Id::from_bytes).ok_or(ParseIdError)?;
        if text.len() > 32 && id.to_string() != text {
            return Err(ParseIdError);
        }
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_both_ways() {
        let shown = "vpgTv6-Hkit-mGXD-iyeK-sXNZ-JYJq-mGK5wG";
        let id: Id = shown.parse().unwrap();
        assert_eq!(id.bytes(), b"vpgTv6HkitmGXDiyeKsXNZJYJqmGK5wG");
        assert_eq!(id.to_string(), shown);
        assert_eq!("vpgTv6HkitmGXDiyeKsXNZJYJqmGK5wG".parse(), Ok(id));
        let moved_dash = "vpgTv-6Hkit-mGXD-iyeK-sXNZ-JYJq-mGK5wG";
        for bad in ["", "vpgTv6", moved_dash, &shown.replace('v', "_"), &format!("{shown}0")] {
            assert_eq!(bad.parse::<Id>(), Err(ParseIdError), "{bad}");
        }
    }

    #[test]
    fn any_random_bytes_make_an_id() {
        for seed in 0..=255 {
            let id = Id::from_random([seed; 32]);
            assert_eq!(Id::from_bytes(*id.bytes()), Some(id));
        }
    }
}
