//! Extended attributes, where they are asked for (`--xattrs`): access control lists, labels and
//! capabilities are among them. They are given after owner and permissions, which take some of them
//! away, and before a file has its name.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{XattrFlags, fsetxattr};
use wattle_fs::{FileMetadata, FsNode};

use super::Extraction;
use crate::commands::files::place::OutputDirectory;
use crate::commands::files::shown;

impl Extraction<'_> {
    /// Gives what is open its extended attributes, if they are to come out.
    pub(super) fn attach(&self, to: &impl AsFd, node: FsNode) {
        self.attach_by(node, &|name, value| Ok(fsetxattr(to, name, value, XattrFlags::empty())?));
    }

    /// Gives a link or a pipe that was just made all that it is to have.
    pub(super) fn dress_name(
        &self,
        place: &OutputDirectory,
        name: &[u8],
        node: FsNode,
        metadata: &FileMetadata,
    ) -> io::Result<()> {
        let made = place.dress_name(name, metadata, self.owner)?;
        self.attach_by(node, &|name, value| made.attach(name, value));
        Ok(())
    }

    fn attach_by(&self, node: FsNode, set: &dyn Fn(&OsStr, &[u8]) -> io::Result<()>) {
        if !self.wanted.attributes {
            return;
        }
        let fs = &self.opened.fs;
        let left = match fs.attributes(node) {
            Err(error) => vec![format!("(cannot be read: {error})")],
            Ok(names) => {
                let attach = |name: Vec<u8>| {
                    let why = match fs.attribute(node, &name) {
                        Err(error) => error.to_string(),
                        Ok(value) => set(OsStr::from_bytes(&name), &value).err()?.to_string(),
                    };
                    Some(format!("{} ({why})", shown(&name)))
                };
                names.into_iter().filter_map(attach).collect()
            }
        };
        let mut all = self.attributes_left.borrow_mut();
        match left.is_empty() {
            true => _ = all.remove(&node),
            false => _ = all.insert(node, left),
        }
    }

    /// The extended attributes that something came out without.
    pub(super) fn attributes_lost(&self, node: FsNode) -> Vec<String> {
        match self.wanted.attributes {
            true => self.attributes_left.borrow().get(&node).cloned().unwrap_or_default(),
            false => self.opened.attributes_of(node),
        }
    }
}
