//! Logical volumes against what is below them: a linear one on RAID 5, aligned and not, and a
//! striped one over drives.

use std::time::Duration;

use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::Sector;
use wattle_engine::volume::{Leg, MapSegment, SegmentTarget};
use wattle_engine::{ArrayHandle, ArraySpec, MapSpec, MappedHandle, MemberSpec, VolumeRef};
use wattle_modelled::{DATA_OFFSET, Measured};
use wattle_rt::Device;

use super::load::{AccessPattern, FigureLoad};
use super::site::FigureSetup;
use super::tables::{aligned, percent, row};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A volume on an array, and a load on either.
#[derive(Clone, Debug)]
pub struct Laid {
    /// What it is, in a few words.
    pub name: String,
    /// The array, or the drives.
    pub setup: FigureSetup,
    /// How the volume lies.
    pub how: VolumeLayering,
    /// What clients do.
    pub load: FigureLoad,
    /// Part of what is below that must be reached; `None` where the volume is put badly on purpose.
    pub bound: Option<f64>,
}

/// How a volume lies on what is below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeLayering {
    /// In one piece behind so many bytes of the array.
    Linear {
        /// Where it starts.
        offset_bytes: u64,
    },
    /// By turns on the drives, each of them a physical volume; compared with RAID 0 of the same
    /// chunk.
    Striped {
        /// For each turn.
        stripe_bytes: u64,
    },
}

/// A linear volume behind 1 MiB, which `pv create` rounds up to whole stripes; behind half a chunk
/// more; behind sector 63. A striped one over eight drives.
#[must_use]
pub fn all() -> Vec<Laid> {
    let mut all = Vec::new();
    for members in [4, 6, 9] {
        let setup = FigureSetup::x25m(members);
        let stripe = setup.chunk_bytes * u64::from(members - 1);
        let sequential = FigureLoad {
            request_bytes: stripe,
            access: AccessPattern::Sequential,
            warm_up: Duration::from_millis(100),
            window: Duration::from_millis(500),
            ..FigureLoad::random_writes(1)
        };
        for (where_, offset_bytes, bound) in [
            ("aligned", MIB.next_multiple_of(stripe), Some(0.95)),
            ("half a chunk off", MIB.next_multiple_of(stripe) + 32 * KIB, None),
            ("at sector 63", 63 * 512, None),
        ] {
            all.push(Laid {
                name: format!("linear on RAID 5 over {members}, {where_}: whole stripes, one by one"),
                setup,
                how: VolumeLayering::Linear { offset_bytes },
                load: sequential.clone(),
                bound,
            });
        }
        let offset_bytes = MIB.next_multiple_of(stripe);
        for (what, load) in [
            ("4 KiB random write", FigureLoad::random_writes(64)),
            ("4 KiB random read", FigureLoad { reads_percent: 100, ..FigureLoad::random_writes(64) }),
        ] {
            let name = format!("linear on RAID 5 over {members}, aligned: {what}");
            all.push(Laid {
                name,
                setup,
                how: VolumeLayering::Linear { offset_bytes },
                load,
                bound: Some(0.95),
            });
        }
    }
    let setup = FigureSetup { level: Level::Raid0, layout: 0, ..FigureSetup::x25m(8) };
    let how = VolumeLayering::Striped { stripe_bytes: setup.chunk_bytes };
    let sequential = |reads_percent| FigureLoad {
        reads_percent,
        request_bytes: MIB,
        access: AccessPattern::Sequential,
        warm_up: Duration::from_millis(100),
        window: Duration::from_millis(500),
        ..FigureLoad::random_writes(8)
    };
    for (what, load) in [
        ("4 KiB random write", FigureLoad::random_writes(128)),
        ("4 KiB random read", FigureLoad { reads_percent: 100, ..FigureLoad::random_writes(128) }),
        ("1 MiB sequential write", sequential(0)),
        ("1 MiB sequential read", sequential(100)),
    ] {
        all.push(Laid { name: format!("striped over 8: {what}"), setup, how, load, bound: Some(0.95) });
    }
    all
}

impl Laid {
    /// The load on what is below, and on the volume.
    ///
    /// # Panics
    /// If a request fails: nothing is wrong with these drives.
    #[must_use]
    pub fn measure(&self) -> (Measured, Measured) {
        let below = self.setup.measure(&self.load);
        let mut site = self.setup.build(0);
        let (spec, drives, how) = (site.spec(), site.drives.clone(), self.how);
        let load = self.load.over(self.setup.cores);
        let above = site.measure_on(
            &load,
            spec,
            |_, _| Box::new(NoMetadata),
            async move |core, array| {
                let map = match how {
                    VolumeLayering::Linear { offset_bytes } => linear(array, offset_bytes),
                    VolumeLayering::Striped { stripe_bytes } => {
                        let mut below = Vec::new();
                        for drive in drives {
                            let spec = alone(drive);
                            below.push(ArrayHandle::start(core, spec, Box::new(NoMetadata)).await.volume());
                        }
                        striped(below, stripe_bytes)
                    }
                };
                MappedHandle::start(core, "volume", map).await.expect("the map fits").volume()
            },
        );
        (below, above.unwrap_or_else(|error| panic!("{self:?}: {error}")))
    }
}

fn linear(array: VolumeRef, offset_bytes: u64) -> MapSpec {
    let len_bytes = (array.size_bytes() - offset_bytes) / MIB * MIB;
    MapSpec {
        below: vec![array],
        segments: vec![MapSegment::linear(len_bytes, 0, offset_bytes)],
        read_only: false,
    }
}

fn striped(below: Vec<VolumeRef>, stripe_bytes: u64) -> MapSpec {
    let each = below[0].size_bytes() / stripe_bytes * stripe_bytes;
    let legs = (0..below.len()).map(|below| Leg { below, offset_bytes: 0 }).collect();
    let segment = MapSegment {
        len_bytes: each * below.len() as u64,
        target: SegmentTarget::Striped { stripe_bytes, legs },
    };
    MapSpec { below, segments: vec![segment], read_only: false }
}

/// A drive as a physical volume.
fn alone(drive: Device) -> ArraySpec {
    let sectors = Sector(drive.size_bytes() / 512 - DATA_OFFSET.0);
    let geometry = Geometry::new(&Params {
        level: Level::Linear,
        layout: 0,
        chunk: Sector(0),
        raid_disks: 1,
        component_size: sectors,
        member_sizes: vec![sectors],
    });
    let member = MemberSpec::in_sync(drive, DATA_OFFSET);
    ArraySpec::new("alone", geometry.expect("a drive by itself"), vec![member])
}

/// Measures every case.
#[must_use]
pub fn table(all: &[Laid]) -> String {
    let mut rows = vec![row(&[&"", &"QD", &"below, per second", &"volume", &"of it", &"bound"])];
    for laid in all {
        let (below, above) = laid.measure();
        rows.push(row(&[
            &laid.name,
            &laid.load.depth,
            &format!("{:.0}", below.per_second()),
            &format!("{:.0}", above.per_second()),
            &percent(above.per_second() / below.per_second()),
            &laid.bound.map(percent).unwrap_or_default(),
        ]));
    }
    aligned(&rows)
}
