//! Drives by name.

use std::time::Duration;

use crate::{Disk, Drive, DriveModel, Flash, Media};

/// A drive that has a name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    make: fn() -> Drive,
}

impl Preset {
    /// Its figures.
    #[must_use]
    pub fn drive(&self) -> Drive {
        (self.make)()
    }

    /// The preset of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|preset| preset.name == name)
    }
}

/// All of them.
pub const PRESETS: &[Preset] = &[
    Preset { name: "x25m", about: "Intel X25-M G2, 80 GB, SATA II, 2009", make: x25m },
    Preset { name: "sata7200", about: "7,200/min SATA disk, 3 TB, 2012", make: sata7200 },
    Preset { name: "sata7200-small", about: "7,200/min SATA disk, 250 GB, 2007", make: sata7200_small },
    Preset { name: "sata-ssd", about: "SATA SSD of three bits per cell, 1 TB", make: sata_ssd },
    Preset { name: "nvme", about: "NVMe SSD of three bits per cell, PCIe 4, 1 TB", make: nvme },
    Preset { name: "qlc", about: "SATA SSD of four bits per cell, 1 TB", make: qlc },
    Preset {
        name: "nvme-ref",
        about: "round figures without a volatile cache, for comparisons",
        make: nvme_ref,
    },
];

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

const MB: u64 = 1_000_000;
const GB: u64 = 1_000_000_000;

/// What a solid-state drive without peculiarities has.
const PLAIN: Flash = Flash {
    reads_per_second: 0,
    writes_per_second: 0,
    read_bytes_per_second: 0,
    write_bytes_per_second: 0,
    read_latency: Duration::ZERO,
    write_latency: Duration::ZERO,
    channels: 0,
    turnaround: Duration::ZERO,
    burst_bytes: 0,
    burst_writes_per_second: 0,
    burst_bytes_per_second: 0,
    refill_bytes_per_second: 0,
    collection_pause: Duration::ZERO,
    collection_share_ppm: 0,
};

/// Size, bandwidths, latencies and the ten channels: Intel's product specification. 40,000 random
/// reads and 20,000 random writes: measured by operators with most of the drive unused, which is
/// what arrays of it were judged against; Intel says 35,000 and, for a full drive, 6,600. The cost
/// of a flush is an estimate.
fn x25m() -> Drive {
    Drive {
        size_bytes: 80_026_361_856,
        sector_bytes: 512,
        model: DriveModel {
            queue_depth: 32,
            group: 0,
            cache_bytes: 32 << 20,
            flush: micros(500),
            media: Media::Flash(Flash {
                reads_per_second: 40_000,
                writes_per_second: 20_000,
                read_bytes_per_second: 250 * MB,
                write_bytes_per_second: 70 * MB,
                read_latency: micros(65),
                write_latency: micros(85),
                channels: 10,
                ..PLAIN
            }),
        },
    }
}

/// Speed, seeks and cache as in data sheets of desktop disks of 1 TB per platter; the inner tracks
/// hold about half of what the outer ones do. The full stroke, the command and the read-ahead are
/// estimates.
fn sata7200() -> Drive {
    Drive {
        size_bytes: 3_000_592_982_016,
        sector_bytes: 4096,
        model: DriveModel {
            queue_depth: 32,
            group: 0,
            cache_bytes: 64 << 20,
            flush: micros(100),
            media: Media::Disk(Disk {
                turns_per_minute: 7200,
                seek_track: micros(1000),
                seek_average: micros(8500),
                seek_full: micros(18_000),
                outer_bytes_per_second: 190 * MB,
                inner_bytes_per_second: 95 * MB,
                link_bytes_per_second: 550 * MB,
                command: micros(50),
                read_ahead_bytes: 4 << 20,
            }),
        },
    }
}

/// Disks that `hdparm -t` measured at 73 to 95 MB/s, three of which gave 253 MB/s together; the
/// rest as in data sheets of their time.
fn sata7200_small() -> Drive {
    Drive {
        size_bytes: 250_059_350_016,
        sector_bytes: 512,
        model: DriveModel {
            cache_bytes: 16 << 20,
            media: Media::Disk(Disk {
                turns_per_minute: 7200,
                seek_track: micros(1000),
                seek_average: micros(8900),
                seek_full: micros(18_000),
                outer_bytes_per_second: 85 * MB,
                inner_bytes_per_second: 45 * MB,
                link_bytes_per_second: 270 * MB,
                command: micros(50),
                read_ahead_bytes: 2 << 20,
            }),
            ..sata7200().model
        },
    }
}

/// Rates, bandwidths and single-queue latencies as in data sheets of current drives of 1 TB;
/// garbage collection and the cost of a flush are estimates.
fn sata_ssd() -> Drive {
    Drive {
        size_bytes: 1000 * GB + 204_886_016,
        sector_bytes: 512,
        model: DriveModel {
            queue_depth: 32,
            group: 0,
            cache_bytes: 1 << 30,
            flush: micros(1000),
            media: Media::Flash(Flash {
                reads_per_second: 98_000,
                writes_per_second: 88_000,
                read_bytes_per_second: 560 * MB,
                write_bytes_per_second: 530 * MB,
                read_latency: micros(90),
                write_latency: micros(28),
                channels: 64,
                collection_pause: micros(2000),
                collection_share_ppm: 50_000,
                ..PLAIN
            }),
        },
    }
}

/// Rates, bandwidths and single-queue latencies as in data sheets of PCIe 4 drives of 1 TB, which
/// also tell the size of the fast space (114 GB) and that 2,000 MB/s are left behind it; random
/// writes then are those 2,000 MB/s in blocks of 4 KiB. The refill, garbage collection and the cost
/// of a flush are estimates.
fn nvme() -> Drive {
    Drive {
        size_bytes: 1000 * GB + 204_886_016,
        sector_bytes: 512,
        model: DriveModel {
            queue_depth: 1023,
            group: 0,
            cache_bytes: 1 << 30,
            flush: micros(500),
            media: Media::Flash(Flash {
                reads_per_second: 1_000_000,
                writes_per_second: 488_000,
                read_bytes_per_second: 7000 * MB,
                write_bytes_per_second: 2000 * MB,
                read_latency: micros(45),
                write_latency: micros(16),
                channels: 256,
                burst_bytes: 114 * GB,
                burst_writes_per_second: 1_000_000,
                burst_bytes_per_second: 5000 * MB,
                refill_bytes_per_second: 1000 * MB,
                collection_pause: micros(1000),
                collection_share_ppm: 50_000,
                ..PLAIN
            }),
        },
    }
}

/// Rates, bandwidths, single-queue latencies, the fast space (42 GB) and the 80 MB/s behind it as
/// in data sheets of 1 TB drives; random writes then are those 80 MB/s in blocks of 4 KiB. The
/// refill, garbage collection and the cost of a flush are estimates.
fn qlc() -> Drive {
    let like = sata_ssd();
    let model = DriveModel {
        flush: micros(2000),
        media: Media::Flash(Flash {
            reads_per_second: 98_000,
            writes_per_second: 19_500,
            read_bytes_per_second: 560 * MB,
            write_bytes_per_second: 80 * MB,
            read_latency: micros(90),
            write_latency: micros(28),
            channels: 64,
            burst_bytes: 42 * GB,
            burst_writes_per_second: 88_000,
            burst_bytes_per_second: 530 * MB,
            refill_bytes_per_second: 80 * MB,
            collection_pause: micros(5000),
            collection_share_ppm: 100_000,
            ..PLAIN
        }),
        ..like.model
    };
    Drive { model, ..like }
}

/// No real drive: what the figures in virtual time of docs/performance.md are measured on. 80 µs of
/// reading and 20 µs of writing come on top of an operation's share of a second.
fn nvme_ref() -> Drive {
    Drive {
        size_bytes: 1 << 40,
        sector_bytes: 4096,
        model: DriveModel {
            queue_depth: 1023,
            group: 0,
            cache_bytes: 0,
            flush: micros(5),
            media: Media::Flash(Flash {
                reads_per_second: 100_000,
                writes_per_second: 50_000,
                read_bytes_per_second: 2000 * MB,
                write_bytes_per_second: 1000 * MB,
                read_latency: micros(90),
                write_latency: micros(40),
                ..PLAIN
            }),
        },
    }
}
