//! What came out into a directory in this run, which nothing that follows replaces.
//!
//! A damaged directory may have a name twice, and a file system that files go to may take two names
//! for one: exFAT, NTFS and others do not tell small letters from capitals. The second file would
//! take the place of the first.

use std::collections::{BTreeMap, BTreeSet};

use rustix::fs::{FileType, Stat};

/// What came out into one directory.
#[derive(Debug, Default)]
pub struct CameOut {
    /// By device and inode, whatever is one name there.
    inodes: BTreeSet<(u64, u64)>,
    /// Names, by their letters without capitals: exFAT and FAT number a file anew once it is not in
    /// memory any more, and over FUSE each way of writing a name may have a number of its own.
    names: BTreeMap<String, Vec<Vec<u8>>>,
}

/// Whether what has a name came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HasComeOut {
    Yes,
    No,
    /// It did unless the directory has an entry with exactly this name: then that is another one.
    UnlessListed,
}

fn without_capitals(name: &[u8]) -> String {
    // Some small letters are the same only as capitals.
    String::from_utf8_lossy(name).to_uppercase().to_lowercase()
}

impl CameOut {
    /// Notes what has a name now.
    pub fn note(&mut self, name: &[u8], found: &Stat) {
        self.inodes.insert((found.st_dev, found.st_ino));
        self.names.entry(without_capitals(name)).or_default().push(name.to_vec());
    }

    /// Whether what is found under a name came out.
    pub fn has(&self, name: &[u8], found: &Stat) -> HasComeOut {
        let alike = self.names.get(&without_capitals(name));
        if alike.is_some_and(|names| names.iter().any(|other| other == name)) {
            return HasComeOut::Yes;
        }
        let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        match self.inodes.contains(&(found.st_dev, found.st_ino)) {
            true if is_directory || found.st_nlink == 1 => HasComeOut::Yes,
            false if alike.is_none() => HasComeOut::No,
            // A former run may have made a link of it.
            _ => HasComeOut::UnlessListed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_capitals_may_be_one() {
        let dir = tempfile::tempdir().unwrap();
        let stat = |name: &str| {
            std::fs::write(dir.path().join(name), "").unwrap();
            rustix::fs::lstat(dir.path().join(name)).unwrap()
        };
        let (one, other) = (stat("one"), stat("other"));
        let mut came_out = CameOut::default();
        assert_eq!(came_out.has(b"Makefile", &one), HasComeOut::No);
        came_out.note(b"Makefile", &one);
        assert_eq!(came_out.has(b"Makefile", &other), HasComeOut::Yes, "numbered anew");
        assert_eq!(came_out.has(b"makefile", &one), HasComeOut::Yes);
        assert_eq!(came_out.has(b"makefile", &other), HasComeOut::UnlessListed);
        assert_eq!(came_out.has(b"other", &one), HasComeOut::Yes, "one name by other rules");
        assert_eq!(came_out.has(b"other", &other), HasComeOut::No);
        std::fs::hard_link(dir.path().join("one"), dir.path().join("link")).unwrap();
        let link = rustix::fs::lstat(dir.path().join("link")).unwrap();
        assert_eq!(came_out.has(b"link", &link), HasComeOut::UnlessListed);
    }
}
