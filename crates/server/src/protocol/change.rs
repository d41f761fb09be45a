//! Orders that change a volume group, and the report of such a change.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::undo::SavingOrder;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A new volume.
    Create {
        /// Its group and name.
        volume: String,
        /// Its size.
        extents: Extents,
        /// Over how many physical volumes.
        stripes: u16,
        /// How much of each before the next one's turn.
        stripe_bytes: u64,
    },
    /// A larger one.
    Extend {
        /// Its group and name.
        volume: String,
        /// Its size, or how much more.
        extents: Extents,
    },
    /// A smaller one.
    Reduce {
        /// Its group and name.
        volume: String,
        /// Its size, or how much less.
        extents: Extents,
    },
    /// One less.
    Remove {
        /// Its group and name.
        volume: String,
    },
    /// A volume under another name.
    Rename {
        /// Its group and name.
        volume: String,
        /// The new name.
        to: String,
    },
    /// What is said of a volume's use.
    Flags {
        /// Its group and name.
        volume: String,
        /// What is said from now on.
        flags: VolumeFlags,
    },
    /// A group under another name.
    GroupRename {
        /// Its name.
        group: String,
        /// The new name.
        to: String,
    },
    /// A group with more physical volumes.
    GroupExtend {
        /// Its name.
        group: String,
        /// What becomes physical volumes of it; a server opens what it does not have. None of them:
        /// everything that is given.
        devices: Vec<String>,
    },
    /// A group without one of its physical volumes, which [`Order::on`] names.
    GroupReduce {
        /// Its name.
        group: String,
    },
    /// One step of moving extents to other physical volumes; a client that wants all of them to
    /// move asks again.
    Move {
        /// A group, or its only volume that is meant.
        name: String,
        /// Off this physical volume.
        from: String,
        /// It is not the first step.
        begun: bool,
    },
}

/// That, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What is to be done.
    pub what: What,
    /// Only on these physical volumes.
    #[serde(default)]
    pub on: Vec<String>,
    /// To show and not to do.
    #[serde(default)]
    pub dry_run: bool,
    /// Where the text that is replaced goes, absolute: the server has another working directory.
    #[serde(default)]
    pub backup_dir: Option<PathBuf>,
    /// Checks to override.
    #[serde(default)]
    pub force: Vec<String>,
    /// Where what is overwritten is saved.
    #[serde(default)]
    pub undo: SavingOrder,
}

/// The size of a volume, as it was typed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extents {
    /// In bytes, rounded up to extents; with + or - how much more or less.
    pub size: Option<String>,
    /// In extents, or as a part of the group, of what is free in it, of physical volumes, or of the
    /// volume.
    pub extents: Option<String>,
}

/// What is said of a volume's use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeFlags {
    /// Whether it is written.
    pub permission: Option<Permission>,
    /// Whether it is left out unless it is named.
    pub setactivationskip: Option<bool>,
    /// Whether systems activate it when they start.
    pub setautoactivation: Option<bool>,
}

/// Whether a volume is written, as LVM2 has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// It is only read.
    R,
    /// It is read and written.
    Rw,
}

/// What was done, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeReport {
    /// Of the document.
    pub schema_version: u32,
    /// Nothing was written.
    pub dry_run: bool,
    /// The command.
    pub action: String,
    /// What came of it, for people.
    pub result: String,
    /// What moved, of a move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_bytes: Option<u64>,
    /// What is left to move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_bytes: Option<u64>,
    /// The group's name afterwards; absent if there is none.
    pub group: Option<String>,
    /// Its id.
    pub group_uuid: Option<String>,
    /// The group's sequence number afterwards.
    pub seqno: Option<u64>,
    /// The group's text afterwards.
    pub text: Option<String>,
    /// Where the text before is saved.
    pub backup: Option<String>,
    /// By which it is taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo_log: Option<String>,
    /// By which starts of arrays that were forced are taken back after that, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub start_undo_logs: Vec<String>,
    /// What is written.
    pub writes: Vec<ChangeWrite>,
    /// The commands of LVM2 that do the same.
    pub lvm_commands: Vec<String>,
    /// What to know.
    pub notes: Vec<String>,
}

/// A write to a physical volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeWrite {
    /// On which physical volume.
    pub physical_volume: String,
    /// What it is.
    pub what: String,
    /// Where.
    pub offset_bytes: u64,
    /// How much.
    pub len_bytes: u64,
}

impl ChangeReport {
    /// This and the step after it as one; `result` says what came of moving so many bytes.
    pub fn and(self, step: Self, result: impl FnOnce(u64) -> String) -> Self {
        let bytes = self.moved_bytes.unwrap_or(0).saturating_add(step.moved_bytes.unwrap_or(0));
        Self {
            result: result(bytes),
            moved_bytes: Some(bytes),
            // The text before the first step is the one to go back to.
            backup: self.backup,
            notes: [self.notes, step.notes].concat(),
            ..step
        }
    }
}
