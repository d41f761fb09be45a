//! The same by wattle.

use wattle_advise::plan::{Consistency, FileSystem, Level, Shape, Stack, Wish};

use super::linux::{mkfs, words};
use super::report::Names;

/// Every command, in order.
pub fn commands(wish: &Wish, stack: &Stack, file_system: &FileSystem, names: &Names) -> Vec<String> {
    let mut all = Vec::new();
    for (ix, array) in stack.arrays.iter().enumerate().filter(|(_, array)| array.shape != Shape::Plain) {
        let mut text = format!("wattle create {} {}", names.array(ix), words(&names.members(array)));
        text.push_str(&format!(" --level {}", array.shape.level().name()));
        if !array.spares.is_empty() {
            text.push_str(&format!(" --spares {}", array.spares.len()));
        }
        if array.chunk_bytes > 0 {
            text.push_str(&format!(" --chunk {}", kib(array.chunk_bytes)));
        }
        if let Some(layout) = array.shape.layout() {
            text.push_str(&format!(" --layout {layout}"));
        }
        if array.shape.level() != Level::Raid0 {
            let policy: Consistency = array.consistency(wish);
            text.push_str(&format!(" --consistency {}", policy.name()));
        }
        all.push(text);
    }
    let members = words(&names.all_members(stack));
    let (group, volume) = (names.group(), names.volume());
    all.push(format!("wattle vg create {group} {members} --extent-size {}", kib(stack.extent_bytes)));
    let mut text = format!("wattle lv create {group}/{volume} -l 100%FREE {members}");
    if stack.lv_stripes > 1 {
        text.push_str(&format!(
            " --stripes {} --stripesize {}",
            stack.lv_stripes,
            kib(stack.lv_stripe_bytes)
        ));
    }
    all.push(text);
    let make = mkfs(file_system);
    all.push("mkdir --parents mnt".to_owned());
    all.push(format!(
        "wattle serve {members} -V {group}/{volume} --export fuse=mnt --run '{make} \"$file\"'"
    ));
    all
}

fn kib(bytes: u64) -> String {
    format!("{}K", bytes >> 10)
}
