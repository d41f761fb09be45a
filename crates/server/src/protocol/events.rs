//! What happened in a server, as values: a client that follows it asks for what is newer than what
//! it has, and the server answers when there is something.

use serde::{Deserialize, Serialize};

/// The longest time that a server lets a client wait for an event.
pub const EVENTS_WAIT_SECS_MAX: u64 = 60;

/// Events, and where a client goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsReport {
    /// The server's name.
    pub server: String,
    /// Its process.
    pub pid: u32,
    /// Of this run of the server. Sequence numbers of another epoch mean nothing.
    pub epoch: String,
    /// The number of the last event: to be given as `after` the next time.
    pub last: u64,
    /// Events that came after those that were asked for are not kept any more.
    #[serde(default)]
    pub lost: bool,
    /// The server is about to end, as it was told to.
    #[serde(default)]
    pub ending: bool,
    /// The events, the oldest first.
    pub events: Vec<FeedEvent>,
}

/// What kind of event it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedKind {
    /// A member failed.
    Failed,
    /// A member left its place.
    Left,
    /// A member or spare was removed by order.
    Removed,
    /// A member joined and is being filled.
    Joined,
    /// A spare was added.
    Spare,
    /// A member that was being filled is in sync.
    InSync,
    /// A member in sync took a slot.
    Took,
    /// A member's replacement took its slot.
    Replaced,
    /// A member became slow.
    Slow,
    /// A member is not slow any more.
    NotSlow,
    /// A member answers nothing, although something waits for it.
    Silent,
    /// It answers again.
    NotSilent,
    /// Reads of a member failed.
    ReadErrors,
    /// What is known of a member's bad blocks changed.
    BadBlocks,
    /// The operator had the bad blocks of a member repaired.
    BadBlocksRepaired,
    /// A member across a network was given up.
    RemoteAway,
    /// A member across a network is taken back.
    RemoteBack,
    /// Whether a member is write-mostly changed.
    WriteMostly,
    /// A member that was away is not taken back.
    StaysAway,
    /// Another server writes to the members, and this one writes nothing any more.
    Overtaken,
    /// A spare did not take an empty slot.
    SpareRefused,
    /// Partial parity logs were followed.
    LogsReplayed,
    /// Background work started.
    JobStarted,
    /// Background work ended.
    JobEnded,
    /// Background work was paused.
    JobPaused,
    /// Background work goes on.
    JobResumed,
    /// Parity and copies are known to agree everywhere.
    Synced,
    /// What the array is fit for changed.
    Health,
    /// A check or repair ended.
    Scrubbed,
    /// An order was not carried out to its end.
    OrderFailed,
    /// The array was stopped by order.
    Stopped,
    /// Something that a newer server tells.
    #[serde(other)]
    Unknown,
}

/// Something that happened to an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedEvent {
    /// Counts from 1 in each epoch.
    pub sequence: u64,
    /// When, RFC 3339.
    pub time: String,
    /// The array's name.
    pub array: String,
    /// Its UUID; absent without metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array_uuid: Option<String>,
    /// What.
    pub kind: FeedKind,
    /// The member that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Its slot, or the slot that it is a replacement for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u16>,
    /// It is a replacement.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replacement: bool,
    /// Why: of a failure `order`, `write`, `read`, `flush`, `log`, `bitmap`, `superblock`,
    /// `bad_blocks` or `silent`; of a refusal its code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Background work: `resync`, `recovery`, `check` or `repair`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Bad bytes of the member after the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bad bytes of the member before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_bytes: Option<u64>,
    /// In words, for people: programs read the other fields.
    pub text: String,
}
