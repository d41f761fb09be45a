//! Where a server saves what an order overwrites.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What an order to a server says of saving what it overwrites.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavingOrder {
    /// What was typed.
    #[serde(default)]
    pub command: String,
    /// Another directory than the server's own, absolute: the server has another working directory.
    #[serde(default)]
    pub dir: Option<PathBuf>,
    /// Save nothing.
    #[serde(default)]
    pub no_undo: bool,
}
