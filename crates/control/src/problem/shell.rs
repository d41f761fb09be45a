//! Words of commands that operators are told to type.

use wattle_rt::{escaped_byte, path_of_text};

/// A word that a shell takes as it is: people paste the command, and run it as root.
#[must_use]
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else if word.chars().any(|c| escaped_byte(c).is_some()) {
        // As bash, zsh and ksh read it.
        let bytes = path_of_text(word).as_os_str().as_encoded_bytes().to_vec();
        let shown = |byte: u8| match byte {
            b'\'' | b'\\' => format!("\\{}", char::from(byte)),
            b' '..=b'~' => char::from(byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        };
        format!("$'{}'", bytes.into_iter().map(shown).collect::<String>())
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_word_is_what_a_shell_makes_of_it() {
        assert_eq!(shell_word("/dev/md/data"), "/dev/md/data");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        let name = OsStr::from_bytes(b"it's \xff\\");
        let word = shell_word(&wattle_rt::text_of_path(name));
        assert_eq!(word, r"$'it\'s \xff\\'");
        let bash = std::process::Command::new("bash").arg("-c").arg(format!("printf %s {word}")).output();
        assert_eq!(bash.expect("bash is there").stdout, name.as_bytes());
    }
}
