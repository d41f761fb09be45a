//! Whether a block device is in use, and keeping it from being. All of it happens on threads of its
//! own: see [`BlockClaim`].

use std::fs;
use std::path::Path;

use wattle_rt::ublk::BlockClaim;
use wattle_rt::{Core, IoError};

use super::device::block_path;

/// Claims a block device.
pub(super) async fn claim(core: &Core, number: u32) -> Result<BlockClaim, IoError> {
    core.offload(move || take(&block_path(number))).await?
}

/// Claims a block device over which no loop device lies: those claim nothing. Blocking.
fn take(path: &str) -> Result<BlockClaim, IoError> {
    let claim = BlockClaim::take(path)?;
    match lies_below_a_loop(Path::new("/sys/block"), path) {
        true => Err(IoError::from_errno(libc::EBUSY)),
        false => Ok(claim),
    }
}

/// Whether a loop device lies over a block device or one of its partitions.
fn lies_below_a_loop(devices: &Path, path: &str) -> bool {
    let backs = |file: &str| match file.trim_end_matches('\n').strip_prefix(path) {
        Some("") => true,
        Some(rest) => rest.strip_prefix('p').is_some_and(|part| part.parse::<u32>().is_ok()),
        None => false,
    };
    let mut names = fs::read_dir(devices).into_iter().flatten().flatten();
    names.any(|device| {
        let is_loop = device.file_name().to_string_lossy().starts_with("loop");
        is_loop && fs::read_to_string(device.path().join("loop/backing_file")).is_ok_and(|file| backs(&file))
    })
}

/// Writes what programs have written to a claimed device and the kernel holds still: while the
/// device is claimed the last one to close it does not write it.
pub(super) async fn sync(core: &Core, claim: BlockClaim) -> (Option<BlockClaim>, Result<(), IoError>) {
    let synced = core.offload(move || (claim.sync(), claim)).await;
    match synced {
        Ok((synced, claim)) => (Some(claim), synced),
        Err(error) => (None, Err(error)),
    }
}

/// Lets a block device be claimed by others again.
pub(super) async fn give_up(core: &Core, claim: Option<BlockClaim>) {
    if let Some(claim) = claim {
        // Where the system gives no thread, it is dropped here: better than to keep it.
        let _ = core.offload(move || drop(claim)).await;
    }
}

/// Whether something has claimed a block device.
pub(super) async fn is_claimed(core: &Core, number: u32) -> bool {
    // What can be claimed is given up on the thread that claimed it.
    let refused = core.offload(move || take(&block_path(number)).err()).await;
    refused.unwrap_or_else(Some).is_some_and(may_be_claimed)
}

/// Whether a device that cannot be claimed may be in use. Without a node, or the right to it, no
/// other process of this user has it; where there is no thread or no descriptor, nothing is known.
pub(super) fn may_be_claimed(error: IoError) -> bool {
    !matches!(error.errno(), libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::EACCES | libc::EPERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_device_that_cannot_be_opened_at_all_is_known_to_be_free() {
        for errno in [libc::EBUSY, libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::EIO] {
            assert!(may_be_claimed(IoError::from_errno(errno)), "{errno}");
        }
        for errno in [libc::ENOENT, libc::ENXIO, libc::EACCES] {
            assert!(!may_be_claimed(IoError::from_errno(errno)), "{errno}");
        }
    }

    #[test]
    fn a_loop_device_over_a_device_or_its_partition_is_a_use() {
        let devices = tempfile::tempdir().unwrap();
        let lies_below = |path| lies_below_a_loop(devices.path(), path);
        assert!(!lies_below("/dev/ublkb1"));
        for (name, file) in
            [("loop0", "/dev/ublkb1\n"), ("loop1", "/dev/ublkb21p3\n"), ("sda", "/dev/ublkb3")]
        {
            let dir = devices.path().join(name).join("loop");
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("backing_file"), file).unwrap();
        }
        fs::create_dir(devices.path().join("loop2")).unwrap();
        let found: Vec<_> = ["/dev/ublkb1", "/dev/ublkb2", "/dev/ublkb21", "/dev/ublkb3", "/dev/ublkb"]
            .map(lies_below)
            .into();
        assert_eq!(found, [true, false, true, false, false]);
    }

    #[test]
    fn a_device_that_is_not_there_is_not_in_use() {
        let test = async |core: Core| {
            assert!(!is_claimed(&core, u32::MAX).await);
            assert_eq!(claim(&core, u32::MAX).await.err().map(IoError::errno), Some(libc::ENOENT));
            give_up(&core, None).await;
        };
        wattle_rt::run(wattle_rt::RuntimeConfig { cores: 1, ..Default::default() }, test).unwrap();
    }
}
