//! What a file names on this machine, as it is now: `wattle up --check` looks, starting finds out.

use std::fs::{self, File};
use std::path::Path;

use wattle_control::{Code, Problem};
use wattle_rt::Processors;
use wattle_server::exports::{Address, NbdAddress};
use wattle_server::tls_problem;
use wattle_tls::{ServerTls, TlsClients};

use super::{ConfigFault, Placed, StackConfig};
use crate::http::HttpAddress;

/// Empty after each boot: units make their directories there when they start.
const MADE_AT_START: &str = "/run";

impl StackConfig {
    /// What would keep the stack from starting on this machine: files, directories and processors
    /// that are not there. Arrays, members and volumes are not looked at.
    #[must_use]
    pub fn missing(&self) -> Vec<ConfigFault> {
        let keys = [("passphrase-files", &self.passphrase_files), ("key-files", &self.key_files)];
        let keys = keys.into_iter().flat_map(|(key, files)| files.iter().map(move |file| (key, file)));
        let keys = keys.filter_map(|(key, file)| self.unreadable(key, file));
        let exports = self.exports.iter().filter_map(|export| self.without_place(export));
        let metrics = self.metrics.iter().filter_map(|metrics| match &metrics.value {
            HttpAddress::Unix(path) => self.no_directory("metrics", parent(path)?, metrics.line),
            HttpAddress::Tcp(_) => None,
        });
        let all = keys.chain(exports).chain(metrics);
        all.chain(self.unusable_certificates()).chain(self.no_processor()).collect()
    }

    fn at(&self, line: usize, Problem { code, what, why, next, .. }: Problem) -> ConfigFault {
        ConfigFault { file: self.file.clone(), line, code, what, why, next }
    }

    fn unreadable(&self, key: &str, file: &Placed<String>) -> Option<ConfigFault> {
        let error = File::open(&file.value).err()?;
        let what = format!("{key}: {}: {error}", file.value);
        let why = "a key or passphrase is read from it";
        let next = "name a file that the server can read";
        Some(self.at(file.line, Problem::new(Code::ConfigBadValue, what, why, next)))
    }

    /// The directory that an export needs is not there.
    fn without_place(&self, export: &Placed<Address>) -> Option<ConfigFault> {
        match &export.value {
            Address::Fuse(dir) | Address::VhostUser(dir) => self.no_directory("exports", dir, export.line),
            Address::Nbd(NbdAddress::Unix(path)) => self.no_directory("exports", parent(path)?, export.line),
            _ => None,
        }
    }

    fn no_directory(&self, key: &str, dir: &Path, line: usize) -> Option<ConfigFault> {
        let error = match fs::metadata(dir) {
            Ok(found) if found.is_dir() => return None,
            Ok(_) => "it is no directory".to_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "it is not there".to_owned(),
            // What a server that was killed has left there is removed at the start.
            Err(_) => return None,
        };
        if dir.starts_with(MADE_AT_START) {
            return None;
        }
        let what = format!("{key}: {}: {error}", dir.display());
        let why = "what clients use is made in that directory";
        let next = format!("mkdir {}", dir.display());
        Some(self.at(line, Problem::new(Code::ConfigBadValue, what, why, next)))
    }

    fn unusable_certificates(&self) -> Option<ConfigFault> {
        let dir = self.tls_certificates.as_ref()?;
        let clients = if self.tls_any_client { TlsClients::Any } else { TlsClients::Certified };
        let error = ServerTls::open(Path::new(&dir.value), clients).err()?;
        Some(self.at(dir.line, tls_problem(&error)))
    }

    fn no_processor(&self) -> Option<ConfigFault> {
        let wanted = self.processors.as_ref()?;
        let allowed = Processors::allowed().ok()?;
        if wanted.value.of_both(&allowed).count() > 0 {
            return None;
        }
        let what = format!("processors: {}", wanted.value);
        let why = format!("none of them can be used here; these can: {allowed}");
        let next = "name some of these, or remove the line";
        Some(self.at(wanted.line, Problem::new(Code::ConfigBadValue, what, why, next)))
    }
}

/// The directory of a socket, if one is named.
fn parent(path: &Path) -> Option<&Path> {
    path.parent().filter(|dir| !dir.as_os_str().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_told_with_its_line() {
        let room = tempfile::tempdir().unwrap();
        let (dir, file) = (room.path().join("dir"), room.path().join("file"));
        fs::create_dir(&dir).unwrap();
        fs::write(&file, "secret\n").unwrap();
        let lines = |text: &str| -> Vec<usize> {
            let text = text.replace("DIR", dir.to_str().unwrap()).replace("FILE", file.to_str().unwrap());
            let stack = StackConfig::parse(Path::new("a.toml"), &format!("arrays = ['a']\n{text}")).unwrap();
            stack.missing().iter().map(|fault| fault.line).collect()
        };
        for fault in [
            "passphrase-files = ['DIR/none']",
            "key-files = ['FILE',\n 'DIR/none']",
            "exports = ['fuse=DIR',\n 'fuse=DIR/none']",
            "exports = ['fuse=DIR',\n 'fuse=FILE']",
            "exports = ['nbd=unix:DIR/socket',\n 'vhost-user=DIR/none']",
            "exports = ['fuse=DIR',\n 'nbd=unix:DIR/none/socket']",
            "metrics = 'unix:DIR/none/socket'",
            "processors = '8000'",
            "exports = ['nbd=tcp:127.0.0.1:0']\ntls-certificates = 'DIR/none'",
        ] {
            assert_eq!(lines(fault), [1 + fault.lines().count()], "{fault}");
        }
        let good = "passphrase-files = ['FILE']\nexports = ['fuse=DIR', 'nbd=unix:DIR/socket']\n\
                    metrics = 'unix:DIR/metrics'\nprocessors = '0-8000'";
        assert_eq!(lines(good), [0; 0]);
        // Units make it when they start.
        assert_eq!(lines("exports = ['fuse=/run/wattle-nowhere']"), [0; 0]);
    }
}
