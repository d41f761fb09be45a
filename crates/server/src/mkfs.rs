//! What a file system is to be told of the stripes below it. Where it is made on a block device the
//! kernel tells it; an NBD export, a file, a loop device have no such thing.

/// Blocks of file systems.
const BLOCK_BYTES: u64 = 4096;

/// The commands that make file systems on a volume with this `io_min` and `io_opt`, but for its
/// device: one for each that can be told. None where there is nothing to tell, as on a volume that
/// does not begin at a stripe.
pub fn mkfs(io_min_bytes: u64, io_opt_bytes: u64) -> Vec<String> {
    let whole = io_min_bytes >= BLOCK_BYTES && io_min_bytes.is_multiple_of(BLOCK_BYTES);
    if !whole || io_opt_bytes <= io_min_bytes || !io_opt_bytes.is_multiple_of(io_min_bytes) {
        return Vec::new();
    }
    vec![
        format!("mkfs.xfs -d su={}k,sw={}", io_min_bytes >> 10, io_opt_bytes / io_min_bytes),
        format!(
            "mkfs.ext4 -E stride={},stripe_width={}",
            io_min_bytes / BLOCK_BYTES,
            io_opt_bytes / BLOCK_BYTES
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_are_told_and_nothing_else() {
        assert_eq!(
            mkfs(64 << 10, 192 << 10),
            ["mkfs.xfs -d su=64k,sw=3", "mkfs.ext4 -E stride=16,stripe_width=48"]
        );
        for (io_min, io_opt) in [(64 << 10, 0), (4096, 4096), (512, 1024), (64 << 10, 100 << 10), (512, 0)] {
            assert!(mkfs(io_min, io_opt).is_empty(), "{io_min} {io_opt}");
        }
    }
}
