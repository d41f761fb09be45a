//! DH-HMAC-CHAP: a host proves that it has the secret of its name and, if it asks for that, the
//! controller that it has one for this host.
//!
//! One exchange for each queue: the host offers hashes and groups, is given a challenge, and
//! replies with an HMAC of it under its secret, and with a challenge of its own if it likes; the
//! secrets never travel. With a Diffie-Hellman group, the challenges are augmented with a key that
//! only both ends know, so that what was overheard is no use for guessing secrets. What follows on
//! the connection is neither encrypted nor signed.
//!
//! Reading order: `secrets`, `group`, `exchange` (all pure, but for random bytes), and
//! `exponentiations`, where what takes a processor's time is computed.
//!
//! Sources: NVM Express Base Specification 2.0, section 8.13.5; RFC 7919.

mod exchange;
mod exponentiations;
mod group;
mod secrets;
#[cfg(test)]
mod tests;

pub use exchange::{AUTH_MESSAGE_BYTES_MAX, AuthProgress, Exchange};
pub use exponentiations::Exponentiations;
pub use secrets::{NvmeSecretError, NvmeSecrets};
