//! What an operator sees of reservations, and clears of them.

use wattle_rt::Core;

use super::subsystem::NvmeSubsystem;

/// How a volume stands with NVMe hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservationStanding {
    /// What was kept of its reservations cannot be read: no host reads or writes it.
    Unreadable,
    /// What is registered and reserved.
    Known {
        /// The type of the reservation, by its number, if there is one.
        kind: Option<u8>,
        /// All this outlasts the server.
        persists: bool,
        /// Hosts that are registered.
        registrants: Vec<NvmeRegistrant>,
    },
}

/// A host that is registered with a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmeRegistrant {
    /// Its name.
    pub nqn: String,
    /// Its identifier.
    pub id: [u8; 16],
    /// The key that it registered.
    pub key: u64,
    /// The reservation is its.
    pub holds: bool,
}

impl NvmeSubsystem {
    /// How the volume of an identity stands; `None` if it never was a namespace here.
    #[must_use]
    pub fn standing(&self, identity: &str) -> Option<ReservationStanding> {
        let (_, gate) = self.gate_of(identity)?;
        if gate.is_sealed() {
            return Some(ReservationStanding::Unreadable);
        }
        let table = gate.table();
        let registrants = table.registrants.iter().map(|(host, key)| NvmeRegistrant {
            nqn: host.nqn.clone(),
            id: host.id,
            key: *key,
            holds: table.held.as_ref().is_some_and(|held| held.is_of(host)),
        });
        Some(ReservationStanding::Known {
            kind: table.held.as_ref().map(|held| held.kind as u8),
            persists: table.persists,
            registrants: registrants.collect(),
        })
    }

    /// Forgets every registration and the reservation of the volume of an identity; its hosts are
    /// told. Whether all of that is done, and durable where it was to outlast the server.
    pub async fn clear_reservations(&self, core: &Core, identity: &str) -> bool {
        let Some((nsid, gate)) = self.gate_of(identity) else { return false };
        let cleared = gate.forget(core).await;
        if let Ok(notices) = &cleared {
            self.notify(nsid, notices);
        }
        cleared.is_ok()
    }
}
