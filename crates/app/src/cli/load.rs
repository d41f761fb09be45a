//! Loads in fio's terms: the same options, with the same meaning.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use wattle_modelled::Rw;

use super::Size;

/// What clients ask for.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load (fio's options; direct is implied)")]
pub struct LoadArgs {
    /// read, write, rw, randread, randwrite or randrw.
    #[arg(long, value_name = "WHAT", default_value = "randwrite")]
    pub rw: Rw,
    /// Bytes of a request, a multiple of 512.
    #[arg(long, value_name = "SIZE", default_value = "4k")]
    pub bs: Size,
    /// Requests that each job has in flight.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub iodepth: u32,
    /// Jobs, side by side.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub numjobs: u32,
    /// Of a hundred requests of rw and randrw, so many are reads.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub rwmixread: u32,
    /// Bytes of a job's part of the array [default: to its end].
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Size>,
    /// Where the first job's part starts.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub offset: Size,
    /// How much further on each next job's part starts.
    #[arg(long, alias = "offset_increment", value_name = "SIZE", default_value = "0")]
    pub offset_increment: Size,
    /// Go anywhere each time, instead of to each block once before any comes again.
    #[arg(long, value_parser = BoolishValueParser::new(), num_args = 0..=1, require_equals = true,
          default_missing_value = "true", default_value = "false", hide_possible_values = true, hide_default_value = true)]
    pub norandommap: bool,
    /// A flush after so many writes of a job; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub fsync: u64,
    /// Time before anything is counted [default: until the load is steady].
    #[arg(long, alias = "ramp_time", value_name = "TIME")]
    pub ramp_time: Option<TimeArg>,
    /// Time in which requests are counted [default: until some ten thousand were].
    #[arg(long, value_name = "TIME")]
    pub runtime: Option<TimeArg>,
    /// Where chance comes from: the same seed gives the same digits.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub randseed: u64,
}

/// A time as fio takes it: `10` and `10s` are seconds; us, ms, m and h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeArg(pub Duration);

/// Not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a whole number above 0 with us, ms, s, m or h, at most a day; a number alone counts seconds"
)]
pub struct TimeError;

impl FromStr for TimeArg {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        const DAY: Duration = Duration::from_secs(86_400);
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, suffix) = text.split_at(digits);
        let unit = match suffix {
            "us" => Duration::from_micros(1),
            "ms" => Duration::from_millis(1),
            "" | "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            _ => return Err(TimeError),
        };
        let time = number.parse().ok().and_then(|number: u32| unit.checked_mul(number));
        time.filter(|time| (Duration::from_micros(1)..=DAY).contains(time)).map(TimeArg).ok_or(TimeError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_fio() {
        for (text, micros) in
            [("10", 10_000_000), ("3s", 3_000_000), ("20ms", 20_000), ("7us", 7), ("2m", 120_000_000)]
        {
            assert_eq!(text.parse(), Ok(TimeArg(Duration::from_micros(micros))));
        }
        for text in ["", "0", "-1", "1.5", "25h", "s", "10 s", "4294967296"] {
            assert_eq!(text.parse::<TimeArg>(), Err(TimeError), "{text}");
        }
    }
}
