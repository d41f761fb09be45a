//! Extended attributes that are to come out (`--xattrs`), and what becomes of those that do not.
//!
//! One that cannot be read is lost, and that is a failure, whatever the output is: the file came
//! out whole, and is listed with the attribute. One that cannot be given where the file goes, or by
//! this user, is listed.

use wattle_fs::FsNode;

use crate::commands::files::{Failure, Opened, shown};

/// Extended attributes that something came out without.
#[derive(Debug, Clone, Default)]
pub struct AttributesLeft {
    /// All of them, each with the reason.
    pub all: Vec<String>,
    /// Those of them that are lost.
    lost: Vec<String>,
}

impl AttributesLeft {
    /// Of something whose attributes were not asked for: all that it has.
    pub fn not_asked_for(opened: &Opened, node: FsNode) -> Self {
        Self { all: opened.attributes_of(node), lost: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// One that cannot be given there, or by this user.
    pub fn not_given(&mut self, name: &[u8], why: &dyn std::fmt::Display) {
        self.all.push(format!("{} ({why})", shown(name)));
    }

    /// One that does not come out anywhere.
    pub fn lost(&mut self, name: &[u8], why: &dyn std::fmt::Display) {
        self.not_given(name, why);
        self.lost.extend(self.all.last().cloned());
    }

    /// The failure that those are which are lost, of what came out at that path.
    pub fn failure(&self, path: &[u8]) -> Option<Failure> {
        let reason = || format!("without extended attributes: {}", self.lost.join("; "));
        (!self.lost.is_empty()).then(|| Failure::new(path, reason()).of_whole())
    }
}

/// The name and the value of one.
pub type NamedValue = (Vec<u8>, Vec<u8>);

/// All that can be read, and those that cannot.
pub fn read(opened: &Opened, node: FsNode) -> (Vec<NamedValue>, AttributesLeft) {
    let (mut read, mut left) = (Vec::new(), AttributesLeft::default());
    match opened.fs.attributes(node) {
        Err(error) => left.lost(b"all of them", &error),
        Ok(names) => {
            for name in names {
                match opened.fs.attribute(node, &name) {
                    Ok(value) => read.push((name, value)),
                    Err(error) => left.lost(&name, &error),
                }
            }
        }
    }
    (read, left)
}
