#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| penstock_checks::settings_text::check(data));
