//! Reservations of NVMe hosts that outlast the server: a file for each volume in the state
//! directory (docs/formats.md §30).
//!
//! Invariant: a file is replaced as a whole, and is durable before the host hears of it. One that
//! cannot be read is left as it is: whom it keeps out is not known, so the target lets no host in.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use wattle_export::nvme::ReservationStore;

/// Longer than any that is written: 256 hosts with their names.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// The longest name that a file may have on Linux, less what is put behind it.
const NAME_BYTES_MAX: usize = 255 - ".reservations.new".len();

/// The files of a state directory.
pub struct ReservationFiles {
    dir: PathBuf,
    tell: Box<dyn Fn(&str) + Send + Sync>,
}

impl ReservationFiles {
    /// In a directory of its own below the state directory, which is made when it is needed. `tell`
    /// takes lines for the operator.
    pub fn new(state_dir: &Path, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { dir: state_dir.join("reservations"), tell: Box::new(tell) }
    }

    /// The file of a volume: its identity, with whatever is no letter or digit as `%XX`.
    fn file(&self, identity: &str) -> io::Result<PathBuf> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let name: String = identity
            .bytes()
            .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
            .collect();
        match name.is_empty() || name.len() > NAME_BYTES_MAX {
            true => Err(io::Error::new(ErrorKind::InvalidInput, "the volume's identity is no file name")),
            false => Ok(self.dir.join(name + ".reservations")),
        }
    }

    fn read(path: &Path) -> io::Result<Option<String>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut text = String::new();
        let read = io::Read::read_to_string(&mut io::Read::take(file, FILE_BYTES_MAX + 1), &mut text)?;
        match read as u64 > FILE_BYTES_MAX {
            true => Err(io::Error::new(ErrorKind::InvalidData, "it is too long")),
            false => Ok(Some(text)),
        }
    }

    fn write(&self, path: &Path, record: Option<&str>) -> io::Result<()> {
        let Some(record) = record else {
            return match fs::remove_file(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                removed => removed.and_then(|()| File::open(&self.dir)?.sync_all()),
            };
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let new = path.with_extension("reservations.new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(record.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(&self.dir)?.sync_all()?;
        // The directory itself has to be there after a crash too.
        self.dir.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    }

    fn closed(&self, path: &Path, why: &str) {
        (self.tell)(&format!(
            "{}: {why}: which NVMe hosts it keeps out is not known, so none may read or write its volume; \
             once no host that was kept out can come back, remove the file and start the server again",
            path.display()
        ));
    }
}

impl ReservationStore for ReservationFiles {
    fn load(&self, identity: &str) -> Result<Option<String>, io::Error> {
        // A name that no file can have was never written.
        let Ok(path) = self.file(identity) else { return Ok(None) };
        Self::read(&path).inspect_err(|error| self.closed(&path, &error.to_string()))
    }

    fn damaged(&self, identity: &str) {
        if let Ok(path) = self.file(identity) {
            self.closed(&path, "it is not whole, or of another version");
        }
    }

    fn keep(&self, identity: &str, record: Option<&str>) -> Result<(), io::Error> {
        let path = self.file(identity)?;
        self.write(&path, record).inspect_err(|error| {
            (self.tell)(&format!(
                "{}: {error}: an NVMe host's reservation that is to outlast the server is refused",
                path.display()
            ));
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn what_is_kept_is_found_until_nothing_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let files = ReservationFiles::new(&dir.path().join("state"), |line| panic!("{line}"));
        fs::create_dir(dir.path().join("state")).unwrap();
        let identity = "group/volume \u{e4}";
        assert_eq!(files.load(identity).unwrap(), None);
        files.keep(identity, None).unwrap();
        for text in ["one\n", "another\n"] {
            files.keep(identity, Some(text)).unwrap();
            assert_eq!(files.load(identity).unwrap().as_deref(), Some(text));
        }
        assert_eq!(files.load("group/volume").unwrap(), None);
        let names: Vec<_> =
            fs::read_dir(&files.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["group%2Fvolume%20%C3%A4.reservations"]);
        files.keep(identity, None).unwrap();
        assert_eq!(files.load(identity).unwrap(), None);
        assert!(files.keep(&"x".repeat(300), Some("")).is_err());
    }

    #[test]
    fn what_cannot_be_read_or_written_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let keep = told.clone();
        let files = ReservationFiles::new(dir.path(), move |line| keep.lock().unwrap().push(line.to_owned()));
        fs::create_dir_all(dir.path().join("reservations/a.reservations")).unwrap();
        assert!(files.load("a").is_err() && files.keep("a", Some("")).is_err());
        fs::write(dir.path().join("reservations/b.reservations"), vec![b'x'; 300 << 10]).unwrap();
        assert!(files.load("b").is_err());
        files.damaged("c");
        let told = told.lock().unwrap();
        assert_eq!(told.len(), 4);
        assert!(
            told[2].contains("too long") && told[3].contains("c.reservations: it is not whole"),
            "{told:?}"
        );
    }
}
