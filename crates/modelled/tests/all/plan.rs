//! Plans: what `advise` reckons is what the engine does, and what is planned is about the best
//! there is.

use wattle_advise::plan::{
    Candidate, FileSystemKind, PlanShape, PowerCutCover, Wish, Workload, candidates, first_member,
};
use wattle_drives::{Drive, ModelDrive};
use wattle_engine::geometry::Geometry;
use wattle_engine::units::{MemberIx, SECTOR_BYTES, Sector};
use wattle_modelled::plan::{RunLength, Trials, level_of, place_of};
use wattle_modelled::{DATA_OFFSET, Load, ModelledSetup, Rw, WriteHoleGuard};

const CHUNK: u64 = 64 << 10;

fn geometry(shape: PlanShape, members: u32, member_bytes: u64) -> Geometry {
    let (level, layout) = level_of(shape, members);
    let setup = ModelledSetup {
        level,
        layout,
        members,
        chunk_bytes: CHUNK,
        member_bytes,
        data_offset: DATA_OFFSET,
        missing: 0,
        guard: WriteHoleGuard::None,
        cache_bytes: None,
        cores: 1,
        seed: 1,
    };
    setup.geometry().unwrap()
}

const SHAPES: [(PlanShape, u32); 13] = [
    (PlanShape::Raid0, 3),
    (PlanShape::Raid1, 2),
    (PlanShape::Raid5, 3),
    (PlanShape::Raid5, 5),
    (PlanShape::Raid6, 4),
    (PlanShape::Raid6, 7),
    (PlanShape::Near(2), 4),
    (PlanShape::Near(2), 5),
    (PlanShape::Near(3), 7),
    (PlanShape::Far(2), 2),
    (PlanShape::Far(2), 5),
    (PlanShape::Offset(2), 4),
    (PlanShape::Offset(3), 5),
];

#[test]
fn an_array_has_the_room_that_was_reckoned() {
    for (shape, members) in SHAPES {
        for chunks in [160, 161, 163] {
            let reckoned = shape.array_bytes(members, chunks * CHUNK, CHUNK);
            let is = geometry(shape, members, chunks * CHUNK).array_sectors().0 * SECTOR_BYTES;
            assert_eq!(reckoned, is, "{shape} over {members}, {chunks} chunks");
        }
    }
}

#[test]
fn chunks_start_on_the_members_that_were_reckoned_and_stripes_are_as_wide() {
    for (shape, members) in SHAPES.into_iter().filter(|(shape, _)| *shape != PlanShape::Raid1) {
        let chunk_sectors = CHUNK / SECTOR_BYTES;
        let geometry = geometry(shape, members, 60 * CHUNK);
        let member_chunks = geometry.member_sectors(MemberIx(0)).0 / chunk_sectors;
        let mut holds = vec![];
        for member in (0..members as u16).map(MemberIx) {
            for chunk in 0..member_chunks {
                let at = geometry.array_sector_at(member, Sector(chunk * chunk_sectors));
                holds.extend(at.map(|at| (at.0 / chunk_sectors, u32::from(member.0))));
            }
        }
        for chunk in 0..geometry.array_sectors().0 / chunk_sectors {
            let first = first_member(shape, members, chunk);
            assert!(holds.contains(&(chunk, first)), "{shape} over {members}: chunk {chunk} on {first}");
        }
        let width = u64::from(shape.width(members)) * CHUNK;
        assert_eq!(width, u64::from(geometry.io_opt_bytes()), "{shape} over {members}");
    }
}

fn wish(drives: &[Drive], load: &Load, capacity_bytes: Option<u64>, survive: u32) -> Wish {
    Wish {
        sizes_bytes: drives.iter().map(|drive| drive.size_bytes).collect(),
        rotational: matches!(drives[0].model.media, wattle_drives::Media::Disk(_)),
        capacity_bytes,
        survive,
        spares: 0,
        workload: Workload {
            name: None,
            random: load.rw.random(),
            read_part: load.read_part(),
            bytes: load.bs_bytes,
            depth: load.depth() as u64,
        },
        level: None,
        layout: None,
        chunk_bytes: None,
        consistency: Some(PowerCutCover::Bitmap),
        file_system: FileSystemKind::Xfs,
        cores: 4,
    }
}

fn drives(count: usize, model: &str) -> Vec<Drive> {
    vec![model.parse::<ModelDrive>().unwrap().drive; count]
}

/// The first choice of a plan as a part of the best that an exhaustive search finds, and a line
/// that says so.
fn against_the_best(drives: &[Drive], load: &Load, survive: u32) -> (f64, String) {
    let wish = wish(drives, load, None, survive);
    let trials = Trials { wish: &wish, drives, load };
    let all = candidates(&wish, place_of).unwrap();
    let chosen: Candidate = trials.rank(all.clone(), &|_, _| ()).unwrap().swap_remove(0).candidate;
    let rates =
        all.iter().map(|candidate| trials.measure(candidate, RunLength::Exhaustive).unwrap().per_second);
    let rated: Vec<_> = rates.zip(&all).collect();
    let (most, best) = rated.iter().max_by(|one, other| one.0.total_cmp(&other.0)).unwrap();
    let (found, _) = rated.iter().find(|(_, candidate)| **candidate == chosen).unwrap();
    let part = found / most;
    let name = |candidate: &Candidate| match candidate.groups {
        1 => format!("{} {} KiB", candidate.shape, candidate.chunk_bytes >> 10),
        groups => format!("{groups} x {} {} KiB", candidate.shape, candidate.chunk_bytes >> 10),
    };
    (part, format!("{}, {found:.0} | {}, {most:.0} of {} | {part:.3}", name(&chosen), name(best), all.len()))
}

fn loads() -> [Load; 3] {
    let database = Load { rw: Rw::RandRw, bs_bytes: 8192, iodepth: 32, rwmixread: 70, ..Load::new() };
    let vm = Load { rw: Rw::RandRw, bs_bytes: 32 << 10, iodepth: 32, rwmixread: 60, ..Load::new() };
    let backup = Load { rw: Rw::Write, bs_bytes: 1 << 20, iodepth: 8, ..Load::new() };
    [database, vm, backup]
}

#[test]
fn the_first_choice_is_within_5_percent_of_an_exhaustive_search() {
    for load in &loads()[1..] {
        let (part, said) = against_the_best(&drives(4, "sata7200-small"), load, 1);
        assert!(part >= 0.95, "{said}");
    }
}

#[test]
fn what_a_run_may_owe_to_chance_is_looked_at_again() {
    // Near copies are behind far ones by 4 %; in a single run one of their chunks comes within 2 %
    // of them.
    let (drives, load) = (drives(6, "x25m"), &loads()[1]);
    let wish = wish(&drives, load, None, 1);
    let trials = Trials { wish: &wish, drives: &drives, load };
    let ranked = trials.rank(candidates(&wish, place_of).unwrap(), &|_, _| ()).unwrap();
    assert_eq!(ranked[0].candidate.shape, PlanShape::Far(2));
}

#[test]
#[ignore = "an hour: three workloads and four sets of drives, every candidate until it is steady"]
fn the_first_choice_is_within_5_percent_of_the_best_of_twelve_searches() {
    let sets = [(4, "sata7200-small", 1), (6, "x25m", 1), (8, "sata7200", 2), (5, "nvme", 1)];
    eprintln!("drives, survive | load | chosen, IOPS | best, IOPS | part");
    let mut too_slow = Vec::new();
    for (count, model, survive) in sets {
        for load in &loads() {
            let (part, said) = against_the_best(&drives(count, model), load, survive);
            let asked =
                format!("{count} x {model}, {survive} | {} {} KiB", load.rw.name(), load.bs_bytes >> 10);
            eprintln!("{asked} | {said}");
            if part < 0.95 {
                too_slow.push(asked);
            }
        }
    }
    assert!(too_slow.is_empty(), "{too_slow:?}");
}
