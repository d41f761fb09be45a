//! `wattle set`: settings of an array or volume that is being served.

use std::collections::BTreeMap;

use serde::Serialize;
use wattle_control::Problem;
use wattle_engine::volume::qos::QosLimits;
use wattle_server::protocol::{SCHEMA_VERSION, ServerRequest};
use wattle_server::socket::RuntimeDir;
use wattle_server::socket::client::{Servers, request};
use wattle_server::{qos, settings};

use super::order_report::OrderReport;
use crate::cli::SetArgs;
use crate::environment::runtime_dir;
use crate::output::{self, text::table};
use crate::target::ServedTarget;

#[derive(Serialize)]
struct Settings {
    schema_version: u32,
    settings: BTreeMap<String, String>,
}

/// # Errors
/// No such array or setting, or the value makes no sense; those before it are set.
pub fn run(args: &SetArgs) -> Result<(), Problem> {
    let pairs = settings::parse_all(&args.settings)?;
    let runtime = args.runtime.runtime_dir.as_deref();
    if pairs.is_empty() {
        let settings = current(&runtime_dir(runtime), &args.name)?;
        return match args.json.json {
            true => output::print_json(&Settings { schema_version: SCHEMA_VERSION, settings }),
            false => output::print_fitted(&show(settings.iter())),
        };
    }
    let of_volumes = pairs.iter().all(|(key, _)| qos::is_key(settings::parts(key).1));
    let (socket, array) = match of_volumes {
        // A volume need not lie on an array, and may lie on several.
        true => {
            let dir = runtime_dir(runtime);
            (Servers::ask(&dir).meant(&dir, &args.name)?.socket.to_owned(), args.name.clone())
        }
        false => {
            let target = ServedTarget::find(runtime, &args.name)?;
            (target.socket().to_owned(), target.id().to_owned())
        }
    };
    let mut report = OrderReport::new();
    for (key, value) in pairs {
        let array = if qos::is_key(settings::parts(key).1) { &args.name } else { &array }.clone();
        let set = ServerRequest::Set { array, key: key.to_owned(), value: value.to_owned() };
        report.answer(request(&socket, &set)?);
    }
    report.finish(&args.json)
}

/// The settings of the array of a name, or that it lies on, and those of the volume of that name.
fn current(dir: &RuntimeDir, name: &str) -> Result<BTreeMap<String, String>, Problem> {
    let servers = Servers::ask(dir);
    let meant = servers.meant(dir, name)?;
    let (server, mut settings) = (meant.server, BTreeMap::new());
    let volume = match (&meant.arrays[..], &meant.volumes[..]) {
        (_, [volume]) => Some(volume.name.as_str()),
        // Without layers what is offered is the array.
        ([array], _) if server.volumes.is_empty() || server.volumes.iter().any(|v| v.name == array.name) => {
            Some(array.name.as_str())
        }
        _ => None,
    };
    match (&meant.arrays[..], volume) {
        ([array], _) => settings.extend(array.settings.clone()),
        (_, Some(_)) => {}
        // Says what to name instead.
        _ => drop(servers.find(dir, name)?),
    }
    if let Some(volume) = volume {
        let set = server.qos.iter().find(|qos| qos.volume == volume).map(|qos| qos.settings.clone());
        settings.extend(set.unwrap_or_else(|| qos::shown(&QosLimits::default())));
    }
    Ok(settings)
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
