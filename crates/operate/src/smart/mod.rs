//! What drives say of themselves, by way of smartctl.
