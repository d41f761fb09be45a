//! Makes a ring: its completion mode and the sizes of its queues.

use crate::backend::RingMode;
use crate::backend::lanes::PEERS_MAX;
use io_uring::IoUring;

/// Operations that wait for a peer and have room whatever the clients do: accepts (one a listener),
/// polls (one a FUSE queue, child or signal), an operator's connections (two each), members behind
/// NBD (two each). Their number is the program's own doing: this is no limit, only what the
/// completion queue has room for.
const RESERVED: usize = 500;

/// Room for completions, such that they never overflow: one for each operation on drives, two for
/// each that waits for a peer (its own end and that of its cancellation), one for the core's event.
/// At the default depth that is 1,024 + 2 x (7,168 + 500) + 1 = 16,361 of 16,384 (256 KiB).
fn completions(entries: u32) -> u32 {
    let all = entries as usize + 2 * (PEERS_MAX + RESERVED) + 1;
    u32::try_from(all.next_power_of_two()).unwrap_or(u32::MAX)
}

const _: () = assert!(1024 + 2 * (PEERS_MAX + RESERVED) < 16 << 10);

/// Makes a ring in the given mode, or in the cheapest that this kernel has.
pub(super) fn build(entries: u32, mode: RingMode) -> std::io::Result<IoUring> {
    let base = || {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(completions(entries)).setup_clamp();
        builder
    };
    let deferred = || base().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(entries);
    let cooperative = || base().setup_coop_taskrun().setup_taskrun_flag().build(entries);
    let plain = || base().build(entries);
    match mode {
        RingMode::Best => deferred().or_else(|_| cooperative()).or_else(|_| plain()),
        RingMode::Deferred => deferred(),
        RingMode::Cooperative => cooperative(),
        RingMode::Plain => plain(),
    }
}
