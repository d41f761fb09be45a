//! What the operators of the published cases (docs/tour.md) had to find out by themselves, planted
//! all at once: `audit` says it.
//!
//! That partitions, physical volumes, extents and file systems were not aligned, as in the second
//! case, is planted one by one in `audit`.

use std::collections::BTreeSet;

use crate::audit_system::{Tree, codes};

fn expect(tree: &Tree, expected: &[&str]) {
    let report = tree.audit();
    let expected: BTreeSet<_> = expected.iter().map(|&code| code.to_owned()).collect();
    assert_eq!(codes(&report), expected, "{report:#}");
}

/// Half of what the drives allow, no processor busy, one drive of six with all the requests.
#[test]
fn raid5_does_not_scale() {
    let tree = Tree::new();
    tree.set("sys/block/md0/md/stripe_cache_size", "256");
    tree.set("sys/block/md0/md/group_thread_cnt", "0");
    tree.set("sys/block/sdb/stat", "2000 0 0 9000 2000 0 0 9000 0 0 0");
    expect(&tree, &["AUD-405", "AUD-503", "AUD-506"]);
}

/// Read-ahead on the array and not on the volumes, the mount options of the time, no alert when
/// a drive fails.
#[test]
fn aligned_by_hand() {
    let tree = Tree::new();
    tree.set_all("queue/rotational", "1");
    tree.set("sys/block/md0/queue/read_ahead_kb", "2048");
    tree.set("sys/block/dm-0/queue/read_ahead_kb", "128");
    let options = "noatime,nodiratime,nobarrier,osyncisdsync";
    tree.set("etc/fstab", &format!("/dev/tank/my-home /home xfs {options} 0 0"));
    tree.set("etc/mdadm/mdadm.conf", "ARRAY /dev/md0");
    tree.set("sys/block/md0/md/last_sync_action", "none");
    expect(&tree, &["AUD-502", "AUD-601", "AUD-603", "AUD-604", "AUD-701", "AUD-703"]);
}

/// Ten hours, whatever the speed limit was.
#[test]
fn a_rebuild_that_the_stripe_cache_holds_back() {
    let tree = Tree::new();
    tree.set_all("queue/rotational", "1");
    tree.set("sys/block/md0/md/sync_action", "recover");
    tree.set("sys/block/md0/md/stripe_cache_active", "4096");
    expect(&tree, &["AUD-507"]);
}

/// 32768 entries, because more was better before, and one processor's worth of threads for all of
/// it.
#[test]
fn a_cache_that_takes_the_memory() {
    let tree = Tree::new();
    tree.set("sys/block/md0/md/stripe_cache_size", "32768");
    tree.set("proc/meminfo", "MemTotal:       2016412 kB");
    expect(&tree, &["AUD-504"]);
}
