//! Whether a block device is in use, and keeping it from being. All of it happens on threads of its
//! own: see [`BlockClaim`].

use wattle_rt::ublk::BlockClaim;
use wattle_rt::{Core, IoError};

use super::device::block_path;

/// Claims a block device.
pub(super) async fn claim(core: &Core, number: u32) -> Result<BlockClaim, IoError> {
    core.offload(move || BlockClaim::take(&block_path(number))).await?
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
    let refused = core.offload(move || BlockClaim::take(&block_path(number)).err()).await;
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
    fn a_device_that_is_not_there_is_not_in_use() {
        let test = async |core: Core| {
            assert!(!is_claimed(&core, u32::MAX).await);
            assert_eq!(claim(&core, u32::MAX).await.err().map(IoError::errno), Some(libc::ENOENT));
            give_up(&core, None).await;
        };
        wattle_rt::run(wattle_rt::RuntimeConfig { cores: 1, ..Default::default() }, test).unwrap();
    }
}
