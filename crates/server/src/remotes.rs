//! Members across a network: exports of NBD servers, connected to on a core beside whatever runs,
//! so that a connection serves the look at a member and its use.

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use wattle_control::{Code, Problem};
use wattle_export::NbdAddress;
use wattle_export::nbd::remote::{Patience, RemoteError, connect};
use wattle_export::nbd::{ClientError, Uri, UriError, UriTls};
use wattle_rt::{Core, CoreHandle, Device, Either, LinkState, ReopenError, beside, race};
use wattle_tls::TlsFault;

use crate::tls::tls_problem;

/// How often it is looked whether a drive is still in use.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
    /// Nothing used the drive, so that its connection was given up.
    let_go: bool,
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
    connections: Arc<Mutex<Option<Connections>>>,
}

impl Remotes {
    /// None yet; certificates are looked for in these directories, if a URI names none.
    #[must_use]
    pub fn new(certificates: Vec<PathBuf>) -> Self {
        Self { certificates, ..Self::default() }
    }

    /// Opens each as [`Self::open`] does, all at once: none waits for another that does not answer.
    /// Names that lead to one server are opened one after the other, in their order.
    ///
    /// # Errors
    /// As [`Self::open`], of each.
    pub fn open_each(&self, names: &[&str], within: Option<Duration>) -> Vec<Result<Device, Problem>> {
        if let [name] = names {
            return vec![self.open(name, within)];
        }
        let mut groups: Vec<(Vec<Spot>, Vec<usize>)> = Vec::new();
        for (ix, name) in names.iter().enumerate() {
            let uris = paths(name).filter_map(|path| path.parse::<Uri>().ok());
            let mut group = (uris.map(|uri| Spot::of(&uri)).collect::<Vec<_>>(), vec![ix]);
            let is_apart = |(spots, _): &(Vec<Spot>, Vec<usize>)| {
                !spots.iter().any(|spot| group.0.iter().any(|own| own.is(spot)))
            };
            let (apart, same): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_apart);
            groups = apart;
            for (spots, before) in same {
                group.0.extend(spots);
                group.1.extend(before);
            }
            group.1.sort_unstable();
            groups.push(group);
        }
        let mut opened: Vec<_> = std::thread::scope(|scope| {
            let open = |ix: usize| (ix, self.open(names[ix], within));
            let begin = |(_, group): (_, Vec<usize>)| {
                scope.spawn(move || group.into_iter().map(open).collect::<Vec<_>>())
            };
            let opening: Vec<_> = groups.into_iter().map(begin).collect();
            let ended = opening.into_iter().flat_map(|group| match group.join() {
                Ok(opened) => opened,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ended.collect()
        });
        opened.sort_by_key(|(ix, _)| *ix);
        opened.into_iter().map(|(_, opened)| opened).collect()
    }

    /// Opens the export of a URI, or of several that lead to one drive, or gives the connection
    /// that there is. A connection that was given up is made anew. If a time is given, the drive
    /// has to show itself within it.
    ///
    /// # Errors
    /// It is no URI of an export, the certificates cannot be used, or the server cannot be had.
    pub fn open(&self, name: &str, within: Option<Duration>) -> Result<Device, Problem> {
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
        let (core, known, is_first) = {
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            let is_first = connections.is_none();
            let connections = match &mut *connections {
                Some(connections) => connections,
                none => {
                    let core = beside().map_err(|error| unavailable(name, &error))?;
                    none.insert(Connections { core, open: Vec::new() })
                }
            };
            // What an operator changed of a drive that nothing uses counts at once.
            connections.open.iter_mut().filter(|known| leads_there(&&**known)).for_each(Known::look_at_use);
            let known = connections.open.iter().find(leads_there).cloned();
            (connections.core.clone(), known, is_first)
        };
        let all = Arc::downgrade(&self.connections);
        if is_first {
            let begun = core.call_blocking(async move |core| drop(core.clone().spawn(let_go(core, all))));
            begun.map_err(|error| unavailable(name, &error))?;
        }
        let known = match known {
            Some(known) if known.tls == tls => Some(known),
            other => {
                self.settle_others(&core, name, &spots)?;
                if other.is_some_and(|other| self.is_known(&other.device)) {
                    // What was asked for with TLS must not go on without.
                    return Err(Problem::new(
                        Code::BadMember,
                        format!("{name}: it is in use with other settings of TLS"),
                        "one drive is named twice, with TLS and without, or with other certificates",
                        "write it the same way each time",
                    )
                    .of_member(name));
                }
                None
            }
        };
        let named = name.to_owned();
        let opened = core.call_blocking(async move |core| {
            let too_late = async {
                match within {
                    Some(within) => core.sleep(within).await,
                    None => std::future::pending().await,
                }
            };
            let opening = async {
                match known {
                    Some(known) => again(&core, known).await.map_err(|error| is_away(&named, error)),
                    None => connect(&core, &uris, named.clone(), Patience::default())
                        .await
                        .map_err(|error| refused(&named, error)),
                }
            };
            match race(opening, too_late).await {
                Either::First(opened) => opened,
                Either::Second(()) => Err(refused(&named, RemoteError::Silent)),
            }
        });
        let device = opened.map_err(|error| unavailable(name, &error))??;
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connections) = &mut *connections {
            connections.open.retain(|known| !leads_there(&known));
            connections.open.push(Known { spots, tls, device: device.clone(), let_go: false });
        }
        Ok(device)
    }

    fn is_known(&self, device: &Device) -> bool {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.iter().flat_map(|all| &all.open).any(|known| known.device.same(device))
    }

    /// A server may still carry out what it was sent under another name, over a connection that was
    /// given up: by one of several paths, as one of fewer, or with other settings of TLS. Until
    /// that is out of doubt nothing new is sent there, and then that name is forgotten.
    fn settle_others(&self, core: &CoreHandle, name: &str, spots: &[Spot]) -> Result<(), Problem> {
        let leads_to_one =
            |known: &Known| known.spots.iter().any(|known| spots.iter().any(|own| known.is(own)));
        let others: Vec<Known> = {
            let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            let open = connections.iter().flat_map(|connections| &connections.open);
            open.filter(|known| leads_to_one(known)).cloned().collect()
        };
        for other in others {
            let (named, known) = (name.to_owned(), other.clone());
            let settled = core.call_blocking(async move |core| {
                let Some(state) = known.state(&core).await else { return Ok(true) };
                if state.ended.is_none() {
                    return Ok(false);
                }
                if state.settled {
                    return Ok(true);
                }
                again(&core, known).await.map(|_| true).map_err(|error| is_away(&named, error))
            });
            if settled.map_err(|error| unavailable(name, &error))?? {
                let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
                let open = connections.iter_mut().map(|connections| &mut connections.open);
                open.for_each(|open| open.retain(|known| !known.device.same(&other.device)));
            }
        }
        Ok(())
    }
}

impl Known {
    /// Takes note of that nothing uses the drive: from then on its connection is given up.
    fn look_at_use(&mut self) {
        self.let_go |= self.device.is_only_handle();
    }

    /// How the connection is; one that nothing uses is given up.
    async fn state(&self, core: &Core) -> Option<LinkState> {
        let link = self.device.link()?;
        if self.let_go {
            link.give_up(core).await;
        }
        link.look(core).await
    }
}

/// Lets go of drives that nothing uses any more: their servers may have other clients then. What
/// they were sent is out of doubt only later, so they are known until then.
async fn let_go(core: Core, all: Weak<Mutex<Option<Connections>>>) {
    loop {
        core.sleep(LOOK_EVERY).await;
        let Some(all) = all.upgrade() else { return };
        let with_open = |work: &mut dyn FnMut(&mut Known)| {
            let mut connections = all.lock().unwrap_or_else(PoisonError::into_inner);
            connections.iter_mut().flat_map(|connections| &mut connections.open).for_each(work);
        };
        let mut devices = Vec::new();
        with_open(&mut |known| devices.push(known.device.clone()));
        for device in devices {
            // One that came back is known as what it is now.
            let Some(link) = device.link() else { continue };
            if let Some(next) = link.next(&core).await {
                with_open(&mut |known| {
                    if known.device.same(&device) {
                        (known.device, known.let_go) = (next.clone(), false);
                    }
                });
            }
        }
        let mut idle = Vec::new();
        with_open(&mut |known| {
            if !known.let_go {
                known.look_at_use();
                idle.extend(known.let_go.then(|| known.clone()));
            }
        });
        for known in idle {
            known.state(&core).await;
        }
    }
}

/// The paths to one drive.
fn paths(name: &str) -> impl Iterator<Item = &str> {
    name.split('|').map(str::trim)
}

/// A drive that was connected to before, as it can be used now: where it has ended, the one that
/// took its place.
async fn again(core: &Core, mut known: Known) -> Result<Device, ReopenError> {
    while known.state(core).await.is_some_and(|state| state.ended.is_some()) {
        let Some(link) = known.device.link() else { break };
        let device = link.reopen(core).await?;
        known = Known { device, let_go: false, ..known };
    }
    Ok(known.device)
}

fn is_away(name: &str, error: ReopenError) -> Problem {
    Problem::new(
        Code::RemoteAway,
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Those of one server are looked at in their order, so that one is not connected to twice.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "servers that are silent in real time")]
    fn silent_servers_are_not_waited_for_one_after_the_other() {
        let directory = tempfile::tempdir().unwrap();
        let sockets: Vec<_> = (0..4).map(|ix| directory.path().join(format!("s{ix}"))).collect();
        let listening: Vec<_> = sockets.iter().map(|socket| UnixListener::bind(socket).unwrap()).collect();
        let uri = |ix: usize, export: &str| format!("nbd+unix:///{export}?socket={}", sockets[ix].display());
        let names = [uri(0, ""), uri(1, ""), uri(2, "a"), uri(3, ""), uri(2, "b")];
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let (remotes, begun) = (Remotes::default(), std::time::Instant::now());
        let opened = remotes.open_each(&names, Some(Duration::from_secs(2)));
        assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
        assert_eq!(opened.len(), names.len());
        for (name, opened) in names.iter().zip(opened) {
            let problem = opened.unwrap_err();
            assert_eq!((problem.code, problem.member.as_deref()), (Code::OpenFailed, Some(*name)));
        }
        drop(listening);
    }
}
