//! The shape of what is reserved: a part of the status, and of `wattle reservations --json`.

use serde::{Deserialize, Serialize};

/// What NVMe hosts have reserved of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationReport {
    /// The volume.
    pub volume: String,
    /// Whether this is known. What was kept of it cannot be read otherwise, and no host is let in.
    pub readable: bool,
    /// What is forbidden to others, in the words of the specification with hyphens
    /// (`write-exclusive`, `exclusive-access`, `write-exclusive-registrants`, …); absent if nothing
    /// is reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// All this outlasts the server.
    pub persists: bool,
    /// Hosts that are registered.
    pub hosts: Vec<RegistrantReport>,
}

/// A host that is registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistrantReport {
    /// Its name.
    pub nqn: String,
    /// Its identifier, 32 hexadecimal digits.
    pub id: String,
    /// The key that it registered, hexadecimal.
    pub key: String,
    /// The reservation belongs to this host, alone or as one of all that are registered.
    pub holds: bool,
}
