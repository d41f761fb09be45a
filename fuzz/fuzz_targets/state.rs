#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wattle_app::fuzzing::fuzz_state(data));
