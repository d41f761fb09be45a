//! Descriptors that come along with the bytes of a Unix socket, and go along with them.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::base::error::IoError;
use crate::stream::Stream;
use crate::stream::handed::{self, KeptOpen};

/// Descriptors that one message may bring.
const DESCRIPTORS_MAX: usize = 64;
/// And that the kernel lets one have. There is room for all of them: what finds none is closed as
/// the message is received.
const DESCRIPTORS_ROOM: usize = 253;
/// Room for one header and so many descriptors, in headers, aligned as headers are.
const CONTROL_HEADERS: usize =
    2 + DESCRIPTORS_ROOM * size_of::<libc::c_int>() / size_of::<libc::cmsghdr>() + 1;

impl Stream {
    /// Takes bytes that are there already, with the descriptors that came along: how many bytes, 0
    /// at the end. `EAGAIN` says that there are none now: wait until the stream is readable. More
    /// descriptors than 64 at a time are an error, and closed.
    ///
    /// # Errors
    /// What the system says; `EMSGSIZE` for too many descriptors.
    pub fn try_receive_along(&self, into: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), IoError> {
        let (count, descriptors, too_many) = self.receive_along(into)?;
        if too_many { Err(IoError::from_errno(libc::EMSGSIZE)) } else { Ok((count, descriptors)) }
    }

    /// The same from a peer that may send along anything: no call on what comes back waits for
    /// another process. It is memory (a file of tmpfs or hugetlbfs), an event, or a Unix socket;
    /// what would wait as it is closed is kept open in `kept` too.
    ///
    /// # Errors
    /// As [`Self::try_receive_along`]; `EINVAL` if something else came along, or more than may be
    /// kept, which is closed without a wait.
    pub fn try_receive_harmless(
        &self,
        into: &mut [u8],
        kept: &mut KeptOpen,
    ) -> Result<(usize, Vec<OwnedFd>), IoError> {
        let (count, descriptors, too_many) = self.receive_along(into)?;
        let refused = match too_many {
            true => libc::EMSGSIZE,
            false
                if descriptors.iter().all(|fd| handed::is_harmless(fd.as_fd()) && kept.keep(fd.as_fd())) =>
            {
                return Ok((count, descriptors));
            }
            false => libc::EINVAL,
        };
        handed::close(descriptors);
        Err(IoError::from_errno(refused))
    }

    /// Takes bytes and descriptors, and whether there were too many of these.
    fn receive_along(&self, into: &mut [u8]) -> Result<(usize, Vec<OwnedFd>, bool), IoError> {
        let Some(socket) = self.descriptor() else { return Err(IoError::UNSUPPORTED) };
        let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let mut control = MaybeUninit::<[libc::cmsghdr; CONTROL_HEADERS]>::zeroed();
        // SAFETY: a msghdr is plain pointers and integers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        // SAFETY: the message points to live bytes and to live control space of the length given.
        let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        let Ok(received) = usize::try_from(received) else { return Err(IoError::last_os()) };
        let mut descriptors = Vec::new();
        // SAFETY: the kernel has filled `message`; the headers it names lie in `control`, and one
        // of this level and type is followed by descriptors, as many as its length says, that the
        // kernel has just given us and nothing else knows.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(&raw const message);
            while !header.is_null() {
                if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                    let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                    let first = libc::CMSG_DATA(header).cast::<libc::c_int>();
                    for ix in 0..bytes / size_of::<libc::c_int>() {
                        descriptors.push(OwnedFd::from_raw_fd(first.add(ix).read_unaligned()));
                    }
                }
                header = libc::CMSG_NXTHDR(&raw const message, header);
            }
        }
        let too_many = message.msg_flags & libc::MSG_CTRUNC != 0 || descriptors.len() > DESCRIPTORS_MAX;
        Ok((received, descriptors, too_many))
    }

    /// Sends bytes in one piece, with a descriptor that goes along. It never waits: a peer that
    /// takes nothing gets an error instead.
    ///
    /// # Errors
    /// What the system says; `EAGAIN` if there is no room for all the bytes.
    pub fn try_send_along(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), IoError> {
        let Some(socket) = self.descriptor() else { return Err(IoError::UNSUPPORTED) };
        let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = MaybeUninit::<[libc::cmsghdr; CONTROL_HEADERS]>::zeroed();
        // SAFETY: a msghdr is plain pointers and integers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        if let Some(descriptor) = descriptor {
            const ONE_FD: u32 = size_of::<libc::c_int>() as u32;
            message.msg_control = control.as_mut_ptr().cast();
            // SAFETY: the space of one descriptor is far below that of `control`, so the first
            // header and what follows it lie in there.
            unsafe {
                message.msg_controllen = libc::CMSG_SPACE(ONE_FD) as _;
                let header = libc::CMSG_FIRSTHDR(&raw const message);
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = libc::SCM_RIGHTS;
                (*header).cmsg_len = libc::CMSG_LEN(ONE_FD) as _;
                libc::CMSG_DATA(header).cast::<libc::c_int>().write_unaligned(descriptor.as_raw_fd());
            }
        }
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the message points to live bytes and to live control space of the length given;
        // the kernel only reads them.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
        match usize::try_from(sent) {
            Ok(sent) if sent == bytes.len() => Ok(()),
            Ok(_) => Err(IoError::from_errno(libc::EAGAIN)),
            Err(_) => Err(IoError::last_os()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn a_descriptor_goes_along_and_is_another_one() {
        let (ours, theirs) = Stream::pair().unwrap();
        let nothing = ours.try_receive_along(&mut [0; 8]).map(|_| ()).unwrap_err();
        assert_eq!(nothing.errno(), libc::EAGAIN);
        let file = tempfile::tempfile().unwrap();
        theirs.try_send_along(b"abc", Some(file.as_fd())).unwrap();
        theirs.try_send_along(b"de", None).unwrap();
        let mut bytes = [0; 3];
        let (count, descriptors) = ours.try_receive_along(&mut bytes).unwrap();
        assert_eq!((count, &bytes, descriptors.len()), (3, b"abc", 1));
        assert_ne!(descriptors[0].as_raw_fd(), file.as_raw_fd());
        let (count, descriptors) = ours.try_receive_along(&mut bytes).unwrap();
        assert_eq!((count, &bytes[..2], descriptors.len()), (2, &b"de"[..], 0));
        let anything = std::fs::File::open("/dev/zero").unwrap();
        theirs.try_send_along(b"f", Some(anything.as_fd())).unwrap();
        theirs.try_send_along(b"g", Some(theirs.as_fd())).unwrap();
        let mut kept = KeptOpen::default();
        let refused = ours.try_receive_harmless(&mut bytes, &mut kept).map(|_| ()).unwrap_err();
        assert_eq!(refused.errno(), libc::EINVAL);
        assert_eq!(ours.try_receive_harmless(&mut bytes, &mut kept).unwrap().1.len(), 1);
        drop(kept);
        drop(theirs);
        // A thread closes what was kept.
        let end = loop {
            match ours.try_receive_along(&mut bytes) {
                Err(error) if error.errno() == libc::EAGAIN => std::thread::yield_now(),
                end => break end,
            }
        };
        assert_eq!(end.unwrap().0, 0);
    }
}
