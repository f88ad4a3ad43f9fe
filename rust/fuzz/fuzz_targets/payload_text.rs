#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| penstock_checks::payload_text::check(data));
