//! Devices that Linux left behind in the middle of a load (`fixtures/bcache`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use wattle_format::bcache::{BcacheRole, BcacheSuperblock, CachedRun};

use super::set::CacheSet;
use super::{AT_BYTES, SUPERBLOCK_BYTES};

fn compose(backing: &[u8], cache: &dyn Fn(u64, usize) -> Vec<u8>, runs: &[CachedRun]) -> Vec<u8> {
    let mut data = backing.to_vec();
    for run in runs {
        let len = (run.end_sector - run.start_sector) as usize * 512;
        let at = run.start_sector as usize * 512;
        data[at..at + len].copy_from_slice(&cache(run.cache_sector * 512, len));
    }
    data
}

#[test]
fn scratch() {
    let dir = std::env::var("BC_DIR").unwrap();
    let dumps = std::env::var("BC_DUMPS").unwrap();
    let cases: usize = std::env::var("BC_CASES").unwrap().parse().unwrap();
    let wide = cases > 1;
    let name = |n: usize| if wide { format!("d{n:02}") } else { format!("d{n}") };
    for k in 0..cases {
        let cache = File::open(Path::new(&dir).join(name(3 * k))).unwrap();
        let read = |at: u64, len: usize| {
            let mut bytes = vec![0; len];
            cache.read_exact_at(&mut bytes, at).unwrap();
            Ok(bytes)
        };
        let size = cache.metadata().unwrap().len();
        let start = std::time::Instant::now();
        let set = CacheSet::read(size, false, &read);
        println!("case {k}: {:?}", start.elapsed());
        let set = match set {
            Ok(set) => set,
            Err(fault) => {
                println!("case {k}: {}", fault.problem("cache"));
                continue;
            }
        };
        for half in 0..2 {
            let backing = std::fs::read(Path::new(&dir).join(name(3 * k + 1 + half))).unwrap();
            let superblock =
                BcacheSuperblock::parse(&backing[AT_BYTES as usize..][..SUPERBLOCK_BYTES]).unwrap();
            let BcacheRole::Backing { data_sector, .. } = superblock.role else { panic!() };
            let runs = set.runs_of(superblock.uuid).unwrap();
            let dirty: u64 = runs.iter().map(|run| run.end_sector - run.start_sector).sum();
            let whole = compose(
                &backing,
                &|at, len| read(at, len).unwrap(),
                &runs,
            );
            let whole = &whole[data_sector as usize * 512..];
            let dump = std::fs::read(Path::new(&dumps).join(name(3 * cases + 2 * k + half))).unwrap();
            let differ: Vec<usize> = whole
                .chunks(512)
                .zip(dump.chunks(512))
                .enumerate()
                .filter(|(_, (a, b))| a != b)
                .map(|(at, _)| at)
                .collect();
            println!("case {k}-{half}: {} runs, {dirty} dirty sectors, {} sectors differ: {:?}", runs.len(), differ.len(), &differ[..differ.len().min(10)]);
        }
    }
}
