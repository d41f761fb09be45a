//! Names of devices that stay the same, whatever number a device has: symbolic links.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Where links to devices are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UblkLinks {
    /// In which directory each volume has one.
    pub dir: PathBuf,
    /// Before each name there.
    pub prefix: &'static str,
    /// Also as `/dev/md/NAME`, where md's own devices have theirs.
    pub like_md: bool,
}

const LIKE_MD: &str = "/dev/md";

impl UblkLinks {
    /// The link to a volume's device.
    #[must_use]
    pub fn of(&self, volume: &str) -> PathBuf {
        self.dir.join(format!("{}{}", self.prefix, file_name(volume)))
    }

    fn like_md(&self, volume: &str) -> Option<PathBuf> {
        self.like_md.then(|| Path::new(LIKE_MD).join(file_name(volume)))
    }

    /// Makes the links of a volume's device, in the place of those that lead to no device.
    ///
    /// # Errors
    /// The link, and what is in the way.
    pub(super) fn make(&self, volume: &str, device: &Path) -> Result<(), (PathBuf, io::Error)> {
        for link in [Some(self.of(volume)), self.like_md(volume)].into_iter().flatten() {
            make(&link, device).map_err(|error| (link, error))?;
        }
        Ok(())
    }

    /// Removes the links of a volume's device that lead there.
    pub(super) fn remove(&self, volume: &str, device: &Path) {
        for link in [Some(self.of(volume)), self.like_md(volume)].into_iter().flatten() {
            if fs::read_link(&link).is_ok_and(|target| target == device) {
                // One that stays leads to no device, and is replaced by the next.
                let _ = fs::remove_file(link);
            }
        }
    }
}

fn make(link: &Path, device: &Path) -> io::Result<()> {
    if let Some(dir) = link.parent() {
        fs::create_dir_all(dir)?;
    }
    match fs::read_link(link) {
        Ok(target) if target == device => return Ok(()),
        // Of a device that is gone.
        Ok(target) if !target.exists() => fs::remove_file(link)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it leads to another device")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something else is there")),
    }
    symlink(device, link)
}

/// A volume's name as one of a file.
fn file_name(volume: &str) -> String {
    let safe = |c: char| if c == '/' || c.is_control() || c.is_whitespace() { '-' } else { c };
    let name: String = volume.chars().map(safe).collect();
    if name.starts_with('.') { format!("-{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_replace_what_leads_nowhere_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let links = UblkLinks { dir: dir.path().join("by-id"), prefix: "wattle-", like_md: false };
        let link = links.of("host:vg/my data");
        assert_eq!(link.file_name().unwrap(), "wattle-host:vg-my-data");
        let [first, second] = ["/dev/ublkb1007", "/dev/ublkb1008"].map(Path::new);
        for device in [first, second, second] {
            links.make("host:vg/my data", device).unwrap();
            assert_eq!(fs::read_link(&link).unwrap(), device);
        }
        links.remove("host:vg/my data", first);
        assert!(link.is_symlink(), "it leads elsewhere");
        links.remove("host:vg/my data", second);
        assert!(!link.is_symlink());
        fs::write(&link, "").unwrap();
        assert_eq!(links.make("host:vg/my data", first).unwrap_err().0, link);
        fs::remove_file(&link).unwrap();
        symlink("/dev/null", &link).unwrap();
        let (_, error) = links.make("host:vg/my data", first).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("/dev/null"));
        for (volume, name) in [("..", "wattle-.."), ("a/b", "wattle-a-b")] {
            assert!(links.of(volume).starts_with(&links.dir), "{volume}: {name}");
        }
    }
}
