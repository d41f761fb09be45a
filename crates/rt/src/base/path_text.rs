//! Paths as text, and back.
//!
//! Names of members are text in messages, in JSON, on control sockets and in undo logs, and a path
//! on Linux is bytes. So a byte that is not part of UTF-8, which is always one from 0x80 to 0xFF,
//! stands as the character of the private use area from U+EF80 to U+EFFF. A path that has such a
//! character itself has its three bytes escaped in the same way. Every path has one text, every
//! text is one path, and a path that is UTF-8 and has none of these is its own text.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const FIRST: u32 = 0xef80;
const LAST: u32 = 0xefff;
const ESCAPED_MIN: u32 = 0x80;

/// The byte that a character of a text stands for, if it stands for one.
#[must_use]
pub fn escaped_byte(character: char) -> Option<u8> {
    let code = u32::from(character);
    (FIRST..=LAST).contains(&code).then(|| (code - FIRST + ESCAPED_MIN) as u8)
}

fn escape(byte: u8) -> char {
    char::from_u32(FIRST + u32::from(byte) - ESCAPED_MIN).expect("the private use area has no gaps")
}

/// A path as text.
#[must_use]
pub fn text_of_path(path: impl AsRef<OsStr>) -> String {
    let mut text = String::new();
    for chunk in path.as_ref().as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match escaped_byte(character) {
                None => text.push(character),
                Some(_) => {
                    text.extend(character.encode_utf8(&mut [0; 4]).bytes().map(escape));
                }
            }
        }
        text.extend(chunk.invalid().iter().copied().map(escape));
    }
    text
}

/// The path that has this text.
#[must_use]
pub fn path_of_text(text: &str) -> Cow<'_, Path> {
    if !text.chars().any(|character| escaped_byte(character).is_some()) {
        return Cow::Borrowed(Path::new(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match escaped_byte(character) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_utf_8_is_its_own_text() {
        for name in ["a.img", "/dev/disk/by-id/é", "back\\xFFslash", ""] {
            assert_eq!(text_of_path(name), name);
            assert!(matches!(path_of_text(name), Cow::Borrowed(path) if path == Path::new(name)));
        }
    }

    #[test]
    fn other_bytes_stand_as_characters_of_their_own() {
        let path = OsStr::from_bytes(b"disk-\xff\xe9.img");
        assert_eq!(text_of_path(path), "disk-\u{efff}\u{efe9}.img");
        assert_eq!(path_of_text("disk-\u{efff}\u{efe9}.img").as_os_str(), path);
        // A path that has such a character is another one.
        assert_eq!(text_of_path("\u{efff}").chars().count(), 3);
    }

    proptest! {
        #[test]
        fn every_path_comes_back(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let path = OsStr::from_bytes(&bytes);
            let text = text_of_path(path);
            let back = path_of_text(&text);
            prop_assert_eq!(back.as_os_str(), path);
        }

        #[test]
        fn no_two_paths_have_one_text(text in "[a-z\u{ef70}-\u{f010}é]{0,12}") {
            let again = text_of_path(&text);
            prop_assert_eq!(again == text, !text.chars().any(|c| escaped_byte(c).is_some()));
            let back = path_of_text(&again);
            prop_assert_eq!(back.as_os_str(), OsStr::new(&text));
        }
    }
}
