#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wattle_export::fuzzing::fuzz_vhost(data));
