#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wattle_fs::fuzzing::fuzz_hfs(&wattle_fs::fuzzing::unpack(data)));
