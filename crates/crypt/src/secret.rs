//! Bytes that nothing else may see: passphrases and keys.

use std::fmt;

use region::LockGuard;
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

/// Bytes that are wiped when they are dropped, kept out of swap where the system's limits allow it,
/// and never shown.
pub struct SecretBytes {
    /// `None` where memory may not be locked. It ends before the memory does.
    lock: Option<LockGuard>,
    /// Whole pages around the secret, so that no other secret's lock ends with this one's.
    pages: Vec<u8>,
    start: usize,
    len: usize,
}

impl SecretBytes {
    /// Zeros, to be filled.
    #[must_use]
    pub fn zeros(len: usize) -> Self {
        let page = region::page::size();
        let span = len.next_multiple_of(page).max(page);
        let pages = vec![0; span + page];
        let start = pages.as_ptr().addr().next_multiple_of(page) - pages.as_ptr().addr();
        let lock = region::lock(pages[start..].as_ptr(), span).ok();
        Self { lock, pages, start, len }
    }

    /// Takes bytes over; where they came from is wiped.
    #[must_use]
    pub fn take(mut bytes: Vec<u8>) -> Self {
        let mut secret = Self::zeros(bytes.len());
        secret.as_mut().copy_from_slice(&bytes);
        bytes.zeroize();
        secret
    }

    /// Whether the system keeps it out of swap.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.lock.is_some()
    }
}

impl AsRef<[u8]> for SecretBytes {
    fn as_ref(&self) -> &[u8] {
        &self.pages[self.start..self.start + self.len]
    }
}

impl AsMut<[u8]> for SecretBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.pages[self.start..self.start + self.len]
    }
}

impl Clone for SecretBytes {
    fn clone(&self) -> Self {
        let mut copy = Self::zeros(self.len);
        copy.as_mut().copy_from_slice(self.as_ref());
        copy
    }
}

/// In constant time.
impl PartialEq for SecretBytes {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref().ct_eq(other.as_ref()).into()
    }
}

impl Eq for SecretBytes {}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretBytes({} bytes)", self.len)
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        self.pages.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = SecretBytes::take(b"correct horse".to_vec());
        assert_eq!(secret.as_ref(), b"correct horse");
        assert_eq!(format!("{secret:?}"), "SecretBytes(13 bytes)");
        assert_eq!(secret.clone(), secret);
        assert_ne!(secret, SecretBytes::take(b"correct house".to_vec()));
    }

    #[test]
    fn secrets_of_any_length_have_pages_of_their_own() {
        for len in [0, 1, 4095, 4096, 4097, 10_000] {
            let secret = SecretBytes::zeros(len);
            assert_eq!(secret.as_ref().len(), len);
            assert!(secret.as_ref().as_ptr().addr().is_multiple_of(region::page::size()));
        }
    }
}
