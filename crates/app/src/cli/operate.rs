//! What is asked of an array that is being served: `wattle stop`, `fail`, `remove`, `add`,
//! `replace`, `check`, `repair`, `set`.

use clap::Args;

use super::{Force, Json, MapArgs, Runtime, SavingArgs, name_text};

/// Stops an array that is being served.
///
/// Finishes what is in flight, flushes, records it clean. The last array ends its server. One with
/// volume groups, partitions or drives as they are stops as a whole: name an array that everything
/// there lies on or below, or the server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle stop data
  wattle stop --server data                     everything that this server has")]
pub struct StopArgs {
    /// The array, volume group, volume or server, by name or UUID.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// NAME is a server, whatever else is called so, and all of it is stopped.
    #[arg(long)]
    pub server: bool,
    #[command(flatten)]
    pub runtime: Runtime,
    #[command(flatten)]
    pub json: Json,
}

/// Fails a member of an array that is being served.
///
/// As if its drive had failed: the others record it, and the array goes on without it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle fail data disk2.img
  wattle fail data 2                            by slot")]
pub struct FailArgs {
    /// The array, by name or UUID.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The member, by its path as `wattle status` shows it, its file name, or its slot.
    #[arg(value_name = "MEMBER", value_parser = name_text())]
    pub member: String,
    #[command(flatten)]
    pub runtime: Runtime,
    #[command(flatten)]
    pub json: Json,
}

/// Lets go of a member that failed, of a spare, or of one that waits to come back.
///
/// Its file or device is free when the command returns.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle fail data disk2.img && wattle remove data disk2.img")]
pub struct RemoveArgs {
    /// The array, by name or UUID.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The member, by its path as `wattle status` shows it, its file name, or its slot.
    #[arg(value_name = "MEMBER", value_parser = name_text())]
    pub member: String,
    #[command(flatten)]
    pub runtime: Runtime,
    #[command(flatten)]
    pub json: Json,
}

/// Adds a member to an array that is being served.
///
/// One that was away is taken back and brought up to date where its bitmap says so; a new one is
/// filled in the place of one that is missing; if none is missing it becomes a spare. What tells
/// what was on it, its first and last MiB, is saved first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle add data disk5.img
  wattle add data /dev/sdf --wait               returns when it is in sync")]
pub struct AddArgs {
    /// The array, by name or UUID.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// A file, a block device or an NBD URI.
    #[arg(value_name = "MEMBER", value_parser = name_text())]
    pub member: String,
    /// Of copies: read it only where no other one can be read.
    #[arg(long)]
    pub write_mostly: bool,
    /// Wait until it is in sync.
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub saving: SavingArgs,
    #[command(flatten)]
    pub force: Force,
    #[command(flatten)]
    pub runtime: Runtime,
    #[command(flatten)]
    pub json: Json,
}

/// Replaces a member while it still works: redundancy is kept all the time.
///
/// The new member is filled from the old one where that can be read and takes its slot; the old one
/// then counts as failed and can be removed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle replace data disk2.img disk6.img
  wattle replace data /dev/sdc                  with a spare of the array")]
pub struct ReplaceArgs {
    /// The array, by name or UUID.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The member, by its path as `wattle status` shows it, its file name, or its slot.
    #[arg(value_name = "MEMBER", value_parser = name_text())]
    pub member: String,
    /// The new file or block device [default: a spare of the array].
    #[arg(value_name = "NEW", value_parser = name_text())]
    pub new: Option<String>,
    /// The same, as in mdadm.
    #[arg(long, value_name = "NEW", conflicts_with = "new", value_parser = name_text())]
    pub with: Option<String>,
    /// Wait until it is done.
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub saving: SavingArgs,
    #[command(flatten)]
    pub force: Force,
    #[command(flatten)]
    pub runtime: Runtime,
    #[command(flatten)]
    pub json: Json,
}

/// Compares parity or copies with the data, everywhere, and tells where they do not agree.
///
/// Reads, and writes nothing, except what it finds that cannot be read and redundancy can give.
/// What it found stays in `wattle status`. With --wait the exit status is 1 if anything did not
/// agree.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle check data
  wattle check data --wait || wattle status data
  wattle check data --record                    the next one knows what rotted
  wattle check data --abort")]
pub struct CheckArgs {
    /// The array, by name or UUID.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Only what the bad-block log of this member lists: read and written anew from redundancy, and
    /// taken off the log.
    #[arg(long, value_name = "MEMBER", conflicts_with_all = ["wait", "abort", "pause", "resume"],
          value_parser = name_text())]
    pub bad_blocks: Option<String>,
    /// Record what every member holds: the next check tells which of them rotted silently, and
    /// `repair --source record` makes that anew. What redundancy agrees on is taken for right.
    #[arg(long, conflicts_with_all = ["bad_blocks", "abort", "pause", "resume"])]
    pub record: bool,
    #[command(flatten)]
    pub scrub: Scrub,
    #[command(flatten)]
    pub runtime: Runtime,
}

/// Makes parity or copies agree again, from a source that is stated.
///
/// --source data: the data is right, and parity is made to fit it (RAID 4, 5, 6). --source proof:
/// on RAID 6, the one member that P and Q prove wrong is made anew from the others. --source
/// MEMBER: on mirrors, this member's copy goes to the others; --source majority: what more than
/// half of the copies say. --source record: what the last scrub with --record found; only what
/// that proves is written.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle repair data --source data              parity from data
  wattle repair data --source proof --wait      RAID 6: the member that is proved wrong
  wattle repair mirror --source disk1.img       this member's copy
  wattle repair data --source record --wait     what rotted since the last record")]
pub struct RepairArgs {
    /// The array, by name or UUID.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What is right where they do not agree: data, proof, majority, record, or a member of a
    /// mirror.
    #[arg(long, value_name = "SOURCE", value_parser = name_text())]
    pub source: Option<String>,
    /// With --source record: record anew on the way.
    #[arg(long, conflicts_with_all = ["abort", "pause", "resume"])]
    pub record: bool,
    #[command(flatten)]
    pub scrub: Scrub,
    #[command(flatten)]
    pub runtime: Runtime,
}

/// What else `check` and `repair` do.
#[derive(Debug, Args)]
pub struct Scrub {
    /// Wait for its end.
    #[arg(long)]
    pub wait: bool,
    /// End the one that runs.
    #[arg(long, conflicts_with_all = ["wait", "pause", "resume"])]
    pub abort: bool,
    /// Hold background work.
    #[arg(long, conflicts_with_all = ["wait", "resume"])]
    pub pause: bool,
    /// Let background work go on.
    #[arg(long, conflicts_with = "wait")]
    pub resume: bool,
    #[command(flatten)]
    pub json: Json,
}

/// Notes from now on which parts of a volume that is being served change, for backups of what
/// changed; without a name it lists what is noted.
///
/// NBD clients read what changed since a checkpoint as the metadata context
/// qemu:dirty-bitmap:CHECKPOINT. It is kept in memory: where the server has ended it is gone, and
/// the next backup is one of everything.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle checkpoint data monday                 what changes from now on is noted
  wattle checkpoint data                        what there is, and how much has changed since
  wattle checkpoint data monday --remove")]
pub struct CheckpointArgs {
    /// The volume, by name.
    #[arg(value_name = "VOLUME")]
    pub volume: String,
    /// The checkpoint.
    #[arg(value_name = "CHECKPOINT")]
    pub name: Option<String>,
    /// Give it up.
    #[arg(long, requires = "name")]
    pub remove: bool,
    #[command(flatten)]
    pub runtime: Runtime,
    #[command(flatten)]
    pub json: Json,
}

/// Shows what NVMe hosts have registered and reserved of a volume that is being served, or clears
/// it.
///
/// A host that died with a reservation keeps others out. Before it is cleared, see that the host
/// cannot come back in the middle of what it did: it may then write again, like any other.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle reservations data                      the hosts that are registered, and what is held
  wattle reservations data --clear              none is registered, and nothing is held")]
pub struct ReservationsArgs {
    /// The volume, by name.
    #[arg(value_name = "VOLUME")]
    pub volume: String,
    /// Forget all of it; hosts that are connected are told.
    #[arg(long)]
    pub clear: bool,
    #[command(flatten)]
    pub runtime: Runtime,
    #[command(flatten)]
    pub json: Json,
}

/// Changes settings of an array or volume that is being served, until it is stopped; without any it
/// shows them. write_mostly and bitmap are recorded on the members and stay.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle set data                               what can be set, and how it is
  wattle set data sync_speed_max=50M            50 MiB a second; a plain number is KiB, as in md
  wattle set data stripe_cache_size=4096        entries of 4 KiB for each member, as in md
  wattle set data sync_action=idle
  wattle set data bitmap=internal               a write-intent bitmap, from now on; bitmap=none
  wattle set data iops=5000 bandwidth=100M burst=2s    limits of all its clients together
  wattle set data iops=none                            no limit any more
  wattle set data latency_goal=5ms                     others are held back for it")]
pub struct SetArgs {
    /// The array or volume, by name; arrays also by UUID.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What to change: sync_speed_min, sync_speed_max, sync_action, read_deadline, goal,
    /// stripe_cache_size, read_ahead_kb, remote_timeout, paths, record, write_mostly, bitmap,
    /// iops, read_iops, write_iops, bandwidth, read_bandwidth, write_bandwidth, client_iops,
    /// client_bandwidth, burst, weight, latency_goal. From iops on they are of volumes.
    #[arg(value_name = "KEY=VALUE", value_parser = name_text())]
    pub settings: Vec<String>,
    #[command(flatten)]
    pub runtime: Runtime,
    #[command(flatten)]
    pub json: Json,
}
