//! What the kernel says of a loop device.

use crate::device::{Device, Kind};
use std::os::fd::AsRawFd;

/// The file or block device that a loop device is over, as `stat` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopFile {
    /// The device of its file system.
    pub dev: u64,
    /// Its inode there.
    pub ino: u64,
}

/// `LOOP_GET_STATUS64` of linux/loop.h, and what it fills.
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;

#[repr(C)]
struct LoopInfo64 {
    lo_device: u64,
    lo_inode: u64,
    lo_rdevice: u64,
    lo_offset: u64,
    lo_sizelimit: u64,
    lo_number: u32,
    lo_encrypt_type: u32,
    lo_encrypt_key_size: u32,
    lo_flags: u32,
    lo_file_name: [u8; 64],
    lo_crypt_name: [u8; 64],
    lo_encrypt_key: [u8; 32],
    lo_init: [u64; 2],
}

impl Device {
    /// What it is over, if it is a loop device or a partition of one, whatever became of the path
    /// that the file had. The kernel may ask the file system of that file.
    pub fn loop_file(&self) -> Option<LoopFile> {
        let Kind::File { fd, is_block_device: true, .. } = &self.0.kind else { return None };
        // SAFETY: the structure is plain integers, for which all zeros is a value.
        let mut info: LoopInfo64 = unsafe { std::mem::zeroed() };
        // SAFETY: the request writes one structure of this layout to the live `info`; drivers that
        // do not know it write nothing.
        let rc = unsafe { libc::ioctl(fd.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) };
        (rc == 0).then_some(LoopFile { dev: info.lo_device, ino: info.lo_inode })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_has_the_size_of_the_kernels() {
        assert_eq!(size_of::<LoopInfo64>(), 232);
    }
}
