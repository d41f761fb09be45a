//! The messages of the control socket. A request is answered by one response; a connection carries any number of pairs.
//!
//! ```text
//! {"schema_version":1,"command":"status"}
//! {"schema_version":1,"result":"status","server":"data","pid":4711,"arrays":[…]}
//! {"schema_version":1,"command":"fail","array":"data","member":"2"}
//! {"schema_version":1,"result":"error","code":"WTL-0101","what":…,"why":…,"next":…}
//! ```
//! Fields that the other side does not know are ignored, so that both can grow; a higher `schema_version` is refused.

use serde::{Deserialize, Serialize};
use wattle_control::{Code, Problem};

use crate::output::{ErrorReport, SCHEMA_VERSION};

/// The longest line either side takes. A status of 384 members with paths of 4096 bytes fits three times.
pub const LINE_BYTES_MAX: usize = 8 << 20;

/// The longest request a server takes: two names.
pub const REQUEST_BYTES_MAX: usize = 16 << 10;

/// What a command asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Request {
    /// Everything about every array.
    Status,
    /// Stop an array.
    Stop {
        /// Its name or UUID.
        array: String,
    },
    /// Fail a member.
    Fail {
        /// The array's name or UUID.
        array: String,
        /// The member's path, file name or slot.
        member: String,
    },
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Response {
    /// To [`Request::Status`].
    Status(ServerReport),
    /// It is done.
    Done {
        /// What was done, for people.
        message: String,
    },
    /// It was not.
    Error(ErrorReport),
}

/// A server and its arrays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerReport {
    /// Its name.
    pub server: String,
    /// Its process.
    pub pid: u32,
    /// What it serves.
    pub arrays: Vec<ArrayReport>,
}

/// An array being served. Also the shape of `wattle status --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayReport {
    /// Its name.
    pub name: String,
    /// As mdadm shows it; absent for an array without metadata.
    pub uuid: Option<String>,
    /// `raid5`.
    pub level: String,
    /// `left-symmetric`; absent where the level has no choice.
    pub layout: Option<String>,
    /// Absent where the level has none.
    pub chunk_bytes: Option<u64>,
    /// What clients see.
    pub size_bytes: u64,
    /// What it is fit for.
    pub health: Health,
    /// `[UU_U]`.
    pub slots: String,
    /// `clean`, or `active` (writes in flight, or just ended); `clean, not synced` and `active, not synced` where parity or
    /// copies are not trusted.
    pub state: String,
    /// Parity and copies are known to agree with the data, so that the redundancy that the members promise is there.
    pub synced: bool,
    /// Nothing is written.
    pub read_only: bool,
    /// Where clients connect.
    pub exports: Vec<String>,
    /// Why it is read-only or not redundant, which checks were overridden.
    pub notes: Vec<String>,
    /// How many slots have no member that is in sync.
    pub degraded: usize,
    /// By slot.
    pub members: Vec<MemberReport>,
    /// Since the start.
    pub counters: Counters,
}

impl ArrayReport {
    /// mdadm's exit status of `--detail --test`; whole members whose parity is not trusted are no redundancy.
    pub fn check_status(&self) -> u8 {
        self.health.check_status().max(u8::from(!self.synced))
    }
}

/// What an array is fit for; in the order of severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Every slot is in sync.
    Good,
    /// Some are not; all data is there.
    Degraded,
    /// More failed than redundancy covers.
    Unusable,
}

impl Health {
    /// mdadm's exit status of `--detail --test`.
    pub fn check_status(self) -> u8 {
        self as u8
    }

    /// In a word. Members may be whole and their parity not be trusted: that is not good.
    pub fn word(self, synced: bool) -> &'static str {
        match (self, synced) {
            (Self::Good, true) => "good",
            (Self::Good, false) => "not synced",
            (Self::Degraded, _) => "degraded",
            (Self::Unusable, _) => "unusable",
        }
    }
}

/// A slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberReport {
    /// Which.
    pub slot: u16,
    /// As it was named when the server was started; absent if nothing is there.
    pub member: Option<String>,
    /// `in_sync`, `rebuilding`, `missing` or `faulty`.
    pub state: String,
    /// Current below this byte of its data, while it is being rebuilt.
    pub valid_below_bytes: Option<u64>,
    /// Since the start, corrected or not.
    pub read_errors: u64,
}

/// What an array has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub flushes: u64,
    pub rows_full: u64,
    pub rows_reconstruct: u64,
    pub rows_read_modify: u64,
    pub rows_degraded: u64,
    pub rows_recovered: u64,
    pub pre_reads: u64,
    pub merged: u64,
    pub repaired: u64,
}

/// What is around every message.
#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    schema_version: u32,
    #[serde(flatten)]
    message: T,
}

/// A message as a line, with its line feed.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let envelope = Envelope { schema_version: SCHEMA_VERSION, message };
    let mut line = serde_json::to_vec(&envelope).expect("messages have string keys and integers only");
    line.push(b'\n');
    line
}

/// The message of a line.
///
/// # Errors
/// The line is no message of this version.
pub fn decode<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Result<T, Problem> {
    #[derive(Deserialize)]
    struct Version {
        schema_version: u32,
    }
    let malformed = |error: serde_json::Error| {
        Problem::new(
            Code::ServerFailed,
            format!("the message on the control socket is not understood: {error}"),
            "commands and servers speak JSON, one object per line, with a schema_version",
            "use the same version of wattle for both",
        )
    };
    let Version { schema_version } = serde_json::from_slice(line).map_err(malformed)?;
    if schema_version > SCHEMA_VERSION {
        return Err(Problem::new(
            Code::ServerFailed,
            format!("the message on the control socket has schema_version {schema_version}"),
            format!("this version of wattle speaks {SCHEMA_VERSION}"),
            "use the same version of wattle for both",
        ));
    }
    serde_json::from_slice::<Envelope<T>>(line).map(|envelope| envelope.message).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_the_bytes_that_scripts_rely_on() {
        let fail = Request::Fail { array: "data".to_owned(), member: "2".to_owned() };
        let line = "{\"schema_version\":1,\"command\":\"fail\",\"array\":\"data\",\"member\":\"2\"}\n";
        assert_eq!(String::from_utf8(encode(&fail)).unwrap(), line);
        assert_eq!(decode::<Request>(line.as_bytes()).unwrap(), fail);
        assert_eq!(encode(&Request::Status), b"{\"schema_version\":1,\"command\":\"status\"}\n");
        let done = Response::Done { message: "x".to_owned() };
        assert_eq!(encode(&done), b"{\"schema_version\":1,\"result\":\"done\",\"message\":\"x\"}\n");
    }

    #[test]
    fn unknown_fields_pass_and_unknown_versions_do_not() {
        assert!(decode::<Request>(br#"{"schema_version":1,"command":"status","later":true}"#).is_ok());
        for bad in [
            &br#"{"schema_version":2,"command":"status"}"#[..],
            br#"{"command":"status"}"#,
            br#"{"schema_version":1,"command":"erase"}"#,
            b"",
            b"\xff\xff",
            b"[]",
            b"GET / HTTP/1.1",
        ] {
            assert_eq!(decode::<Request>(bad).unwrap_err().code, Code::ServerFailed);
        }
    }

    #[test]
    fn check_statuses_are_those_of_mdadm() {
        let statuses = [Health::Good, Health::Degraded, Health::Unusable].map(Health::check_status);
        assert_eq!(statuses, [0, 1, 2]);
    }
}
