//! The descriptors of drives, and on which thread they are closed.

use std::ops::Deref;
use std::os::fd::OwnedFd;

use crate::base::on_core::is_on_core;
use crate::device::{DeviceInner, Kind};
use crate::helper::helper_thread;

/// The descriptor of a file or block device, until its device is dropped.
pub(crate) struct DriveFd(Option<OwnedFd>);

impl From<OwnedFd> for DriveFd {
    fn from(fd: OwnedFd) -> DriveFd {
        DriveFd(Some(fd))
    }
}

impl Deref for DriveFd {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        self.0.as_ref().expect("a device is open until it is dropped")
    }
}

impl DeviceInner {
    /// Whether another process or machine may be asked before it is closed: for its own file
    /// system, or for that of a file which is held with it.
    fn closes_elsewhere(&self) -> bool {
        let held = || self.held.get().into_iter().flatten().any(|device| device.0.closes_elsewhere());
        matches!(self.kind, Kind::File { is_elsewhere: true, .. }) || held()
    }
}

impl Drop for DeviceInner {
    /// A core would keep all that it serves waiting while it closes a file whose server hangs. The
    /// lock lasts as long as the close.
    fn drop(&mut self) {
        if !self.closes_elsewhere() || !is_on_core() {
            return;
        }
        if let Kind::File { fd, .. } = &mut self.kind {
            let fd = fd.0.take();
            // Where the system gives no thread, it is closed here.
            let _ = helper_thread("wattle-close", move || drop(fd));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{BlockGeometry, Device};
    use crate::{RuntimeConfig, run};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::time::{Duration, Instant};

    /// What takes three seconds to close: a connection that lingers, for a peer that reads nothing.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        while stream.write(&[0; 1 << 16]).is_ok() {}
        let linger = libc::linger { l_onoff: 1, l_linger: 3 };
        let len = size_of::<libc::linger>() as libc::socklen_t;
        let option = (&raw const linger).cast();
        // SAFETY: `option` is a live `linger`, of that length.
        let set =
            unsafe { libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, option, len) };
        assert_eq!(set, 0);
        (stream.into(), peer)
    }

    fn drive(fd: OwnedFd, is_elsewhere: bool) -> Device {
        let kind = Kind::File { fd: fd.into(), direct: false, is_block_device: false, is_elsewhere };
        Device::with_kind("drive".to_owned(), 512, BlockGeometry::PLAIN, kind)
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    #[allow(clippy::disallowed_methods, reason = "the time of the machine, which a close takes")]
    fn a_core_does_not_wait_for_the_close_of_what_is_elsewhere() {
        for is_held in [false, true] {
            let (fd, _peer) = lingering();
            let device = drive(fd, !is_held);
            if is_held {
                let (reader, _) = std::io::pipe().unwrap();
                device.hold(vec![drive(reader.into(), true)]);
            }
            let closed = run(RuntimeConfig { cores: 1, ..RuntimeConfig::default() }, async move |core| {
                let begun = Instant::now();
                drop(device);
                drop(core);
                begun.elapsed()
            });
            assert!(closed.unwrap() < Duration::from_secs(2), "held: {is_held}");
        }
        let (fd, _peer) = lingering();
        let begun = Instant::now();
        drop(drive(fd, true));
        assert!(begun.elapsed() > Duration::from_secs(2), "other threads close what they have");
    }
}
