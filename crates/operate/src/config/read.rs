//! A file's text as a stack: every key by itself, so that every fault is found at once.

use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use wattle_control::Code;
use wattle_rt::Processors;
use wattle_server::exports::{Address, NbdAddress, is_loopback};
use wattle_server::settings;

use super::{ConfigFault, MissingPolicy, Placed, ScrubPolicy, StackConfig, WaitPolicy, stack_name};
use crate::http::HttpAddress;

/// The keys of a file, in the order of the page.
const KEYS: &str = "arrays, members, volumes, exports, tls-certificates, tls-any-client, insecure, passphrase-files, key-files, spares, read-only, metrics, state-dir, undo-dir, cores, processors, [wait], [scrub], [set]";
const WAIT_KEYS: &str = "timeout, missing";
const SCRUB_KEYS: &str = "every, overdue";

/// Longer is a slip of the pen.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);
const CORES_MAX: u16 = 1024;

type Entries<'t, 'i> = Vec<(&'t str, usize, &'t Spanned<DeValue<'i>>)>;

struct Reader<'t> {
    file: &'t Path,
    text: &'t str,
    faults: Vec<ConfigFault>,
}

/// # Errors
/// Everything that is wrong.
pub fn parse(file: &Path, text: &str) -> Result<StackConfig, Vec<ConfigFault>> {
    let mut reader = Reader { file, text, faults: Vec::new() };
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let line = reader.line(&error.span().unwrap_or(0..0));
        let next = "correct the line: KEY = VALUE, texts in quotes, lists in [ ]";
        reader.fault(line, Code::ConfigSyntax, error.message().to_owned(), "it is no TOML".to_owned(), next);
    }
    // What follows from half a file is not what was meant.
    let config = if reader.faults.is_empty() { Some(reader.stack(table.get_ref())) } else { None };
    match config {
        Some(config) if reader.faults.is_empty() => Ok(config),
        _ => Err(reader.faults),
    }
}

impl<'t> Reader<'t> {
    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    fn fault(&mut self, line: usize, code: Code, what: String, why: String, next: impl Into<String>) {
        let (file, next) = (self.file.to_owned(), next.into());
        self.faults.push(ConfigFault { file, line, code, what, why, next });
    }

    fn bad(&mut self, key: &str, line: usize, found: &DeValue<'_>, expected: &str) {
        let shown = match found {
            DeValue::String(text) => format!("{text:?}"),
            DeValue::Integer(number) => number.to_string(),
            other => format!("a {}", other.type_str()),
        };
        let (what, why) = (format!("{key}: {shown}"), format!("expected {expected}"));
        self.bad_value(line, what, why);
    }

    fn bad_value(&mut self, line: usize, what: String, why: String) {
        let next = "`wattle up --check` looks again; docs/service.md explains the keys";
        self.fault(line, Code::ConfigBadValue, what, why, next);
    }

    fn entries<'i>(&self, table: &'t DeTable<'i>) -> Entries<'t, 'i> {
        let entry = |(key, value): (&'t Spanned<_>, &'t Spanned<DeValue<'i>>)| {
            let key: &'t Spanned<std::borrow::Cow<'i, str>> = key;
            (key.get_ref().as_ref(), self.line(&key.span()), value)
        };
        table.iter().map(entry).collect()
    }

    fn unknown(&mut self, key: &str, line: usize, known: &str) {
        let what = format!("there is no key {key}");
        let next = "correct or remove it: a key that is not understood is never passed over";
        self.fault(line, Code::ConfigUnknownKey, what, format!("keys are {known}"), next);
    }

    fn stack(&mut self, table: &'t DeTable<'_>) -> StackConfig {
        let mut stack = StackConfig {
            name: stack_name(self.file),
            file: self.file.to_owned(),
            arrays: Vec::new(),
            members: Vec::new(),
            volumes: Vec::new(),
            exports: Vec::new(),
            tls_certificates: None,
            tls_any_client: false,
            insecure: false,
            passphrase_files: Vec::new(),
            key_files: Vec::new(),
            spares: Vec::new(),
            settings: Vec::new(),
            read_only: false,
            metrics: None,
            state_dir: None,
            undo_dir: None,
            cores: None,
            processors: None,
            wait: WaitPolicy::default(),
            scrub: ScrubPolicy::default(),
        };
        for (key, line, value) in self.entries(table) {
            match key {
                "arrays" => stack.arrays = self.texts(key, value),
                "members" => stack.members = self.texts(key, value),
                "volumes" => stack.volumes = self.texts(key, value),
                "spares" => stack.spares = self.texts(key, value),
                "exports" => stack.exports = self.exports(value),
                "read-only" => stack.read_only = self.truth(key, line, value),
                "tls-certificates" => stack.tls_certificates = self.directory(key, value),
                "tls-any-client" => stack.tls_any_client = self.truth(key, line, value),
                "insecure" => stack.insecure = self.truth(key, line, value),
                "passphrase-files" => stack.passphrase_files = self.texts(key, value),
                "key-files" => stack.key_files = self.texts(key, value),
                "metrics" => stack.metrics = self.metrics(value),
                "state-dir" => stack.state_dir = self.directory(key, value).map(|dir| dir.value),
                "undo-dir" => stack.undo_dir = self.directory(key, value).map(|dir| dir.value),
                "cores" => stack.cores = self.cores(value),
                "processors" => stack.processors = self.processors(value),
                "wait" => stack.wait = self.wait(line, value),
                "scrub" => stack.scrub = self.scrub(line, value),
                "set" => stack.settings = self.settings(line, value),
                _ => self.unknown(key, line, KEYS),
            }
        }
        self.check_whole(&stack);
        stack
    }

    /// What no key says by itself.
    fn check_whole(&mut self, stack: &StackConfig) {
        if !self.faults.is_empty() {
            return;
        }
        let name = &stack.name;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_+".contains(c);
        if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
            self.fault(
                1,
                Code::ConfigBadValue,
                format!("{name} is no name of a stack"),
                "the file's name becomes that of a service and of a socket".to_owned(),
                "name the file with letters, digits, -, _ and + only: data.toml",
            );
        }
        if stack.arrays.is_empty() && stack.members.is_empty() {
            self.fault(
                1,
                Code::ConfigIncomplete,
                "neither arrays nor members are named".to_owned(),
                "without them everything on the machine would be served".to_owned(),
                "name the arrays, arrays = [\"UUID\"], or where to look, members = [\"/dev/sd[b-f]\"]; `wattle up --scan` writes it",
            );
        }
        if let (Some(spare), true) = (stack.spares.first(), stack.arrays.len() != 1) {
            self.fault(
                spare.line,
                Code::ConfigIncomplete,
                "spares, and not exactly one array".to_owned(),
                "it is not said whose spares they are".to_owned(),
                "name the one array: arrays = [\"UUID\"], and the others in stacks of their own",
            );
        }
        if let (Some(spare), true) = (stack.spares.first(), stack.read_only) {
            self.fault(
                spare.line,
                Code::ConfigBadValue,
                "spares of a stack that is read-only".to_owned(),
                "a spare is written".to_owned(),
                "remove one of the two",
            );
        }
        let over_tcp =
            |export: &Placed<Address>| matches!(export.value, Address::Nbd(NbdAddress::Tcp { .. }));
        if let (Some(dir), false) = (&stack.tls_certificates, stack.exports.iter().any(over_tcp)) {
            self.fault(
                dir.line,
                Code::ConfigIncomplete,
                "tls-certificates, and nothing that speaks TLS".to_owned(),
                "TLS is for NBD over TCP; a Unix socket is guarded by its permissions".to_owned(),
                "name the port, exports = [\"nbd=tcp:HOST:PORT\"], or remove the line",
            );
        }
        self.check_reach(stack);
        if stack.tls_any_client && stack.tls_certificates.is_none() {
            self.fault(
                self.line_of("tls-any-client"),
                Code::ConfigIncomplete,
                "tls-any-client without tls-certificates".to_owned(),
                "without TLS every client is heard anyway".to_owned(),
                "name the directory of certificates, or remove the line",
            );
        }
        if let (Some(every), Some(overdue)) = (stack.scrub.every, stack.scrub.overdue)
            && overdue < every
        {
            self.fault(
                self.line_of("overdue"),
                Code::ConfigBadValue,
                "scrub.overdue is less than scrub.every".to_owned(),
                "each scrub would be overdue before it is due".to_owned(),
                "give it some more time than `every`",
            );
        }
    }

    /// What other machines would reach without protection. Of a host by name it is not known here.
    fn check_reach(&mut self, stack: &StackConfig) {
        let is_far = |host: &str| host.parse().is_ok_and(|ip: IpAddr| !is_loopback(ip));
        let is_open = |address: &Address| match address {
            Address::Nbd(NbdAddress::Tcp { host, .. }) => {
                (stack.tls_certificates.is_none() || stack.tls_any_client) && is_far(host)
            }
            Address::NvmeTcp(nvme) => is_far(&nvme.host),
            _ => false,
        };
        let exports = stack.exports.iter().filter(|export| is_open(&export.value));
        let mut open: Vec<_> = exports.map(|export| (export.line, export.value.to_string())).collect();
        let metrics = stack.metrics.iter().filter(|metrics| !metrics.value.is_local());
        open.extend(metrics.map(|metrics| (metrics.line, format!("metrics={}", metrics.value))));
        for (line, address) in open.into_iter().filter(|_| !stack.insecure) {
            let next = match address.starts_with("nbd=") {
                true => {
                    "name tls-certificates and leave tls-any-client out, listen at 127.0.0.1 or unix:PATH, or take the risk: insecure = true"
                }
                false => "listen at 127.0.0.1, or take the risk: insecure = true",
            };
            self.fault(
                line,
                Code::ListenUnprotected,
                format!("{address} can be reached from other machines"),
                "without protection every machine could use what is there".to_owned(),
                next,
            );
        }
    }

    /// The first line that begins with a key.
    fn line_of(&self, key: &str) -> usize {
        self.text.lines().position(|line| line.trim_start().starts_with(key)).map_or(1, |at| at + 1)
    }

    fn text(&mut self, key: &str, value: &Spanned<DeValue<'_>>, expected: &str) -> Option<Placed<String>> {
        let line = self.line(&value.span());
        match value.get_ref().as_str() {
            Some(text) if !text.is_empty() && !text.contains('\0') => {
                Some(Placed { value: text.to_owned(), line })
            }
            _ => {
                self.bad(key, line, value.get_ref(), expected);
                None
            }
        }
    }

    /// A list of texts, or a single one.
    fn texts(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Vec<Placed<String>> {
        const EXPECTED: &str = "a list of texts: [\"…\", \"…\"]";
        match value.get_ref().as_array() {
            Some(list) if list.is_empty() => {
                let line = self.line(&value.span());
                self.bad(key, line, value.get_ref(), "a list with something in it, or no such key");
                Vec::new()
            }
            Some(list) => list.iter().filter_map(|item| self.text(key, item, EXPECTED)).collect(),
            None => self.text(key, value, EXPECTED).into_iter().collect(),
        }
    }

    fn exports(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<Placed<Address>> {
        let mut exports = Vec::new();
        for Placed { value: text, line } in self.texts("exports", value) {
            match text.parse::<Address>() {
                Ok(value) => exports.push(Placed { value, line }),
                Err(error) => self.bad_value(line, format!("exports: {text:?}"), error.to_string()),
            }
        }
        exports
    }

    fn metrics(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<HttpAddress>> {
        self.parsed("metrics", value, "IP:PORT, such as 127.0.0.1:9898, or unix:PATH")
    }

    fn processors(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<Processors>> {
        self.parsed("processors", value, "a list like \"2-5,8\"")
    }

    /// A text as `wattle serve` takes it.
    fn parsed<T: FromStr>(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        expected: &str,
    ) -> Option<Placed<T>> {
        let Placed { value: text, line } = self.text(key, value, expected)?;
        let parsed = text.parse().ok();
        if parsed.is_none() {
            self.bad(key, line, value.get_ref(), expected);
        }
        parsed.map(|value| Placed { value, line })
    }

    fn truth(&mut self, key: &str, line: usize, value: &Spanned<DeValue<'_>>) -> bool {
        let truth = value.get_ref().as_bool();
        if truth.is_none() {
            self.bad(key, line, value.get_ref(), "true or false");
        }
        truth.unwrap_or_default()
    }

    fn directory(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Placed<String>> {
        let expected = "an absolute path of a directory";
        let text = self.text(key, value, expected)?;
        if !text.value.starts_with('/') {
            self.bad(key, text.line, value.get_ref(), expected);
        }
        Some(text)
    }

    fn cores(&mut self, value: &Spanned<DeValue<'_>>) -> Option<u16> {
        let number = value.get_ref().as_integer().filter(|number| number.radix() == 10);
        let cores = number.and_then(|number| number.as_str().parse().ok());
        let cores = cores.filter(|cores| (1..=CORES_MAX).contains(cores));
        if cores.is_none() {
            let line = self.line(&value.span());
            self.bad("cores", line, value.get_ref(), "a number from 1 to 1024");
        }
        cores
    }

    fn section<'i>(&mut self, key: &str, line: usize, value: &'t Spanned<DeValue<'i>>) -> Entries<'t, 'i> {
        match value.get_ref().as_table() {
            Some(table) => self.entries(table),
            None => {
                self.bad(key, line, value.get_ref(), &format!("a section: [{key}]"));
                Vec::new()
            }
        }
    }

    fn time(&mut self, key: &str, value: &Spanned<DeValue<'_>>, max: Duration) -> Option<Duration> {
        let time = value.get_ref().as_str().and_then(|text| humantime::parse_duration(text).ok());
        let time = time.filter(|time| *time <= max);
        if time.is_none() {
            let line = self.line(&value.span());
            let days = max.as_secs() / 86_400;
            let expected = format!("a time with a unit, such as \"30s\" or \"5m\", up to {days}d");
            self.bad(key, line, value.get_ref(), &expected);
        }
        time
    }

    fn wait(&mut self, line: usize, value: &'t Spanned<DeValue<'_>>) -> WaitPolicy {
        let mut wait = WaitPolicy::default();
        for (key, line, value) in self.section("wait", line, value) {
            match (key, value.get_ref().as_str()) {
                ("timeout", _) => {
                    wait.timeout = self.time("wait.timeout", value, WAIT_MAX).unwrap_or_default();
                }
                ("missing", Some("degraded")) => wait.missing = MissingPolicy::Degraded,
                ("missing", Some("refuse")) => wait.missing = MissingPolicy::Refuse,
                ("missing", _) => {
                    self.bad("wait.missing", line, value.get_ref(), "\"degraded\" or \"refuse\"");
                }
                _ => self.unknown(&format!("wait.{key}"), line, WAIT_KEYS),
            }
        }
        wait
    }

    fn scrub(&mut self, line: usize, value: &'t Spanned<DeValue<'_>>) -> ScrubPolicy {
        const YEARS: Duration = Duration::from_secs(10 * 365 * 86_400);
        let mut scrub = ScrubPolicy::default();
        for (key, line, value) in self.section("scrub", line, value) {
            let never = value.get_ref().as_str() == Some("never");
            match key {
                "every" if never => scrub = ScrubPolicy { every: None, overdue: None },
                "every" => scrub.every = self.time("scrub.every", value, YEARS),
                "overdue" if never => scrub.overdue = None,
                "overdue" => scrub.overdue = self.time("scrub.overdue", value, YEARS),
                _ => self.unknown(&format!("scrub.{key}"), line, SCRUB_KEYS),
            }
        }
        scrub
    }

    fn settings(&mut self, line: usize, value: &'t Spanned<DeValue<'_>>) -> Vec<String> {
        let mut pairs = Vec::new();
        for (key, line, value) in self.section("set", line, value) {
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
                other => {
                    self.bad(&format!("set.{key}"), line, other, "a text or a number");
                    continue;
                }
            };
            let (_, bare) = settings::parts(key);
            let is_known = |bare: &str| settings::KEYS.iter().any(|(known, ..)| *known == bare);
            let of_arrays = bare.rsplit_once(':').map(|(_, key)| key).filter(|key| is_known(key));
            if let Some(of_arrays) = of_arrays {
                let what = format!("there is no key set.{key}");
                let why = format!("{of_arrays} is set for arrays, and not for one volume");
                let next = format!("write it without the volume: {of_arrays} = …");
                self.fault(line, Code::ConfigUnknownKey, what, why, next);
            } else if !is_known(bare) {
                let known: Vec<_> = settings::KEYS.iter().map(|(key, ..)| *key).collect();
                self.unknown(&format!("set.{key}"), line, &known.join(", "));
            } else if let Err(problem) = settings::parse(key, &text) {
                let expected = problem.why.strip_prefix("expected ").unwrap_or(&problem.why).to_owned();
                self.bad(&format!("set.{key}"), line, value.get_ref(), &expected);
            } else {
                pairs.push(format!("{key}={text}"));
            }
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<StackConfig, Vec<ConfigFault>> {
        parse(Path::new("data.toml"), text)
    }

    /// Line and code of every fault.
    fn faults(text: &str) -> Vec<(usize, Code)> {
        read(text).err().unwrap_or_default().iter().map(|fault| (fault.line, fault.code)).collect()
    }

    #[test]
    fn a_file_says_what_is_served() {
        let config = read(
            "arrays = ['data']\nmembers = ['/dev/sd[b-f]', 'nbd://far/leg']\nvolumes = 'vg0/home'\n\
             exports = ['nbd=tcp:127.0.0.1:10809', 'fuse=/srv/arrays']\nspares = ['/dev/sdg']\nread-only = false\n\
             tls-certificates = '/etc/wattle/tls'\ntls-any-client = true\ninsecure = true\n\
             passphrase-files = '/etc/wattle/pass'\nkey-files = ['/a.key', '/b.rkey']\n\
             metrics = '127.0.0.1:9898'\nstate-dir = '/var/lib/x'\nundo-dir = '/var/lib/u'\ncores = 2\n\
             processors = '2-3'\n\
             [wait]\ntimeout = '90s'\nmissing = 'refuse'\n[scrub]\nevery = '7d'\noverdue = '2w'\n\
             [set]\ngoal = '20ms'\nsync_speed_max = 50000\nweight = 50\n'vg0/home:iops' = 500\n",
        )
        .unwrap();
        assert_eq!(config.name, "data");
        assert_eq!(config.members[1], Placed { value: "nbd://far/leg".to_owned(), line: 2 });
        assert_eq!(config.exports[1].value.to_string(), "fuse=/srv/arrays");
        assert_eq!((config.exports[0].line, config.spares[0].line, config.cores), (4, 5, Some(2)));
        assert_eq!(config.processors, Some(Placed { value: "2-3".parse().unwrap(), line: 16 }));
        let tls = Placed { value: "/etc/wattle/tls".to_owned(), line: 7 };
        assert_eq!(
            (config.tls_certificates, config.tls_any_client, config.insecure),
            (Some(tls), true, true)
        );
        assert_eq!(config.passphrase_files[0].value, "/etc/wattle/pass");
        assert_eq!(config.key_files[1], Placed { value: "/b.rkey".to_owned(), line: 11 });
        assert_eq!(config.wait.timeout, Duration::from_secs(90));
        assert_eq!(config.wait.missing, MissingPolicy::Refuse);
        assert_eq!(config.scrub.overdue, Some(Duration::from_secs(14 * 86_400)));
        assert_eq!(config.settings, ["goal=20ms", "sync_speed_max=50000", "vg0/home:iops=500", "weight=50"]);
    }

    #[test]
    fn every_fault_has_its_line() {
        let text = "arrays = [1,\n  'data']\nmember = 'x'\nexports = ['nbd=udp:1',\n 'fuse=']\nread-only = 'yes'\n\
                    cores = 0\nmetrics = 'here'\nundo-dir = 'undo'\n[wait]\ntimeout = 30\nmissing = 'maybe'\nlong = 1\n\
                    [set]\nsync_speed_max = 'fast'\nspeed = 1\n[scrub]\nevery = '1'\n";
        let expected = [
            (1, Code::ConfigBadValue),
            (3, Code::ConfigUnknownKey),
            (4, Code::ConfigBadValue),
            (5, Code::ConfigBadValue),
            (6, Code::ConfigBadValue),
            (7, Code::ConfigBadValue),
            (8, Code::ConfigBadValue),
            (9, Code::ConfigBadValue),
            (11, Code::ConfigBadValue),
            (12, Code::ConfigBadValue),
            (13, Code::ConfigUnknownKey),
            (15, Code::ConfigBadValue),
            (16, Code::ConfigUnknownKey),
            (18, Code::ConfigBadValue),
        ];
        let mut found = faults(text);
        found.sort();
        assert_eq!(found, expected);
        for fault in read(text).unwrap_err() {
            assert!(!fault.what.is_empty() && !fault.why.is_empty() && !fault.next.is_empty(), "{fault:?}");
        }
    }

    #[test]
    fn what_is_no_toml_says_where() {
        assert_eq!(faults("arrays = ['a']\nmembers = [\n")[0].1, Code::ConfigSyntax);
        assert_eq!(faults("arrays = ['a']\n\nnonsense\n"), [(3, Code::ConfigSyntax)]);
        assert_eq!(faults("arrays = ['a']\narrays = ['b']\n"), [(2, Code::ConfigSyntax)]);
    }

    #[test]
    fn everything_on_the_machine_is_not_a_stack() {
        assert_eq!(faults(""), [(1, Code::ConfigIncomplete)]);
        assert_eq!(faults("volumes = ['vg/lv']"), [(1, Code::ConfigIncomplete)]);
        assert_eq!(faults("arrays = []\n"), [(1, Code::ConfigBadValue)]);
        assert_eq!(faults("arrays = ['a', 'b']\nspares = ['/dev/sdx']"), [(2, Code::ConfigIncomplete)]);
        assert_eq!(
            faults("arrays = ['a']\nread-only = true\nspares = ['/dev/sdx']"),
            [(3, Code::ConfigBadValue)]
        );
        assert_eq!(
            faults("arrays = ['a']\n[scrub]\nevery = '30d'\noverdue = '7d'\n"),
            [(4, Code::ConfigBadValue)]
        );
        assert_eq!(faults("arrays = ['a']\n[scrub]\nevery = 'never'\n"), []);
        let tls = "tls-certificates = '/x'\n";
        assert_eq!(faults(&format!("arrays = ['a']\n{tls}")), [(2, Code::ConfigIncomplete)]);
        assert_eq!(
            faults(&format!("arrays = ['a']\n{tls}exports = ['nbd=unix:/a']")),
            [(2, Code::ConfigIncomplete)]
        );
        assert_eq!(faults(&format!("arrays = ['a']\n{tls}exports = ['nbd=tcp:a:1']")), []);
        for (open, code) in [
            ("exports = ['nbd=tcp:0.0.0.0:10809']", Code::ListenUnprotected),
            ("exports = ['nvme-tcp=[::]:4420']", Code::ListenUnprotected),
            ("metrics = '0.0.0.0:1234'", Code::ListenUnprotected),
            ("metrics = 'localhost:1234'", Code::ConfigBadValue),
            ("processors = '5-2'", Code::ConfigBadValue),
            ("[set]\n'vg0/home:goal' = '20ms'", Code::ConfigUnknownKey),
        ] {
            let line = 1 + open.lines().count();
            assert_eq!(faults(&format!("arrays = ['a']\n{open}")), [(line, code)], "{open}");
        }
        let any = "tls-any-client = true\nexports = ['nbd=tcp:0.0.0.0:1']";
        assert_eq!(faults(&format!("arrays = ['a']\n{tls}{any}")), [(4, Code::ListenUnprotected)]);
        let guarded = "exports = ['nbd=tcp:0.0.0.0:1', 'nbd=tcp:127.0.0.1:2']\nmetrics = 'unix:/run/m'";
        assert_eq!(faults(&format!("arrays = ['a']\n{tls}{guarded}")), []);
        assert_eq!(faults("arrays = ['a']\ninsecure = true\nmetrics = '0.0.0.0:1'"), []);
        assert_eq!(faults("arrays = ['a']\ntls-any-client = true"), [(2, Code::ConfigIncomplete)]);
        assert_eq!(faults("arrays = ['a']\ninsecure = 'yes'"), [(2, Code::ConfigBadValue)]);
        let odd = parse(Path::new("a b.toml"), "arrays = ['a']").unwrap_err();
        assert_eq!(odd[0].code, Code::ConfigBadValue);
    }

    #[test]
    fn no_text_is_a_panic() {
        for text in [
            "\0",
            "=",
            "[",
            "[[wait]]\n",
            "arrays = {a = 1}",
            "wait = 1",
            "set = []",
            "cores = 1e99",
            "é = 1",
            "\u{feff}a=1",
        ] {
            let _ = read(text);
        }
    }
}
