#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| penstock_checks::pmix_requests::check(data));
