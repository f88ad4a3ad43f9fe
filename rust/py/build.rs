//! Tells the code which Python it is compiled for: `Py_GIL_DISABLED` where that has no GIL.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
