//! An array on modelled drives.

use std::time::Duration;

use wattle_engine::ArraySpec;
use wattle_engine::geometry::Level;
use wattle_engine::metadata::{Metadata, NoMetadata};
use wattle_engine::units::SECTOR_BYTES;
use wattle_modelled::{DATA_OFFSET, Measured, ModelledSite, WriteHoleGuard};
use wattle_rt::{Core, Device, DriveConfig};

use super::load::FigureLoad;

/// What a modelled drive can do: limits that all of its operations share, and a latency on top.
#[derive(Clone, Copy, Debug)]
pub struct LimitedDrive {
    /// Reads per second.
    pub reads_per_second: u64,
    /// Writes per second.
    pub writes_per_second: u64,
    /// Latency of a read on top of its share of a second.
    pub read_latency: Duration,
    /// Latency of a write on top of its share of a second.
    pub write_latency: Duration,
    /// Bytes read in a second.
    pub read_bytes_per_second: u64,
    /// Bytes written in a second.
    pub write_bytes_per_second: u64,
}

impl LimitedDrive {
    /// A drive of today.
    pub const FAST: LimitedDrive = LimitedDrive {
        reads_per_second: 100_000,
        writes_per_second: 50_000,
        read_latency: Duration::from_micros(80),
        write_latency: Duration::from_micros(20),
        read_bytes_per_second: 2_000_000_000,
        write_bytes_per_second: 1_000_000_000,
    };
    /// Like an Intel X25-M of the second generation.
    pub const X25M: LimitedDrive = LimitedDrive {
        reads_per_second: 40_000,
        writes_per_second: 20_000,
        read_latency: Duration::from_micros(65),
        write_latency: Duration::from_micros(85),
        read_bytes_per_second: 250_000_000,
        write_bytes_per_second: 70_000_000,
    };

    /// Seconds that it is busy with a read.
    #[must_use]
    pub fn read_seconds(&self, bytes: u64) -> f64 {
        (1.0 / self.reads_per_second as f64).max(bytes as f64 / self.read_bytes_per_second as f64)
    }

    /// Seconds that it is busy with a write.
    #[must_use]
    pub fn write_seconds(&self, bytes: u64) -> f64 {
        (1.0 / self.writes_per_second as f64).max(bytes as f64 / self.write_bytes_per_second as f64)
    }

    /// A drive with a data area of `data_bytes`, and a cache that needs no flushing.
    #[must_use]
    pub fn drive(&self, data_bytes: u64, name: String) -> DriveConfig {
        let always = |latency: Duration| latency..latency;
        DriveConfig {
            size_bytes: DATA_OFFSET.0 * SECTOR_BYTES + data_bytes,
            sector_bytes: 4096,
            read_latency: always(self.read_latency),
            write_latency: always(self.write_latency),
            flush_latency: always(Duration::from_micros(5)),
            read_bytes_per_second: self.read_bytes_per_second,
            write_bytes_per_second: self.write_bytes_per_second,
            reads_per_second: self.reads_per_second,
            writes_per_second: self.writes_per_second,
            volatile_cache: false,
            name,
            ..DriveConfig::default()
        }
    }
}

/// Which array is measured.
#[derive(Clone, Copy, Debug)]
pub struct FigureSetup {
    /// Its level.
    pub level: Level,
    /// Its layout, as md numbers them.
    pub layout: u32,
    /// Its members.
    pub members: u32,
    /// Its chunk in bytes.
    pub chunk_bytes: u64,
    /// Bytes of data on each member.
    pub member_bytes: u64,
    /// Cores.
    pub cores: usize,
    /// Its drives.
    pub model: LimitedDrive,
}

impl FigureSetup {
    /// RAID 5, left-symmetric, over 8 members of 4 GiB with chunks of 64 KiB, on one core.
    pub const RAID5: FigureSetup = FigureSetup {
        level: Level::Raid5,
        layout: 2,
        members: 8,
        chunk_bytes: 64 << 10,
        member_bytes: 4 << 30,
        cores: 1,
        model: LimitedDrive::FAST,
    };
    /// The same as RAID 6.
    pub const RAID6: FigureSetup = FigureSetup { level: Level::Raid6, ..FigureSetup::RAID5 };

    /// RAID 5 over `members` drives like the X25-M.
    #[must_use]
    pub const fn x25m(members: u32) -> FigureSetup {
        FigureSetup { members, model: LimitedDrive::X25M, ..FigureSetup::RAID5 }
    }

    /// The same as RAID 10 with two copies: `near`, `far` and `offset` as md encodes them.
    #[must_use]
    pub const fn raid10(layout: u32) -> FigureSetup {
        FigureSetup { level: Level::Raid10, layout, ..FigureSetup::RAID5 }
    }

    /// Drives for it, and as many `spares`, in a world of their own.
    ///
    /// # Panics
    /// If there is no such array: set-ups are written down, not computed.
    #[must_use]
    pub fn build(&self, spares: usize) -> ModelledSite {
        let setup = wattle_modelled::ModelledSetup {
            level: self.level,
            layout: self.layout,
            members: self.members,
            chunk_bytes: self.chunk_bytes,
            member_bytes: self.member_bytes,
            data_offset: DATA_OFFSET,
            missing: 0,
            guard: WriteHoleGuard::None,
            cache_bytes: None,
            cores: self.cores,
            seed: 1,
        };
        let count = self.members as usize + spares;
        let drives = (0..count).map(|number| self.model.drive(self.member_bytes, format!("drive{number}")));
        setup.build(drives.collect()).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// Measures a load on an array in sync, without bitmap or log.
    #[must_use]
    pub fn measure(&self, load: &FigureLoad) -> Measured {
        self.measure_with(load, |spec| spec, |_, _| Box::new(NoMetadata))
    }

    /// Measures a load on the array that `change` makes of one in sync, with `metadata`.
    ///
    /// # Panics
    /// If a request fails: nothing is wrong with these drives.
    #[must_use]
    pub fn measure_with(
        &self,
        load: &FigureLoad,
        change: impl FnOnce(ArraySpec) -> ArraySpec,
        metadata: impl FnOnce(&Core, &[Device]) -> Box<dyn Metadata>,
    ) -> Measured {
        let mut site = self.build(0);
        let spec = change(site.spec());
        let measured = site.measure(&load.over(self.cores), spec, metadata);
        measured.unwrap_or_else(|error| panic!("{load:?}: {error}"))
    }
}
