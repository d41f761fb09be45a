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
//!
//! A loop device, or a partition of one, is a part of its file: two that do not overlap are written
//! beside each other. An owner of a part has the shared `flock`, says to QEMU that it writes and
//! lets others write, and has a write lock on the bytes of its part, moved by [`PARTS_BASE`].

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
    /// The only owner of these bytes; others may own other parts, and none the whole. It must be
    /// open for writing, and block devices are not opened `O_EXCL`.
    Part {
        /// Where the part starts.
        start_bytes: u64,
        /// Its length.
        len_bytes: u64,
    },
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

/// Where locks of parts begin: beyond the end of every file, so that they are not taken for QEMU's.
const PARTS_BASE: u64 = 1 << 62;

/// What an owner does with the image and what others may not do meanwhile, as sets of permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    used: u8,
    denied: u8,
}

const SHARED: Claim = Claim { used: CONSISTENT_READ, denied: WRITE | RESIZE };
const EXCLUSIVE: Claim = Claim { used: CONSISTENT_READ | WRITE, denied: WRITE | WRITE_UNCHANGED | RESIZE };
const PART: Claim = Claim { used: CONSISTENT_READ | WRITE, denied: WRITE_UNCHANGED | RESIZE };

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
        Lock::Part { .. } => (libc::LOCK_SH, PART),
    };
    flock(fd, operation)?;
    let is_ours = match lock {
        Lock::Part { start_bytes, len_bytes } => set_part_lock(fd, start_bytes, len_bytes),
        _ => Ok(true),
    };
    let is_ours = is_ours.and_then(|ours| if ours { announce(fd, claim) } else { Ok(false) });
    match (is_ours, lock) {
        (Ok(true), _) => Ok(()),
        (Ok(false), _) => Err(OpenError::Locked),
        // A file system without byte locks: QEMU cannot take any there either, and `flock` is what
        // there is. It knows no parts.
        (Err(error), Lock::Part { .. }) if has_no_byte_locks(error) => flock(fd, libc::LOCK_EX),
        (Err(error), _) if has_no_byte_locks(error) => Ok(()),
        (Err(error), _) => Err(OpenError::from_io(error)),
    }
}

fn has_no_byte_locks(error: IoError) -> bool {
    matches!(error.errno(), libc::EINVAL | libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS)
}

fn flock(fd: &OwnedFd, operation: i32) -> Result<(), OpenError> {
    // SAFETY: flock only takes a descriptor, which `fd` keeps open, and a flag.
    let rc = unsafe { libc::flock(fd.as_raw_fd(), operation | libc::LOCK_NB) };
    if rc == 0 { Ok(()) } else { Err(OpenError::from_io(IoError::last_os())) }
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
    set_byte_lock(fd, byte_lock(byte, libc::F_RDLCK))
}

/// False if another has a part that overlaps. A part beyond what can be locked ends there.
fn set_part_lock(fd: &OwnedFd, start_bytes: u64, len_bytes: u64) -> Result<bool, IoError> {
    let last = PARTS_BASE - 1;
    let start = start_bytes.min(last);
    // A length of 0 would be all that follows.
    let len = len_bytes.clamp(1, PARTS_BASE - start);
    let lock = byte_lock(0, libc::F_WRLCK);
    let (l_start, l_len) = ((PARTS_BASE + start) as libc::off_t, len as libc::off_t);
    set_byte_lock(fd, libc::flock { l_start, l_len, ..lock })
}

/// Whether no other open file description has a lock there that contradicts it.
fn set_byte_lock(fd: &OwnedFd, request: libc::flock) -> Result<bool, IoError> {
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

    #[test]
    fn parts_agree_among_themselves_and_with_no_owner_of_the_whole() {
        assert!(agree(PART, PART));
        assert!(!agree(PART, SHARED));
        assert!(!agree(PART, EXCLUSIVE));
    }

    #[test]
    #[cfg_attr(miri, ignore = "locks of the system")]
    fn parts_that_do_not_overlap_have_owners_of_their_own() {
        use crate::device::{Device, OpenOptions};

        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let open = |lock| Device::open(file.path(), OpenOptions { write: true, lock, ..Default::default() });
        let part = |start_bytes, len_bytes| open(Lock::Part { start_bytes, len_bytes });

        let first = part(0, 512 << 10).unwrap();
        let second = part(512 << 10, 512 << 10).unwrap();
        for lock in [Lock::Exclusive, Lock::Shared] {
            assert_eq!(open(lock).unwrap_err(), OpenError::Locked, "{lock:?} beside parts");
        }
        assert_eq!(part(0, 1 << 20).unwrap_err(), OpenError::Locked, "both");
        assert_eq!(part((512 << 10) - 1, 1).unwrap_err(), OpenError::Locked, "the end of the first");
        drop(first);
        let first = part(0, 512 << 10).unwrap();
        drop((first, second));

        let whole = open(Lock::Exclusive).unwrap();
        assert_eq!(part(0, 512).unwrap_err(), OpenError::Locked, "a part beside the whole");
        drop(whole);
        drop(part(0, u64::MAX).unwrap());
        drop(part(u64::MAX, u64::MAX).unwrap());
    }
}
