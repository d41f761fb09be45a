//! The commands' side: finds the server of an array and asks it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wattle_control::{Code, Problem, shell_word};

use super::RuntimeDir;
use super::trust::is_trusted;
use crate::events::FeedPosition;
use crate::protocol::events::EventsReport;
use crate::protocol::report::{ArrayReport, ServerReport, VolumeReport, below};
use crate::protocol::why::WhyReport;
use crate::protocol::{ChangeReport, LINE_BYTES_MAX, Response, ServerRequest, decode, encode};

/// A server that does not tell its status within this time hangs: nothing it does for that waits on
/// a drive.
const STATUS_TIME_MAX: Duration = Duration::from_secs(5);

/// What the sockets of the runtime directory answered.
#[derive(Debug, Default)]
pub struct Servers {
    /// Servers that answered, and their sockets.
    pub answered: Vec<(PathBuf, ServerReport)>,
    /// Sockets on which a process listens but does not answer properly.
    pub silent: Vec<Problem>,
    /// Sockets of servers that ended without being stopped: they were killed, or they crashed.
    pub dead: Vec<PathBuf>,
}

impl Servers {
    /// Asks every socket there is.
    pub fn ask(dir: &RuntimeDir) -> Self {
        let mut servers = Self::default();
        if let Err(problem) = dir.check() {
            servers.silent.push(problem);
            return servers;
        }
        let sockets = dir.sockets();
        // At once: one that hangs takes the time of none but itself.
        let told: Vec<_> = std::thread::scope(|scope| {
            let asked: Vec<_> = sockets.iter().map(|socket| scope.spawn(|| status(socket))).collect();
            asked.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        for (socket, told) in sockets.into_iter().zip(told) {
            let told = told.unwrap_or_else(|_| Err(silent(&socket, "its answer could not be read")));
            match told {
                Ok(Some(report)) => servers.answered.push((socket, report)),
                Ok(None) if is_left(&socket) => servers.dead.push(socket),
                Ok(None) => {}
                Err(problem) => servers.silent.push(problem),
            }
        }
        servers
    }

    /// What every server told of itself.
    pub fn reports(&self) -> impl Iterator<Item = &ServerReport> {
        self.answered.iter().map(|(_, report)| report)
    }

    /// Every array and the socket of its server.
    pub fn arrays(&self) -> impl Iterator<Item = (&Path, &ArrayReport)> {
        self.answered
            .iter()
            .flat_map(|(socket, report)| report.arrays.iter().map(|array| (socket.as_path(), array)))
    }

    /// Whether the server of this name ended without being stopped.
    pub fn is_dead(&self, dir: &RuntimeDir, server: &str) -> bool {
        self.dead.contains(&dir.control_socket(server))
    }

    /// What a name stands for: the array of this name or UUID; the volume group of this name or
    /// UUID, or a volume, and the arrays that it lies on; or all that the server of this name
    /// serves, unless an array of it that was stopped had the name.
    ///
    /// # Errors
    /// There is nothing of that name, or there are several arrays, or several servers have it.
    pub fn meant(&self, dir: &RuntimeDir, name: &str) -> Result<NamedServed<'_>, Problem> {
        let matches = |array: &ArrayReport| array.name == name || array.uuid.as_deref() == Some(name);
        let found: Vec<_> = self.all_arrays().filter(|meant| matches(meant.arrays[0])).collect();
        if found.len() > 1 {
            let uuids = found.iter().filter_map(|meant| meant.arrays[0].uuid.as_deref());
            return Err(Problem::new(
                Code::SeveralVolumes,
                format!("{} arrays called {name} are being served", found.len()),
                format!("their UUIDs are {}", list(uuids)),
                "name the array by its UUID",
            ));
        }
        if let Some(array) = found.into_iter().next() {
            return Ok(array);
        }
        let mut of_servers = self.answered.iter().filter_map(|(socket, server)| above(socket, server, name));
        let first = of_servers.next().ok_or_else(|| self.not_found(dir, name))?;
        let others: Vec<_> = of_servers.collect();
        if others.is_empty() {
            return Ok(first);
        }
        let servers = std::iter::once(&first).chain(&others).map(|meant| meant.server.server.as_str());
        Err(Problem::new(
            Code::SeveralVolumes,
            format!("{} servers have something called {name}", 1 + others.len()),
            format!("these are {}", list(servers)),
            "name the array or the group by its UUID, or the server",
        ))
    }

    fn all_arrays(&self) -> impl Iterator<Item = NamedServed<'_>> {
        self.answered.iter().flat_map(|(socket, server)| {
            let meant = move |array| NamedServed {
                socket,
                server,
                arrays: vec![array],
                volumes: Vec::new(),
                is_server: false,
            };
            server.arrays.iter().map(meant)
        })
    }

    /// All that the server of this name serves, whatever else is called so.
    ///
    /// # Errors
    /// There is none.
    pub fn server(&self, dir: &RuntimeDir, name: &str) -> Result<NamedServed<'_>, Problem> {
        let found = self.answered.iter().find(|(_, server)| server.server == name);
        let (socket, server) = found.ok_or_else(|| match self.not_answering(dir, name) {
            Some(problem) => problem,
            None => Problem::new(
                Code::ServerNotFound,
                format!("no server is called {name}"),
                match list(self.reports().map(|server| server.server.as_str())).as_str() {
                    "" => format!("no server listens in {}", dir.path().display()),
                    servers => format!("the servers in {} are {servers}", dir.path().display()),
                },
                "name one of these; one started with another --runtime-dir is found with the same one",
            ),
        })?;
        Ok(NamedServed::server(socket, server))
    }

    /// The one array of this name or UUID, or that the group or volume of this name lies on. The
    /// name of a server stands for its array only where there was never another.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub fn find(&self, dir: &RuntimeDir, name: &str) -> Result<(&Path, &ArrayReport), Problem> {
        let NamedServed { socket, server, arrays, is_server, .. } = self.meant(dir, name)?;
        match arrays[..] {
            [one] if is_server && server.sole_array.as_deref() != Some(one.id()) => Err(Problem::new(
                Code::ServerNotFound,
                format!("no array is called {name}: that is a server"),
                "it had other arrays, or has volumes that lie on none: its name does not say which is meant",
                format!("name the array: {}", one.name),
            )),
            [one] => Ok((socket, one)),
            [] => Err(on_no_array(name)),
            [..] => Err(Problem::new(
                Code::SeveralVolumes,
                format!("{name} lies on {} arrays", arrays.len()),
                format!("these are {}", list(arrays.iter().map(|array| array.name.as_str()))),
                "name the one that is meant",
            )),
        }
    }

    /// The volume that is offered under a name that is no array's: a volume on arrays or drives.
    pub fn volume(&self, name: &str) -> Option<&VolumeReport> {
        self.reports().flat_map(|server| &server.volumes).find(|volume| volume.name == name)
    }

    /// The server that has a volume group, by name or UUID.
    ///
    /// # Errors
    /// Several groups are meant.
    pub fn of_group(&self, name: &str) -> Result<Option<&Path>, Problem> {
        let groups = self.answered.iter().flat_map(|of| of.1.groups.iter().map(move |group| (of, group)));
        let found: Vec<_> = groups.filter(|(_, group)| group.name == name || group.uuid == name).collect();
        match found[..] {
            [] => Ok(None),
            [((socket, _), _)] => Ok(Some(socket)),
            _ => {
                let shown = found.iter().map(|((_, of), group)| format!("{} ({})", group.uuid, of.server));
                let is_one = found.iter().all(|(_, group)| group.uuid == found[0].1.uuid);
                let next = match is_one {
                    true => "they are copies of one group: stop the servers that are not meant",
                    false => "name the group by its UUID, in the name of a volume too: UUID/VOLUME",
                };
                Err(Problem::new(
                    Code::SeveralVolumes,
                    format!("{} volume groups called {name} are being served", found.len()),
                    format!("their UUIDs, and their servers: {}", shown.collect::<Vec<_>>().join(", ")),
                    next,
                ))
            }
        }
    }

    /// Why something of this name may be served, and is not found.
    fn not_answering(&self, dir: &RuntimeDir, name: &str) -> Option<Problem> {
        if let Some(problem) = self.silent.first() {
            return Some(problem.clone());
        }
        self.is_dead(dir, name).then(|| {
            Problem::new(
                Code::ServerNotFound,
                format!("{name} is not being served: its server ended without being stopped"),
                "it was killed, or it crashed; what it had in flight is not recorded as done",
                format!(
                    "serve the same members again, which recovers; `wattle stop {}` has the old server forgotten",
                    shell_word(name)
                ),
            )
        })
    }

    fn not_found(&self, dir: &RuntimeDir, name: &str) -> Problem {
        if let Some(problem) = self.not_answering(dir, name) {
            return problem;
        }
        let is_stopped = |server: &&ServerReport| server.stopped.iter().any(|stopped| stopped == name);
        if let Some(server) = self.reports().find(is_stopped) {
            return Problem::new(
                Code::ServerNotFound,
                format!("{name} is not being served any more: it was stopped"),
                format!(
                    "the server {} goes on with {}, which this order does not name",
                    server.server,
                    list(server.arrays.iter().map(|array| array.name.as_str()))
                ),
                format!(
                    "name what is meant (`wattle status` lists it); `wattle stop --server {}` stops all of that server",
                    shell_word(&server.server)
                ),
            );
        }
        let volumes = self.reports().flat_map(|server| &server.volumes).map(|volume| volume.name.as_str());
        let served = list(self.arrays().map(|(_, array)| array.name.as_str()).chain(volumes));
        let why = match served.as_str() {
            "" => format!("no server listens in {}", dir.path().display()),
            served => format!("the servers in {} serve {served}", dir.path().display()),
        };
        Problem::new(
            Code::ServerNotFound,
            format!("no array or volume called {name} is being served"),
            why,
            format!(
                "`wattle status` lists what is; to serve it: `wattle serve MEMBER... -V {}`; a server started with another \
                 --runtime-dir is found with the same one",
                shell_word(name)
            ),
        )
    }
}

/// What a name stands for.
#[derive(Debug)]
pub struct NamedServed<'a> {
    /// Where its server listens for commands.
    pub socket: &'a Path,
    /// Its server.
    pub server: &'a ServerReport,
    /// The arrays: the one that was named, or those that what was named lies on.
    pub arrays: Vec<&'a ArrayReport>,
    /// The volumes, where no array was named.
    pub volumes: Vec<&'a VolumeReport>,
    /// It is the server that was named, and nothing of it.
    pub is_server: bool,
}

impl<'a> NamedServed<'a> {
    /// All that a server has.
    fn server(socket: &'a Path, server: &'a ServerReport) -> Self {
        let (arrays, volumes) = (server.arrays.iter().collect(), server.volumes.iter().collect());
        Self { socket, server, arrays, volumes, is_server: true }
    }

    /// The volumes that clients know of what was named: of a group all of its volumes, of an array
    /// itself, or what its server offers in the stead of arrays.
    #[must_use]
    pub fn volume_names(&self) -> Vec<&str> {
        let volumes: Vec<_> = self.volumes.iter().map(|volume| volume.name.as_str()).collect();
        let arrays = self.arrays.iter().map(|array| array.name.as_str());
        let above = self.server.volumes.iter().map(|volume| volume.name.as_str());
        if volumes.is_empty() { arrays.chain(above).collect() } else { volumes }
    }
}

/// What is wrong where an array is wanted, and a name stands for volumes that lie on none.
#[must_use]
pub fn on_no_array(name: &str) -> Problem {
    Problem::new(
        Code::ServerNotFound,
        format!("{name} lies on no array"),
        "it is served from drives as they are, without redundancy",
        "name an array: `wattle status` lists those that are served",
    )
}

/// What a server has under a name that is no array's.
fn above<'a>(socket: &'a Path, server: &'a ServerReport, name: &str) -> Option<NamedServed<'a>> {
    let group = server.groups.iter().find(|group| group.name == name || group.uuid == name);
    let in_group = |volume: &&VolumeReport| {
        let owner = volume.name.split_once('/').map(|(owner, _)| owner);
        owner.is_some() && owner == group.map(|group| group.name.as_str())
    };
    let named: Vec<_> = server.volumes.iter().filter(|v| v.name == name || in_group(v)).collect();
    if group.is_some() || !named.is_empty() {
        let below = below(&server.groups, name);
        let is_below = |array: &&ArrayReport| {
            below.iter().any(|id| array.uuid.as_deref() == Some(id) || array.name == *id)
        };
        let arrays = server.arrays.iter().filter(is_below).collect();
        return Some(NamedServed { socket, server, arrays, volumes: named, is_server: false });
    }
    // A name that an array had means that array for as long as the server goes on.
    let was_array = server.stopped.iter().any(|stopped| stopped == name);
    (server.server == name && !was_array).then(|| NamedServed::server(socket, server))
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// What a server did.
#[derive(Debug)]
pub struct ServerAnswer {
    /// For people.
    pub message: String,
    /// What saves what it overwrote.
    pub undo_log: Option<PathBuf>,
    /// The member that came in, as reports call it.
    pub member: Option<String>,
}

/// Asks one server to do something and waits as long as it takes.
///
/// # Errors
/// What the server answered, or that it did not.
pub fn request(socket: &Path, request: &ServerRequest) -> Result<ServerAnswer, Problem> {
    match exchange(socket, request, None)? {
        Some(Response::Done { message, undo_log, member }) => Ok(ServerAnswer { message, undo_log, member }),
        Some(Response::Error(report)) => Err(report.into()),
        Some(_) => Err(silent(socket, "it answered something else than was asked")),
        None => Err(silent(socket, "it has ended")),
    }
}

/// Orders the server of a group to change it and waits as long as it takes.
///
/// # Errors
/// As [`request`].
pub fn order(socket: &Path, request: &ServerRequest) -> Result<ChangeReport, Problem> {
    match exchange(socket, request, None)? {
        Some(Response::Changed { change }) => Ok(change),
        Some(Response::Error(report)) => Err(report.into()),
        Some(_) => Err(silent(socket, "it answered something else than was asked")),
        None => Err(silent(socket, "it has ended")),
    }
}

/// Asks one server why an array is as it is.
///
/// # Errors
/// As [`request`].
pub fn why(socket: &Path, array: &str) -> Result<WhyReport, Problem> {
    match exchange(socket, &ServerRequest::Why { array: array.to_owned() }, Some(STATUS_TIME_MAX))? {
        Some(Response::Why(report)) => Ok(report),
        Some(Response::Error(report)) => Err(report.into()),
        Some(_) => Err(silent(socket, "it answered something else than was asked")),
        None => Err(silent(socket, "it has ended")),
    }
}

/// What a server tells of itself; `None` if no server listens there any more.
///
/// # Errors
/// It does not answer properly.
pub fn status(socket: &Path) -> Result<Option<ServerReport>, Problem> {
    match exchange(socket, &ServerRequest::Status, Some(STATUS_TIME_MAX)) {
        Ok(Some(Response::Status(report))) => Ok(Some(report)),
        Ok(Some(Response::Error(report))) => Err(report.into()),
        Ok(Some(_)) => Err(silent(socket, "it answered something else than was asked")),
        Ok(None) => Ok(None),
        Err(_) if has_ended(socket) => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// What happened in a server after an event, as soon as something did; `None` if no server listens
/// there.
///
/// # Errors
/// It does not answer properly, or ended while it was waited for.
pub fn events(
    socket: &Path,
    position: &FeedPosition,
    wait: Duration,
) -> Result<Option<EventsReport>, Problem> {
    let FeedPosition { epoch, after } = position.clone();
    let request = ServerRequest::Events { epoch, after, wait_secs: wait.as_secs() };
    match exchange(socket, &request, Some(wait + STATUS_TIME_MAX))? {
        Some(Response::Events(report)) => Ok(Some(report)),
        Some(Response::Error(report)) => Err(report.into()),
        Some(_) => Err(silent(socket, "it answered something else than was asked")),
        None => Ok(None),
    }
}

/// Whether a server that did not answer was just ending: no process listens in a moment.
#[allow(clippy::disallowed_methods, reason = "a command waits; it runs on no core")]
fn has_ended(socket: &Path) -> bool {
    const TRIES: u32 = 5;
    const PAUSE: Duration = Duration::from_millis(20);
    (0..TRIES).any(|_| {
        let ended = connect(socket, PAUSE).is_err_and(|error| nobody_listens(&error));
        if !ended {
            std::thread::sleep(PAUSE);
        }
        ended
    })
}

/// Whether a socket that no process listens at stays: a server that ends takes its own away, and
/// one that begins will listen in a moment.
#[allow(clippy::disallowed_methods, reason = "a command waits; it runs on no core")]
fn is_left(socket: &Path) -> bool {
    const TRIES: u32 = 5;
    const PAUSE: Duration = Duration::from_millis(20);
    (0..TRIES).all(|_| {
        std::thread::sleep(PAUSE);
        connect(socket, PAUSE).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    })
}

/// Connects to a control socket. A server that hangs accepts no connection, and once its queue is
/// full a connection would wait for a place there without end: after `time_max` that is
/// [`io::ErrorKind::WouldBlock`].
///
/// # Errors
/// No process listens there, or none accepts in time.
pub fn connect(socket: &Path, time_max: Duration) -> io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
    let stream =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&stream, sockopt::Timeout::Send, Some(time_max))?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    sockopt::set_socket_timeout(&stream, sockopt::Timeout::Send, None)?;
    Ok(stream.into())
}

fn nobody_listens(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

/// One request and its response. `None` if no process listens at the socket.
fn exchange(
    socket: &Path,
    request: &ServerRequest,
    time_max: Option<Duration>,
) -> Result<Option<Response>, Problem> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => silent(socket, "it did not answer in time"),
        _ => silent(socket, &error.to_string()),
    };
    let mut stream = match connect(socket, STATUS_TIME_MAX) {
        Ok(stream) => stream,
        Err(error) if nobody_listens(&error) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if let Some(user) = wattle_rt::peer_uid(&stream).filter(|user| !is_trusted(*user)) {
        return Err(Problem::new(
            Code::PermissionDenied,
            format!("the server at {} runs as user {user}", socket.display()),
            "it could name any file as its own, and this command acts for another user",
            format!("ask as that user: sudo -u '#{user}' wattle"),
        ));
    }
    stream.set_read_timeout(time_max).and_then(|()| stream.set_write_timeout(time_max)).map_err(failed)?;
    match stream.write_all(&encode(request)) {
        // It may have refused this user before it was asked, and said so.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(failed(error)),
        _ => {}
    }
    let mut line = Vec::new();
    BufReader::new(stream).take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line).map_err(failed)?;
    if !line.ends_with(b"\n") {
        return Err(silent(socket, "it closed the connection without an answer"));
    }
    decode(&line).map(Some)
}

/// The problem of a server that does not answer.
pub fn silent(socket: &Path, why: &str) -> Problem {
    Problem::new(
        Code::ServerFailed,
        format!("the server at {} does not answer", socket.display()),
        why,
        "look at the server's own messages; `fuser` with this path names its process",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// What is said of a server that closes a connection without an answer, and perhaps its socket
    /// too.
    #[allow(clippy::disallowed_methods, reason = "it plays a server")]
    fn asked(ends: bool) -> Result<Option<ServerReport>, Problem> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            if ends {
                drop(listener);
                drop(stream);
                return None;
            }
            Some(listener)
        });
        let said = status(&path);
        drop(server.join().unwrap());
        said
    }

    /// Its queue is full, so that no connection is even begun; and others are asked meanwhile.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "that time passes is what is tested")]
    fn servers_that_hang_are_waited_for_at_once_and_not_without_end() {
        let temp = tempfile::tempdir().unwrap();
        let dir = RuntimeDir::new(temp.path().join("run"), true);
        dir.make().unwrap();
        let hung = ["a", "b", "c"].map(|name| {
            let listener = UnixListener::bind(dir.control_socket(name)).unwrap();
            rustix::net::listen(&listener, 0).unwrap();
            let first = UnixStream::connect(dir.control_socket(name)).unwrap();
            (listener, first)
        });
        let begun = std::time::Instant::now();
        let error = connect(&dir.control_socket("a"), Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let servers = Servers::ask(&dir);
        assert_eq!((servers.silent.len(), servers.answered.len()), (3, 0));
        assert!(begun.elapsed() < 2 * STATUS_TIME_MAX, "{:?}", begun.elapsed());
        drop(hung);
    }

    #[test]
    fn a_server_that_ends_while_it_is_asked_is_none() {
        assert!(asked(true).unwrap().is_none());
    }

    #[test]
    fn a_socket_that_is_left_tells_of_a_server_that_died() {
        let temp = tempfile::tempdir().unwrap();
        let dir = RuntimeDir::new(temp.path().join("run"), true);
        dir.make().unwrap();
        drop(UnixListener::bind(dir.control_socket("a")).unwrap());
        let servers = Servers::ask(&dir);
        assert!(servers.is_dead(&dir, "a") && !servers.is_dead(&dir, "b"));
        assert!(servers.answered.is_empty() && servers.silent.is_empty());
        assert!(servers.find(&dir, "a").unwrap_err().what.contains("ended without being stopped"));
        dir.forget("a");
        assert!(Servers::ask(&dir).dead.is_empty());
    }

    /// What is known of a server called `m0`, after its array of this name was stopped.
    fn without_its_first(names: &[&str], sole_array: Option<&str>, stopped: &[&str]) -> Servers {
        let arrays = names
            .iter()
            .map(|name| ArrayReport { uuid: None, ..crate::fixtures::array(name, "raid1", &["a", "b"]) });
        let server = ServerReport {
            server: "m0".to_owned(),
            pid: 7,
            arrays: arrays.collect(),
            volumes: Vec::new(),
            groups: Vec::new(),
            threads: Vec::new(),
            cpu_ms: None,
            qos: Vec::new(),
            checkpoints: Vec::new(),
            reservations: Vec::new(),
            sole_array: sole_array.map(str::to_owned),
            stopped: stopped.iter().map(|name| (*name).to_owned()).collect(),
        };
        Servers { answered: vec![(PathBuf::from("/run/m0.sock"), server)], ..Servers::default() }
    }

    #[test]
    fn the_name_of_a_server_stands_for_an_array_only_where_there_was_never_another() {
        let dir = RuntimeDir::new(PathBuf::from("/nowhere"), true);
        let found = |servers: &Servers, name: &str| match servers.find(&dir, name) {
            Ok((_, array)) => Ok(array.name.clone()),
            Err(problem) => Err(problem.code),
        };
        let both = without_its_first(&["m0", "m1"], None, &[]);
        assert_eq!(found(&both, "m0"), Ok("m0".to_owned()));
        let one_left = without_its_first(&["m1"], None, &["m0"]);
        assert_eq!(found(&one_left, "m0"), Err(Code::ServerNotFound));
        assert!(one_left.meant(&dir, "m0").unwrap_err().next.contains("wattle stop --server m0"));
        assert!(one_left.server(&dir, "m0").unwrap().is_server);
        assert_eq!(found(&one_left, "m1"), Ok("m1".to_owned()));
        let other_left = without_its_first(&["m1"], None, &["m2"]);
        assert_eq!(found(&other_left, "m0"), Err(Code::ServerNotFound));
        assert!(other_left.meant(&dir, "m0").unwrap().is_server);
        let sole = without_its_first(&["m1"], Some("m1"), &[]);
        assert_eq!(found(&sole, "m0"), Ok("m1".to_owned()));
        assert_eq!(sole.server(&dir, "m1").unwrap_err().code, Code::ServerNotFound);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "it plays a server")]
    fn what_a_server_says_before_it_is_asked_is_heard() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let refusal = Problem::new(Code::PermissionDenied, "user 7 asks", "why", "next");
        let line = encode(&Response::Error((&refusal).into()));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&line).unwrap();
            stream.shutdown(std::net::Shutdown::Both).unwrap();
            (listener, stream)
        });
        // More than the connection takes at once, so that the request comes after the end.
        let array = "x".repeat(4 << 20);
        let said = why(&path, &array).unwrap_err();
        drop(server.join().unwrap());
        assert_eq!((said.code, said.what), (refusal.code, refusal.what));
    }

    #[test]
    fn a_server_that_listens_and_does_not_answer_is_a_problem() {
        assert_eq!(asked(false).unwrap_err().code, Code::ServerFailed);
    }
}
