//! A request to a web server.

use std::time::Duration;

use super::message::value;
use super::{Delivery, MessageSender};
use crate::alerts::settings::{WebhookPreset, WebhookSettings};
use crate::alerts::state::Notification;
use crate::http::tls::TlsRoots;
use crate::http::{HttpCall, Method, call_blocking};

/// Of what a server answers to what it refuses.
const SAID_CHARS_MAX: usize = 200;

/// Posts it once.
pub fn post(
    hook: &WebhookSettings,
    notification: &Notification,
    sender: &MessageSender,
    time_max: Duration,
) -> Delivery {
    let token = match hook.token() {
        Ok(token) => token.unwrap_or_default(),
        Err(problem) => return Delivery::Down(format!("{}: {}", problem.what, problem.why)),
    };
    let value = |name: &str| match name {
        "token" => token.clone(),
        name => escaped(hook.preset, name, value(name, notification, sender)),
    };
    let mut call = HttpCall::new(Method::POST, hook.url.fill(value));
    call.time_max = time_max;
    call.headers.push(("Content-Type".to_owned(), hook.content_type.clone()));
    // For receivers that want to see each once.
    call.headers.push(("Idempotency-Key".to_owned(), sender.id_of(notification)));
    call.headers.extend(hook.headers.iter().map(|(name, header)| (name.clone(), header.fill(value))));
    call.body = hook.body.fill(value).into_bytes();
    if let Some(path) = &hook.ca_file {
        call.roots = TlsRoots::File(path.clone());
    }
    match call_blocking(call) {
        Ok(answer) if answer.is_success() => Delivery::Arrived,
        Ok(answer) => {
            let said = said(&answer.body, &token);
            let why = format!("the server answered {} {}", answer.status, said.trim());
            match answer.status {
                // Too many at once, or too slow: later it may take it.
                408 | 425 | 429 => Delivery::Down(why),
                300..=499 => Delivery::Refused(why),
                _ => Delivery::Down(why),
            }
        }
        Err(error) => Delivery::Down(error.to_string()),
    }
}

/// The first of what a server answered, without the token, also not a part of it.
fn said(body: &[u8], token: &str) -> String {
    let all = String::from_utf8_lossy(body);
    let clean = if token.is_empty() { all.into_owned() } else { all.replace(token, "TOKEN") };
    clean.chars().take(SAID_CHARS_MAX).collect()
}

/// What a server takes for more than text is escaped as it has it.
fn escaped(preset: Option<WebhookPreset>, name: &str, value: String) -> String {
    match preset {
        Some(WebhookPreset::Slack) if !name.ends_with("_json") => {
            value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
        }
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_token_is_shown_wherever_it_stands() {
        for before in [0, 150, 190, 195, 199] {
            let body = format!("{}tk_SECRET and more", "x".repeat(before));
            let said = said(body.as_bytes(), "tk_SECRET");
            assert!(!said.contains("tk_") && said.chars().count() <= SAID_CHARS_MAX, "{before}: {said}");
        }
    }
}
