//! Members across a network: exports of NBD servers, connected to on a core beside whatever runs,
//! so that a connection serves the look at a member and its use.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use wattle_control::{Code, Problem};
use wattle_export::nbd::remote::{Patience, RemoteError, connect};
use wattle_export::nbd::{Uri, UriError};
use wattle_rt::{Core, CoreHandle, Device, ReopenError, beside};

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
    /// Opens the export of a URI, or of several that lead to one drive, or gives the connection
    /// that there is. A connection that was given up is made anew.
    ///
    /// # Errors
    /// It is no URI of an export, or the server cannot be had.
    pub fn open(&self, name: &str) -> Result<Device, Problem> {
        let uris = paths(name).map(str::parse::<Uri>).collect::<Result<Vec<_>, _>>();
        let uris = uris.map_err(|error: UriError| {
            let code = if error == UriError::Tls { Code::NotSupportedYet } else { Code::BadMember };
            Problem::new(
                code,
                format!("{name}: {error}"),
                "a member across a network is an export of an NBD server",
                "write it like nbd://nas:10809/disk0 or 'nbd+unix:///disk0?socket=/run/nbd.sock'; of several paths to one \
                 drive like 'nbd://a/disk0|nbd://b/disk0'",
            )
            .of_member(name)
        })?;
        let place = uris.iter().map(ToString::to_string).collect::<Vec<_>>().join("|");
        let (core, known) = {
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            let connections = match &mut *connections {
                Some(connections) => connections,
                none => {
                    let core = beside().map_err(|error| unavailable(name, &error))?;
                    none.insert(Connections { core, open: BTreeMap::new() })
                }
            };
            (connections.core.clone(), connections.open.get(&place).cloned())
        };
        let named = name.to_owned();
        let opened = core.call_blocking(async move |core| match known {
            Some(device) => again(&core, device).await.map_err(|error| is_away(&named, error)),
            None => connect(&core, &uris, named.clone(), Patience::default())
                .await
                .map_err(|error| refused(&named, error)),
        });
        let device = opened.map_err(|error| unavailable(name, &error))??;
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connections) = &mut *connections {
            connections.open.insert(place, device.clone());
        }
        Ok(device)
    }
}

/// The paths to one drive.
fn paths(name: &str) -> impl Iterator<Item = &str> {
    name.split('|').map(str::trim)
}

/// A drive that was connected to before, as it can be used now: where it has ended, the one that
/// took its place.
async fn again(core: &Core, mut device: Device) -> Result<Device, ReopenError> {
    while let Some(link) = device.link() {
        if link.look(core).await.is_some_and(|state| state.ended.is_none()) {
            break;
        }
        device = link.reopen(core).await?;
    }
    Ok(device)
}

fn is_away(name: &str, error: ReopenError) -> Problem {
    Problem::new(
        if error == ReopenError::Changed { Code::RemoteChanged } else { Code::RemoteAway },
        format!("{name}: {error}"),
        "its connection was given up before, and cannot be made again now",
        "see that its server runs and can be reached",
    )
    .of_member(name)
}

fn refused(name: &str, error: RemoteError) -> Problem {
    if let RemoteError::OtherDrive { path } = error {
        let path = paths(name).nth(path).unwrap_or_default();
        return Problem::new(
            Code::PathsDiffer,
            format!("{name}: {path} leads to another drive"),
            "paths to one drive show the same size and the same superblocks",
            "look at each by itself (`wattle examine`), and name two drives as two members",
        )
        .of_member(name);
    }
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
