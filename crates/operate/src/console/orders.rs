//! Orders of the page: what each would run as a command, and running it.
//!
//! An order names an array and a slot, never a path: what it acts on is one of those that servers
//! report. It is carried out only with the command that was shown repeated to the letter. That
//! command, and the request to the server, name the slot's member in full: a number may be another
//! member's file name, and another drive may have taken the slot.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use wattle_control::{Code, Problem, shell_word};
use wattle_server::protocol::report::ArrayReport;
use wattle_server::protocol::{SCHEMA_VERSION, SavingOrder, ServerRequest};
use wattle_server::socket::client::{Servers, request};

use super::locate;

/// What the page asks for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ConsoleOrder {
    /// What is to be done.
    #[serde(flatten)]
    pub what: OrderKind,
    /// The array, by the key of the page's document.
    pub array: String,
    /// The command that was shown. Without it, it is only shown.
    #[serde(default)]
    pub confirm: Option<String>,
}

/// What can be ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum OrderKind {
    /// Compare parity or copies with the data.
    Check,
    /// End the check or repair that runs.
    Abort,
    /// Hold background work.
    Pause,
    /// Let it go on.
    Resume,
    /// Fail a member.
    Fail {
        /// Its slot.
        slot: u16,
    },
    /// Copy a member to a spare of the array, which takes its slot.
    Replace {
        /// Its slot.
        slot: u16,
    },
    /// Light a drive's locating light.
    Locate {
        /// The slot of its member.
        slot: u16,
        /// Light it, or put it out.
        on: bool,
    },
}

/// What became of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OrderOutcome {
    /// Of the document.
    pub schema_version: u32,
    /// The command that does the same.
    pub command: String,
    /// What it does, and what it costs.
    pub effect: String,
    /// It was carried out.
    pub done: bool,
    /// What came of it.
    pub message: Option<String>,
}

/// What an order comes to.
#[derive(Debug)]
pub struct PlannedOrder {
    /// Where its server listens.
    pub socket: PathBuf,
    /// The command.
    pub command: String,
    /// What it does.
    pub effect: String,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Ask(ServerRequest),
    Light { file: PathBuf, on: bool },
}

/// What an order would do.
///
/// # Errors
/// There is no such array or member, or its drive has no light that is known.
pub fn plan(servers: &Servers, order: &ConsoleOrder, sys: &Path) -> Result<PlannedOrder, Problem> {
    let found = servers.answered.iter().find_map(|(socket, server)| {
        let array =
            server.arrays.iter().find(|array| super::view::key(&server.server, array) == order.array)?;
        Some((socket, array))
    });
    let Some((socket, array)) = found else {
        return Err(Problem::new(
            Code::ServerNotFound,
            "the array of the order is not being served any more",
            "it was stopped, or its server ended, since the page was drawn",
            "look at the page again",
        ));
    };
    let same_name = servers.arrays().filter(|(_, other)| other.name == array.name).count() > 1;
    let id = array.uuid.clone().filter(|_| same_name).unwrap_or_else(|| array.name.clone());
    let shown = shell_word(&id);
    let asked = array.uuid.clone().unwrap_or_else(|| array.name.clone());
    let (command, effect, work) = match order.what {
        OrderKind::Check => (
            format!("wattle check {shown}"),
            "Reads everything and compares parity or copies with the data. Writes nothing, except what cannot be read and redundancy can give."
                .to_owned(),
            Work::Ask(ServerRequest::Check { array: asked }),
        ),
        OrderKind::Abort => (
            format!("wattle check {shown} --abort"),
            "Ends the check or repair that runs. What it found is kept.".to_owned(),
            Work::Ask(ServerRequest::Abort { array: asked }),
        ),
        OrderKind::Pause => (
            format!("wattle check {shown} --pause"),
            "Holds background work, also a rebuild: until it goes on, redundancy stays as it is.".to_owned(),
            Work::Ask(ServerRequest::Pause { array: asked, paused: true }),
        ),
        OrderKind::Resume => (
            format!("wattle check {shown} --resume"),
            "Lets background work go on.".to_owned(),
            Work::Ask(ServerRequest::Pause { array: asked, paused: false }),
        ),
        OrderKind::Fail { slot } => {
            let member = member(array, slot)?;
            (
                format!("wattle fail {shown} {}", shell_word(member)),
                "The array goes on without this member, as if its drive had failed. Taking it back later copies what it missed.".to_owned(),
                Work::Ask(ServerRequest::Fail { array: asked, member: member.to_owned() }),
            )
        }
        OrderKind::Replace { slot } => {
            let member = member(array, slot)?;
            let command = format!("wattle replace {shown} {}", shell_word(member));
            let work = ServerRequest::Replace {
                array: asked,
                member: member.to_owned(),
                with: None,
                force: Vec::new(),
                undo: SavingOrder { command: command.clone(), ..SavingOrder::default() },
                map: None,
                typed: None,
            };
            (
                command,
                "Copies this member to a spare of the array, which then takes its slot. Redundancy is kept all the time.".to_owned(),
                Work::Ask(work),
            )
        }
        OrderKind::Locate { slot, on } => {
            let file = locate::light(sys, member(array, slot)?)?;
            (
                format!("echo {} > {}", u8::from(on), shell_word(&file.to_string_lossy())),
                "Switches the light of the drive's bay. Nothing else changes.".to_owned(),
                Work::Light { file, on },
            )
        }
    };
    Ok(PlannedOrder { socket: socket.clone(), command, effect, work })
}

/// Carries an order out if it repeats the command, or only shows it.
///
/// # Errors
/// What was shown is not what would be done now, or it failed.
pub fn carry_out(planned: PlannedOrder, confirm: Option<&str>) -> Result<OrderOutcome, Problem> {
    let PlannedOrder { socket, command, effect, work } = planned;
    let outcome = |done, message| OrderOutcome {
        schema_version: SCHEMA_VERSION,
        command: command.clone(),
        effect: effect.clone(),
        done,
        message,
    };
    let Some(confirmed) = confirm else { return Ok(outcome(false, None)) };
    if confirmed != command {
        return Err(Problem::new(
            Code::OrderNotConfirmed,
            format!("the order would run `{command}`"),
            "another command was shown and confirmed",
            "ask again, and confirm what is shown then",
        ));
    }
    match work {
        Work::Ask(order) => request(&socket, &order).map(|answer| outcome(true, Some(answer.message))),
        Work::Light { file, on } => {
            locate::switch(&file, on)?;
            let word = if on { "lit" } else { "dark" };
            Ok(outcome(true, Some(format!("the light is {word}"))))
        }
    }
}

fn member(array: &ArrayReport, slot: u16) -> Result<&str, Problem> {
    let member = array.members.iter().find(|member| member.slot == slot);
    member.and_then(|member| member.member.as_deref()).ok_or_else(|| {
        Problem::new(
            Code::BadConsoleOrder,
            format!("{} has no member in slot {slot}", array.name),
            "it left since the page was drawn, or the slot does not exist",
            "look at the page again",
        )
    })
}

/// The order in a request.
///
/// # Errors
/// It is none.
pub fn parse(body: &[u8]) -> Result<ConsoleOrder, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        Problem::new(
            Code::BadConsoleOrder,
            format!("the order is not understood: {error}"),
            "an order is a JSON object with order, array, and a slot where a member is meant",
            "docs/console.md lists the orders",
        )
    })
}

#[cfg(test)]
mod tests {
    use wattle_server::fixtures::array;
    use wattle_server::protocol::report::ServerReport;

    use super::*;

    fn servers(names: &[&str]) -> Servers {
        let one = |name: &&str| {
            let mut data = array(name, "raid5", &["/dev/sda", "/dev/sdb", "/dev/sdc"]);
            data.uuid = Some(format!("uuid-of-{name}"));
            data
        };
        let server = ServerReport {
            server: "s".to_owned(),
            pid: 7,
            arrays: names.iter().map(one).collect(),
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
        Servers { answered: vec![(PathBuf::from("/nowhere.sock"), server)], ..Servers::default() }
    }

    fn planned(order: &str) -> Result<PlannedOrder, Problem> {
        plan(&servers(&["data", "my array"]), &parse(order.as_bytes())?, Path::new("/nowhere"))
    }

    #[test]
    fn an_order_is_shown_as_its_command() {
        let rows = [
            (r#"{"order":"check","array":"uuid-of-data"}"#, "wattle check data"),
            (r#"{"order":"abort","array":"uuid-of-data"}"#, "wattle check data --abort"),
            (r#"{"order":"pause","array":"uuid-of-data"}"#, "wattle check data --pause"),
            (r#"{"order":"resume","array":"uuid-of-data"}"#, "wattle check data --resume"),
            (r#"{"order":"fail","array":"uuid-of-data","slot":2}"#, "wattle fail data /dev/sdc"),
            (
                r#"{"order":"replace","array":"uuid-of-my array","slot":0}"#,
                "wattle replace 'my array' /dev/sda",
            ),
        ];
        for (order, command) in rows {
            let planned = planned(order).unwrap();
            assert_eq!(planned.command, command);
            let outcome = carry_out(planned, None).unwrap();
            assert!(!outcome.done && outcome.message.is_none() && outcome.effect.ends_with('.'));
        }
    }

    #[test]
    fn what_was_not_shown_is_not_run() {
        let order = r#"{"order":"fail","array":"uuid-of-data","slot":2}"#;
        for other in ["", "wattle fail data /dev/sdb", "wattle fail data 2", "wattle fail data /dev/sdc "] {
            let problem = carry_out(planned(order).unwrap(), Some(other)).unwrap_err();
            assert_eq!(problem.code, Code::OrderNotConfirmed);
        }
        // With the right words it is sent: to a server that is not there.
        let problem = carry_out(planned(order).unwrap(), Some("wattle fail data /dev/sdc")).unwrap_err();
        assert_eq!(problem.code, Code::ServerFailed);
    }

    #[test]
    fn orders_name_what_is_served_and_nothing_else() {
        for (order, code) in [
            (r#"{"order":"fail","array":"uuid-of-data","slot":9}"#, Code::BadConsoleOrder),
            (r#"{"order":"fail","array":"uuid-of-data","slot":"/dev/sdx"}"#, Code::BadConsoleOrder),
            (r#"{"order":"fail","array":"uuid-of-data"}"#, Code::BadConsoleOrder),
            (r#"{"order":"erase","array":"uuid-of-data"}"#, Code::BadConsoleOrder),
            (r#"{"order":"check","array":"/run/other"}"#, Code::ServerNotFound),
            (r#"{"order":"locate","array":"uuid-of-data","slot":1,"on":true}"#, Code::NoLocateLight),
            ("[]", Code::BadConsoleOrder),
            ("", Code::BadConsoleOrder),
        ] {
            assert_eq!(planned(order).unwrap_err().code, code, "{order}");
        }
    }

    #[test]
    fn a_slot_is_never_taken_for_the_file_name_of_another_member() {
        let mut servers = servers(&["data"]);
        for (member, name) in servers.answered[0].1.arrays[0].members.iter_mut().zip(["d/1", "d/2", "d/0"]) {
            member.member = Some(name.to_owned());
        }
        let order = parse(br#"{"order":"fail","array":"uuid-of-data","slot":0}"#).unwrap();
        let planned = plan(&servers, &order, Path::new("/")).unwrap();
        assert_eq!(planned.command, "wattle fail data d/1");
        assert!(matches!(&planned.work, Work::Ask(ServerRequest::Fail { member, .. }) if member == "d/1"));
    }

    #[test]
    fn arrays_of_one_name_are_ordered_by_uuid() {
        let mut both = servers(&["data", "data"]);
        both.answered[0].1.arrays[1].uuid = Some("other".to_owned());
        let order = parse(br#"{"order":"check","array":"other"}"#).unwrap();
        assert_eq!(plan(&both, &order, Path::new("/")).unwrap().command, "wattle check other");
    }
}
