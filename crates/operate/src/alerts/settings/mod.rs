//! What an operator wrote of alerts: `alerts.toml`, and mdadm.conf.
//!
//! Every error names the file and the line. What is not known is refused: a channel that is
//! misspelt would tell nothing.

mod file;
pub mod mdadm;
mod presets;
pub mod template;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wattle_control::{Code, Problem};

use super::kind::{AlertKind, AlertSeverity};
use super::rules::AlertRules;
use super::state::Notification;
use wattle_server::ids::host_name;

use crate::http::{read_token, unix_parts};
use template::Template;

/// Where mdadm.conf is, if nothing else is said.
const MDADM_CONFS: [&str; 2] = ["/etc/mdadm/mdadm.conf", "/etc/mdadm.conf"];

/// A longer file is none of these.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A longer token is none.
const TOKEN_BYTES_MAX: usize = 4096;

/// How often servers are looked at when nothing happens, if mdadm.conf does not say.
const LOOK: Duration = Duration::from_secs(60);

/// What an operator wrote.
#[derive(Debug, Clone)]
pub struct AlertSettings {
    /// When alerts are raised and told again.
    pub rules: AlertRules,
    /// Where they go.
    pub channels: Vec<ChannelSettings>,
    /// How this machine is called in messages.
    pub host: String,
    /// How often servers are looked at when nothing happens.
    pub look: Duration,
    /// The file, or where it would be.
    pub path: PathBuf,
    /// What to know of them.
    pub notes: Vec<String>,
    /// Why an mdadm.conf that is there was left out.
    pub unread: Option<Problem>,
}

/// A way to an operator.
#[derive(Debug, Clone)]
pub struct ChannelSettings {
    /// Its name; no two have the same.
    pub name: String,
    /// Only what is at least so urgent.
    pub at_least: AlertSeverity,
    /// Only these kinds, if there are any.
    pub only: Vec<AlertKind>,
    /// How long a receiver may take.
    pub time_max: Duration,
    /// What it is.
    pub way: ChannelWay,
}

/// How a channel delivers.
#[derive(Debug, Clone)]
pub enum ChannelWay {
    /// `sendmail -t`.
    Mail(MailSettings),
    /// A program with mdadm's three arguments.
    Program(PathBuf),
    /// A request to a web server.
    Webhook(Box<WebhookSettings>),
}

/// Mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailSettings {
    /// Addresses that it goes to.
    pub to: Vec<String>,
    /// The address that it comes from.
    pub from: Option<String>,
    /// The program that takes it.
    pub sendmail: PathBuf,
}

/// A request to a web server.
#[derive(Debug, Clone)]
pub struct WebhookSettings {
    /// Where it goes: a template, in which names are escaped as parts of an address.
    pub url: Template,
    /// What is sent.
    pub body: Template,
    /// What kind of text that is.
    pub content_type: String,
    /// Further headers.
    pub headers: Vec<(String, Template)>,
    /// The file with the token, which `${token}` stands for.
    pub token_file: Option<PathBuf>,
    /// The line that names it.
    pub token_line: usize,
    /// The file that these settings are in.
    pub file: PathBuf,
    /// The authority that its certificate is of, if that is not one of the system's.
    pub ca_file: Option<PathBuf>,
    /// The preset it is of.
    pub preset: Option<WebhookPreset>,
}

/// Web servers whose form of a message is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookPreset {
    /// ntfy.
    Ntfy,
    /// Gotify.
    Gotify,
    /// Slack, and what takes its messages.
    Slack,
    /// Discord.
    Discord,
    /// Telegram.
    Telegram,
    /// Prometheus' Alertmanager.
    Alertmanager,
}

impl ChannelSettings {
    /// Whether a notification goes this way. A test goes every way.
    #[must_use]
    pub fn wants(&self, notification: &Notification) -> bool {
        notification.kind == AlertKind::TestMessage
            || notification.urgency() >= self.at_least
                && (self.only.is_empty() || notification.kinds().any(|kind| self.only.contains(&kind)))
    }

    /// Where it leads, for people; no secrets.
    #[must_use]
    pub fn shown(&self) -> String {
        match &self.way {
            ChannelWay::Mail(mail) => format!("mail to {}", mail.to.join(", ")),
            ChannelWay::Program(path) => format!("program {}", path.display()),
            ChannelWay::Webhook(hook) => {
                let url = hook.url.shown();
                if let Some((socket, _)) = unix_parts(&url) {
                    return format!("webhook at {socket}");
                }
                let place = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
                format!("webhook at {}", place.split(['/', '?']).next().unwrap_or_default())
            }
        }
    }
}

impl AlertSettings {
    /// Reads the file at `path`, if there is one, and mdadm.conf.
    ///
    /// # Errors
    /// A file is there and cannot be read or understood.
    pub fn read(path: &Path) -> Result<Self, Problem> {
        match bounded(path, FILE_BYTES_MAX) {
            Ok(text) => Self::parse(path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::parse(path, ""),
            Err(error) => Err(unreadable(path, &error)),
        }
    }

    /// The settings that this text makes.
    ///
    /// # Errors
    /// It is not understood.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Problem> {
        let mut read = file::read(path, text)?;
        let confs: Vec<PathBuf> = match &read.mdadm_conf {
            file::ConfChoice::At(conf) => vec![conf.clone()],
            file::ConfChoice::None => Vec::new(),
            file::ConfChoice::Usual => MDADM_CONFS.map(PathBuf::from).into(),
        };
        for conf in confs {
            match bounded(&conf, FILE_BYTES_MAX) {
                Ok(text) => {
                    read.settings.add(mdadm::parse(&text), &conf);
                    break;
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    read.settings.notes.push(format!("{} is left out: {error}", conf.display()));
                    read.settings.unread.get_or_insert_with(|| unreadable(&conf, &error));
                }
            }
        }
        Ok(read.settings)
    }

    /// Adds what mdadm.conf says.
    fn add(&mut self, conf: mdadm::MdadmConf, path: &Path) {
        let sendmail = PathBuf::from(file::SENDMAIL);
        if let Some(to) = conf.mail_to {
            match file::is_address(&to) {
                true => self.channels.push(ChannelSettings {
                    name: "mdadm.conf-mail".to_owned(),
                    at_least: AlertSeverity::Warning,
                    only: Vec::new(),
                    time_max: file::TIME_MAX,
                    way: ChannelWay::Mail(MailSettings { to: vec![to], from: conf.mail_from, sendmail }),
                }),
                false => self.notes.push(format!("{}: MAILADDR {to:?} is no address", path.display())),
            }
        }
        if let Some(program) = conf.program {
            self.channels.push(ChannelSettings {
                name: "mdadm.conf-program".to_owned(),
                at_least: AlertSeverity::Info,
                only: Vec::new(),
                time_max: file::TIME_MAX,
                way: ChannelWay::Program(program),
            });
        }
        if let Some(secs) = conf.monitor_delay_secs {
            self.look = Duration::from_secs(secs.clamp(1, LOOK.as_secs()));
        }
        self.rules.spares = conf.spares;
    }

    /// What keeps channels from delivering, until it is mended: files with a token that cannot be
    /// used.
    #[must_use]
    pub fn faults(&self) -> Vec<Problem> {
        let fault = |channel: &ChannelSettings| match &channel.way {
            ChannelWay::Webhook(hook) => hook.token().err(),
            ChannelWay::Mail(_) | ChannelWay::Program(_) => None,
        };
        self.channels.iter().filter_map(fault).collect()
    }
}

impl WebhookSettings {
    /// The token, if there is one. It is read each time, so that a new one counts at once.
    ///
    /// # Errors
    /// The file cannot be read, others can read it, or it holds no token.
    pub fn token(&self) -> Result<Option<String>, Problem> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let refused = |(why, next): (String, String)| {
            let place = format!("{}, line {}", self.file.display(), self.token_line);
            let what = format!("{place}: the token file {} cannot be used", path.display());
            Problem::new(Code::AlertToken, what, why, next)
        };
        let make = || format!("write the token to {}, and nothing else", path.display());
        let token = read_token(path, TOKEN_BYTES_MAX, make).map_err(refused)?;
        String::from_utf8(token).map(Some).map_err(|_| refused(("it is no text".to_owned(), make())))
    }
}

/// The text of a file that is not longer.
fn bounded(path: &Path, bytes_max: u64) -> std::io::Result<String> {
    let file = std::fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    file.take(bytes_max).read_to_string(&mut text)?;
    Ok(text)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(
        Code::AlertSettings,
        format!("{}: the settings of alerts cannot be read", path.display()),
        error.to_string(),
        "mend the file, or name another one: --config FILE",
    )
}

/// How this machine is called.
fn machine() -> String {
    match host_name().as_str() {
        "" => "localhost".to_owned(),
        name => name.chars().filter(|c| !c.is_control()).collect(),
    }
}

#[cfg(test)]
mod tests;
