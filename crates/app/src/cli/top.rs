//! `wattle top`.

use std::time::Duration;

use clap::Args;

use super::{Json, Runtime};

/// Shows what the arrays being served do, refreshed until Ctrl-C: rates, latencies, queues, plans,
/// and what is the limit.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle top
  wattle top data --interval 5
  wattle top --json --count 1 | jq '.arrays[].limited_by[0]'")]
pub struct TopArgs {
    /// The array, volume group, volume or server, by name or UUID [default: all].
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    pub interval: Duration,
    /// Ends after so many refreshes.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    #[command(flatten)]
    pub json: Json,
    #[command(flatten)]
    pub runtime: Runtime,
}

/// From what was typed.
///
/// # Errors
/// It is no time that a command could wait.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 =
        text.trim_end_matches('s').parse().map_err(|_| "a number of seconds, such as 0.5".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("between 0.1 and 3600 seconds".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_sensible() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_seconds("2s"), Ok(Duration::from_secs(2)));
        assert!(parse_seconds("0").is_err() && parse_seconds("x").is_err() && parse_seconds("nan").is_err());
    }
}
