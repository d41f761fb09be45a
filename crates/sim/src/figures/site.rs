//! An array on modelled drives.

use std::ops::Range;
use std::time::Duration;

use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::{Metadata, NoMetadata};
use wattle_engine::units::{MemberIx, Sector};
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec};
use wattle_rt::{Core, Device, DriveConfig, DriveControl, World, WorldConfig};

use super::load::{Load, Measured};

/// Where the members' data starts: before it is room for every kind of metadata, and only there contents are kept.
pub const DATA_OFFSET: Sector = Sector(4096);

/// What a modelled drive can do: limits that all of its operations share, and a latency on top.
#[derive(Clone, Copy, Debug)]
pub struct Model {
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

impl Model {
    /// A drive of today.
    pub const FAST: Model = Model {
        reads_per_second: 100_000,
        writes_per_second: 50_000,
        read_latency: Duration::from_micros(80),
        write_latency: Duration::from_micros(20),
        read_bytes_per_second: 2_000_000_000,
        write_bytes_per_second: 1_000_000_000,
    };
    /// Like an Intel X25-M of the second generation.
    pub const X25M: Model = Model {
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
        let data_offset = DATA_OFFSET.0 * 512;
        DriveConfig {
            size_bytes: data_offset + data_bytes,
            sector_bytes: 4096,
            read_latency: always(self.read_latency),
            write_latency: always(self.write_latency),
            flush_latency: always(Duration::from_micros(5)),
            read_bytes_per_second: self.read_bytes_per_second,
            write_bytes_per_second: self.write_bytes_per_second,
            reads_per_second: self.reads_per_second,
            writes_per_second: self.writes_per_second,
            volatile_cache: false,
            kept_bytes: 0..data_offset,
            name,
            ..DriveConfig::default()
        }
    }
}

/// Which array is measured.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
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
    pub model: Model,
}

impl Setup {
    /// RAID 5, left-symmetric, over 8 members of 4 GiB with chunks of 64 KiB, on one core.
    pub const RAID5: Setup = Setup {
        level: Level::Raid5,
        layout: 2,
        members: 8,
        chunk_bytes: 64 << 10,
        member_bytes: 4 << 30,
        cores: 1,
        model: Model::FAST,
    };
    /// The same as RAID 6.
    pub const RAID6: Setup = Setup { level: Level::Raid6, ..Setup::RAID5 };

    /// RAID 5 over `members` drives like the X25-M.
    #[must_use]
    pub const fn x25m(members: u32) -> Setup {
        Setup { members, model: Model::X25M, ..Setup::RAID5 }
    }

    /// The same as RAID 10 with two copies: `near`, `far` and `offset` as md encodes them.
    #[must_use]
    pub const fn raid10(layout: u32) -> Setup {
        Setup { level: Level::Raid10, layout, ..Setup::RAID5 }
    }

    /// The array's map.
    ///
    /// # Panics
    /// If there is no such array: set-ups are written down, not computed.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        let params = Params {
            level: self.level,
            layout: self.layout,
            chunk: Sector(self.chunk_bytes / 512),
            raid_disks: self.members,
            component_size: Sector(self.member_bytes / 512),
            member_sizes: match self.level {
                Level::Raid0 => vec![Sector(self.member_bytes / 512); self.members as usize],
                _ => Vec::new(),
            },
        };
        Geometry::new(&params).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// Drives for it, and as many `spares`, in a world of their own.
    #[must_use]
    pub fn build(&self, spares: usize) -> Site {
        let mut world = World::new(WorldConfig {
            seed: 1,
            cores: self.cores,
            time_limit: Duration::from_secs(3600),
            poll_limit: u64::MAX,
            torn_unreadable_ppm: 0,
        });
        world.keep_order();
        let count = self.members as usize + spares;
        let drives: Vec<_> = (0..count)
            .map(|number| world.add_drive(self.model.drive(self.member_bytes, format!("drive{number}"))))
            .collect();
        let controls = drives.iter().map(|drive| world.drive(drive)).collect();
        Site { setup: *self, world, drives, controls }
    }

    /// The array in sync on the first of `drives`.
    #[must_use]
    pub fn spec(&self, drives: &[Device]) -> ArraySpec {
        let members = drives.iter().take(self.members as usize);
        let members = members.map(|drive| MemberSpec::in_sync(drive.clone(), DATA_OFFSET)).collect();
        ArraySpec::new("measured", self.geometry(), members)
    }

    /// Measures a load on an array in sync, without bitmap or log.
    #[must_use]
    pub fn measure(&self, load: &Load) -> Measured {
        self.measure_with(load, |spec| spec, |_, _| Box::new(NoMetadata))
    }

    /// Measures a load on the array that `change` makes of one in sync, with `metadata`.
    ///
    /// # Panics
    /// If a request fails: nothing is wrong with these drives.
    #[must_use]
    pub fn measure_with(
        &self,
        load: &Load,
        change: impl FnOnce(ArraySpec) -> ArraySpec,
        metadata: impl FnOnce(&Core, &[Device]) -> Box<dyn Metadata>,
    ) -> Measured {
        let mut site = self.build(0);
        let spec = change(self.spec(&site.drives));
        let (drives, controls) = (site.drives.clone(), site.controls.clone());
        let work = async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, metadata(&core, &drives)).await;
            let measured = load.run(&core, &array, &controls).await;
            array.stop(&core).await.expect("nothing is wrong with the drives");
            measured
        };
        site.world.run(work).expect_done()
    }
}

/// Drives in a world of their own.
pub struct Site {
    /// What for.
    pub setup: Setup,
    /// Their world.
    pub world: World,
    /// One by slot, then the spares.
    pub drives: Vec<Device>,
    /// Their controls.
    pub controls: Vec<DriveControl>,
}

impl Site {
    /// Slots of the array.
    #[must_use]
    pub fn slots(&self) -> Range<u16> {
        0..self.setup.members as u16
    }

    /// The last slot, for what befalls one member.
    #[must_use]
    pub fn last(&self) -> MemberIx {
        MemberIx(self.setup.members as u16 - 1)
    }
}
