//! The shape of `wattle why --json`, which is also what a server answers.

use serde::{Deserialize, Serialize};

/// Why an array is as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyReport {
    /// Its name.
    pub array: String,
    /// Its UUID; absent without metadata.
    pub uuid: Option<String>,
    /// About the array first, then about each member.
    pub decisions: Vec<DecisionReport>,
}

/// A decision and what led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionReport {
    /// The member that it is about; absent for the array.
    pub member: Option<String>,
    /// What was decided.
    pub what: String,
    /// Why, with the event counts and times that it rests on.
    pub why: String,
    /// The one command, or the one thing to do, that helps; absent where nothing has to be done.
    pub next: Option<String>,
}
