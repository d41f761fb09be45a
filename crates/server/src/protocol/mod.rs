//! The messages of the control socket. A request is answered by one response; a connection carries
//! any number of pairs.
//!
//! ```text
//! {"schema_version":1,"command":"status"}
//! {"schema_version":1,"result":"status","server":"data","pid":4711,"arrays":[…]}
//! {"schema_version":1,"command":"fail","array":"data","member":"2"}
//! {"schema_version":1,"result":"error","code":"WTL-0101","what":…,"why":…,"next":…}
//! ```
//! Fields that the other side does not know are ignored, so that both can grow; a higher
//! `schema_version` is refused. A request is answered when it is recorded, not when what it began
//! is finished: a check that runs for a day is answered at once, and a client that wants its end
//! asks for the status again.

pub mod change;
mod error;
pub mod events;
mod head;
mod map;
pub mod report;
pub mod reservations;
mod undo;
pub mod why;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use wattle_control::{Check, Code, Forced, Problem};

pub use change::{ChangeReport, Order};
pub use error::ErrorReport;
use events::EventsReport;
use head::Head;
pub use map::MapOrder;
use report::ServerReport;
pub use undo::SavingOrder;
use why::WhyReport;

/// The version of every JSON document. It changes when a field is removed or changes its meaning;
/// new fields may appear any time.
pub const SCHEMA_VERSION: u32 = 1;

/// The longest line either side takes. A status of 384 members with paths of 4096 bytes fits three
/// times.
pub const LINE_BYTES_MAX: usize = 8 << 20;

/// The longest request a server takes: three names.
pub const REQUEST_BYTES_MAX: usize = 32 << 10;

/// What a command asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum ServerRequest {
    /// Everything about every array.
    Status,
    /// Stop an array, or what has this name above arrays, or the server as a whole.
    Stop {
        /// Its name or UUID.
        array: String,
        /// The name is the server's, and all of it is meant.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        server: bool,
    },
    /// Fail a member.
    Fail {
        /// The array's name or UUID.
        array: String,
        /// The member's path, file name or slot.
        member: String,
    },
    /// Let go of a member that failed, or of a spare.
    Remove {
        /// The array's name or UUID.
        array: String,
        /// The member's path, file name or slot.
        member: String,
    },
    /// Take a member: back, into an empty slot, or as a spare.
    Add {
        /// The array's name or UUID.
        array: String,
        /// The path of the file or device, absolute: the server has another working directory.
        member: String,
        /// Checks to override.
        #[serde(default)]
        force: Vec<String>,
        /// Its copies are read only where no other one can be.
        #[serde(default)]
        write_mostly: bool,
        /// Where what tells what was on it is saved.
        #[serde(default)]
        undo: SavingOrder,
        /// The map of the member, which is a copy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        map: Option<MapOrder>,
        /// What the operator typed, of which the path was made: of a member without a path, such as
        /// one in an encrypted device, it may be the name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        typed: Option<String>,
    },
    /// Copy a working member to another, which then takes its slot.
    Replace {
        /// The array's name or UUID.
        array: String,
        /// The member's path, file name or slot.
        member: String,
        /// The path of the new one, absolute; a spare of the array if there is none.
        #[serde(default)]
        with: Option<String>,
        /// Checks to override.
        #[serde(default)]
        force: Vec<String>,
        /// Where what tells what was on the new one is saved.
        #[serde(default)]
        undo: SavingOrder,
        /// The map of the new one, which is a copy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        map: Option<MapOrder>,
        /// As of [`Self::Add`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        typed: Option<String>,
    },
    /// Note from now on what clients change on a volume, or note it no more.
    Checkpoint {
        /// The volume's name.
        volume: String,
        /// The checkpoint's.
        name: String,
        /// Give it up.
        #[serde(default)]
        remove: bool,
    },
    /// Forget what NVMe hosts have registered and reserved of a volume.
    ClearReservations {
        /// The volume's name.
        volume: String,
    },
    /// Compare parity or copies with the data, everywhere.
    Check {
        /// The array's name or UUID.
        array: String,
    },
    /// As a check, and record what every member holds, for the next one to compare with.
    Record {
        /// The array's name or UUID.
        array: String,
        /// Repair on the way what the last record proves.
        #[serde(default)]
        repair: bool,
    },
    /// Make parity or copies agree again.
    Repair {
        /// The array's name or UUID.
        array: String,
        /// What is right where they do not.
        source: RepairChoice,
    },
    /// Read and write anew what the bad-block log of a member lists, and take off it what holds its
    /// content again.
    ClearBadBlocks {
        /// The array's name or UUID.
        array: String,
        /// The member's path, file name or slot.
        member: String,
    },
    /// End a check or repair that runs.
    Abort {
        /// The array's name or UUID.
        array: String,
    },
    /// Hold background work, or let it go on.
    Pause {
        /// The array's name or UUID.
        array: String,
        /// Hold it.
        paused: bool,
    },
    /// Change a setting.
    Set {
        /// The array's name or UUID.
        array: String,
        /// Its name.
        key: String,
        /// As it was typed.
        value: String,
    },
    /// Change a volume group whose volumes are served.
    Lvm {
        /// How.
        order: Order,
    },
    /// Explain what the array is doing, and each member's part in it.
    Why {
        /// The array's name or UUID.
        array: String,
    },
    /// What happened after an event, as soon as something did.
    Events {
        /// The run of the server that the number is of; the answer to another one comes at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epoch: Option<String>,
        /// The number of the last event that is known.
        after: u64,
        /// How long to wait for one, at most a minute.
        #[serde(default)]
        wait_secs: u64,
    },
}

/// What a repair takes for right where parity or copies do not agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairChoice {
    /// The data blocks: parity is made anew from them.
    Data,
    /// What RAID 6 proves: the one member that fits neither P nor Q is made anew from the others.
    Proof,
    /// What more than half of the copies of a mirror say.
    Majority,
    /// What the last recorded scrub found: a block that is not what it was is made anew where the
    /// others give what it was.
    Record,
    /// A member of a mirror, by path, file name or slot: its copy goes to the others.
    Member(String),
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Response {
    /// To [`ServerRequest::Status`].
    Status(ServerReport),
    /// To [`ServerRequest::Why`].
    Why(WhyReport),
    /// To [`ServerRequest::Events`].
    Events(EventsReport),
    /// To [`ServerRequest::Lvm`].
    Changed {
        /// What was done.
        change: ChangeReport,
    },
    /// It is done.
    Done {
        /// What was done, for people.
        message: String,
        /// What saves what was overwritten.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        undo_log: Option<PathBuf>,
        /// The member that came in, as the report of the array calls it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        member: Option<String>,
    },
    /// It was not.
    Error(ErrorReport),
}

/// A message that can be read from a line.
pub trait SocketMessage: Sized {
    /// The field that says which message it is.
    const TAG: &'static str;

    /// The message of this kind in a line whose version is known to be understood.
    ///
    /// # Errors
    /// The line is none.
    fn of_line(line: &[u8], kind: &str) -> serde_json::Result<Self>;
}

impl SocketMessage for ServerRequest {
    const TAG: &'static str = "command";

    fn of_line(line: &[u8], _: &str) -> serde_json::Result<Self> {
        serde_json::from_slice::<Envelope<Self>>(line).map(|envelope| envelope.message)
    }
}

/// The line is read as what its kind says. To read it as an enum with a tag, serde would first keep
/// every field as a value of any type, twice: once for the envelope, once for the tag. A status has
/// megabytes where a server has a thousand arrays.
impl SocketMessage for Response {
    const TAG: &'static str = "result";

    fn of_line(line: &[u8], kind: &str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Changed {
            change: ChangeReport,
        }
        #[derive(Deserialize)]
        struct Done {
            message: String,
            #[serde(default)]
            undo_log: Option<PathBuf>,
            #[serde(default)]
            member: Option<String>,
        }
        Ok(match kind {
            "status" => Self::Status(serde_json::from_slice(line)?),
            "why" => Self::Why(serde_json::from_slice(line)?),
            "events" => Self::Events(serde_json::from_slice(line)?),
            "changed" => {
                let Changed { change } = serde_json::from_slice(line)?;
                Self::Changed { change }
            }
            "done" => {
                let Done { message, undo_log, member } = serde_json::from_slice(line)?;
                Self::Done { message, undo_log, member }
            }
            "error" => Self::Error(serde_json::from_slice(line)?),
            other => return Err(serde::de::Error::custom(format!("unknown result `{other}`"))),
        })
    }
}

/// What is around every message.
#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    schema_version: u32,
    #[serde(flatten)]
    message: T,
}

/// The checks that an operator overrides, by their names.
///
/// # Errors
/// There is no such check.
pub fn forced(names: &[String]) -> Result<Forced, Problem> {
    names.iter().map(|name| name.parse::<Check>().map_err(Problem::from)).collect()
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
pub fn decode<T: SocketMessage>(line: &[u8]) -> Result<T, Problem> {
    let malformed = |error: serde_json::Error| {
        Problem::new(
            Code::ServerFailed,
            format!("the message on the control socket is not understood: {error}"),
            "commands and servers speak JSON, one object per line, with a schema_version",
            "use the same version of wattle for both",
        )
    };
    let Head { schema_version, kind } = Head::of_line(line, T::TAG).map_err(malformed)?;
    if schema_version > SCHEMA_VERSION {
        return Err(Problem::new(
            Code::ServerFailed,
            format!("the message on the control socket has schema_version {schema_version}"),
            format!("this version of wattle speaks {SCHEMA_VERSION}"),
            "use the same version of wattle for both",
        ));
    }
    T::of_line(line, &kind).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_the_bytes_that_scripts_rely_on() {
        let fail = ServerRequest::Fail { array: "data".to_owned(), member: "2".to_owned() };
        let line = "{\"schema_version\":1,\"command\":\"fail\",\"array\":\"data\",\"member\":\"2\"}\n";
        assert_eq!(String::from_utf8(encode(&fail)).unwrap(), line);
        assert_eq!(decode::<ServerRequest>(line.as_bytes()).unwrap(), fail);
        assert_eq!(encode(&ServerRequest::Status), b"{\"schema_version\":1,\"command\":\"status\"}\n");
        let repair =
            ServerRequest::Repair { array: "a".to_owned(), source: RepairChoice::Member("2".to_owned()) };
        let line =
            "{\"schema_version\":1,\"command\":\"repair\",\"array\":\"a\",\"source\":{\"member\":\"2\"}}\n";
        assert_eq!(String::from_utf8(encode(&repair)).unwrap(), line);
        assert_eq!(decode::<ServerRequest>(line.as_bytes()).unwrap(), repair);
        let add = br#"{"schema_version":1,"command":"add","array":"a","member":"/d"}"#;
        let (array, member) = ("a".to_owned(), "/d".to_owned());
        let add_expected = ServerRequest::Add {
            array,
            member,
            force: Vec::new(),
            write_mostly: false,
            undo: SavingOrder::default(),
            map: None,
            typed: None,
        };
        assert_eq!(decode::<ServerRequest>(add).unwrap(), add_expected);
        let stop = |server| ServerRequest::Stop { array: "a".to_owned(), server };
        assert_eq!(encode(&stop(false)), b"{\"schema_version\":1,\"command\":\"stop\",\"array\":\"a\"}\n");
        for server in [false, true] {
            assert_eq!(decode::<ServerRequest>(&encode(&stop(server))).unwrap(), stop(server));
        }
        let events = ServerRequest::Events { epoch: None, after: 3, wait_secs: 30 };
        let line = "{\"schema_version\":1,\"command\":\"events\",\"after\":3,\"wait_secs\":30}\n";
        assert_eq!(String::from_utf8(encode(&events)).unwrap(), line);
        assert_eq!(decode::<ServerRequest>(line.as_bytes()).unwrap(), events);
        let done = Response::Done { message: "x".to_owned(), undo_log: None, member: None };
        assert_eq!(encode(&done), b"{\"schema_version\":1,\"result\":\"done\",\"message\":\"x\"}\n");
    }

    #[test]
    fn every_response_is_read_as_it_was_written() {
        let error = Problem::new(Code::ServerNotFound, "a", "b", "c");
        let server = crate::protocol::report::ServerReport {
            server: "data".to_owned(),
            pid: 7,
            arrays: vec![crate::fixtures::array("data", "raid5", &["a", "b", "c"])],
            volumes: Vec::new(),
            groups: Vec::new(),
            threads: Vec::new(),
            cpu_ms: None,
            qos: Vec::new(),
            checkpoints: Vec::new(),
            reservations: Vec::new(),
            sole_array: None,
            stopped: Vec::new(),
        };
        let responses = [
            Response::Status(server),
            Response::Why(WhyReport { array: "data".to_owned(), uuid: None, decisions: Vec::new() }),
            Response::Events(EventsReport {
                server: "data".to_owned(),
                pid: 7,
                epoch: "e".to_owned(),
                last: 4,
                lost: false,
                ending: true,
                events: Vec::new(),
            }),
            Response::Changed {
                change: ChangeReport {
                    schema_version: SCHEMA_VERSION,
                    dry_run: false,
                    action: "lv create".to_owned(),
                    result: "made".to_owned(),
                    moved_bytes: None,
                    left_bytes: None,
                    group: Some("vg".to_owned()),
                    group_uuid: None,
                    seqno: Some(2),
                    text: None,
                    backup: None,
                    undo_log: None,
                    start_undo_logs: Vec::new(),
                    writes: Vec::new(),
                    lvm_commands: Vec::new(),
                    notes: Vec::new(),
                },
            },
            Response::Done {
                message: "x".to_owned(),
                undo_log: Some(PathBuf::from("/undo")),
                member: Some("/d".to_owned()),
            },
            Response::Error(ErrorReport::from(&error)),
        ];
        for response in responses {
            assert_eq!(decode::<Response>(&encode(&response)).as_ref(), Ok(&response));
        }
        for bad in [&br#"{"schema_version":1,"result":"later"}"#[..], br#"{"schema_version":1}"#] {
            assert_eq!(decode::<Response>(bad).unwrap_err().code, Code::ServerFailed);
        }
    }

    #[test]
    fn unknown_fields_pass_and_unknown_versions_do_not() {
        assert!(decode::<ServerRequest>(br#"{"schema_version":1,"command":"status","later":true}"#).is_ok());
        for bad in [
            &br#"{"schema_version":2,"command":"status"}"#[..],
            br#"{"command":"status"}"#,
            br#"{"schema_version":1,"command":"erase"}"#,
            b"",
            b"\xff\xff",
            b"[]",
            b"GET / HTTP/1.1",
        ] {
            assert_eq!(decode::<ServerRequest>(bad).unwrap_err().code, Code::ServerFailed);
        }
    }
}
