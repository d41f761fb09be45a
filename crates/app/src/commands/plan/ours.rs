//! The same by wattle: what is printed, and what `--apply` does.

use wattle_advise::plan::{FileSystemOptions, PlanLevel, PlanShape, PlannedStack};

use super::linux::{mkfs, words};
use super::report::Names;

/// Where the volume's file appears while a file system is made on it.
const FILES: &str = "mnt";

/// Every command, in order.
pub fn commands(stack: &PlannedStack, file_system: &FileSystemOptions, names: &Names) -> Vec<String> {
    let mut all: Vec<String> = steps(stack, names).iter().map(|step| words(step)).collect();
    all.extend(self::file_system(stack, file_system, names));
    all
}

/// What cuts drives into bands, where there are several: those that have the same ones at once.
fn partitions(stack: &PlannedStack, names: &Names) -> Vec<Vec<String>> {
    let parts_of = |drive: usize| {
        let on = stack.arrays.iter().filter(move |array| array.drives.contains(&drive));
        let parts = on.filter_map(|array| array.part.as_ref()).map(|(number, range)| {
            // In whole MiB, as bands are.
            format!("{number}:{}M+{}M", range.start >> 20, (range.end - range.start) >> 20)
        });
        parts.collect::<Vec<_>>()
    };
    let mut cuts: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for (drive, name) in names.drives.iter().enumerate() {
        let parts = parts_of(drive);
        match cuts.iter_mut().find(|(known, _)| *known == parts) {
            _ if parts.is_empty() => (),
            Some((_, drives)) => drives.push(name.clone()),
            None => cuts.push((parts, vec![name.clone()])),
        }
    }
    let command = |(parts, drives): (Vec<String>, Vec<String>)| {
        let parts = parts.into_iter().flat_map(|part| ["--part".to_owned(), part]);
        let name = ["--name".to_owned(), names.name.clone()];
        own(["wattle", "partition"]).into_iter().chain(drives).chain(parts).chain(name).collect()
    };
    cuts.into_iter().map(command).collect()
}

/// What makes the file system.
pub fn file_system(stack: &PlannedStack, file_system: &FileSystemOptions, names: &Names) -> Vec<String> {
    vec![format!("mkdir --parents {FILES}"), words(&serve(stack, file_system, names, FILES))]
}

/// What makes partitions, arrays, group and volume: the words of each command.
pub fn steps(stack: &PlannedStack, names: &Names) -> Vec<Vec<String>> {
    let mut all = partitions(stack, names);
    for (ix, array) in stack.arrays.iter().enumerate().filter(|(_, array)| array.shape != PlanShape::Plain) {
        let mut step = own(["wattle", "create", &names.array(ix)]);
        step.extend(names.parts(array));
        step.extend(own(["--level", array.shape.level().name()]));
        if !array.spares.is_empty() {
            step.extend(own(["--spares", &array.spares.len().to_string()]));
        }
        if array.chunk_bytes > 0 {
            step.extend(own(["--chunk", &kib(array.chunk_bytes)]));
        }
        if let Some(layout) = array.shape.layout() {
            step.extend(own(["--layout", &layout]));
        }
        if array.shape.level() != PlanLevel::Raid0 {
            step.extend(own(["--consistency", array.cover.name()]));
        }
        all.push(step);
    }
    let mut group = own(["wattle", "vg", "create", &names.group()]);
    group.extend(names.all_members(stack));
    group.extend(own(["--extent-size", &kib(stack.extent_bytes)]));
    // Partitions are not taken for physical volumes unless they are named.
    let has_plain_part =
        stack.arrays.iter().any(|array| array.shape == PlanShape::Plain && array.part.is_some());
    for (ix, array) in stack.arrays.iter().enumerate().filter(|_| has_plain_part) {
        let on = if array.shape == PlanShape::Plain { names.parts(array) } else { vec![names.array(ix)] };
        group.extend(on.into_iter().flat_map(|on| ["--on".to_owned(), on]));
    }
    let mut volume = own(["wattle", "lv", "create", &names.full_volume(), "-l", "100%FREE"]);
    volume.extend(names.all_members(stack));
    if stack.lv_stripes > 1 {
        let (stripes, bytes) = (stack.lv_stripes.to_string(), kib(stack.lv_stripe_bytes));
        volume.extend(own(["--stripes", &stripes, "--stripesize", &bytes]));
    }
    all.extend([group, volume]);
    all
}

/// The same with the volume as a file in this directory.
pub fn serve(
    stack: &PlannedStack,
    file_system: &FileSystemOptions,
    names: &Names,
    directory: &str,
) -> Vec<String> {
    let (export, run) = (format!("fuse={directory}"), format!("{} \"$file\"", mkfs(file_system)));
    let mut step = own(["wattle", "serve"]);
    step.extend(names.all_members(stack));
    step.extend(own(["-V", &names.full_volume(), "--export", &export, "--run", &run]));
    step
}

fn own<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

fn kib(bytes: u64) -> String {
    format!("{}K", bytes >> 10)
}
