//! `model:PRESET,KEY=VALUE,...`

use std::time::Duration;

use crate::{Disk, Drive, Flash, Media, PRESETS, Preset};

/// What `model:PRESET,KEY=VALUE,...` stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelDrive {
    /// The preset it started from.
    pub preset: &'static str,
    /// Its figures.
    pub drive: Drive,
    /// Whether the size was given, and is not the preset's.
    pub size_given: bool,
}

/// Why a text names no drive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// No preset is called so.
    #[error("there is no drive `{name}`: there are {}", names(PRESETS.iter().map(|preset| preset.name)))]
    UnknownPreset {
        /// As it was given.
        name: String,
    },
    /// It is not `KEY=VALUE`.
    #[error("`{text}` is not KEY=VALUE; the keys of {preset} are {}", names(keys(preset)))]
    NotAPair {
        /// The drive.
        preset: &'static str,
        /// As it was given.
        text: String,
    },
    /// Drives of this kind have no such figure.
    #[error("{preset} has no `{key}`: its keys are {}", names(keys(preset)))]
    UnknownKey {
        /// The drive.
        preset: &'static str,
        /// As it was given.
        key: String,
    },
    /// The figure is given as something else.
    #[error("{key}={value}: expected {expected}")]
    BadValue {
        /// The figure.
        key: String,
        /// As it was given.
        value: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// Each figure is good, but together they are no drive.
    #[error("{why}")]
    Impossible {
        /// What does not go together.
        why: &'static str,
    },
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

impl std::str::FromStr for ModelDrive {
    type Err = DriveError;

    /// Takes the text with or without `model:` in front.
    fn from_str(text: &str) -> Result<ModelDrive, DriveError> {
        let text = text.strip_prefix("model:").unwrap_or(text);
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let preset =
            Preset::named(name).ok_or_else(|| DriveError::UnknownPreset { name: name.to_owned() })?;
        let mut drive = preset.drive();
        let mut size_given = false;
        for part in parts {
            let not_a_pair = || DriveError::NotAPair { preset: preset.name, text: part.to_owned() };
            let (key, value) = part.split_once('=').ok_or_else(not_a_pair)?;
            set(&mut drive, preset.name, key, value)?;
            size_given |= key == "size";
        }
        check(&drive)?;
        Ok(ModelDrive { preset: preset.name, drive, size_given })
    }
}

/// How a figure is written.
#[derive(Clone, Copy)]
enum Unit {
    /// What a drive is sold as.
    Capacity,
    Bytes,
    BytesPerSecond,
    PerSecond,
    Time,
    Count,
    Percent,
}

impl Unit {
    const fn expected(self) -> &'static str {
        match self {
            Unit::Capacity => {
                "bytes: a number with G, T or P as drives are sold, in powers of 1000, or KiB, MiB, GiB, TiB or PiB (and K, M) for powers of 1024"
            }
            Unit::Bytes => {
                "bytes: a whole number, with K, M, G or T for powers of 1024, or KB, MB, GB or TB for powers of 1000"
            }
            Unit::BytesPerSecond => {
                "bytes per second: a whole number above 0, with K, M or G for powers of 1024, or KB, MB or GB for powers of 1000"
            }
            Unit::PerSecond => {
                "operations per second: a whole number above 0, with k or m for thousands or millions"
            }
            Unit::Time => "a time: a number with ns, us, ms or s, at most 1000s",
            Unit::Count => "a whole number up to 1000000",
            Unit::Percent => "a whole number of percent below 100, like 10%",
        }
    }

    /// The value in bytes, per second, nanoseconds, as it is, or in millionths.
    fn value(self, text: &str) -> Option<u64> {
        let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, suffix) = text.split_at(digits);
        let suffix = suffix.to_ascii_lowercase();
        let factor: u64 = match (self, suffix.as_str()) {
            (Unit::Time, _) => {
                let nanos = match suffix.as_str() {
                    "ns" => 1,
                    "us" | "µs" => 1000,
                    "ms" => 1_000_000,
                    "s" => 1_000_000_000,
                    _ => return None,
                };
                return decimal(number, nanos).filter(|nanos| *nanos <= 1_000_000_000_000);
            }
            (Unit::Capacity, _) => return drive_bytes(text),
            (Unit::Percent, "%") => 10_000,
            (Unit::Bytes | Unit::BytesPerSecond | Unit::PerSecond | Unit::Count, "") => 1,
            (Unit::PerSecond, "k") => 1000,
            (Unit::PerSecond, "m") => 1_000_000,
            (Unit::Bytes | Unit::BytesPerSecond, suffix) => bytes(suffix)?,
            _ => return None,
        };
        let value = number.parse::<u64>().ok()?.checked_mul(factor)?;
        let within = match self {
            Unit::BytesPerSecond | Unit::PerSecond => 1..=1_000_000_000_000,
            Unit::Bytes => 0..=u64::MAX >> 1,
            Unit::Count => 0..=1_000_000,
            Unit::Percent => 0..=990_000,
            Unit::Time | Unit::Capacity => 0..=0,
        };
        within.contains(&value).then_some(value)
    }
}

/// Bytes of what a drive is sold as: `20T` and `3.84TB` are powers of 1000, `1TiB` of 1024. So are
/// `K` and `M`: no drive is sold in these. Where a unit is named, it is whole blocks of 4096 bytes.
#[must_use]
pub fn drive_bytes(text: &str) -> Option<u64> {
    const BLOCK_BYTES: u64 = 4096;
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, suffix) = text.split_at(digits);
    let suffix = suffix.to_ascii_lowercase();
    let unit = match suffix.as_str() {
        "" => 1,
        "g" | "t" | "p" => bytes(&format!("{suffix}b"))?,
        suffix => bytes(suffix)?,
    };
    // A number alone is bytes: all of them, and no parts of one.
    let value = match (number.contains('.'), unit) {
        (true, 1) => return None,
        (true, _) => decimal(number, unit)? / BLOCK_BYTES * BLOCK_BYTES,
        (false, 1) => number.parse().ok()?,
        (false, _) => number.parse::<u64>().ok()?.checked_mul(unit)? / BLOCK_BYTES * BLOCK_BYTES,
    };
    (value <= u64::MAX >> 1).then_some(value)
}

fn bytes(suffix: &str) -> Option<u64> {
    let (power, decimal) = match suffix.as_bytes() {
        [power] | [power, b'i', b'b'] => (power, false),
        [power, b'b'] => (power, true),
        _ => return None,
    };
    let power = 1 + b"kmgtp".iter().position(|known| known == power)?;
    Some(if decimal { 1000u64.pow(power as u32) } else { 1 << (10 * power) })
}

/// A number with up to nine digits behind the point, times `unit`.
fn decimal(number: &str, unit: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    if part.is_empty() || part.len() > 9 {
        return None;
    }
    let tenths = 10u64.pow(part.len() as u32);
    let value = u128::from(whole.parse::<u64>().ok()?) * u128::from(unit)
        + u128::from(part.parse::<u64>().ok()?) * u128::from(unit) / u128::from(tenths);
    u64::try_from(value).ok()
}

type Key<T> = (&'static str, Unit, fn(&mut T, u64));

fn nanos(value: u64) -> Duration {
    Duration::from_nanos(value)
}

const OF_ALL: &[Key<Drive>] = &[
    ("size", Unit::Capacity, |drive, value| drive.size_bytes = value),
    ("sector", Unit::Bytes, |drive, value| drive.sector_bytes = value.try_into().unwrap_or(0)),
    ("qd", Unit::Count, |drive, value| drive.model.queue_depth = value as u32),
    ("group", Unit::Count, |drive, value| drive.model.group = value as u32),
    ("cache", Unit::Bytes, |drive, value| drive.model.cache_bytes = value),
    ("flush", Unit::Time, |drive, value| drive.model.flush = nanos(value)),
];

const OF_FLASH: &[Key<Flash>] = &[
    ("read_iops", Unit::PerSecond, |flash, value| flash.reads_per_second = value),
    ("write_iops", Unit::PerSecond, |flash, value| flash.writes_per_second = value),
    ("read_bw", Unit::BytesPerSecond, |flash, value| flash.read_bytes_per_second = value),
    ("write_bw", Unit::BytesPerSecond, |flash, value| flash.write_bytes_per_second = value),
    ("read_lat", Unit::Time, |flash, value| flash.read_latency = nanos(value)),
    ("write_lat", Unit::Time, |flash, value| flash.write_latency = nanos(value)),
    ("channels", Unit::Count, |flash, value| flash.channels = value as u32),
    ("turn", Unit::Time, |flash, value| flash.turnaround = nanos(value)),
    ("burst", Unit::Bytes, |flash, value| flash.burst_bytes = value),
    ("burst_iops", Unit::PerSecond, |flash, value| flash.burst_writes_per_second = value),
    ("burst_bw", Unit::BytesPerSecond, |flash, value| flash.burst_bytes_per_second = value),
    ("refill_bw", Unit::BytesPerSecond, |flash, value| flash.refill_bytes_per_second = value),
    ("gc_pause", Unit::Time, |flash, value| flash.collection_pause = nanos(value)),
    ("gc_share", Unit::Percent, |flash, value| flash.collection_share_ppm = value as u32),
];

const OF_DISK: &[Key<Disk>] = &[
    ("rpm", Unit::Count, |disk, value| disk.turns_per_minute = value as u32),
    ("seek", Unit::Time, |disk, value| disk.seek_average = nanos(value)),
    ("seek_track", Unit::Time, |disk, value| disk.seek_track = nanos(value)),
    ("seek_full", Unit::Time, |disk, value| disk.seek_full = nanos(value)),
    ("outer_bw", Unit::BytesPerSecond, |disk, value| disk.outer_bytes_per_second = value),
    ("inner_bw", Unit::BytesPerSecond, |disk, value| disk.inner_bytes_per_second = value),
    ("link_bw", Unit::BytesPerSecond, |disk, value| disk.link_bytes_per_second = value),
    ("command", Unit::Time, |disk, value| disk.command = nanos(value)),
    ("read_ahead", Unit::Bytes, |disk, value| disk.read_ahead_bytes = value),
];

/// The keys of a preset, none if there is no such preset.
pub fn keys(preset: &str) -> impl Iterator<Item = &'static str> {
    let media = Preset::named(preset).map(|preset| preset.drive().model.media);
    let all = OF_ALL.iter().map(|(key, ..)| *key).filter({
        let known = media.is_some();
        move |_| known
    });
    let flash = matches!(media, Some(Media::Flash(_)));
    let disk = matches!(media, Some(Media::Disk(_)));
    let of_flash = OF_FLASH.iter().map(|(key, ..)| *key).filter(move |_| flash);
    let of_disk = OF_DISK.iter().map(|(key, ..)| *key).filter(move |_| disk);
    all.chain(of_flash).chain(of_disk)
}

fn set(drive: &mut Drive, preset: &'static str, key: &str, value: &str) -> Result<(), DriveError> {
    if let Some(result) = try_set(OF_ALL, drive, key, value) {
        return result;
    }
    let result = match &mut drive.model.media {
        Media::Flash(flash) => try_set(OF_FLASH, flash, key, value),
        Media::Disk(disk) => try_set(OF_DISK, disk, key, value),
    };
    result.unwrap_or_else(|| Err(DriveError::UnknownKey { preset, key: key.to_owned() }))
}

fn try_set<T>(keys: &[Key<T>], of: &mut T, key: &str, value: &str) -> Option<Result<(), DriveError>> {
    let (_, unit, set) = keys.iter().find(|(known, ..)| *known == key)?;
    let bad =
        || DriveError::BadValue { key: key.to_owned(), value: value.to_owned(), expected: unit.expected() };
    Some(unit.value(value).ok_or_else(bad).map(|value| set(of, value)))
}

fn check(drive: &Drive) -> Result<(), DriveError> {
    let refuse = |is: bool, why| if is { Err(DriveError::Impossible { why }) } else { Ok(()) };
    refuse(!matches!(drive.sector_bytes, 512 | 4096), "a sector is 512 or 4096 bytes")?;
    let sector = u64::from(drive.sector_bytes);
    refuse(drive.size_bytes < 1 << 20, "a drive has at least 1M")?;
    refuse(!drive.size_bytes.is_multiple_of(sector), "a drive's size is whole sectors")?;
    refuse(drive.model.queue_depth == 0, "a drive takes at least one operation at a time: qd")?;
    match &drive.model.media {
        Media::Flash(flash) => {
            let burst = flash.burst_bytes == 0
                || (flash.burst_writes_per_second > 0 && flash.burst_bytes_per_second > 0);
            refuse(!burst, "with burst, burst_iops and burst_bw are needed")?;
            let pauses = flash.collection_share_ppm == 0 || flash.collection_pause > Duration::ZERO;
            refuse(!pauses, "with gc_share, gc_pause is needed")
        }
        Media::Disk(disk) => {
            refuse(disk.turns_per_minute == 0, "a platter turns: rpm is above 0")?;
            refuse(
                disk.inner_bytes_per_second > disk.outer_bytes_per_second,
                "inner tracks are not faster than outer ones: inner_bw is at most outer_bw",
            )?;
            let average = disk.seek_average.saturating_sub(disk.seek_track).as_nanos();
            let full = disk.seek_full.saturating_sub(disk.seek_track).as_nanos();
            let plausible = (full <= 3 * average) && (15 * average <= 8 * full);
            refuse(
                disk.seek_track > disk.seek_average || !plausible,
                "no seek curve has these three: beyond seek_track, seek is between 1/3 and 8/15 of seek_full",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DriveModel;

    fn drive(text: &str) -> Drive {
        text.parse::<ModelDrive>().unwrap_or_else(|error| panic!("{text}: {error}")).drive
    }

    fn refused(text: &str) -> String {
        text.parse::<ModelDrive>().expect_err(text).to_string()
    }

    #[test]
    fn every_preset_is_a_drive_and_no_name_is_used_twice() {
        for preset in PRESETS {
            assert_eq!(drive(&format!("model:{}", preset.name)), preset.drive());
            assert_eq!(PRESETS.iter().filter(|other| other.name == preset.name).count(), 1);
        }
    }

    #[test]
    fn figures_can_be_changed() {
        let Drive { size_bytes, model: DriveModel { cache_bytes, queue_depth, media, .. }, .. } = drive(
            "x25m,size=80G,cache=0,qd=4,read_iops=35k,write_bw=100MB,write_lat=0.5ms,burst=1GiB,burst_iops=2m,burst_bw=1G,gc_share=5%,gc_pause=3ms",
        );
        assert_eq!((size_bytes, cache_bytes, queue_depth), (80_000_000_000 / 4096 * 4096, 0, 4));
        let Media::Flash(flash) = media else { panic!("an SSD") };
        assert_eq!((flash.reads_per_second, flash.writes_per_second), (35_000, 20_000));
        assert_eq!(
            (flash.write_bytes_per_second, flash.write_latency),
            (100_000_000, Duration::from_micros(500))
        );
        assert_eq!((flash.burst_bytes, flash.burst_writes_per_second), (1 << 30, 2_000_000));
        assert_eq!((flash.collection_share_ppm, flash.collection_pause), (50_000, Duration::from_millis(3)));
        let Media::Disk(disk) = drive("sata7200,rpm=5400,seek=9.25ms").model.media else { panic!("a disk") };
        assert_eq!((disk.turns_per_minute, disk.seek_average), (5400, Duration::from_micros(9250)));
    }

    #[test]
    fn drives_are_as_large_as_they_are_sold() {
        for (text, bytes) in [
            ("20T", 20_000_000_000_000),
            ("20TB", 20_000_000_000_000),
            ("20TiB", 20 << 40),
            ("3.84TB", 3_840_000_000_000),
            ("1.5GiB", 3 << 29),
            ("500g", 500_000_000_000 / 4096 * 4096),
            ("1P", 1_000_000_000_000_000 / 4096 * 4096),
            ("64M", 64 << 20),
            ("512K", 512 << 10),
            ("3000000000512", 3_000_000_000_512),
        ] {
            assert_eq!(drive_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "T", "1.5", "1 T", "20TX", "20TT", "9999999999P", "-1T", "1e12"] {
            assert_eq!(drive_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn errors_say_what_there_is() {
        for preset in PRESETS {
            assert!(refused("model:floppy").contains(preset.name));
        }
        let unknown = refused("x25m,rpm=7200");
        assert!(unknown.contains("x25m has no `rpm`") && unknown.contains("write_lat"), "{unknown}");
        assert!(!unknown.contains("seek"), "{unknown}");
        assert!(refused("sata7200,read_iops=1k").contains("seek_full"));
        assert!(refused("x25m,qd").contains("`qd` is not KEY=VALUE"));
        assert!(refused("x25m,").contains("KEY=VALUE"));
        for (text, expected) in [
            ("read_lat=65", "a number with ns, us, ms or s"),
            ("read_lat=1.ms", "a time"),
            ("read_iops=0", "above 0"),
            ("read_iops=4x", "k or m"),
            ("size=lots", "powers of 1024"),
            ("size=99999999999G", "powers of 1024"),
            ("gc_share=100%", "below 100"),
            ("qd=1.5", "a whole number"),
        ] {
            let error = refused(&format!("x25m,{text}"));
            assert!(error.starts_with(&format!("{text}: expected")) && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_no_drive() {
        for (text, why) in [
            ("x25m,sector=520", "512 or 4096"),
            ("sata7200,size=3000000000001", "whole sectors"),
            ("x25m,size=0", "at least"),
            ("x25m,qd=0", "qd"),
            ("x25m,burst=1G", "burst_iops"),
            ("x25m,gc_share=1%", "gc_pause"),
            ("sata7200,rpm=0", "rpm"),
            ("sata7200,inner_bw=1G", "outer_bw"),
            ("sata7200,seek=1s", "seek_full"),
            ("sata7200,seek_track=9ms", "seek_track"),
        ] {
            assert!(refused(text).contains(why), "{text}: {}", refused(text));
        }
    }
}
