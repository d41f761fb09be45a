#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wattle_format::fuzzing::fuzz_bcache(data));
