//! What has to be told, what was told, and the channels that it goes through.
//!
//! [`rules`] decides, as pure functions of what servers report. [`journal`] keeps what was decided
//! and what each channel is owed. [`channels`] deliver. [`settings`] is what an operator wrote.
//! [`watch`] follows all servers of a runtime directory and brings the others together.
//!
//! **Invariants.**
//! 1. What a channel is owed is durable before it is sent, and is owed until the receiver took it.
//! 2. A notification that the receiver took is not sent to it again, except if this process ends
//!    between the receiver's answer and the record of it; its number is the same then.
//! 3. A channel that is slow or down holds back no other, and no look at a server.

mod beside;
pub mod channels;
pub mod journal;
pub mod kind;
pub mod rules;
pub mod settings;
pub mod state;
mod summary;
pub mod watch;

pub use beside::wall_secs;
pub use summary::{AlertsSummary, summary};
