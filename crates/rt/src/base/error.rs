//! What a drive or a stream answered, as a value: the errno of the kernel and the class a caller
//! decides on.

use std::fmt;

/// Why an operation failed: an errno, and through [`IoError::kind`] what it means to a block stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct IoError {
    errno: i32,
}

/// The classes of failure a caller acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum IoErrorKind {
    /// The medium could not deliver or take these blocks; others may still work.
    Medium,
    /// The device or the peer is no longer there.
    Gone,
    /// No room: the file system, quota or thin pool under the device is full, or the write lies
    /// beyond its end.
    NoSpace,
    /// The device cannot do this operation at all; the caller has another way.
    Unsupported,
    /// The range lies beyond the end of the device, or the file was truncated under us.
    EndOfDevice,
    /// The device is read-only.
    ReadOnly,
    /// Anything else; the errno tells.
    Other,
}

/// Our own number for "the device ended early"; outside the range of errnos (1 to 4095).
const END_OF_DEVICE: i32 = 0x10000;

/// Our own number for "the map of this copy says that it was not read".
const NOT_COPIED: i32 = 0x10001;

impl IoError {
    /// The device ended before the transfer did.
    pub const END_OF_DEVICE: IoError = IoError { errno: END_OF_DEVICE };
    /// The medium failed (`EIO`).
    pub const MEDIUM: IoError = IoError { errno: libc::EIO };
    /// The device is a copy of a drive, and these blocks did not get into the copy. A medium error
    /// of the drive that was copied; it says nothing of the state of this one.
    pub const NOT_COPIED: IoError = IoError { errno: NOT_COPIED };
    /// The device is gone (`ENODEV`).
    pub const GONE: IoError = IoError { errno: libc::ENODEV };
    /// The device is full, or the write lies beyond its end (`ENOSPC`).
    pub const NO_SPACE: IoError = IoError { errno: libc::ENOSPC };
    /// The device cannot do this (`EOPNOTSUPP`).
    pub const UNSUPPORTED: IoError = IoError { errno: libc::EOPNOTSUPP };
    /// The device is read-only (`EROFS`).
    pub const READ_ONLY: IoError = IoError { errno: libc::EROFS };
    /// The offset, the length or the memory is not aligned as the device needs (`EINVAL`).
    pub const INVALID: IoError = IoError { errno: libc::EINVAL };

    /// The error of a positive errno.
    pub const fn from_errno(errno: i32) -> IoError {
        IoError { errno }
    }

    /// The errno, for instance to hand to an NBD client; `EIO` for [`IoErrorKind::EndOfDevice`] and
    /// [`IoError::NOT_COPIED`], which have none.
    pub const fn errno(self) -> i32 {
        match self.errno {
            END_OF_DEVICE | NOT_COPIED => libc::EIO,
            errno => errno,
        }
    }

    /// The class a caller decides on.
    pub const fn kind(self) -> IoErrorKind {
        match self.errno {
            END_OF_DEVICE => IoErrorKind::EndOfDevice,
            libc::EIO
            | libc::EILSEQ
            | libc::ENODATA
            | libc::EREMOTEIO
            | libc::EUCLEAN
            | libc::EBADMSG
            | NOT_COPIED => IoErrorKind::Medium,
            libc::ENODEV | libc::ENXIO | libc::ENOLINK | libc::ESHUTDOWN | libc::EBADF | libc::ENOMEDIUM => {
                IoErrorKind::Gone
            }
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => IoErrorKind::NoSpace,
            libc::EOPNOTSUPP | libc::ENOTTY | libc::ENOSYS => IoErrorKind::Unsupported,
            libc::EROFS => IoErrorKind::ReadOnly,
            _ => IoErrorKind::Other,
        }
    }

    /// The errno of the last system call of this thread.
    pub(crate) fn last_os() -> IoError {
        IoError::from_std(&std::io::Error::last_os_error())
    }

    /// The errno inside a `std` error, `EIO` where there is none.
    pub(crate) fn from_std(error: &std::io::Error) -> IoError {
        IoError::from_errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// The symbolic names an operator greps for; the text comes from the C library.
const NAMES: &[(i32, &str)] = &[
    (libc::EIO, "EIO"),
    (libc::EILSEQ, "EILSEQ"),
    (libc::ENODATA, "ENODATA"),
    (libc::EREMOTEIO, "EREMOTEIO"),
    (libc::EUCLEAN, "EUCLEAN"),
    (libc::EBADMSG, "EBADMSG"),
    (libc::ENODEV, "ENODEV"),
    (libc::ENXIO, "ENXIO"),
    (libc::ENOLINK, "ENOLINK"),
    (libc::ESHUTDOWN, "ESHUTDOWN"),
    (libc::EBADF, "EBADF"),
    (libc::ENOMEDIUM, "ENOMEDIUM"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::EDQUOT, "EDQUOT"),
    (libc::EFBIG, "EFBIG"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::ENOTTY, "ENOTTY"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::EROFS, "EROFS"),
    (libc::EINVAL, "EINVAL"),
    (libc::EPERM, "EPERM"),
    (libc::EACCES, "EACCES"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::EINTR, "EINTR"),
    (libc::EBUSY, "EBUSY"),
    (libc::EPIPE, "EPIPE"),
    (libc::ENOENT, "ENOENT"),
    (libc::ECONNRESET, "ECONNRESET"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::EADDRINUSE, "EADDRINUSE"),
    (libc::ECANCELED, "ECANCELED"),
    (libc::ETIMEDOUT, "ETIMEDOUT"),
];

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.errno == END_OF_DEVICE {
            return f.write_str("the device ended early");
        }
        if self.errno == NOT_COPIED {
            return f.write_str("not read from the drive when it was copied, by the map of the copy");
        }
        let text = std::io::Error::from_raw_os_error(self.errno).to_string();
        let text = text.split(" (os error").next().unwrap_or(&text);
        match NAMES.iter().find(|(errno, _)| *errno == self.errno) {
            Some((_, name)) => write!(f, "{text} ({name})"),
            None => write!(f, "{text} (errno {})", self.errno),
        }
    }
}

impl fmt::Debug for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoError({self})")
    }
}

impl std::error::Error for IoError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_reads_the_name_and_the_text() {
        assert_eq!(IoError::MEDIUM.to_string(), "Input/output error (EIO)");
        assert_eq!(IoError::from_errno(libc::EXDEV).to_string(), "Invalid cross-device link (errno 18)");
    }

    #[test]
    fn what_was_not_copied_is_a_bad_sector() {
        assert_eq!(IoError::NOT_COPIED.kind(), IoErrorKind::Medium);
        assert_eq!(IoError::NOT_COPIED.errno(), libc::EIO);
        assert_ne!(IoError::NOT_COPIED, IoError::MEDIUM);
    }

    #[test]
    fn a_truncated_file_is_not_a_bad_sector() {
        // A truncated file answered with EIO once made a bad-block repair write past the end of a
        // member.
        assert_eq!(IoError::END_OF_DEVICE.kind(), IoErrorKind::EndOfDevice);
        assert_eq!(IoError::END_OF_DEVICE.errno(), libc::EIO);
        assert_eq!(IoError::MEDIUM.kind(), IoErrorKind::Medium);
        assert_ne!(IoError::END_OF_DEVICE, IoError::MEDIUM);
    }
}
