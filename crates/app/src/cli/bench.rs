//! `wattle bench`.

use clap::Args;

use super::load::{LoadArgs, TimeArg};
use super::{Engine, Force, Json, MadeUp, MapArgs, Runtime, name_text};

/// Measures what an array does in real time, with fio's options, beside what the processor does
/// meanwhile.
///
/// Runs until the load is steady and says whether it was, then measures in rounds, and between them
/// a loop that updates parity in the cache, or for whole stripes in sequence one that makes parity
/// in memory: figures of a noisy machine are worth what their ratio to such a yardstick is. Members
/// are claimed as `serve` claims them; an array that is being served is measured by its name, as
/// its clients have it, with a connection for each job. A load that writes goes over whatever the
/// array holds, and is refused unless that is said to be wanted.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  wattle bench /dev/sd[b-f] --rw randread --bs 4k --iodepth 64
  wattle bench null:64G null:64G null:64G null:64G --level 5 --rw randwrite --iodepth 128 --cores 1
  wattle bench model:x25m model:x25m model:x25m --level 5 --rw randwrite --iodepth 248
  wattle bench data --rw randread --iodepth 32 --numjobs 4              an array that is being served
  wattle bench a b c d --rw write --bs 1m --iodepth 8 --force overwrite --json")]
pub struct BenchArgs {
    /// Files, block devices, made-up drives; or the name or UUID of an array that is served.
    #[arg(value_name = "NAME|MEMBER", required = true, value_parser = name_text())]
    pub members: Vec<String>,
    /// The array, by name or UUID, if there are several.
    #[arg(long, short = 'V', value_name = "VOLUME", conflicts_with = "level")]
    pub volume: Option<String>,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub load: LoadArgs,
    /// So many rounds, each followed by the yardstick.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// How long to wait at most for the load to become steady [default: 30s; not at all with
    /// --runtime, as in fio].
    #[arg(long, value_name = "TIME")]
    pub steady_within: Option<TimeArg>,
    #[command(flatten)]
    pub made_up: MadeUp,
    #[command(flatten)]
    pub force: Force,
    #[command(flatten)]
    pub engine: Engine,
    #[command(flatten)]
    pub runtime: Runtime,
    #[command(flatten)]
    pub json: Json,
}
