//! The numbers of the protocols, as constants of the module.

use penstock_flux::{flags, role};
use pyo3::prelude::*;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for (name, flag) in [
        ("TOPIC", flags::TOPIC),
        ("PAYLOAD", flags::PAYLOAD),
        ("NORESPONSE", flags::NORESPONSE),
        ("ROUTE", flags::ROUTE),
        ("UPSTREAM", flags::UPSTREAM),
        ("PRIVATE", flags::PRIVATE),
        ("STREAMING", flags::STREAMING),
        ("USER", flags::USER),
    ] {
        module.add(name, flag)?;
    }
    module.add("NODEID_ANY", flags::NODEID_ANY)?;
    module.add("USERID_UNKNOWN", flags::USERID_UNKNOWN)?;
    module.add("ROLE_OWNER", role::OWNER)?;
    module.add("ROLE_USER", role::USER)?;
    module.add("ROLE_LOCAL", role::LOCAL)
}
