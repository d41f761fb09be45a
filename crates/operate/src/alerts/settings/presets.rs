//! The forms in which known web servers take messages.

use super::WebhookPreset;

/// What a template can name.
pub const NAMES: &[&str] = &[
    "event",
    "severity",
    "title",
    "text",
    "what",
    "why",
    "next",
    "array",
    "array_uuid",
    "device",
    "member",
    "slot",
    "server",
    "host",
    "time",
    "id",
    "files",
    "over",
    "token",
    "priority",
    "alert_json",
    "alertmanager_json",
];

/// What is sent if a webhook has neither a preset nor a body: everything.
pub const ANY: &str = "${alert_json}";

/// A form.
pub struct WebhookForm {
    /// Where it goes, if that is always the same.
    pub url: Option<&'static str>,
    pub body: String,
    pub content_type: &'static str,
    pub headers: Vec<(&'static str, &'static str)>,
}

const ALL: [(&str, WebhookPreset); 6] = [
    ("ntfy", WebhookPreset::Ntfy),
    ("gotify", WebhookPreset::Gotify),
    ("slack", WebhookPreset::Slack),
    ("discord", WebhookPreset::Discord),
    ("telegram", WebhookPreset::Telegram),
    ("alertmanager", WebhookPreset::Alertmanager),
];

/// The preset of this name.
pub fn find(name: &str) -> Option<WebhookPreset> {
    ALL.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, preset)| preset)
}

/// Its name.
pub fn name(preset: WebhookPreset) -> &'static str {
    ALL.into_iter().find(|(_, known)| *known == preset).map_or("webhook", |(name, _)| name)
}

/// The address of the one thing that is asked of such a server, from the server's own.
pub fn completed(preset: Option<WebhookPreset>, url: &str) -> String {
    let base = url.trim_end_matches('/');
    let end = match preset {
        Some(WebhookPreset::Gotify) => "/message",
        Some(WebhookPreset::Alertmanager) => "/api/v2/alerts",
        Some(WebhookPreset::Telegram) => "/bot${token}/sendMessage",
        _ => return url.to_owned(),
    };
    if base.ends_with(end) { base.to_owned() } else { format!("{base}{end}") }
}

/// The form of a preset.
pub fn form(preset: WebhookPreset, chat: Option<&str>) -> WebhookForm {
    let json = |body: &str| WebhookForm {
        url: None,
        body: body.to_owned(),
        content_type: "application/json",
        headers: Vec::new(),
    };
    match preset {
        WebhookPreset::Ntfy => WebhookForm {
            url: None,
            body: "${text}".to_owned(),
            content_type: "text/plain; charset=utf-8",
            headers: vec![("Title", "${title}"), ("Priority", "${priority}"), ("Tags", "${severity}")],
        },
        WebhookPreset::Gotify => WebhookForm {
            headers: vec![("X-Gotify-Key", "${token}")],
            ..json(r#"{"title":"${title}","message":"${text}","priority":${priority}}"#)
        },
        WebhookPreset::Slack => json(r#"{"text":"*${title}*\n${text}"}"#),
        WebhookPreset::Discord => {
            json(r#"{"content":"**${title}**\n${text}","allowed_mentions":{"parse":[]}}"#)
        }
        WebhookPreset::Telegram => {
            let chat = serde_json::Value::from(chat.unwrap_or_default());
            let body =
                r#"{"chat_id":CHAT,"text":"${title}\n${text}","link_preview_options":{"is_disabled":true}}"#;
            WebhookForm {
                url: Some("https://api.telegram.org/bot${token}/sendMessage"),
                ..json(&body.replace("CHAT", &chat.to_string()))
            }
        }
        WebhookPreset::Alertmanager => json("${alertmanager_json}"),
    }
}
