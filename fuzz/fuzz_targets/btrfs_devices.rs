#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (head, images) = data.split_at(data.len().min(3));
    let image = wattle_fs::fuzzing::unpack(images);
    wattle_fs::fuzzing::fuzz_btrfs_devices(&[head, &image].concat());
});
