//! The level of vector instructions, in a process of its own: the test changes the environment.
#![allow(
    unsafe_code,
    reason = "to change the environment of a process with other threads is unsafe"
)]
#![cfg(feature = "std")]

#[test]
fn a_later_change_of_the_environment_changes_no_level() {
    let level = penstock_idset::simd_level();
    for other in ["baseline", "avx2", "avx512", "avx3"] {
        // SAFETY: no other thread of this process uses the environment.
        unsafe { std::env::set_var("PENSTOCK_SIMD", other) };
        assert_eq!(penstock_idset::simd_level(), level);
    }
}
