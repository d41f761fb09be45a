//! Drives made of facts.

use std::time::Duration;

use wattle_advise::drives::{self, Drive, MediaFigures};
use wattle_rt::model::{self, Burst, Collection, DriveModel};
use wattle_rt::{Device, DriveConfig};

/// What the runtime is to make of a drive's facts.
#[must_use]
pub fn model(drive: &Drive) -> DriveModel {
    let media = match &drive.media {
        MediaFigures::Flash(facts) => model::Media::Flash(flash(facts)),
        MediaFigures::Disk(facts) => model::Media::Disk(disk(facts)),
    };
    DriveModel {
        queue_depth: drive.queue_depth,
        group: drive.group,
        cache_bytes: drive.cache_bytes,
        flush: drive.flush,
        media,
    }
}

fn flash(facts: &drives::FlashFigures) -> model::Flash {
    let burst = Burst {
        bytes: facts.burst_bytes,
        writes_per_second: facts.burst_writes_per_second,
        write_bytes_per_second: facts.burst_bytes_per_second,
        refill_bytes_per_second: facts.refill_bytes_per_second,
    };
    let collection = Collection { pause: facts.collection_pause, share_ppm: facts.collection_share_ppm };
    model::Flash {
        reads_per_second: facts.reads_per_second,
        writes_per_second: facts.writes_per_second,
        read_bytes_per_second: facts.read_bytes_per_second,
        write_bytes_per_second: facts.write_bytes_per_second,
        read_latency: facts.read_latency,
        write_latency: facts.write_latency,
        channels: facts.channels,
        turnaround: facts.turnaround,
        burst: (burst.bytes > 0).then_some(burst),
        collection: (collection.share_ppm > 0).then_some(collection),
    }
}

fn disk(facts: &drives::DiskFigures) -> model::Disk {
    model::Disk {
        revolution: Duration::from_secs(60) / facts.turns_per_minute.max(1),
        seek_track: facts.seek_track,
        seek_average: facts.seek_average,
        seek_full: facts.seek_full,
        outer_bytes_per_second: facts.outer_bytes_per_second,
        inner_bytes_per_second: facts.inner_bytes_per_second,
        link_bytes_per_second: facts.link_bytes_per_second,
        command: facts.command,
        read_ahead_bytes: facts.read_ahead_bytes,
    }
}

/// The drive in memory, in real time.
#[must_use]
pub fn device(drive: &Drive, name: impl Into<String>) -> Device {
    Device::modelled(name, drive.size_bytes, drive.sector_bytes, &model(drive))
}

/// The drive for a world in virtual time.
#[must_use]
pub fn config(drive: &Drive, name: impl Into<String>) -> DriveConfig {
    DriveConfig {
        size_bytes: drive.size_bytes,
        sector_bytes: drive.sector_bytes,
        volatile_cache: drive.cache_bytes > 0,
        model: Some(model(drive)),
        name: name.into(),
        ..DriveConfig::default()
    }
}
