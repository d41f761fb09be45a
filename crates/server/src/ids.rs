//! New ids, and this machine's name.

use std::io::Read;

use wattle_control::{Code, Problem};
use wattle_format::lvm::Id;
use wattle_format::md::Uuid;

/// The machine's name; empty where it cannot be told.
#[must_use]
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// A new id of an array or a device.
///
/// # Errors
/// The system gives no random numbers.
pub fn random_uuid() -> Result<Uuid, Problem> {
    let mut bytes = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    read.map(|()| Uuid(bytes)).map_err(|error| {
        Problem::new(
            Code::OpenFailed,
            format!("/dev/urandom: {error}"),
            "an array needs a random UUID, or it could be mistaken for another",
            "make /dev/urandom available here",
        )
    })
}

/// A new id of a volume group, a volume or a physical volume.
///
/// # Errors
/// The system gives no random numbers.
pub fn random_id() -> Result<Id, Problem> {
    let (one, other) = (random_uuid()?, random_uuid()?);
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&one.0);
    bytes[16..].copy_from_slice(&other.0);
    Ok(Id::from_random(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_uuids_differ() {
        assert_ne!(random_uuid().unwrap(), random_uuid().unwrap());
    }
}
