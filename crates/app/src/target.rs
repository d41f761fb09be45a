//! The one array that a command is about: its server, and waiting for what goes on there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use wattle_control::{Code, Problem, shell_word};
use wattle_server::protocol::report::{ArrayReport, SeatState, SpareState};
use wattle_server::socket::client::{Servers, on_no_array, silent, status};

use crate::environment::runtime_dir;
use crate::output;
use crate::output::progress::mdstat_line;
use crate::output::text::printable;

/// Between two looks at what is being waited for: short at first, since small arrays are done at
/// once.
const LOOKS: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_secs(1),
];

/// Looks before the next longer pause.
const LOOKS_EACH: usize = 20;

/// How the names of made-up drives begin.
const MADE_UP: [&str; 3] = ["mem:", "null:", "model:"];

/// An array that is being served.
pub struct ServedTarget {
    socket: PathBuf,
    /// Names are not unique in time: an array of the same name may be another one a moment later.
    uuid: Option<String>,
    array: ArrayReport,
}

impl ServedTarget {
    /// The array of this name or UUID, or that the group or volume of this name lies on.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub fn find(asked: Option<&Path>, name: &str) -> Result<Self, Problem> {
        let dir = runtime_dir(asked);
        let servers = Servers::ask(&dir);
        let (socket, array) = servers.find(&dir, name)?;
        Ok(Self::of(socket, array))
    }

    /// All arrays that a name stands for, one at least.
    ///
    /// # Errors
    /// There is nothing of that name, or it lies on no array.
    pub fn all(asked: Option<&Path>, name: &str) -> Result<Vec<Self>, Problem> {
        let dir = runtime_dir(asked);
        let servers = Servers::ask(&dir);
        let meant = servers.meant(&dir, name)?;
        if meant.arrays.is_empty() {
            return Err(on_no_array(name));
        }
        Ok(meant.arrays.iter().map(|array| Self::of(meant.socket, array)).collect())
    }

    fn of(socket: &Path, array: &ArrayReport) -> Self {
        Self { socket: socket.to_owned(), uuid: array.uuid.clone(), array: array.clone() }
    }

    /// The array that is served under the only one of `names`; `None` if these are members:
    /// several, or a file or made-up drive.
    ///
    /// # Errors
    /// Nothing has that name, or several arrays have.
    pub fn if_served(runtime_dir: Option<&Path>, names: &[String]) -> Result<Option<Self>, Problem> {
        Self::found_if_served(names, |name| Self::find(runtime_dir, name))
    }

    /// As [`Self::if_served`], all arrays that the name stands for.
    ///
    /// # Errors
    /// Nothing has that name.
    pub fn all_if_served(runtime_dir: Option<&Path>, names: &[String]) -> Result<Option<Vec<Self>>, Problem> {
        Self::found_if_served(names, |name| Self::all(runtime_dir, name))
    }

    fn found_if_served<T>(
        names: &[String],
        find: impl FnOnce(&str) -> Result<T, Problem>,
    ) -> Result<Option<T>, Problem> {
        let [name] = names else { return Ok(None) };
        match find(name) {
            Ok(found) => Ok(Some(found)),
            // Whatever is there under that name is a member.
            Err(_)
                if wattle_rt::path_of_text(name).exists()
                    || MADE_UP.iter().any(|kind| name.starts_with(kind)) =>
            {
                Ok(None)
            }
            Err(problem) if problem.code == Code::ServerNotFound => Err(Problem::new(
                problem.code,
                problem.what,
                format!("{}, nor is there a file or device of that name", problem.why),
                "name an array that `wattle status` lists, or the members of one that is not served",
            )),
            Err(problem) => Err(problem),
        }
    }

    /// Where its server listens for commands.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process that serves it, if it still does.
    pub fn server_pid(&self) -> Option<u32> {
        status(&self.socket).ok().flatten().map(|report| report.pid)
    }

    /// What its server knows it by.
    pub fn id(&self) -> &str {
        self.array.id()
    }

    /// It, when it was found.
    pub fn array(&self) -> &ArrayReport {
        &self.array
    }

    /// It, as it is now.
    ///
    /// # Errors
    /// It is not being served any more, or its server does not answer.
    pub fn look(&self) -> Result<ArrayReport, Problem> {
        let report = status(&self.socket)?.ok_or_else(|| silent(&self.socket, "it has ended"))?;
        let same = |array: &ArrayReport| array.name == self.array.name && array.uuid == self.uuid;
        report.arrays.into_iter().find(same).ok_or_else(|| {
            Problem::new(
                Code::ServerNotFound,
                format!("{} is not being served any more", self.array.name),
                "it was stopped while this command waited",
                "`wattle status` shows what is served",
            )
        })
    }

    /// Waits until `done` says so, and shows how far it is meanwhile.
    fn wait(&self, done: impl Fn(&ArrayReport) -> Result<bool, Problem>) -> Result<ArrayReport, Problem> {
        let mut looks = 0;
        loop {
            let array = self.look()?;
            if done(&array)? {
                output::progress(None);
                return Ok(array);
            }
            output::progress(array.sync.as_ref().map(|sync| mdstat_line(sync, &sync.action)).as_deref());
            pause(LOOKS[(looks / LOOKS_EACH).min(LOOKS.len() - 1)]);
            looks += 1;
        }
    }

    /// Waits until no check or repair runs; the array then.
    ///
    /// # Errors
    /// The array is stopped, or its server does not answer.
    pub fn wait_for_scrub(&self) -> Result<ArrayReport, Problem> {
        self.wait(|array| Ok(array.scrubs.first().is_none_or(|run| run.outcome != "running")))
    }

    /// Waits until the member of this name is in sync, or a spare that is not needed; the array
    /// then.
    ///
    /// # Errors
    /// As [`Self::wait_for_scrub`], or it failed.
    pub fn wait_until_filled(&self, member: &str) -> Result<ArrayReport, Problem> {
        let end = self.wait(|array| filled(array, member))?;
        let spare = end.spares.iter().any(|spare| spare.member == member);
        output::note(&printable(&match spare {
            true => format!("{member} is a spare of {}", self.array.name),
            false => format!("{member} is in sync in {}", self.array.name),
        }));
        Ok(end)
    }
}

/// What is waited for: a member in its place, or a spare.
#[derive(Debug, Clone, Copy)]
enum Waiting {
    Seat(SeatState),
    Spare(SpareState),
}

impl Waiting {
    fn word(self) -> &'static str {
        match self {
            Self::Seat(state) => state.word(),
            Self::Spare(state) => state.word(),
        }
    }
}

/// Whether nothing is left to wait for.
fn filled(array: &ArrayReport, member: &str) -> Result<bool, Problem> {
    let seats = array.members.iter().chain(&array.replacements);
    let seat =
        seats.filter(|seat| seat.member.as_deref() == Some(member)).map(|seat| Waiting::Seat(seat.state));
    let spare =
        array.spares.iter().filter(|spare| spare.member == member).map(|spare| Waiting::Spare(spare.state));
    match seat.chain(spare).next() {
        Some(Waiting::Seat(SeatState::InSync)) => Ok(true),
        Some(Waiting::Seat(SeatState::Rebuilding)) => Ok(false),
        Some(Waiting::Spare(SpareState::Spare)) => Ok(array.sync.is_none()),
        other => Err(Problem::new(
            Code::WriteFailed,
            format!("{member} is not in sync in {} and will not be", array.name),
            other.map_or("it is no member any more".to_owned(), |state| format!("it is {}", state.word())),
            format!("`wattle status {0}` shows what happened, `wattle why {0}` why", shell_word(&array.name)),
        )
        .of_member(member)),
    }
}

#[allow(clippy::disallowed_methods, reason = "a command that waits has no core to await on")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle_server::fixtures::array;
    use wattle_server::fixtures::sync;
    use wattle_server::protocol::report::SpareReport;

    #[test]
    fn waiting_ends_when_it_is_in_sync_and_when_it_never_will_be() {
        let mut data = array("data", "raid5", &["/a", "/b", "/c"]);
        assert_eq!(filled(&data, "/b"), Ok(true));
        // Another of the same file name.
        data.members[0].member = Some("b".to_owned());
        data.members[1].state = SeatState::Rebuilding;
        assert_eq!(filled(&data, "/b"), Ok(false));
        data.members[1].state = SeatState::Faulty;
        assert_eq!(filled(&data, "/b").unwrap_err().exit_code(), 1);
        assert_eq!(filled(&data, "/x").unwrap_err().exit_code(), 1);
        data.spares = vec![SpareReport { member: "/x".to_owned(), state: SpareState::Spare, why: None }];
        assert_eq!(filled(&data, "/x"), Ok(true));
        data.sync = Some(sync("recovery", 1, 2));
        assert_eq!(filled(&data, "/x"), Ok(false));
    }
}
