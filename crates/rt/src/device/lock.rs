//! Protection of a drive against a second owner, by two locks that both live and die with the open
//! file description: a `flock` on the whole, which is what we and util-linux understand, and byte
//! locks as QEMU sets them on its images, which is what a virtual machine, `qemu-nbd` and
//! `qemu-img` understand.
//!
//! QEMU's protocol (block/file-posix.c, `raw_check_lock_bytes`): an owner says for each of four
//! permissions whether it uses it, by a read lock on byte `100 + bit`, and whether it denies it to
//! others, by one on byte `200 + bit`. It first sets its own locks and then looks for those of
//! others that contradict them. So of two that come at the same time both may be refused, but never
//! none. The bytes need not exist, and nothing is written.

use crate::base::error::IoError;
use crate::device::OpenError;
use std::os::fd::{AsRawFd, OwnedFd};

/// Protection against a second owner, among our processes and against QEMU's; it conflicts between
/// two opens of one process too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lock {
    /// None: other owners are the caller's concern.
    #[default]
    None,
    /// For readers; no other process may write meanwhile.
    Shared,
    /// The only owner; block devices are opened `O_EXCL` too, against mounts and the kernel's md
    /// and dm. A QEMU that reads and expects others to write (`-U`, `force-share`) is let in.
    Exclusive,
}

/// QEMU's permissions, as bits.
const CONSISTENT_READ: u8 = 1 << 0;
const WRITE: u8 = 1 << 1;
const WRITE_UNCHANGED: u8 = 1 << 2;
const RESIZE: u8 = 1 << 3;
const PERMISSIONS: u32 = 4;

/// Where the bytes of permissions in use and of permissions denied to others begin.
const USED_BASE: u32 = 100;
const DENIED_BASE: u32 = 200;

/// What an owner does with the image and what others may not do meanwhile, as sets of permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    used: u8,
    denied: u8,
}

const SHARED: Claim = Claim { used: CONSISTENT_READ, denied: WRITE | RESIZE };
const EXCLUSIVE: Claim = Claim { used: CONSISTENT_READ | WRITE, denied: WRITE | WRITE_UNCHANGED | RESIZE };

impl Claim {
    /// The bytes that announce this claim.
    fn own_bytes(self) -> impl Iterator<Item = u32> {
        bytes(USED_BASE, self.used).chain(bytes(DENIED_BASE, self.denied))
    }

    /// The bytes that announce another claim this one cannot live with.
    fn conflicting_bytes(self) -> impl Iterator<Item = u32> {
        bytes(DENIED_BASE, self.used).chain(bytes(USED_BASE, self.denied))
    }
}

fn bytes(base: u32, permissions: u8) -> impl Iterator<Item = u32> {
    (0..PERMISSIONS).filter(move |bit| permissions & (1 << bit) != 0).map(move |bit| base + bit)
}

/// Takes the locks or says [`OpenError::Locked`]; does not wait. After an error some may be held:
/// close the descriptor, which must be open for reading.
pub(crate) fn lock_fd(fd: &OwnedFd, lock: Lock) -> Result<(), OpenError> {
    let (operation, claim) = match lock {
        Lock::None => return Ok(()),
        Lock::Shared => (libc::LOCK_SH, SHARED),
        Lock::Exclusive => (libc::LOCK_EX, EXCLUSIVE),
    };
    // SAFETY: flock only takes a descriptor, which `fd` keeps open, and a flag.
    let rc = unsafe { libc::flock(fd.as_raw_fd(), operation | libc::LOCK_NB) };
    if rc != 0 {
        return Err(OpenError::from_io(IoError::last_os()));
    }
    match announce(fd, claim) {
        Ok(true) => Ok(()),
        Ok(false) => Err(OpenError::Locked),
        // A file system without byte locks: QEMU cannot take any there either, and `flock` is what
        // there is.
        Err(error)
            if matches!(error.errno(), libc::EINVAL | libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS) =>
        {
            Ok(())
        }
        Err(error) => Err(OpenError::from_io(error)),
    }
}

/// Whether the claim is announced and no other owner contradicts it.
fn announce(fd: &OwnedFd, claim: Claim) -> Result<bool, IoError> {
    for byte in claim.own_bytes() {
        if !set_read_lock(fd, byte)? {
            return Ok(false);
        }
    }
    for byte in claim.conflicting_bytes() {
        if is_locked_by_another(fd, byte)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// False if another process holds a write lock there: not QEMU, but a program that locks whole
/// files by `fcntl`.
fn set_read_lock(fd: &OwnedFd, byte: u32) -> Result<bool, IoError> {
    let request = byte_lock(byte, libc::F_RDLCK);
    // SAFETY: F_OFD_SETLK reads one flock structure, which lives on our stack, and does not wait.
    let rc = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const request) };
    if rc == 0 {
        return Ok(true);
    }
    match IoError::last_os() {
        error if matches!(error.errno(), libc::EAGAIN | libc::EACCES) => Ok(false),
        error => Err(error),
    }
}

/// Whether a write lock there would have to wait for another open file description's lock, of
/// either kind.
fn is_locked_by_another(fd: &OwnedFd, byte: u32) -> Result<bool, IoError> {
    let mut answer = byte_lock(byte, libc::F_WRLCK);
    // SAFETY: F_OFD_GETLK reads and writes one flock structure, which lives on our stack and is
    // used by nothing else.
    let rc = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut answer) };
    if rc == 0 { Ok(i32::from(answer.l_type) != libc::F_UNLCK) } else { Err(IoError::last_os()) }
}

fn byte_lock(byte: u32, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: libc::off_t::from(byte),
        l_len: 1,
        // The kernel wants 0 for locks of an open file description.
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agree(a: Claim, b: Claim) -> bool {
        !a.conflicting_bytes().any(|byte| b.own_bytes().any(|own| own == byte))
    }

    #[test]
    fn two_claims_agree_if_neither_uses_what_the_other_denies() {
        // Miri takes a few of the bits: all of them together are minutes.
        let bits = if cfg!(miri) { 0..4 } else { 0..16 };
        let all = || {
            let denied = bits.clone();
            bits.clone().flat_map(move |used| denied.clone().map(move |denied| Claim { used, denied }))
        };
        for a in all() {
            for b in all() {
                assert_eq!(agree(a, b), a.used & b.denied == 0 && b.used & a.denied == 0, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn our_claims_mean_among_themselves_what_flock_means() {
        assert!(agree(SHARED, SHARED));
        assert!(!agree(SHARED, EXCLUSIVE));
        assert!(!agree(EXCLUSIVE, EXCLUSIVE));
    }

    #[test]
    fn the_bytes_are_those_of_qemu() {
        assert_eq!(SHARED.own_bytes().collect::<Vec<_>>(), [100, 201, 203]);
        assert_eq!(EXCLUSIVE.own_bytes().collect::<Vec<_>>(), [100, 101, 201, 202, 203]);
    }
}
