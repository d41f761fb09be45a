//! Members across a network: exports of NBD servers, connected to on a core beside whatever runs,
//! so that a connection serves the look at a member and its use.

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use wattle_control::{Code, Problem};
use wattle_export::NbdAddress;
use wattle_export::nbd::remote::{Patience, RemoteError, connect};
use wattle_export::nbd::{ClientError, Uri, UriError, UriTls};
use wattle_rt::{Core, CoreHandle, Device, ReopenError, beside};
use wattle_tls::TlsFault;

use crate::tls::tls_problem;

/// Where the connections are, and those that were made, by what they lead to.
struct Connections {
    core: CoreHandle,
    open: Vec<Known>,
}

/// A connection that was made.
#[derive(Clone)]
struct Known {
    spots: Vec<Spot>,
    /// How TLS is spoken on each path.
    tls: Vec<Option<UriTls>>,
    device: Device,
}

/// What a URI leads to, however it is written: where a connection would end, and what is asked for
/// there. A host may have several addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Spot {
    ends: Vec<String>,
    export: String,
}

impl Spot {
    fn of(uri: &Uri) -> Self {
        let ends = match &uri.address {
            NbdAddress::Unix(path) => {
                vec![path.canonicalize().unwrap_or_else(|_| path.clone()).display().to_string()]
            }
            NbdAddress::Tcp { host, port } => match (host.as_str(), *port).to_socket_addrs() {
                Ok(addresses) => addresses.map(|address| address.to_string()).collect(),
                Err(_) => vec![format!("{host}:{port}")],
            },
        };
        Self { ends, export: uri.export.clone() }
    }

    fn is(&self, other: &Self) -> bool {
        self.export == other.export && self.ends.iter().any(|end| other.ends.contains(end))
    }
}

/// The drives across a network that a process has connected to.
#[derive(Default)]
pub struct Remotes {
    /// Where certificates are looked for if a URI names no directory.
    certificates: Vec<PathBuf>,
    /// `None` until the first is named.
    connections: Mutex<Option<Connections>>,
}

impl Remotes {
    /// None yet; certificates are looked for in these directories, if a URI names none.
    #[must_use]
    pub fn new(certificates: Vec<PathBuf>) -> Self {
        Self { certificates, ..Self::default() }
    }

    /// Opens the export of a URI, or of several that lead to one drive, or gives the connection
    /// that there is. A connection that was given up is made anew.
    ///
    /// # Errors
    /// It is no URI of an export, the certificates cannot be used, or the server cannot be had.
    pub fn open(&self, name: &str) -> Result<Device, Problem> {
        let uris = paths(name).map(str::parse::<Uri>).collect::<Result<Vec<_>, _>>();
        let mut uris = uris.map_err(|error: UriError| {
            Problem::new(
                Code::BadMember,
                format!("{name}: {error}"),
                "a member across a network is an export of an NBD server",
                "write it like nbd://nas:10809/disk0 or 'nbd+unix:///disk0?socket=/run/nbd.sock'; of several paths to one \
                 drive like 'nbd://a/disk0|nbd://b/disk0'",
            )
            .of_member(name)
        })?;
        for tls in uris.iter_mut().filter_map(|uri| uri.tls.as_mut()) {
            tls.usual.clone_from(&self.certificates);
            // Connections are made elsewhere, and made again: here it can be said which file it is.
            tls.open().map_err(|error| tls_problem(&error).of_member(name))?;
        }
        let spots: Vec<Spot> = uris.iter().map(Spot::of).collect();
        let tls: Vec<_> = uris.iter().map(|uri| uri.tls.clone()).collect();
        let leads_there = |known: &&Known| {
            known.spots.len() == spots.len()
                && known.spots.iter().zip(&spots).all(|(known, own)| known.is(own))
        };
        let (core, known) = {
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            let connections = match &mut *connections {
                Some(connections) => connections,
                none => {
                    let core = beside().map_err(|error| unavailable(name, &error))?;
                    none.insert(Connections { core, open: Vec::new() })
                }
            };
            let known = connections.open.iter().find(leads_there).cloned();
            (connections.core.clone(), known)
        };
        if known.as_ref().is_some_and(|known| known.tls != tls) {
            // What was asked for with TLS must not go on without.
            return Err(Problem::new(
                Code::BadMember,
                format!("{name}: it was connected to with other settings of TLS"),
                "one drive is named twice, with TLS and without, or with other certificates",
                "write it the same way each time",
            )
            .of_member(name));
        }
        let known = known.map(|known| known.device);
        if known.is_none() {
            self.settle_others(&core, name, &spots)?;
        }
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
            let known = connections.open.iter().position(|known| leads_there(&known));
            match known {
                Some(known) => connections.open[known].device = device.clone(),
                None => connections.open.push(Known { spots, tls, device: device.clone() }),
            }
        }
        Ok(device)
    }

    /// A server may still carry out what it was sent under another name, over a connection that was
    /// given up: by one of several paths, or as one of fewer. Until that is out of doubt nothing
    /// new is sent there, and then that name is forgotten.
    fn settle_others(&self, core: &CoreHandle, name: &str, spots: &[Spot]) -> Result<(), Problem> {
        let leads_to_one =
            |known: &Known| known.spots.iter().any(|known| spots.iter().any(|own| known.is(own)));
        let others: Vec<Device> = {
            let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            let open = connections.iter().flat_map(|connections| &connections.open);
            open.filter(|known| leads_to_one(known)).map(|known| known.device.clone()).collect()
        };
        for other in others {
            let (named, device) = (name.to_owned(), other.clone());
            let settled = core.call_blocking(async move |core| {
                if !has_ended(&core, &device).await {
                    return Ok(false);
                }
                again(&core, device).await.map(|_| true).map_err(|error| is_away(&named, error))
            });
            if settled.map_err(|error| unavailable(name, &error))?? {
                let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
                let open = connections.iter_mut().map(|connections| &mut connections.open);
                open.for_each(|open| open.retain(|known| !known.device.same(&other)));
            }
        }
        Ok(())
    }
}

/// Whether the connection to a drive was given up.
async fn has_ended(core: &Core, device: &Device) -> bool {
    let Some(link) = device.link() else { return false };
    link.look(core).await.is_some_and(|state| state.ended.is_some())
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
    let (why, next) = match error {
        RemoteError::Client(ClientError::Tls(fault)) => (
            "a member is used only over a connection that both sides trust, and never without TLS instead",
            fault.next(),
        ),
        RemoteError::Client(ClientError::TlsRequired) => (
            "its clients have to be encrypted, and to prove what they are",
            "write it as nbds://, with ?tls-certificates=DIR",
        ),
        RemoteError::Client(ClientError::TlsClosed) => (
            "no client certificate was shown, and a server that wants one may end the connection without a word",
            TlsFault::CertificateWanted.next(),
        ),
        RemoteError::Client(ClientError::NoTls) => (
            "what nbds:// names is never used without TLS",
            "give the server its certificates (nbdkit --tls, wattle serve --tls-certificates), or write nbd:// on a network \
             that you trust",
        ),
        _ => (
            "the server is not there, or does not offer this export as a drive",
            "`nbdinfo` shows what it offers; check that it runs, and that nothing between here and there forbids it",
        ),
    };
    Problem::new(Code::OpenFailed, format!("{name}: {error}"), why, next).of_member(name)
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
