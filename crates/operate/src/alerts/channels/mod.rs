//! How a notification reaches a receiver: mail, a program, a web server.
//!
//! A channel says what became of an attempt; when it is tried again is decided by its caller.

mod mail;
mod message;
mod program;
mod webhook;

use super::settings::{ChannelSettings, ChannelWay};
use super::state::Notification;
pub use message::{MessageSender, value};

/// What became of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// The receiver took it.
    Arrived,
    /// The receiver cannot be reached or cannot take anything now: nothing else is tried either.
    Down(String),
    /// The receiver failed: whether with this one alone, or with all, it does not say.
    Failed(String),
    /// The receiver does not take this one.
    Refused(String),
}

/// Sends a notification through a channel, and waits for what becomes of it.
#[must_use]
pub fn deliver(channel: &ChannelSettings, notification: &Notification, sender: &MessageSender) -> Delivery {
    match &channel.way {
        ChannelWay::Mail(mail) => mail::send(mail, notification, sender, channel.time_max),
        ChannelWay::Program(path) => program::run(path, notification, sender, channel.time_max),
        ChannelWay::Webhook(hook) => webhook::post(hook, notification, sender, channel.time_max),
    }
}
