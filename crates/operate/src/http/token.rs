//! The secret that a request carries.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use subtle::ConstantTimeEq;
use wattle_control::{Code, Problem};

/// A shorter secret can be guessed.
const LEN_MIN: usize = 16;

/// A longer one is no token.
const LEN_MAX: usize = 1024;

/// A secret. It is compared in constant time and never shown.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// The token of a file that only its owner can read, which is root or this user.
    ///
    /// # Errors
    /// The file cannot be read, is another user's, others can read it, or it holds no token.
    pub fn read(path: &Path) -> Result<Self, Problem> {
        let shown = path.display();
        let refused = |(why, next): (String, String)| {
            Problem::new(Code::TokenUnusable, format!("the token file {shown} cannot be used"), why, next)
        };
        let make = || format!("make one: head -c 24 /dev/urandom | base64 > {shown}");
        let token = read(path, LEN_MAX, make).map_err(refused)?;
        if token.len() < LEN_MIN {
            return Err(refused((format!("it has fewer than {LEN_MIN} characters"), make())));
        }
        Ok(Self(token))
    }

    /// Whether it is this one; takes as long wherever the first difference is.
    #[must_use]
    pub fn is(&self, given: &[u8]) -> bool {
        self.0.ct_eq(given).into()
    }
}

/// The one line of a file that only its owner, root or this user, can read; otherwise why it
/// is none, and what is to be done. `make` says how a token gets there.
pub fn read(path: &Path, len_max: usize, make: impl Fn() -> String) -> Result<Vec<u8>, (String, String)> {
    let unreadable =
        |error: std::io::Error| (error.to_string(), "name a file that this user can read".to_owned());
    // A pipe would be waited for.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(("it is no regular file".to_owned(), "name a regular file".to_owned()));
    }
    let mut file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let (mode, owner, us) = (metadata.mode() & 0o777, metadata.uid(), wattle_rt::effective_user());
    if owner != 0 && owner != us {
        let why = format!("it belongs to user {owner}, which can read it and is neither root nor this user");
        let next = format!("chown {us} {}, and make a new token", path.display());
        return Err((why, next));
    }
    if mode & 0o077 != 0 {
        let why = format!("others than its owner can use it (mode {mode:04o})");
        let next = format!("chmod 600 {}, and make a new token if others could read it", path.display());
        return Err((why, next));
    }
    let mut text = Vec::new();
    file.by_ref().take(len_max as u64 + 2).read_to_end(&mut text).map_err(unreadable)?;
    match text.trim_ascii() {
        [] => Err(("it is empty".to_owned(), make())),
        token if token.len() <= len_max && token.iter().all(u8::is_ascii_graphic) => Ok(token.to_vec()),
        _ => Err(("it is not one line of visible characters".to_owned(), make())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(text: &[u8], mode: u32) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    #[test]
    fn a_token_is_all_of_its_line() {
        let (_dir, path) = file(b"0123456789abcdef\n", 0o600);
        let token = Token::read(&path).unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for wrong in
            [&b"0123456789abcde"[..], b"0123456789abcdeg", b"0123456789abcdef0", b"0123456789abcdef\n", b""]
        {
            assert!(!token.is(wrong));
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn files_that_others_can_read_and_files_without_a_token_are_refused() {
        for (text, mode) in [
            (&b"0123456789abcdef"[..], 0o640),
            (b"0123456789abcdef", 0o604),
            (b"0123456789abcde", 0o600),
            (b"", 0o600),
            (b"01234567 89abcdef", 0o600),
            (b"0123456789abcdef\n0123456789abcdef", 0o600),
            (&[b'x'; LEN_MAX + 1], 0o600),
        ] {
            let (_dir, path) = file(text, mode);
            assert_eq!(Token::read(&path).unwrap_err().code, Code::TokenUnusable);
        }
        let (_dir, path) = file(b"0123456789abcdef", 0o600);
        // Only root gives files away.
        if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() && wattle_rt::effective_user() == 0 {
            let refused = Token::read(&path).unwrap_err();
            assert!(refused.why.contains("belongs to user 65534"), "{refused}");
        }
        let (_dir, path) = file(b"0123456789abcdef", 0o400);
        assert!(Token::read(&path).is_ok());
        assert_eq!(Token::read(Path::new("/dev/zero")).unwrap_err().code, Code::TokenUnusable);
        assert_eq!(Token::read(Path::new("/nowhere")).unwrap_err().code, Code::TokenUnusable);
    }
}
