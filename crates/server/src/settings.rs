//! `wattle set NAME KEY=VALUE`: from what was typed to what is meant. Keys are md's where md has
//! one.

use std::ops::RangeInclusive;
use std::time::Duration;

use wattle_control::running::BitmapChoice;
use wattle_control::size::parse_size;
use wattle_control::{Code, Problem};
use wattle_engine::job::Goal;

use crate::qos::{self, QosChange};

/// What `sync_action` may be set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncAction {
    /// Ends a check or repair, and lets what is needed go on.
    Idle,
    /// Holds everything.
    Frozen,
    /// Starts a check.
    Check,
    /// Starts what md calls a repair: parity from data.
    Repair,
}

/// A setting and its new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingChange {
    /// Background work is not slowed down for clients below this, bytes of each member a second.
    SpeedMin(u64),
    /// It is never faster than this; `None` for no limit.
    SpeedMax(Option<u64>),
    /// What runs in the background.
    Action(SyncAction),
    /// After how long a read is answered from redundancy.
    ReadDeadline(Duration),
    /// What background work is steered towards beside clients.
    Goal(Goal),
    /// How much the clean cache holds at most.
    Cache(CacheCeiling),
    /// How far ahead of one that reads in sequence is read, in bytes.
    ReadAhead(u64),
    /// After how long a member across a network is given up.
    RemoteTimeout(Duration),
    /// Whether reads go by all paths to a member in turn.
    Paths(bool),
    /// Checks record what they find.
    Record(bool),
    /// The members whose copies are read only where no other one can be, as an operator names them.
    WriteMostly(Vec<String>),
    /// What makes copies and parity agree after a crash without a resync of all of it.
    Bitmap(BitmapChoice),
    /// A setting of volumes: of this one, or of what the order or the server is about.
    Qos(Option<String>, QosChange),
}

/// How large a clean cache may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheCeiling {
    /// As md counts: so many entries, of 4 KiB for each member.
    Entries(u64),
    /// All of it.
    Bytes(u64),
}

/// A member's part of an entry of md's stripe cache.
const CACHE_PAGE_BYTES: u64 = 4096;
/// As in md.
const CACHE_ENTRIES_MAX: u64 = 32_768;
/// More than md's most for a hundred members: no slip of the pen.
const CACHE_BYTES_MAX: u64 = 16 << 30;

impl CacheCeiling {
    /// In an array of so many members.
    pub fn bytes(self, members: usize) -> u64 {
        match self {
            Self::Entries(entries) => entries * cache_entry_bytes(members),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// As much as a core holds of what was read ahead.
const READ_AHEAD_MAX: u64 = 16 << 20;

/// Bytes of an entry, as md counts.
pub fn cache_entry_bytes(members: usize) -> u64 {
    CACHE_PAGE_BYTES * members.max(1) as u64
}

/// What a read deadline may be: below, members count as slow for what is normal; above, clients
/// have long given up.
const READ_DEADLINES: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(600);

/// How long a member across a network may be waited for: below, every hiccup costs redundancy;
/// above, its connection has ended.
const REMOTE_TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(30);

/// In what time requests may be wanted: below, no drive answers; above, no client waits.
const GOALS: RangeInclusive<Duration> = Duration::from_micros(50)..=Duration::from_secs(60);

/// What a bit of a bitmap stands for; the header has 32 bits for it.
const BITMAP_CHUNKS: RangeInclusive<u64> = 4096..=1 << 31;
/// Whole seconds between sweeps of a bitmap; above, clearing never comes to anything.
const BITMAP_DELAYS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(1);

/// Every setting: its name, what it may be, and what it is for.
pub const KEYS: &[(&str, &str, &str)] = &[
    (
        "sync_speed_min",
        "KiB/s or SIZE",
        "background work gets at least this of each member, whatever clients do",
    ),
    ("sync_speed_max", "KiB/s, SIZE or none", "background work takes at most this of each member"),
    ("sync_action", "idle, check, repair or frozen", "what runs in the background; frozen holds it"),
    (
        "read_deadline",
        "a time from 10ms to 10m",
        "a read that a member has not answered by then is answered from redundancy",
    ),
    (
        "goal",
        "throughput, latency or a time from 50us to 1m",
        "background work takes a third or a tenth of what it could, or as much as lets 99 of 100 requests be answered in time",
    ),
    (
        "stripe_cache_size",
        "entries up to 32768, or SIZE up to 16G",
        "the cache of what writes read before holds at most so many entries, 4 KiB for each member; 0 for none",
    ),
    (
        "read_ahead_kb",
        "KiB or SIZE, up to 16M",
        "so far ahead of a client that reads in sequence, one request at a time, is read; 0 for not at all",
    ),
    (
        "remote_timeout",
        "a time from 100ms to 30s",
        "a member across a network that has not answered by then is given up, if the array can do without it",
    ),
    (
        "paths",
        "order or round-robin",
        "members that several paths lead to are reached by the first that is there, or read by all of them in turn",
    ),
    (
        "record",
        "on or off",
        "checks, and repairs from the record, record what every member holds for the next one",
    ),
    (
        "write_mostly",
        "members, separated by commas, or none",
        "copies on these members are read only where no other one can be",
    ),
    (
        "bitmap",
        "internal, none, or what a bit stands for, from 4K to 2G; with ,delay=TIME for another pause than 5s before bits are cleared",
        "a write-intent bitmap on the members: after a crash, or an absence, only what was written then is gone through",
    ),
    ("iops", IOPS, "the volume's clients together get at most so many requests a second"),
    ("read_iops", IOPS, "so many reads"),
    ("write_iops", IOPS, "so many writes, with zeroes and discards"),
    ("bandwidth", BANDWIDTH, "the volume's clients together move at most so many bytes a second"),
    ("read_bandwidth", BANDWIDTH, "so many read"),
    ("write_bandwidth", BANDWIDTH, "so many written"),
    ("client_iops", IOPS, "each client of the volume gets at most so many requests a second"),
    ("client_bandwidth", BANDWIDTH, "each client of the volume moves at most so many bytes a second"),
    (
        "burst",
        "a time from 1ms to 5m",
        "what a limit allows and was not used can be used later, as much as this time brings",
    ),
    ("weight", "1 to 10000", "the volume's share beside others when they ask for more than there is"),
    (
        "latency_goal",
        "a time from 50us to 1m, or none",
        "99 of 100 requests are to be answered in time; volumes without a goal are held back for that",
    ),
];

const IOPS: &str = "1 to 100000000, or none";
const BANDWIDTH: &str = "SIZE from 64K to 1T, or none";

/// Keys and values of `KEY=VALUE`s, all of which make sense.
///
/// # Errors
/// As [`parse`], of the first that does not.
pub fn parse_all(pairs: &[String]) -> Result<Vec<(&str, &str)>, Problem> {
    let pairs = pairs.iter().map(|pair| split(pair)).collect::<Result<Vec<_>, _>>()?;
    pairs.iter().try_for_each(|(key, value)| parse(key, value).map(drop))?;
    Ok(pairs)
}

fn split(pair: &str) -> Result<(&str, &str), Problem> {
    pair.split_once('=').ok_or_else(|| {
        Problem::new(
            Code::Usage,
            format!("`{pair}` is not a setting"),
            "a setting is KEY=VALUE",
            "`wattle set NAME` shows what can be set",
        )
    })
}

/// Understands one `KEY=VALUE`.
///
/// # Errors
/// There is no such key, or the value makes no sense for it.
pub fn parse(key: &str, value: &str) -> Result<SettingChange, Problem> {
    let bad = || bad_value(key, value);
    let (volume, bare) = parts(key);
    if qos::is_key(bare) {
        return qos::parse(bare, value).map(|change| SettingChange::Qos(volume, change)).ok_or_else(bad);
    }
    match key {
        "sync_speed_min" => speed(value).map(SettingChange::SpeedMin).ok_or_else(bad),
        "sync_speed_max" if matches!(value, "none" | "0") => Ok(SettingChange::SpeedMax(None)),
        "sync_speed_max" => speed(value).map(|speed| SettingChange::SpeedMax(Some(speed))).ok_or_else(bad),
        "sync_action" => action(value).map(SettingChange::Action).ok_or_else(bad),
        "read_deadline" => {
            let deadline = humantime::parse_duration(value).ok().filter(|time| READ_DEADLINES.contains(time));
            deadline.map(SettingChange::ReadDeadline).ok_or_else(bad)
        }
        "goal" => goal(value).map(SettingChange::Goal).ok_or_else(bad),
        "stripe_cache_size" => cache(value).map(SettingChange::Cache).ok_or_else(bad),
        "read_ahead_kb" => {
            kib(value).filter(|bytes| *bytes <= READ_AHEAD_MAX).map(SettingChange::ReadAhead).ok_or_else(bad)
        }
        "remote_timeout" => {
            let timeout = humantime::parse_duration(value).ok().filter(|time| REMOTE_TIMEOUTS.contains(time));
            timeout.map(SettingChange::RemoteTimeout).ok_or_else(bad)
        }
        "paths" => match value {
            "order" => Ok(SettingChange::Paths(false)),
            "round-robin" => Ok(SettingChange::Paths(true)),
            _ => Err(bad()),
        },
        "record" => match value {
            "on" => Ok(SettingChange::Record(true)),
            "off" => Ok(SettingChange::Record(false)),
            _ => Err(bad()),
        },
        "bitmap" => bitmap(value).map(SettingChange::Bitmap).ok_or_else(bad),
        "write_mostly" if value == "none" => Ok(SettingChange::WriteMostly(Vec::new())),
        "write_mostly" => {
            let members: Vec<_> = value.split(',').map(str::to_owned).collect();
            let named = members.iter().all(|member| !matches!(member.as_str(), "" | "?"));
            named.then_some(SettingChange::WriteMostly(members)).ok_or_else(bad)
        }
        _ => Err(Problem::new(
            Code::Usage,
            format!("there is no setting {key}"),
            format!("settings are {}", KEYS.iter().map(|(key, ..)| *key).collect::<Vec<_>>().join(", ")),
            "`wattle set NAME` shows them and what they are",
        )),
    }
}

/// The volume in front of a key, if there is one, and the key: names may have colons, keys
/// have none.
#[must_use]
pub fn parts(key: &str) -> (Option<String>, &str) {
    match key.rsplit_once(':') {
        Some((volume, key)) if qos::is_key(key) => (Some(volume.to_owned()), key),
        _ => (None, key),
    }
}

fn goal(value: &str) -> Option<Goal> {
    match value {
        "throughput" => Some(Goal::Throughput),
        "latency" => Some(Goal::Latency),
        _ => humantime::parse_duration(value).ok().filter(|time| GOALS.contains(time)).map(Goal::Within),
    }
}

fn action(value: &str) -> Option<SyncAction> {
    match value {
        "idle" => Some(SyncAction::Idle),
        "frozen" => Some(SyncAction::Frozen),
        "check" => Some(SyncAction::Check),
        "repair" => Some(SyncAction::Repair),
        _ => None,
    }
}

/// A bitmap's chunk is a power of two.
fn bitmap(value: &str) -> Option<BitmapChoice> {
    if value == "none" {
        return Some(BitmapChoice::Off);
    }
    let (chunk, delay) =
        value.split_once(",delay=").map_or((value, None), |(chunk, time)| (chunk, Some(time)));
    let chunk_bytes = match chunk {
        "internal" => None,
        size => Some(
            parse_size(size).ok().filter(|size| BITMAP_CHUNKS.contains(size) && size.is_power_of_two())?,
        ),
    };
    let sweep_secs = match delay.map(humantime::parse_duration) {
        None => None,
        Some(time) => {
            let whole = time.ok().filter(|time| time.subsec_nanos() == 0 && BITMAP_DELAYS.contains(time))?;
            u32::try_from(whole.as_secs()).ok()
        }
    };
    Some(BitmapChoice::Internal { chunk_bytes, sweep_secs })
}

/// Bytes a second: as [`kib`]; a size may have `/s` behind it.
fn speed(value: &str) -> Option<u64> {
    kib(value).or_else(|| parse_size(value.strip_suffix("/s")?).ok())
}

/// Bytes: a plain number is KiB, as in md's files; one with a suffix is a size.
fn kib(value: &str) -> Option<u64> {
    match value.parse::<u64>() {
        Ok(kib) => kib.checked_mul(1024),
        Err(_) => parse_size(value).ok(),
    }
}

/// A plain number counts entries, as in md's file; one with a suffix is a size.
fn cache(value: &str) -> Option<CacheCeiling> {
    match value.parse::<u64>() {
        Ok(entries) => (entries <= CACHE_ENTRIES_MAX).then_some(CacheCeiling::Entries(entries)),
        Err(_) => {
            let bytes = parse_size(value).ok().filter(|bytes| *bytes <= CACHE_BYTES_MAX);
            bytes.map(CacheCeiling::Bytes)
        }
    }
}

fn bad_value(key: &str, value: &str) -> Problem {
    let (_, bare) = parts(key);
    let known = KEYS.iter().find(|(name, ..)| *name == bare);
    let example = match qos::is_key(bare) {
        true => "write it like iops=5000, bandwidth=100M, burst=2s, weight=300, latency_goal=5ms",
        false => {
            "write it like sync_speed_max=50000 (KiB/s), sync_speed_max=50M, sync_action=idle, read_deadline=500ms"
        }
    };
    Problem::new(
        Code::Usage,
        format!("{key}={value}: not a value of this setting"),
        known.map_or(String::new(), |(_, values, _)| format!("expected {values}")),
        example,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_has_a_key_and_a_value() {
        assert_eq!(split("a=b=c"), Ok(("a", "b=c")));
        assert_eq!(split("a="), Ok(("a", "")));
        assert_eq!(split("sync_speed_max").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn speeds_are_in_kib_as_in_md_unless_a_unit_is_given() {
        for (value, speed) in [
            ("1000", Some(1_024_000)),
            ("50M", Some(50 << 20)),
            ("50M/s", Some(50 << 20)),
            ("50MiB/s", Some(50 << 20)),
            ("1000/s", Some(1000)),
            ("none", None),
            ("0", None),
        ] {
            assert_eq!(parse("sync_speed_max", value), Ok(SettingChange::SpeedMax(speed)), "{value}");
        }
        assert_eq!(parse("sync_speed_min", "0"), Ok(SettingChange::SpeedMin(0)));
    }

    #[test]
    fn no_further_is_read_ahead_than_a_core_holds() {
        assert_eq!(READ_AHEAD_MAX, wattle_engine::ReadaheadTuning::default().bytes_max as u64);
        for (value, bytes) in [("0", 0), ("2048", 2 << 20), ("16M", 16 << 20)] {
            assert_eq!(parse("read_ahead_kb", value), Ok(SettingChange::ReadAhead(bytes)), "{value}");
        }
    }

    #[test]
    fn what_makes_no_sense_says_what_would() {
        let rows = [
            ("sync_speed_max", "fast", "KiB/s"),
            ("sync_speed_max", "99999999999999999999", "KiB/s"),
            ("sync_speed_max", "18446744073709551615", "KiB/s"),
            ("sync_speed_min", "-1", "KiB/s"),
            ("sync_action", "reshape", "idle, check"),
            ("read_deadline", "2", "from 10ms to 10m"),
            ("read_deadline", "9ms", "from 10ms to 10m"),
            ("read_deadline", "601s", "from 10ms to 10m"),
            ("read_deadline", "-1s", "from 10ms to 10m"),
            ("stripe_cache_size", "32769", "up to 32768"),
            ("stripe_cache_size", "17G", "up to 16G"),
            ("stripe_cache_size", "-1", "entries"),
            ("read_ahead_kb", "16385", "up to 16M"),
            ("read_ahead_kb", "far", "KiB"),
            ("goal", "fast", "throughput, latency"),
            ("goal", "0s", "from 50us"),
            ("goal", "61s", "to 1m"),
            ("remote_timeout", "99ms", "from 100ms to 30s"),
            ("remote_timeout", "2", "from 100ms to 30s"),
            ("remote_timeout", "31s", "from 100ms to 30s"),
            ("paths", "random", "order or round-robin"),
            ("write_mostly", "a,,b", "separated by commas"),
            ("bitmap", "on", "internal, none"),
            ("bitmap", "3M", "from 4K"),
            ("bitmap", "internal,delay=0s", "delay=TIME"),
            ("bitmap", "internal,delay=1500ms", "delay=TIME"),
            ("bitmap", "none,delay=5s", "internal, none"),
            ("bitmap", "2K", "from 4K"),
            ("bitmap", "4G", "to 2G"),
            ("iops", "0", "1 to 100000000"),
            ("vg/home:bandwidth", "1", "from 64K"),
            ("vg/home:goal", "5ms", "settings are"),
            ("stripe_cache", "1", "sync_action, read_deadline, goal, stripe_cache_size"),
            ("", "", "sync_speed_min, sync_speed_max, sync_action, read_deadline"),
        ];
        for (key, value, word) in rows {
            let problem = parse(key, value).unwrap_err();
            assert_eq!(problem.exit_code(), 2);
            assert!(problem.why.contains(word), "{key}={value}: {problem}");
        }
        for (key, ..) in KEYS {
            assert!(parse(key, "?").unwrap_err().why.starts_with("expected "), "{key} is known");
        }
    }

    #[test]
    fn settings_of_volumes_may_name_one() {
        let goal = QosChange::Goal(Some(Duration::from_millis(5)));
        assert_eq!(parse("latency_goal", "5ms"), Ok(SettingChange::Qos(None, goal)));
        let named = SettingChange::Qos(Some("host:data".to_owned()), goal);
        assert_eq!(parse("host:data:latency_goal", "5ms"), Ok(named));
        assert!(KEYS.iter().filter(|(key, ..)| qos::is_key(key)).count() == 11);
    }

    #[test]
    fn deadlines_are_times_with_a_unit() {
        for (value, millis) in
            [("10ms", 10), ("500ms", 500), ("2s", 2000), ("1m 30s", 90_000), ("10m", 600_000)]
        {
            let deadline = SettingChange::ReadDeadline(Duration::from_millis(millis));
            assert_eq!(parse("read_deadline", value), Ok(deadline), "{value}");
        }
    }

    #[test]
    fn a_goal_is_a_word_or_a_time() {
        let within = |micros| Goal::Within(Duration::from_micros(micros));
        let rows = [
            ("throughput", Goal::Throughput),
            ("latency", Goal::Latency),
            ("20ms", within(20_000)),
            ("1ms 500us", within(1_500)),
        ];
        for (value, goal) in rows {
            assert_eq!(parse("goal", value), Ok(SettingChange::Goal(goal)), "{value}");
        }
    }

    #[test]
    fn caches_are_counted_in_entries_as_in_md_unless_a_unit_is_given() {
        let rows = [("0", 0), ("4096", 4096 * 4096 * 6), ("256M", 256 << 20), ("1GiB", 1 << 30)];
        for (value, bytes) in rows {
            match parse("stripe_cache_size", value) {
                Ok(SettingChange::Cache(ceiling)) => assert_eq!(ceiling.bytes(6), bytes, "{value}"),
                other => panic!("{value}: {other:?}"),
            }
        }
    }

    #[test]
    fn actions_are_those_of_md() {
        for (value, action) in [
            ("idle", SyncAction::Idle),
            ("frozen", SyncAction::Frozen),
            ("check", SyncAction::Check),
            ("repair", SyncAction::Repair),
        ] {
            assert_eq!(parse("sync_action", value), Ok(SettingChange::Action(action)));
        }
    }
}
