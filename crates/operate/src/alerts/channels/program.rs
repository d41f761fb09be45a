//! A program with mdadm's three arguments, and more in its environment.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::message::{device, json_within, lines_within, value, within};
use super::{Delivery, MessageSender};
use crate::alerts::beside;
use crate::alerts::state::Notification;

/// Bytes of what a program says that are kept.
const SAID_BYTES_MAX: u64 = 2000;

/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

/// The system takes no variable of 128 KiB.
const VARIABLE_BYTES_MAX: usize = 96 << 10;

/// What is in the environment, and the name that it has in templates.
const VARIABLES: [(&str, &str); 16] = [
    ("WATTLE_EVENT", "event"),
    ("WATTLE_SEVERITY", "severity"),
    ("WATTLE_ID", "id"),
    ("WATTLE_TIME", "time"),
    ("WATTLE_HOST", "host"),
    ("WATTLE_SERVER", "server"),
    ("WATTLE_ARRAY", "array"),
    ("WATTLE_ARRAY_UUID", "array_uuid"),
    ("WATTLE_MEMBER", "member"),
    ("WATTLE_SLOT", "slot"),
    ("WATTLE_WHAT", "what"),
    ("WATTLE_WHY", "why"),
    ("WATTLE_NEXT", "next"),
    ("WATTLE_FILES", "files"),
    ("WATTLE_OVER", "over"),
    ("WATTLE_JSON", "alert_json"),
];

/// How a program ended.
pub struct Ended {
    /// Its status; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it said, with what has to stand before it.
    pub said: String,
}

/// A program that runs, in a group of its own.
pub struct RunningProgram {
    child: Child,
    said: mpsc::Receiver<String>,
}

impl RunningProgram {
    /// Starts it, and writes `input` to it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn new(mut command: Command, input: &[u8]) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let input = input.to_owned();
        let (sender, said) = mpsc::channel();
        // It may read late, or never, and what it says has to be taken.
        let begun = beside::start("alert-input", move || {
            if let Some(mut stdin) = stdin {
                let _ = stdin.write_all(&input);
            }
        });
        let heard = beside::start("alert-said", move || {
            let mut said = Vec::new();
            if let Some(mut stderr) = stderr {
                let _ = stderr.by_ref().take(SAID_BYTES_MAX).read_to_end(&mut said);
                let _ = io::copy(&mut stderr, &mut io::sink());
            }
            let _ = sender.send(String::from_utf8_lossy(&said).trim().to_owned());
        });
        let started = Self { child, said };
        match begun && heard {
            true => Ok(started),
            false => {
                started.kill();
                Err(io::Error::other("the system gives no threads"))
            }
        }
    }

    fn kill(&self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Waits until it ends; after this time it is killed, with all that it started.
    ///
    /// # Errors
    /// It cannot be waited for, or took too long.
    pub fn wait(mut self, time_max: Duration) -> io::Result<Ended> {
        let until = beside::now() + time_max;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if beside::now() >= until {
                self.kill();
                self.child.wait()?;
                let text = format!("it did not end within {} s, and was killed", time_max.as_secs_f32());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            beside::sleep(LOOK);
        };
        // What it left behind may hold the other end open.
        let said = self.said.recv_timeout(Duration::from_millis(200)).unwrap_or_default();
        let said = if said.is_empty() { said } else { format!(": {said}") };
        Ok(Ended { code: status.code().filter(|_| status.signal().is_none()), said })
    }
}

/// Runs it once.
pub fn run(path: &Path, notification: &Notification, sender: &MessageSender, time_max: Duration) -> Delivery {
    let mut command = Command::new(path);
    command.arg(clean(&notification.event)).arg(clean(&device(notification)));
    if let Some(member) = &notification.member {
        command.arg(clean(member));
    }
    for (variable, name) in VARIABLES {
        let text = match name {
            "alert_json" => json_within(notification, sender, VARIABLE_BYTES_MAX),
            "files" => lines_within(&value(name, notification, sender), VARIABLE_BYTES_MAX),
            name => within(&value(name, notification, sender), VARIABLE_BYTES_MAX),
        };
        command.env(variable, clean(&text));
    }
    let shown = path.display();
    match RunningProgram::new(command, &[]).and_then(|started| started.wait(time_max)) {
        Ok(Ended { code: Some(0), .. }) => Delivery::Arrived,
        Ok(Ended { code: Some(code), said }) => {
            Delivery::Failed(format!("{shown} ended with status {code}{said}"))
        }
        Ok(Ended { code: None, said }) => Delivery::Failed(format!("{shown} was killed{said}")),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            Delivery::Failed(format!("{shown}: {error}"))
        }
        // The system's bounds are those of this one's environment.
        Err(error) if error.kind() == io::ErrorKind::ArgumentListTooLong => {
            Delivery::Refused(format!("{shown} cannot be given it: {error}"))
        }
        Err(error) => Delivery::Down(format!("{shown} cannot be started: {error}")),
    }
}

/// The system takes no zeros.
fn clean(text: &str) -> String {
    text.replace('\0', "")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::alerts::rules::test_message;
    use crate::alerts::state::AlertsState;

    fn run_script(script: &str, time_max: Duration) -> (Delivery, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        fs::write(&path, script.replace("DIR", dir.path().to_str().unwrap())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let mut told = test_message(&mut AlertsState::default(), "data", 0);
        told.member = Some("/dev/sd b\0".to_owned());
        let sender = MessageSender { host: "nas".to_owned(), origin: "o".to_owned(), repeat_secs: None };
        (run(&path, &told, &sender, time_max), dir)
    }

    #[test]
    fn a_program_has_the_three_arguments_of_mdadm() {
        let script = "#!/bin/sh\nprintf '%s|' \"$#\" \"$@\" \"$WATTLE_HOST\" \"$WATTLE_EVENT\" > DIR/said\n";
        let (delivery, dir) = run_script(script, Duration::from_secs(10));
        assert_eq!(delivery, Delivery::Arrived);
        let said = fs::read_to_string(dir.path().join("said")).unwrap();
        assert_eq!(said, "3|TestMessage|/dev/md/data|/dev/sd b|nas|TestMessage|");
    }

    /// The system starts no program that has more than 128 KiB in one variable.
    #[test]
    fn as_many_files_and_alerts_as_there_are_reach_a_program() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        let script = format!(
            "#!/bin/sh\nprintf %s \"$WATTLE_FILES\" > {0}/files\nprintf %s \"$WATTLE_JSON\" > {0}/json\n",
            dir.path().display()
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let mut told = test_message(&mut AlertsState::default(), "data", 0);
        let long = "\u{e4}\"".repeat(700);
        told.files = (0..100).map(|n| format!("/{n}/{long}")).collect();
        told.text.why = long.repeat(60);
        let brief = crate::alerts::state::AlertBrief {
            id: 1,
            kind: crate::alerts::kind::AlertKind::Fail,
            severity: crate::alerts::kind::AlertSeverity::Critical,
            member: None,
            raised_secs: 0,
            what: "what".repeat(20),
        };
        for alerts in [3, 3000] {
            told.alerts = vec![brief.clone(); alerts];
            let sender = MessageSender { host: "nas".to_owned(), origin: "o".to_owned(), repeat_secs: None };
            assert_eq!(run(&path, &told, &sender, Duration::from_secs(60)), Delivery::Arrived);
            let files = fs::read_to_string(dir.path().join("files")).unwrap();
            let (kept, more) = files.rsplit_once('\n').unwrap();
            let kept: Vec<_> = kept.lines().collect();
            assert!(kept.len() > 40 && kept.iter().zip(&told.files).all(|(one, file)| one == file));
            assert_eq!(more, format!("and {} more", 100 - kept.len()));
            let text = fs::read_to_string(dir.path().join("json")).unwrap();
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            let count = |list: &str| json[list].as_array().unwrap().len();
            let left_out = |list: &str| json[format!("{list}_left_out")].as_u64().unwrap() as usize;
            assert_eq!(count("files") + left_out("files"), 100);
            assert_eq!(count("alerts") + left_out("alerts"), alerts);
            assert!(text.len() > 80_000 && (left_out("alerts") == 0) == (alerts == 3), "{}", text.len());
        }
    }

    #[test]
    fn one_that_hangs_is_killed_with_what_it_started() {
        let (begun, script) = (beside::now(), "#!/bin/sh\nsleep 61 & echo $! > DIR/child; sleep 62\n");
        let (delivery, dir) = run_script(script, Duration::from_millis(300));
        assert!(matches!(&delivery, Delivery::Failed(why) if why.contains("was killed")), "{delivery:?}");
        assert!(beside::now() - begun < Duration::from_secs(20));
        let child: u32 = fs::read_to_string(dir.path().join("child")).unwrap().trim().parse().unwrap();
        let gone = || {
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        assert!(
            (0..100).any(|_| gone() || {
                beside::sleep(LOOK);
                false
            }),
            "the child is still there"
        );
    }

    #[test]
    fn what_it_says_when_it_fails_is_kept() {
        let (delivery, _dir) =
            run_script("#!/bin/sh\necho no such list >&2\nexit 3\n", Duration::from_secs(10));
        assert!(
            matches!(&delivery, Delivery::Failed(why) if why.ends_with("status 3: no such list")),
            "{delivery:?}"
        );
        let missing = Path::new("/nowhere/program");
        let told = test_message(&mut AlertsState::default(), "data", 0);
        let sender = MessageSender { host: String::new(), origin: String::new(), repeat_secs: None };
        assert!(matches!(run(missing, &told, &sender, Duration::from_secs(1)), Delivery::Down(_)));
    }
}
