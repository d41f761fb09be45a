//! What NVMe hosts have reserved of what is offered, and what an operator clears of it.

use std::sync::Arc;

use wattle_control::{Code, Problem};
use wattle_export::nvme::{NvmeSubsystem, ReservationStanding};

use super::Serving;
use crate::exports::ExportPlace;
use crate::protocol::reservations::{RegistrantReport, ReservationReport};

impl Serving {
    /// All addresses have one subsystem.
    fn subsystem(&self) -> Option<Arc<NvmeSubsystem>> {
        self.places().iter().find_map(|place| match place {
            ExportPlace::Nvme(_, _, subsystem) => Some(subsystem.clone()),
            _ => None,
        })
    }

    /// Forgets what hosts have reserved of a volume.
    pub(super) async fn clear_reservations(&self, volume: &str) -> Result<String, Problem> {
        let offered = self.offered_as(volume)?;
        let name = &offered.name;
        let problem = |why: &str, next: &str| {
            Problem::new(Code::Usage, format!("{name}: clear its reservations"), why, next)
        };
        let subsystem = self.subsystem();
        let standing = subsystem.as_ref().and_then(|subsystem| subsystem.standing(&offered.identity));
        let (Some(subsystem), Some(standing)) = (subsystem, standing) else {
            return Err(problem(
                "it is no namespace of NVMe",
                "only NVMe hosts reserve: serve it with --export nvme-tcp=…",
            ));
        };
        let ReservationStanding::Known { registrants, .. } = standing else {
            return Err(problem(
                "what was kept of them cannot be read",
                "once no host that was kept out can come back, remove the file that the server named when it started, and start it again",
            ));
        };
        if registrants.is_empty() {
            return Ok(format!("{name}: no host has registered or reserved anything"));
        }
        if !subsystem.clear_reservations(&self.core, &offered.identity).await {
            return Err(Problem::new(
                Code::ServerFailed,
                format!("{name}: its reservations stay"),
                "what outlasts the server could not be written",
                "see to the state directory: its file system may be full, or read-only",
            ));
        }
        let count = registrants.len();
        let hosts = if count == 1 { "host is" } else { "hosts are" };
        Ok(format!("{name}: {count} {hosts} registered no more, and nothing is reserved"))
    }

    /// Of volumes of which anything is registered, or is not known.
    pub(super) fn reservations(&self) -> Vec<ReservationReport> {
        let Some(subsystem) = self.subsystem() else { return Vec::new() };
        let report = |volume: &str, identity: &str| {
            let volume = volume.to_owned();
            let (kind, persists, registrants) = match subsystem.standing(identity)? {
                ReservationStanding::Unreadable => {
                    let (readable, persists) = (false, true);
                    let hosts = Vec::new();
                    return Some(ReservationReport { volume, readable, kind: None, persists, hosts });
                }
                ReservationStanding::Known { registrants, .. } if registrants.is_empty() => return None,
                ReservationStanding::Known { kind, persists, registrants } => (kind, persists, registrants),
            };
            let hosts = registrants.into_iter().map(|host| RegistrantReport {
                nqn: host.nqn,
                id: host.id.iter().map(|byte| format!("{byte:02x}")).collect(),
                key: format!("{:#x}", host.key),
                holds: host.holds,
            });
            let kind = kind.map(|kind| word(kind).to_owned());
            Some(ReservationReport { volume, readable: true, kind, persists, hosts: hosts.collect() })
        };
        self.offered().iter().filter_map(|offered| report(&offered.name, &offered.identity)).collect()
    }
}

/// A type of reservation, by its number.
fn word(kind: u8) -> &'static str {
    match kind {
        1 => "write-exclusive",
        2 => "exclusive-access",
        3 => "write-exclusive-registrants",
        4 => "exclusive-access-registrants",
        5 => "write-exclusive-all-registrants",
        _ => "exclusive-access-all-registrants",
    }
}
