//! `wattle set`: settings of an array that is being served.

use std::collections::BTreeMap;

use serde::Serialize;
use wattle_control::Problem;
use wattle_server::protocol::{SCHEMA_VERSION, ServerRequest};
use wattle_server::settings;
use wattle_server::socket::client::request;

use super::order_report::OrderReport;
use crate::cli::SetArgs;
use crate::output::{self, text::table};
use crate::target::ServedTarget;

#[derive(Serialize)]
struct Settings<'a> {
    schema_version: u32,
    settings: &'a BTreeMap<String, String>,
}

/// # Errors
/// No such array or setting, or the value makes no sense; those before it are set.
pub fn run(args: &SetArgs) -> Result<(), Problem> {
    let pairs = settings::parse_all(&args.settings)?;
    let target = ServedTarget::find(args.runtime.runtime_dir.as_deref(), &args.name)?;
    if pairs.is_empty() && args.json.json {
        return output::print_json(&Settings {
            schema_version: SCHEMA_VERSION,
            settings: &target.array().settings,
        });
    }
    if pairs.is_empty() {
        return output::print(&show(target.array().settings.iter()));
    }
    let mut report = OrderReport::new();
    for (key, value) in pairs {
        let set =
            ServerRequest::Set { array: args.name.clone(), key: key.to_owned(), value: value.to_owned() };
        report.answer(request(target.socket(), &set)?);
    }
    report.finish(&args.json)
}

/// `key=value`, as it can be typed, and what it is for.
fn show<'a>(current: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    let rows = current.map(|(key, value)| {
        let known = settings::KEYS.iter().find(|(name, ..)| name == key);
        let about = known.map_or(String::new(), |(_, values, about)| format!("{about} ({values})"));
        vec![format!("{key}={value}"), about]
    });
    table("", &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_shown_as_they_are_typed() {
        let current = std::collections::BTreeMap::from([("sync_speed_max".to_owned(), "none".to_owned())]);
        assert!(show(current.iter()).starts_with("sync_speed_max=none  background work takes at most "));
    }
}
