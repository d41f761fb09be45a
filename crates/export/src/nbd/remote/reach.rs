//! Ways to the drive: the first connection, the next one after a loss, the end, and the drive again
//! after its end.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use wattle_rt::{Core, Device, Either, IoError, PathState, ReopenError, race};

use super::identity::{Ends, Shows};
use super::log::{Connection, Log};
use super::path::Path;
use super::spread::note_state;
use super::{Facts, Link, Patience, RemoteError, State, within};
use crate::nbd::client::{Client, ClientError};

/// Between attempts to connect: twice as long each time.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// For a server to accept a connection and to go to the export.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Looks at what shows by a path, while the drive is written to by another one.
const LOOKS_AT_ENDS: u32 = 8;

/// Between two looks at a connection that is given up.
const LOOK_AT_OLD: Duration = Duration::from_millis(20);

/// Looks for whether nothing listens where a connection has just ended, and the time between them:
/// less than a process takes to start.
const LOOKS_FOR_ABSENCE: u32 = 50;
const PAUSE_FOR_ABSENCE: Duration = Duration::from_millis(2);

/// Between two looks at a path that failed.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// So many of them for each look at a path that did not.
const PROBES_EACH: u32 = 20;

impl Link {
    /// This connection is no good. The task that notices first has it made again.
    pub(super) fn lost(self: &Rc<Self>, client: &Rc<Client>) {
        self.leave(client, None);
    }

    /// Goes on by another connection: by that of a path that is preferred, or because this one is
    /// no good.
    pub(super) fn leave(self: &Rc<Self>, client: &Rc<Client>, preferred: Option<usize>) {
        let current = matches!(&*self.state.borrow(), State::Up(current) if Rc::ptr_eq(current, client));
        if current {
            *self.state.borrow_mut() = State::Down(self.core.now());
            let connection = self.connection.get();
            match preferred {
                Some(_) => note_state(&self.core, &self.paths[connection.path], true),
                None => self.paths[connection.path].fail(),
            }
            self.drain(client.clone(), connection);
            self.changed.notify_all();
            let next = preferred.unwrap_or((connection.path + 1) % self.paths.len());
            self.core.spawn(reconnect(self.clone(), next));
        }
    }

    /// Ends the drive. The first reason counts.
    pub(super) fn end(self: &Rc<Self>, error: IoError) {
        let before = match &*self.state.borrow() {
            State::Ended(_) => return,
            State::Up(client) => Some(client.clone()),
            State::Down(_) => None,
        };
        *self.state.borrow_mut() = State::Ended(error);
        *self.log.borrow_mut() = Log::default();
        self.paths[self.connection.get().path].fail();
        self.paths.iter().for_each(Path::end_reader);
        if let Some(client) = before {
            self.drain(client, self.connection.get());
        }
        self.changed.notify_all();
        self.log_shrank.notify_all();
    }

    /// Closes a connection once the server has answered all that was sent over it: it is done with
    /// that then. A connection that the server ends before leaves what was sent over it in doubt.
    fn drain(self: &Rc<Self>, client: Rc<Client>, connection: Connection) {
        if client.is_idle() && !client.has_ended() {
            return client.close();
        }
        self.draining.update(|draining| draining + 1);
        let link = self.clone();
        self.core.spawn(async move {
            if !client.has_ended() {
                // It lives, and this is the last look that counts.
                link.look_at_server(&client, connection.path).await;
            }
            while !client.has_ended() && !client.is_idle() {
                link.core.sleep(LOOK_AT_OLD).await;
            }
            let answered = !client.has_ended();
            link.draining.update(|draining| draining - 1);
            if answered {
                client.close();
                link.note_done(connection);
            } else {
                let absent = link.paths.len() > 1 && link.look_for_absence(connection.path).await;
                // The tasks that waited for answers have put what they sent in doubt by then.
                link.core.sleep(LOOK_AT_OLD).await;
                if absent {
                    link.note_done(connection);
                }
                link.outlast(&client, connection).await;
            }
        });
    }

    /// The server is done with all that was sent over a connection.
    fn note_done(&self, connection: Connection) {
        self.doubts.borrow_mut().settle(|of| of == connection);
        self.changed.notify_all();
    }

    /// Looks at whether what answers by a path may hand on what it is sent.
    pub(super) async fn look_at_server(&self, client: &Client, path: usize) {
        client.look_at_peer().await;
        self.paths[path].note_server(client);
    }

    /// Waits for the end of the process that answered over a connection that has ended. That says
    /// nothing where another connection by the same path has shown that what it is sent is handed
    /// on.
    async fn outlast(&self, client: &Client, connection: Connection) {
        let hands_on = || client.peer_hands_on() || self.paths[connection.path].hands_on.get();
        while self.doubts.borrow_mut().is_in_doubt(connection, self.core.now()) && !hands_on() {
            match client.peer_is_over() {
                Some(true) => return self.note_done(connection),
                Some(false) => self.core.sleep(LOOK_AT_OLD).await,
                None => return,
            }
        }
    }

    /// Whether no request of the connections so far can be carried out any more.
    pub(super) fn is_settled(&self) -> bool {
        self.draining.get() == 0
            && self.unanswered.get() == 0
            && self.doubts.borrow_mut().is_settled(self.core.now())
    }

    /// Nothing listens where a path's servers answered: the next server there has the drive only
    /// once the last one has let go of it. A connection that is not over shows that it has not,
    /// also one that reads, and so does a process that answered there and lives; and of a drive
    /// behind the server it says nothing.
    async fn note_absent(&self, path: usize) -> bool {
        let (place, made) = (&self.paths[path], self.attempts.get());
        if !place.is_refused(&self.core).await {
            return false;
        }
        let is_up = matches!(&*self.state.borrow(), State::Up(client) if !client.has_ended());
        let is_connected = is_up && self.connection.get().path == path;
        let done = self.draining.get() == 0 && !is_connected && !place.may_live() && !place.hands_on.get();
        if done {
            self.doubts.borrow_mut().settle(|of| of.path == path && of.number <= made);
            self.changed.notify_all();
        }
        done
    }

    /// A server that was killed is known to be gone as long as none took its place. For a moment a
    /// dying one takes connections that come to nothing. Whether it is done with all of that path.
    async fn look_for_absence(&self, path: usize) -> bool {
        let uri = &self.paths[path].uri;
        for _ in 0..LOOKS_FOR_ABSENCE {
            let connected = async {
                match uri.tls {
                    None => Client::connect(&self.core, &uri.address, &uri.export).await,
                    // Not even the export's name is said in clear.
                    Some(_) => self.paths[path].dial(&self.core, self.patience.path).await,
                }
            };
            match within(&self.core, self.patience.path, connected).await {
                // One that is dying listens no more before it is over.
                Some(Err(error)) if is_absent(error) && self.note_absent(path).await => return true,
                Some(Err(ClientError::Connection(_) | ClientError::Closed)) => {}
                _ => return false,
            }
            self.core.sleep(PAUSE_FOR_ABSENCE).await;
        }
        false
    }

    /// Until the drive has ended.
    async fn ended(&self) {
        while !matches!(&*self.state.borrow(), State::Ended(_)) {
            self.changed.wait().await;
        }
    }

    /// A connection by a path, to whatever is there.
    async fn connect_to(&self, path: usize, may_take: Duration) -> Result<(Client, Facts), Again> {
        let client = match within(&self.core, may_take, self.paths[path].dial(&self.core, may_take)).await {
            Some(Ok(client)) => client,
            Some(Err(error)) => {
                if is_absent(error) {
                    self.note_absent(path).await;
                }
                return Err(Again::Later(error));
            }
            None => return Err(Again::Silent),
        };
        self.paths[path].note_server(&client);
        match Facts::of(&client) {
            Ok(facts) => Ok((client, facts)),
            Err(RemoteError::Empty { .. }) => Err(Again::Changed("it is empty")),
            Err(_) => Err(Again::Changed("it takes no requests as small as a sector")),
        }
    }

    /// What shows through a connection to a drive of these facts.
    async fn ends(&self, client: &Client, facts: &Facts, may_take: Duration) -> Result<Ends, Again> {
        let ends = within(&self.core, may_take, Ends::read(client, facts)).await;
        ends.ok_or(Again::Silent)?.map_err(Again::Later)
    }

    /// A connection by a path that leads to this drive. A server that has started anew may have
    /// another one behind the same name, of the same size: members of an array are alike.
    pub(super) async fn connect_by(&self, path: usize, may_take: Duration) -> Result<Client, Again> {
        let (client, now) = self.connect_to(path, may_take).await?;
        if let Some(why) = self.facts.lacks(&now) {
            return Err(Again::Changed(why));
        }
        for _ in 0..LOOKS_AT_ENDS {
            let before = self.identity.borrow().changed();
            let seen = self.ends(&client, &self.facts, may_take).await?;
            let identity = self.identity.borrow();
            match identity.shows(&seen) {
                Shows::Own => return Ok(client),
                // Where there is no other path to compare with, a blank drive is still blank.
                Shows::Blank if self.paths.len() == 1 => return Ok(client),
                // By the path in use it may have been written to while this one was looked at.
                Shows::Another if identity.changed() != before => {}
                Shows::Blank | Shows::Another => {
                    return Err(Again::Changed("its content is another one"));
                }
                Shows::Nothing => break,
            }
        }
        Err(Again::Silent)
    }
}

/// What to do after an attempt that failed.
pub(super) enum Again {
    Later(ClientError),
    Silent,
    /// It led to this drive, and then did not answer.
    Stalled,
    /// It leads to something else than this drive.
    Changed(&'static str),
    Never(IoError),
}

/// The first path that can be had. Every other one that can be had now leads to the same drive.
pub(super) async fn first(
    core: &Core,
    paths: &[Path],
    patience: Patience,
) -> Result<(usize, Client, Facts, Ends), RemoteError> {
    let (mut found, mut refused) = (None, None);
    let may_connect = patience.answer.min(CONNECT_MAX);
    // The only path may lead to a drive that has to spin up.
    let may_read = if paths.len() == 1 { patience.answer } else { may_connect };
    for (path, place) in paths.iter().enumerate() {
        let connected = async {
            let client = place.dial(core, may_connect).await?;
            place.note_server(&client);
            let facts = Facts::of(&client)?;
            Ok((client, facts))
        };
        let shown = async {
            let connected = within(core, may_connect, connected).await;
            let (client, facts) = connected.unwrap_or(Err(RemoteError::Silent))?;
            let ends = within(core, may_read, Ends::read(&client, &facts)).await;
            Ok((client, facts, ends.ok_or(RemoteError::Silent)??))
        };
        match (shown.await, &found) {
            (Ok((client, facts, ends)), None) => found = Some((path, client, facts, ends)),
            (Ok((_, facts, seen)), Some((_, _, first, ends))) => {
                let shows = ends.shows(&seen);
                let same = shows == Shows::Own || shows == Shows::Blank && seen.is_blank();
                if facts != *first || !same {
                    return Err(RemoteError::OtherDrive { path });
                }
            }
            (Err(error), _) => refused = refused.or(Some(error)),
        }
    }
    found.ok_or_else(|| refused.expect("a drive has a path"))
}

/// Makes the connection again, by the path `first` first, or ends the drive.
async fn reconnect(link: Rc<Link>, first: usize) {
    let mut deadline = link.core.now() + link.patience.reconnect;
    // What was answered of what is written again, by the attempt that came farthest.
    let mut farthest = 0;
    let (mut path, mut pause) = (first, PAUSE_MIN);
    for attempt in 0.. {
        // One after the other without a pause, as long as there are others.
        if attempt + 1 >= link.paths.len() {
            link.core.sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
        if attempt > 0 {
            path = (path + 1) % link.paths.len();
        }
        let left = deadline.saturating_since(link.core.now());
        let may_take = if link.paths.len() > 1 { left.min(link.patience.path) } else { left };
        link.attempts.update(|attempts| attempts + 1);
        // A server may take one client at a time.
        link.paths[path].end_reader();
        let connection = Connection { number: link.attempts.get(), path };
        let (made, answered) = (RefCell::new(None), Cell::new(0));
        let may_connect = if link.paths.len() > 1 { left.min(2 * link.patience.path) } else { left };
        let again = async {
            let connected = within(&link.core, may_connect, link.connect_by(path, may_take)).await;
            let client = Rc::new(connected.unwrap_or(Err(Again::Silent))?);
            *made.borrow_mut() = Some(client.clone());
            link.write_again(connection, &client, &answered).await.map(|()| client)
        };
        let attempt = match race(again, link.ended()).await {
            Either::First(attempt) => Some(attempt),
            Either::Second(()) => None,
        };
        if answered.get() > farthest {
            // It was there until now. One that never comes farther is given up in time.
            farthest = answered.get();
            deadline = link.core.now() + link.patience.reconnect;
        }
        let ended = matches!(&*link.state.borrow(), State::Ended(_));
        if let Some(client) = made.take().filter(|_| ended || !matches!(attempt, Some(Ok(_)))) {
            // It may have been sent something, like any other.
            link.drain(client, connection);
            link.paths[path].fail();
        }
        if ended {
            return;
        }
        let is_over = link.core.now() >= deadline;
        match attempt {
            Some(Ok(client)) => {
                *link.state.borrow_mut() = State::Up(client);
                link.connection.set(connection);
                link.paths[path].state.set(PathState::InUse);
                return link.changed.notify_all();
            }
            Some(Err(Again::Never(error))) if link.paths.len() == 1 => return link.end(error),
            Some(Err(Again::Changed(why))) if link.paths.len() == 1 || is_over => {
                link.changed_to.set(Some(why));
                return link.end(IoError::GONE);
            }
            Some(Err(Again::Stalled)) if link.paths.len() == 1 => return link.end(IoError::GONE),
            None | Some(Err(_)) if is_over => return link.end(IoError::GONE),
            None | Some(Err(_)) => link.paths[path].state.set(PathState::Failed),
        }
    }
}

/// Looks at paths that are not in use, now and then: whether they can be had again, and whether
/// what was sent over them is out of doubt.
pub(super) async fn probe(of: Weak<Link>) {
    for round in 0u32.. {
        let Some(link) = of.upgrade() else { return };
        if matches!(&*link.state.borrow(), State::Ended(_)) {
            return;
        }
        for path in 0..link.paths.len() {
            let state = &link.paths[path].state;
            let is_due = state.get() == PathState::Failed || round % PROBES_EACH == 0;
            let reads = link.paths[path].reader.borrow().is_some();
            if state.get() != PathState::InUse && is_due && !reads {
                let there = link.connect_by(path, link.patience.path).await.is_ok();
                if state.get() != PathState::InUse {
                    note_state(&link.core, &link.paths[path], there);
                }
            }
            link.tend(path).await;
        }
        let core = link.core.clone();
        drop(link);
        core.sleep(PROBE_EVERY).await;
    }
}

/// One attempt to have a drive that has ended again.
pub(super) async fn reopen(link: &Rc<Link>) -> Result<Device, ReopenError> {
    if let Some(next) = &*link.next.borrow() {
        return Ok(next.clone());
    }
    if !matches!(&*link.state.borrow(), State::Ended(_)) {
        return Err(ReopenError::Unsettled);
    }
    let mut failed = ReopenError::Silent;
    for path in 0..link.paths.len() {
        // The layer above tells which drive it is, and whether it can be used as it is now.
        let may_take = CONNECT_MAX.min(link.patience.answer);
        let connected = async {
            let (client, facts) = link.connect_to(path, may_take).await?;
            let ends = link.ends(&client, &facts, may_take).await?;
            Ok((client, facts, ends))
        };
        let (client, facts, ends) = match connected.await {
            Ok(connected) => connected,
            Err(again) => {
                failed = match again {
                    Again::Later(ClientError::Connection(error)) => ReopenError::Connection(error),
                    Again::Later(ClientError::Closed) => ReopenError::Connection(IoError::GONE),
                    Again::Later(ClientError::Tls(fault)) => ReopenError::Tls(fault.text()),
                    Again::Later(ClientError::NoTls) => ReopenError::Tls("the server speaks no TLS"),
                    Again::Later(ClientError::TlsFiles) => {
                        ReopenError::Tls("this side's certificates cannot be used")
                    }
                    Again::Later(_) => ReopenError::Refused,
                    Again::Silent | Again::Stalled => ReopenError::Silent,
                    Again::Changed(_) => ReopenError::Refused,
                    Again::Never(error) => ReopenError::Connection(error),
                };
                continue;
            }
        };
        let now = link.core.now();
        let since = link.answered.get().unwrap_or(now);
        link.answered.set(Some(since));
        if !link.is_settled() && now - since < link.patience.answer {
            return Err(ReopenError::Unsettled);
        }
        if let Some(next) = &*link.next.borrow() {
            // Another attempt was quicker.
            return Ok(next.clone());
        }
        let (paths, name) = (link.paths.iter().map(Path::again).collect(), link.name.clone());
        let turns = link.turns.get();
        let device = super::start(&link.core, paths, path, name, link.patience, client, facts, ends);
        *link.next.borrow_mut() = Some(device.clone());
        if let Some(again) = device.link().filter(|_| turns) {
            again.take_turns(&link.core, true).await;
        }
        return Ok(device);
    }
    link.answered.set(None);
    Err(failed)
}

/// Nothing listens at the address.
fn is_absent(error: ClientError) -> bool {
    const ENOENT: i32 = 2;
    const ECONNREFUSED: i32 = 111;
    matches!(error, ClientError::Connection(error) if [ENOENT, ECONNREFUSED].contains(&error.errno()))
}
