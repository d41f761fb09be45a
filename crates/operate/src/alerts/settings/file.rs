//! `alerts.toml`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use wattle_control::{Code, Problem};

use super::presets;
use super::template::{Escape, Template};
use super::{
    AlertSettings, ChannelSettings, ChannelWay, LOOK, MailSettings, WebhookPreset, WebhookSettings, machine,
};
use crate::alerts::kind::{AlertKind, AlertSeverity};
use crate::alerts::rules::AlertRules;
use crate::http::unix_parts;

/// Where sendmail is.
pub const SENDMAIL: &str = "/usr/sbin/sendmail";

/// How long a receiver may take: longer than one that is slow for a minute, so that it is not sent
/// the same again.
pub const TIME_MAX: Duration = Duration::from_secs(90);

const REPEAT: Duration = Duration::from_secs(24 * 3600);

const SCRUB_OVERDUE: Duration = Duration::from_secs(35 * 24 * 3600);

const VOLUME_FULL: u8 = 90;

/// Whose mdadm.conf is read.
pub enum ConfChoice {
    /// The usual ones.
    Usual,
    /// This one.
    At(PathBuf),
    /// None.
    None,
}

/// What the file makes, before mdadm.conf.
pub struct ReadFile {
    pub settings: AlertSettings,
    pub mdadm_conf: ConfChoice,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Root {
    host: Option<Spanned<String>>,
    repeat: Option<Spanned<String>>,
    scrub_overdue: Option<Spanned<String>>,
    volume_full: Option<Spanned<i64>>,
    mdadm_conf: Option<Spanned<String>>,
    #[serde(default)]
    mail: Vec<Spanned<Mail>>,
    #[serde(default)]
    program: Vec<Spanned<Program>>,
    #[serde(default)]
    webhook: Vec<Spanned<Webhook>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mail {
    name: Option<Spanned<String>>,
    to: Vec<Spanned<String>>,
    from: Option<Spanned<String>>,
    sendmail: Option<Spanned<PathBuf>>,
    at_least: Option<Spanned<String>>,
    only: Option<Vec<Spanned<String>>>,
    timeout: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    name: Option<Spanned<String>>,
    path: Spanned<PathBuf>,
    at_least: Option<Spanned<String>>,
    only: Option<Vec<Spanned<String>>>,
    timeout: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Webhook {
    name: Option<Spanned<String>>,
    preset: Option<Spanned<String>>,
    url: Option<Spanned<String>>,
    body: Option<Spanned<String>>,
    content_type: Option<Spanned<String>>,
    #[serde(default)]
    headers: std::collections::BTreeMap<String, Spanned<String>>,
    token_file: Option<Spanned<PathBuf>>,
    chat: Option<Spanned<String>>,
    ca_file: Option<Spanned<PathBuf>>,
    at_least: Option<Spanned<String>>,
    only: Option<Vec<Spanned<String>>>,
    timeout: Option<Spanned<String>>,
}

/// The file, for messages that name a line of it.
struct Text<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Text<'_> {
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    fn bad(&self, at: usize, what: &str, why: impl Into<String>, next: impl Into<String>) -> Problem {
        let what = format!("{}, line {}: {what}", self.path.display(), self.line(at));
        Problem::new(Code::AlertSettings, what, why, next)
    }

    fn duration(&self, text: &Spanned<String>) -> Result<Option<Duration>, Problem> {
        if text.get_ref() == "never" {
            return Ok(None);
        }
        let bad = |why: String| {
            let what = format!("{:?} is no time", text.get_ref());
            self.bad(text.span().start, &what, why, "write it like 24h, 35d or never")
        };
        let time = humantime::parse_duration(text.get_ref()).map_err(|error| bad(error.to_string()))?;
        let most = Duration::from_secs(100 * 366 * 24 * 3600);
        match time {
            Duration::ZERO => Err(bad("it is nothing".to_owned())),
            time if time > most => Err(bad("it is longer than a century".to_owned())),
            time => Ok(Some(time)),
        }
    }

    fn severity(
        &self,
        text: Option<&Spanned<String>>,
        usual: AlertSeverity,
    ) -> Result<AlertSeverity, Problem> {
        let Some(text) = text else { return Ok(usual) };
        let known = [AlertSeverity::Info, AlertSeverity::Warning, AlertSeverity::Critical];
        known.into_iter().find(|severity| severity.word() == text.get_ref()).ok_or_else(|| {
            let what = format!("at_least = {:?} is not known", text.get_ref());
            self.bad(
                text.span().start,
                &what,
                "how urgent an alert is has three names",
                "info, warning or critical",
            )
        })
    }

    fn kinds(&self, names: Option<&Vec<Spanned<String>>>) -> Result<Vec<AlertKind>, Problem> {
        let kind = |name: &Spanned<String>| {
            name.get_ref().parse::<AlertKind>().map_err(|_| {
                let what = format!("there is no alert called {:?}", name.get_ref());
                let next = AlertKind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
                self.bad(name.span().start, &what, "a name that is misspelt would match nothing", next)
            })
        };
        names.into_iter().flatten().map(kind).collect()
    }

    fn time_max(&self, text: Option<&Spanned<String>>) -> Result<Duration, Problem> {
        let Some(text) = text else { return Ok(TIME_MAX) };
        let never = || {
            self.bad(text.span().start, "a time-out is needed", "a receiver may hang", "write it like 90s")
        };
        self.duration(text)?.ok_or_else(never)
    }

    fn address(&self, text: &Spanned<String>) -> Result<String, Problem> {
        match is_address(text.get_ref()) {
            true => Ok(text.get_ref().clone()),
            false => Err(self.bad(
                text.span().start,
                &format!("{:?} is no mail address", text.get_ref()),
                "it is empty, begins with a minus, or has characters that end a line of a mail",
                "write it like admin@example.org",
            )),
        }
    }

    fn template(&self, text: &Spanned<String>, escape: Escape) -> Result<Template, Problem> {
        Template::parse(text.get_ref(), escape).map_err(|unknown| {
            let what = format!("the template has ${{{unknown}}}, which stands for nothing");
            self.bad(text.span().start, &what, "it would be sent as it is", presets::NAMES.join(", "))
        })
    }

    fn url(&self, text: &Spanned<String>) -> Result<Template, Problem> {
        let bad = |why: &str| {
            let what = "the webhook's url is no URL";
            self.bad(text.span().start, what, why, "write it like https://ntfy.sh/TOPIC")
        };
        let template = self.template(text, Escape::Url)?;
        check_url(text.get_ref()).map_err(bad)?;
        Ok(template)
    }
}

/// Whether a mail can be sent there, as far as its characters tell.
pub fn is_address(text: &str) -> bool {
    let plain = |c: char| !c.is_control() && !",;".contains(c);
    !text.trim().is_empty() && text.len() < 320 && !text.starts_with('-') && text.chars().all(plain)
}

fn check_url(text: &str) -> Result<(), &'static str> {
    let bad = |c: char| c.is_whitespace() || c.is_control() || "<>\"\\^`|".contains(c);
    if text.starts_with("unix:") {
        return match unix_parts(text) {
            Some((_, path)) if !path.contains(bad) => Ok(()),
            Some(_) => Err("it has characters that no URL has"),
            None => Err("a socket is written as unix:/SOCKET:/PATH"),
        };
    }
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let rest = rest.ok_or("it begins neither with http:// nor with https://")?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => {
            port.parse::<u16>().map_err(|_| "its port is no number from 0 to 65535")?;
            name
        }
        _ => host,
    };
    match (name.is_empty(), text.contains(bad), host.contains('@')) {
        (true, ..) => Err("it names no host"),
        (_, true, _) => Err("it has characters that no URL has"),
        (.., true) => Err("secrets stand in token_file, not in the URL"),
        _ => Ok(()),
    }
}

/// Reads the file.
///
/// # Errors
/// It is not understood; the message has the line.
pub fn read(path: &Path, text: &str) -> Result<ReadFile, Problem> {
    let file = Text { path, text };
    let root: Root = toml::from_str(text).map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start);
        file.bad(
            at,
            "this is not understood",
            error.message().replace('\n', " "),
            "docs/alerts.md lists every key",
        )
    })?;
    let mut channels = Vec::new();
    for mail in &root.mail {
        channels.push((mail.span().start, of_mail(&file, mail)?));
    }
    for program in &root.program {
        channels.push((program.span().start, of_program(&file, program)?));
    }
    for hook in &root.webhook {
        channels.push((hook.span().start, of_webhook(&file, hook)?));
    }
    let channels = with_names(&file, channels)?;
    let settings = AlertSettings {
        rules: rules(&file, &root)?,
        channels,
        host: host(&file, &root)?,
        look: LOOK,
        path: path.to_owned(),
        notes: Vec::new(),
        unread: None,
    };
    let mdadm_conf = match root.mdadm_conf.as_ref().map(Spanned::get_ref) {
        None => ConfChoice::Usual,
        Some(none) if none == "none" => ConfChoice::None,
        Some(conf) => ConfChoice::At(PathBuf::from(conf)),
    };
    Ok(ReadFile { settings, mdadm_conf })
}

fn rules(file: &Text<'_>, root: &Root) -> Result<AlertRules, Problem> {
    let secs = |text: Option<&Spanned<String>>, usual: Duration| match text {
        None => Ok(Some(usual.as_secs())),
        Some(text) => file.duration(text).map(|time| time.map(|time| time.as_secs().max(1))),
    };
    let full = match &root.volume_full {
        None => VOLUME_FULL,
        Some(percent) => {
            u8::try_from(*percent.get_ref()).ok().filter(|p| (1..=100).contains(p)).ok_or_else(|| {
                let what = format!("volume_full = {} is no part of a hundred", percent.get_ref());
                file.bad(
                    percent.span().start,
                    &what,
                    "a file system is told to be full from there on",
                    "1 to 100",
                )
            })?
        }
    };
    Ok(AlertRules {
        repeat_secs: secs(root.repeat.as_ref(), REPEAT)?,
        scrub_overdue_secs: secs(root.scrub_overdue.as_ref(), SCRUB_OVERDUE)?,
        volume_full_percent: Some(full),
        spares: std::collections::BTreeMap::new(),
    })
}

fn host(file: &Text<'_>, root: &Root) -> Result<String, Problem> {
    let Some(host) = &root.host else { return Ok(machine()) };
    match host.get_ref().is_empty() || host.get_ref().chars().any(char::is_control) {
        false => Ok(host.get_ref().clone()),
        true => Err(file.bad(
            host.span().start,
            "host is no name",
            "messages begin with it",
            "write a name, or leave it out",
        )),
    }
}

/// Channels without a name get that of their kind, with a number from the second on.
fn with_names(
    file: &Text<'_>,
    channels: Vec<(usize, ChannelSettings)>,
) -> Result<Vec<ChannelSettings>, Problem> {
    let mut named: Vec<ChannelSettings> = Vec::new();
    for (at, mut channel) in channels {
        let (given, usual) = match channel.name.split_once('\0') {
            Some((_, usual)) => (false, usual.to_owned()),
            None => (true, channel.name.clone()),
        };
        let is_taken = |name: &str| named.iter().any(|other| other.name == name);
        if given && is_taken(&usual) {
            let what = format!("there are two channels called {usual}");
            return Err(file.bad(
                at,
                &what,
                "what each is owed is kept under its name",
                "give one of them another name",
            ));
        }
        let numbered = (2..).map(|number| format!("{usual}-{number}"));
        let name = std::iter::once(usual.clone()).chain(numbered).find(|name| !is_taken(name));
        channel.name = name.unwrap_or(usual);
        named.push(channel);
    }
    Ok(named)
}

/// The name that is given, or that of the kind.
fn name(file: &Text<'_>, given: Option<&Spanned<String>>, usual: &str) -> Result<String, Problem> {
    let Some(given) = given else { return Ok(format!("\0{usual}")) };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match (1..=40).contains(&given.get_ref().len()) && given.get_ref().chars().all(plain) {
        true => Ok(given.get_ref().clone()),
        false => Err(file.bad(
            given.span().start,
            &format!("{:?} is no name of a channel", given.get_ref()),
            "names have at most 40 characters",
            "use letters, digits, - _ and .",
        )),
    }
}

fn of_mail(file: &Text<'_>, mail: &Spanned<Mail>) -> Result<ChannelSettings, Problem> {
    let (at, mail) = (mail.span().start, mail.get_ref());
    if mail.to.is_empty() {
        return Err(file.bad(
            at,
            "the mail has no receiver",
            "it would go nowhere",
            "to = [\"admin@example.org\"]",
        ));
    }
    let to = mail.to.iter().map(|to| file.address(to)).collect::<Result<_, _>>()?;
    let from = mail.from.as_ref().map(|from| file.address(from)).transpose()?;
    let sendmail =
        mail.sendmail.as_ref().map_or_else(|| PathBuf::from(SENDMAIL), |path| path.get_ref().clone());
    Ok(ChannelSettings {
        name: name(file, mail.name.as_ref(), "mail")?,
        at_least: file.severity(mail.at_least.as_ref(), AlertSeverity::Warning)?,
        only: file.kinds(mail.only.as_ref())?,
        time_max: file.time_max(mail.timeout.as_ref())?,
        way: ChannelWay::Mail(MailSettings { to, from, sendmail }),
    })
}

fn of_program(file: &Text<'_>, program: &Spanned<Program>) -> Result<ChannelSettings, Problem> {
    let program = program.get_ref();
    let path = program.path.get_ref();
    if !path.is_absolute() {
        let what = format!("path = {:?} is not absolute", path.display().to_string());
        let why = "the program is started by a service, which has a directory of its own";
        return Err(file.bad(program.path.span().start, &what, why, "write the whole path"));
    }
    Ok(ChannelSettings {
        name: name(file, program.name.as_ref(), "program")?,
        at_least: file.severity(program.at_least.as_ref(), AlertSeverity::Info)?,
        only: file.kinds(program.only.as_ref())?,
        time_max: file.time_max(program.timeout.as_ref())?,
        way: ChannelWay::Program(path.clone()),
    })
}

fn of_webhook(file: &Text<'_>, hook: &Spanned<Webhook>) -> Result<ChannelSettings, Problem> {
    let (at, hook) = (hook.span().start, hook.get_ref());
    let preset = hook.preset.as_ref().map(|name| of_preset(file, name)).transpose()?;
    let missing =
        |key: &str, next: &str| file.bad(at, &format!("the webhook has no {key}"), "it is needed", next);
    let chat = hook.chat.as_ref().map(|chat| chat.get_ref().as_str());
    let form = preset.map(|preset| presets::form(preset, chat));
    let url = match (&hook.url, form.as_ref().and_then(|form| form.url)) {
        (Some(url), _) => file.url(&Spanned::new(url.span(), presets::completed(preset, url.get_ref())))?,
        (None, Some(usual)) => file.url(&Spanned::new(at..at, usual.to_owned()))?,
        (None, None) => return Err(missing("url", "url = \"https://…\"")),
    };
    if preset == Some(WebhookPreset::Telegram) && hook.chat.is_none() {
        return Err(missing("chat", "chat = \"123456\": the chat that the bot writes to"));
    }
    let needs_token = matches!(preset, Some(WebhookPreset::Telegram | WebhookPreset::Gotify));
    if needs_token && hook.token_file.is_none() {
        return Err(missing("token_file", "token_file = \"/etc/wattle/token\", a file of mode 0600"));
    }
    let content_type = match (&hook.content_type, &form) {
        (Some(given), _) if given.get_ref().chars().any(char::is_control) => {
            return Err(file.bad(
                given.span().start,
                "content_type is none",
                "it has control characters",
                "application/json",
            ));
        }
        (Some(given), _) => given.get_ref().clone(),
        (None, Some(form)) => form.content_type.to_owned(),
        (None, None) => "application/json".to_owned(),
    };
    let escape = Escape::of(&content_type);
    let body = match (&hook.body, &form) {
        (Some(body), _) => file.template(body, escape)?,
        (None, Some(form)) => file.template(&Spanned::new(at..at, form.body.clone()), escape)?,
        (None, None) => file.template(&Spanned::new(at..at, presets::ANY.to_owned()), escape)?,
    };
    let mut headers = Vec::new();
    for (header, value) in form.iter().flat_map(|form| &form.headers) {
        headers.push((
            (*header).to_owned(),
            file.template(&Spanned::new(at..at, (*value).to_owned()), Escape::Header)?,
        ));
    }
    let has_bearer = preset.is_none()
        || preset == Some(WebhookPreset::Ntfy)
        || preset == Some(WebhookPreset::Alertmanager);
    if hook.token_file.is_some()
        && has_bearer
        && !hook.headers.keys().any(|key| key.eq_ignore_ascii_case("authorization"))
    {
        let bearer = Spanned::new(at..at, "Bearer ${token}".to_owned());
        headers.push(("Authorization".to_owned(), file.template(&bearer, Escape::Header)?));
    }
    for (header, value) in &hook.headers {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if header.is_empty() || !header.chars().all(plain) {
            let why = "it has characters that no header has";
            return Err(file.bad(
                value.span().start,
                &format!("{header:?} is no header"),
                why,
                "X-Name = \"value\"",
            ));
        }
        headers.push((header.clone(), file.template(value, Escape::Header)?));
    }
    let token_line = hook.token_file.as_ref().map_or(0, |token| file.line(token.span().start));
    let usual_name = preset.map_or("webhook", presets::name);
    Ok(ChannelSettings {
        name: name(file, hook.name.as_ref(), usual_name)?,
        at_least: file.severity(hook.at_least.as_ref(), AlertSeverity::Warning)?,
        only: file.kinds(hook.only.as_ref())?,
        time_max: file.time_max(hook.timeout.as_ref())?,
        way: ChannelWay::Webhook(Box::new(WebhookSettings {
            url,
            body,
            content_type,
            headers,
            token_file: hook.token_file.as_ref().map(|path| path.get_ref().clone()),
            token_line,
            file: file.path.to_owned(),
            ca_file: hook.ca_file.as_ref().map(|path| path.get_ref().clone()),
            preset,
        })),
    })
}

fn of_preset(file: &Text<'_>, name: &Spanned<String>) -> Result<WebhookPreset, Problem> {
    presets::find(name.get_ref()).ok_or_else(|| {
        let what = format!("there is no preset {:?}", name.get_ref());
        let next = "ntfy, gotify, slack, discord, telegram or alertmanager; without a preset: url and body";
        file.bad(name.span().start, &what, "a preset is the form of the messages of a web server", next)
    })
}
