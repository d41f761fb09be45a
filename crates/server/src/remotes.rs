//! Members across a network: exports of NBD servers, connected to on a core beside whatever runs,
//! so that a connection serves the look at a member and its use.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use wattle_control::{Code, Problem};
use wattle_export::nbd::remote::{Patience, RemoteError, connect};
use wattle_export::nbd::{Uri, UriError};
use wattle_rt::{CoreHandle, Device, IoError, IoErrorKind, beside};

/// Where the connections are, and those that were made, by what they lead to.
struct Connections {
    core: CoreHandle,
    open: BTreeMap<String, Device>,
}

/// The drives across a network that a process has connected to.
#[derive(Default)]
pub struct Remotes {
    /// `None` until the first is named.
    connections: Mutex<Option<Connections>>,
}

impl Remotes {
    /// Opens the export of a URI, or gives the connection that there is. A connection that was
    /// given up is made anew: an operator that names the drive again has seen to it.
    ///
    /// # Errors
    /// It is no URI of an export, or the server cannot be had.
    pub fn open(&self, name: &str) -> Result<Device, Problem> {
        let uri: Uri = name.parse().map_err(|error: UriError| {
            let code = if error == UriError::Tls { Code::NotSupportedYet } else { Code::BadMember };
            Problem::new(
                code,
                format!("{name}: {error}"),
                "a member across a network is an export of an NBD server",
                "write it like nbd://nas:10809/disk0 or 'nbd+unix:///disk0?socket=/run/nbd.sock'",
            )
            .of_member(name)
        })?;
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let connections = match &mut *connections {
            Some(connections) => connections,
            none => {
                let core = beside().map_err(|error| unavailable(name, &error))?;
                none.insert(Connections { core, open: BTreeMap::new() })
            }
        };
        let place = uri.to_string();
        if let Some(device) = connections.open.get(&place).filter(|device| is_there(device)) {
            return Ok(device.clone());
        }
        let as_named = name.to_owned();
        let connected = connections
            .core
            .call_blocking(async move |core| connect(&core, &uri, as_named, Patience::default()).await)
            .map_err(|error| unavailable(name, &error))?;
        let device = connected.map_err(|error| refused(name, error))?;
        connections.open.insert(place, device.clone());
        Ok(device)
    }
}

fn is_there(device: &Device) -> bool {
    let gone = |error: IoError| error.kind() == IoErrorKind::Gone;
    !device.read_blocking(0, &mut [0; 512]).is_err_and(gone)
}

fn refused(name: &str, error: RemoteError) -> Problem {
    Problem::new(
        Code::OpenFailed,
        format!("{name}: {error}"),
        "the server is not there, or does not offer this export as a drive",
        "`nbdinfo` shows what it offers; check that it runs, and that nothing between here and there forbids it",
    )
    .of_member(name)
}

fn unavailable(name: &str, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(
        Code::BackendUnavailable,
        format!("{name}: {error}"),
        "connections have a thread of their own, and it cannot be had",
        "see the limits of this process (`ulimit -a`)",
    )
    .of_member(name)
}
