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
use crate::commands::files::get::attributes::{self, AttributesLeft};
use crate::commands::files::place::OutputDirectory;

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
        let (read, mut left) = attributes::read(self.opened, node);
        for (name, value) in read {
            if let Err(error) = set(OsStr::from_bytes(&name), &value) {
                left.not_given(&name, &error);
            }
        }
        let mut all = self.attributes_left.borrow_mut();
        match left.is_empty() {
            true => _ = all.remove(&node),
            false => _ = all.insert(node, left),
        }
    }

    /// The extended attributes that something came out without.
    pub(super) fn attributes_left(&self, node: FsNode) -> AttributesLeft {
        match self.wanted.attributes {
            true => self.attributes_left.borrow().get(&node).cloned().unwrap_or_default(),
            false => AttributesLeft::not_asked_for(self.opened, node),
        }
    }
}
