//! Logical volumes that keep books of their own, on images made by hand and by the tools of
//! thin-provisioning-tools, against what their books say, block by block; and what cannot be known
//! from them.

mod thin;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use wattle_control::lvm::edit::{State, check_changeable};
use wattle_control::members::{Keyring, MemberAccess};
use wattle_control::scan::scan;
use wattle_control::stack::{Plain, Purpose, Stack, StackOptions};
use wattle_control::{Check, Code, Forced, GroupId, Problem};
use wattle_engine::VolumeError;
use wattle_format::dm::raid::{DmRaidShape, Superblock};
use wattle_format::lvm::area::Header;
use wattle_format::lvm::label::Extension;
use wattle_format::lvm::segment::{CacheParts, Stripe};
use wattle_format::lvm::{Id, Image, Label, Lv, LvSegment, Pv, RAID_TYPES, Raid, SegmentKind, Stamp, Vg};
use wattle_rt::{BufMut, Core, RuntimeConfig};

const PV_BYTES: u64 = 64 << 20;
const EXTENT_BYTES: u64 = 1 << 20;
/// Of the origin of everything here.
const SIZE_BYTES: usize = 4 << 20;
const PVS: usize = 2;

fn id(seed: u8) -> Id {
    Id::from_random(std::array::from_fn(|i| seed.wrapping_mul(37).wrapping_add(i as u8)))
}

fn stamp() -> Stamp {
    Stamp { description: "test".to_owned(), host: "here".to_owned(), time: 1 }
}

fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Bytes of which no two sectors are alike.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let sector = |sector: u64| splitmix64(&mut (seed << 32 | sector)).to_le_bytes().repeat(64);
    (0..len as u64 / 512).flat_map(sector).collect()
}

/// A volume group on two files, whose volumes are given as they go.
struct Rig {
    dir: TempDir,
    vg: Vg,
    next_extent: [u64; PVS],
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut vg = Vg::new("made", id(200), EXTENT_BYTES / 512);
        for pv in 0..PVS {
            let mut label = Label::create(id(pv as u8), PV_BYTES, 64 << 10).unwrap();
            label.extension = Some(Extension::new(true));
            let file = File::create(dir.path().join(format!("pv{pv}"))).unwrap();
            file.set_len(PV_BYTES).unwrap();
            file.write_all_at(&label.encode().unwrap(), 512).unwrap();
            let pe_start = label.data_areas[0].offset_bytes / 512;
            let count = label.pe_count(EXTENT_BYTES / 512);
            vg.pvs.push(Pv::new(&format!("pv{pv}"), label.id, PV_BYTES / 512, pe_start, count));
        }
        Self { dir, vg, next_extent: [0; PVS] }
    }

    fn path(&self, pv: usize) -> PathBuf {
        self.dir.path().join(format!("pv{pv}"))
    }

    fn add(&mut self, name: &str, visible: bool, extents: u64, kind: SegmentKind) {
        let segment = LvSegment::new(0, extents, kind);
        let mut lv = Lv::new(name, id(100 + self.vg.lvs.len() as u8), &stamp(), vec![segment]);
        lv.status.retain(|word| visible || word != "VISIBLE");
        self.vg.lvs.push(lv);
    }

    /// A linear volume that holds this.
    fn linear(&mut self, name: &str, visible: bool, pv: usize, contents: &[u8]) {
        let extents = (contents.len() as u64).div_ceil(EXTENT_BYTES);
        let extent = self.next_extent[pv];
        self.next_extent[pv] += extents;
        let at = self.vg.pvs[pv].pe_start * 512 + extent * EXTENT_BYTES;
        let file = File::options().write(true).open(self.path(pv)).unwrap();
        file.write_all_at(contents, at).unwrap();
        let stripes = vec![Stripe { name: format!("pv{pv}"), extent }];
        self.add(name, visible, extents, SegmentKind::Striped { stripe_sectors: 0, stripes });
    }

    /// A mirror with an image of its own on each physical volume.
    fn raid1(&mut self, name: &str, images: [&[u8]; PVS]) {
        let sectors = images[0].len() as u64 / 512;
        let shape = DmRaidShape {
            devices: PVS as u32,
            level: 1,
            layout: 0,
            stripe_sectors: 0,
            array_sectors: sectors,
            device_sectors: sectors,
        };
        let mut parts = Vec::new();
        for (pv, image) in images.into_iter().enumerate() {
            let [meta, data] = ["rmeta", "rimage"].map(|part| format!("{name}_{part}_{pv}"));
            self.linear(&meta, false, pv, Superblock::new(&shape, pv as u32, u64::MAX).bytes());
            self.linear(&data, false, pv, image);
            parts.push(Image { meta: Some(meta), data });
        }
        let raid = Raid {
            reserve_extents: None,
            raid_type: *RAID_TYPES.iter().find(|raid| raid.name == "raid1").unwrap(),
            stripe_sectors: None,
            region_sectors: Some(1024),
            data_copies: None,
            data_offset_sectors: None,
            images: parts,
        };
        self.add(name, true, sectors * 512 / EXTENT_BYTES, SegmentKind::Raid(raid));
    }

    /// Cuts off what is behind so many bytes of a physical volume's extents.
    fn cut(&self, pv: usize, bytes: u64) {
        let file = File::options().write(true).open(self.path(pv)).unwrap();
        file.set_len(self.vg.pvs[pv].pe_start * 512 + bytes).unwrap();
    }

    /// Writes a text to a physical volume, and another one that is only about to count.
    fn commit(&self, pv: usize, vg: &Vg, precommitted: Option<&Vg>) {
        let file = File::options().read(true).write(true).open(self.path(pv)).unwrap();
        let mut bytes = vec![0; 2048];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let area = Label::find(&bytes).unwrap().unwrap().metadata_areas[0];
        let commit = Header::new(area).unwrap().commit(&vg.to_text(&stamp())).unwrap();
        commit.texts.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
        let next = precommitted.map(|vg| commit.commit.commit(&vg.to_text(&stamp())).unwrap());
        next.iter()
            .flat_map(|next| &next.texts)
            .for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
        let header = next.map_or(commit.commit, |next| next.precommit);
        file.write_all_at(header.bytes(), area.offset_bytes).unwrap();
    }

    /// Commits the text, and opens what is on some of the physical volumes.
    fn open<T>(&self, pvs: &[usize], main: impl AsyncFnOnce(Core, &mut Stack) -> T) -> T {
        assert_eq!(self.vg.problems(), []);
        (0..PVS).for_each(|pv| self.commit(pv, &self.vg, None));
        let names: Vec<_> = pvs.iter().map(|&pv| self.path(pv)).collect();
        self.look(&names, Purpose::Read, Forced::default(), main)
    }

    /// Opens these files as they are.
    fn look<T>(
        &self,
        files: &[PathBuf],
        purpose: Purpose,
        forced: Forced,
        main: impl AsyncFnOnce(Core, &mut Stack) -> T,
    ) -> T {
        let names: Vec<_> = files.iter().map(|file| file.to_str().unwrap().to_owned()).collect();
        let scan = scan(MemberAccess::local().look_all(&names).unwrap(), Forced::default()).unwrap();
        let config = RuntimeConfig { cores: 2, ..RuntimeConfig::default() };
        wattle_rt::run(config, async |core| {
            let options =
                StackOptions { policy: forced.into(), purpose, wanted: None, keys: Keyring::default() };
            let mut stack = Stack::open(&core, scan, options, &mut Plain).await.unwrap();
            let value = main(core.clone(), &mut stack).await;
            stack.close(&core).await.unwrap();
            value
        })
        .unwrap()
    }

    /// What a volume holds, and what is said about it.
    fn contents(&self, pvs: &[usize], name: &str) -> Result<(Vec<u8>, Vec<String>), Problem> {
        self.open(pvs, async |core, stack| {
            let member = stack.find(Some(&format!("made/{name}")))?.member?;
            let volume = stack.volume(&core, member).await?.open(&core).unwrap();
            assert!(volume.read_only());
            let (result, buf) = volume.read(0, BufMut::alloc(volume.size_bytes() as usize)).await;
            assert_eq!(result, Ok(()));
            Ok((buf.to_vec(), stack.notes(member)))
        })
    }

    fn expect(&self, pvs: &[usize], name: &str, expected: &[u8]) {
        let (found, _) = self.contents(pvs, name).unwrap();
        assert_eq!(found.len(), expected.len(), "{name}");
        let wrong = found.chunks(512).zip(expected.chunks(512)).position(|(found, wanted)| found != wanted);
        assert_eq!(wrong, None, "{name}: the first sector that differs");
    }

    fn refused(&self, pvs: &[usize], name: &str, code: Code, why: &str) {
        let problem = self.contents(pvs, name).unwrap_err();
        assert_eq!(problem.code, code, "{problem:?}");
        assert!(problem.what.contains(why), "{}", problem.what);
    }
}

/// Metadata that a tool makes of its description; `None` (loudly, and never in CI) without the
/// tool.
fn restored(tool: &str, arguments: &[&str], description: &str) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("in"), description).unwrap();
    File::create(path("out")).unwrap().set_len(2 << 20).unwrap();
    let mut command = Command::new(tool);
    match command.args(["-i", &path("in"), "-o", &path("out")]).args(arguments).output() {
        Ok(output) => assert!(output.status.success(), "{tool}: {output:?}"),
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: no {tool} here ({error}); scripts/deps installs it");
            return None;
        }
        Err(error) => panic!("{tool}: {error}"),
    }
    Some(std::fs::read(path("out")).unwrap())
}

/// Gives a superblock the checksum it needs: CRC-32C without the final inversion, and a salt.
fn reseal(block: &mut [u8], salt: u32) {
    let mut crc = u32::MAX;
    for byte in &block[4..4096] {
        crc ^= u32::from(*byte);
        (0..8).for_each(|_| crc = (crc >> 1) ^ (0x82F6_3B78 * (crc & 1)));
    }
    block[..4].copy_from_slice(&(crc ^ salt).to_le_bytes());
}

/// A store of random exceptions in chunks of so many bytes, and the snapshot that it makes of an
/// origin.
fn store(origin: &[u8], chunk: usize, count: usize, random: &mut u64) -> (Vec<u8>, Vec<u8>) {
    let mut store = noise(2, SIZE_BYTES);
    let mut snapshot = origin.to_vec();
    store[..chunk].fill(0);
    for (at, word) in [(0, 0x7041_6e53_u32), (4, 1), (8, 1), (12, chunk as u32 / 512)] {
        store[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    let per_table = chunk / 16;
    let mut copied = BTreeMap::new();
    for place in 0..count {
        let (table, entry) = (place / per_table, place % per_table);
        let table_at = (1 + table * (per_table + 1)) * chunk;
        if entry == 0 {
            store[table_at..table_at + chunk].fill(0);
        }
        let to = table_at / chunk + 1 + entry;
        let mut from = splitmix64(random) as usize % (origin.len() / chunk);
        while copied.insert(from, to).is_some() {
            from = (from + 1) % (origin.len() / chunk);
        }
        let entry_at = table_at + entry * 16;
        store[entry_at..entry_at + 8].copy_from_slice(&(from as u64).to_le_bytes());
        store[entry_at + 8..entry_at + 16].copy_from_slice(&(to as u64).to_le_bytes());
        if entry + 1 == per_table {
            // The next table is zeroed before this one is full.
            store[table_at + (per_table + 1) * chunk..][..chunk].fill(0);
        }
        let copy = store[to * chunk..(to + 1) * chunk].to_vec();
        snapshot[from * chunk..(from + 1) * chunk].copy_from_slice(&copy);
    }
    (store, snapshot)
}

#[test]
fn both_sides_of_old_snapshots() {
    let origin = noise(1, SIZE_BYTES);
    let mut random = 3;
    for (round, chunk) in [512, 4096, 16 << 10].into_iter().enumerate() {
        let count = [300, 600, 100][round];
        let (store, snapshot) = store(&origin, chunk, count, &mut random);
        for merging in [false, true] {
            let mut rig = Rig::new();
            rig.linear("origin", true, 0, &origin);
            rig.linear("kept", false, 1, &store);
            let kind = SegmentKind::Snapshot {
                origin: "origin".to_owned(),
                store: "kept".to_owned(),
                chunk_sectors: chunk as u64 / 512,
                merging,
            };
            rig.add("snapshot0", true, 4, kind);
            rig.expect(&[0, 1], "origin", if merging { &snapshot } else { &origin });
            if !merging {
                rig.expect(&[0, 1], "kept", &snapshot);
                rig.expect(&[0], "origin", &origin);
                rig.refused(&[0], "kept", Code::MissingPhysical, "kept");
            }
        }
    }
}

#[test]
fn snapshots_that_were_given_up_or_contradict_themselves() {
    let origin = noise(1, SIZE_BYTES);
    let refused = |change: fn(&mut Vec<u8>), code: Code, why: &str| {
        let (mut store, _) = store(&origin, 4096, 10, &mut 1);
        change(&mut store);
        let mut rig = Rig::new();
        rig.linear("origin", true, 0, &origin);
        rig.linear("kept", false, 1, &store);
        let (of, kept) = ("origin".to_owned(), "kept".to_owned());
        rig.add(
            "snapshot0",
            true,
            4,
            SegmentKind::Snapshot { origin: of, store: kept, chunk_sectors: 8, merging: false },
        );
        rig.refused(&[0, 1], "kept", code, why);
        rig.expect(&[0, 1], "origin", &origin);
    };
    refused(|store| store[4] = 0, Code::InvalidSnapshot, "overflowed");
    refused(|store| store[0] = 0, Code::DamagedVolume, "magic");
    refused(|store| store[12] = 16, Code::DamagedVolume, "chunks have 16 sectors");
    refused(|store| store[4096 + 8] = 1, Code::DamagedVolume, "holds no data");
    refused(|store| store.copy_within(4096..4104, 4096 + 16), Code::DamagedVolume, "twice");
}

fn cache_rig(metadata: &[u8], mode: &str, version: u64, single: bool) -> Rig {
    let (origin, fast) = (noise(21, SIZE_BYTES), noise(22, 2 << 20));
    let mut rig = Rig::new();
    rig.linear("slow", false, 0, &origin);
    let parts = CacheParts { metadata_start: 0, metadata_len: 4096, data_start: 4096, data_len: 4096 };
    let (chunk_sectors, metadata_format, mode) = (Some(64), Some(version), Some(mode.to_owned()));
    let mut kind = SegmentKind::Cache {
        pool: "fast".to_owned(),
        origin: "slow".to_owned(),
        single: single.then_some(parts),
        chunk_sectors,
        metadata_format,
        mode: mode.clone(),
    };
    if single {
        rig.linear("fast", false, 1, &[metadata, &fast].concat());
    } else {
        rig.linear("fast_cmeta", false, 1, metadata);
        rig.linear("fast_cdata", false, 1, &fast);
        let (data, metadata) = ("fast_cdata".to_owned(), "fast_cmeta".to_owned());
        rig.add(
            "fast",
            false,
            2,
            SegmentKind::CachePool { data, metadata, chunk_sectors, metadata_format, mode },
        );
        if let SegmentKind::Cache { mode, chunk_sectors, metadata_format, .. } = &mut kind {
            (*mode, *chunk_sectors, *metadata_format) = (None, None, None);
        }
    }
    rig.add("cached", true, 4, kind);
    rig
}

/// Of 64 blocks of 32 KiB some are in use, and of these some dirty.
#[test]
fn caches() {
    let (used, dirty) = (|block: usize| !block.is_multiple_of(5), |block: usize| block.is_multiple_of(3));
    let from = |block: usize| (block * 37 + 3) % 128;
    let description = |with_dirty: bool| {
        let mut text = String::from(
            "<superblock uuid=\"\" block_size=\"64\" nr_cache_blocks=\"64\" policy=\"smq\" hint_width=\"4\">\n<mappings>\n",
        );
        for block in (0..64).filter(|&block| used(block)) {
            let (origin, dirty) = (from(block), with_dirty && dirty(block));
            writeln!(text, "<mapping cache_block=\"{block}\" origin_block=\"{origin}\" dirty=\"{dirty}\"/>")
                .unwrap();
        }
        text + "</mappings>\n<hints></hints>\n</superblock>\n"
    };
    let (origin, fast) = (noise(21, SIZE_BYTES), noise(22, 2 << 20));
    let expected = |in_cache: &dyn Fn(usize) -> bool| {
        let mut expected = origin.clone();
        for block in (0..64).filter(|&block| used(block) && in_cache(block)) {
            let at = from(block) << 15;
            expected[at..at + (1 << 15)].copy_from_slice(&fast[block << 15..(block + 1) << 15]);
        }
        expected
    };
    for (version, single) in [("1", true), ("2", true), ("1", false), ("2", false)] {
        let number = version.parse().unwrap();
        let made = |with_dirty, more: &[&str]| {
            let arguments = [&["--metadata-version", version], more].concat();
            restored("cache_restore", &arguments, &description(with_dirty))
        };
        let Some(clean) = made(false, &[]) else { return };
        let stopped = made(true, &[]).unwrap();
        let killed = made(true, &["--omit-clean-shutdown"]).unwrap();
        let rig = |metadata: &[u8], mode| cache_rig(metadata, mode, number, single);
        rig(&clean, "writeback").expect(&[0, 1], "cached", &origin);
        rig(&stopped, "writeback").expect(&[0, 1], "cached", &expected(&dirty));
        rig(&killed, "writeback").expect(&[0, 1], "cached", &expected(&|_| true));
        rig(&killed, "writethrough").expect(&[0, 1], "cached", &origin);
        for mode in ["writethrough", "passthrough"] {
            let (found, notes) = rig(&clean, mode).contents(&[0], "cached").unwrap();
            assert!(found == origin && notes.len() == 1 && notes[0].contains("origin"), "{notes:?}");
        }
        rig(&clean, "writeback").refused(&[0], "cached", Code::CacheMissing, "cache");
        let mut torn = stopped;
        torn[4096..].chunks_mut(4096).for_each(|block| block[100] ^= 1);
        rig(&torn, "writeback").refused(&[0, 1], "cached", Code::DamagedVolume, "checksum");
        rig(&torn, "writethrough").expect(&[0, 1], "cached", &origin);
    }
}

fn mirror_rig(log: Option<&[u8]>) -> Rig {
    let mut rig = Rig::new();
    rig.linear("leg0", false, 0, &noise(31, SIZE_BYTES));
    rig.linear("leg1", false, 1, &noise(32, SIZE_BYTES));
    if let Some(log) = log {
        rig.linear("log", false, 1, log);
    }
    let leg = |name: &str| Stripe { name: name.to_owned(), extent: 0 };
    let kind = SegmentKind::Mirror {
        legs: vec![leg("leg0"), leg("leg1")],
        log: log.map(|_| "log".to_owned()),
        region_sectors: Some(2048),
        extents_moved: None,
    };
    rig.add("mirror", true, 4, kind);
    rig
}

#[test]
fn a_mirror_without_its_first_leg_is_read_where_the_log_says_so() {
    let (first, second) = (noise(31, SIZE_BYTES), noise(32, SIZE_BYTES));
    let log = |bits: u8| {
        let mut log = vec![0; 4096];
        log[..4].copy_from_slice(b"rRiM");
        (log[4], log[8], log[1024]) = (2, 4, bits);
        log
    };
    let all = mirror_rig(Some(&log(0b1111)));
    all.expect(&[0, 1], "mirror", &first);
    all.expect(&[0], "mirror", &first);
    all.expect(&[1], "mirror", &second);
    mirror_rig(Some(&log(0b1011))).open(&[1], async |core, stack| {
        let member = stack.find(Some("made/mirror")).unwrap().member.unwrap();
        let volume = stack.volume(&core, member).await.unwrap().open(&core).unwrap();
        for region in 0..4 {
            let (result, buf) = volume.read(region << 20, BufMut::alloc(1 << 20)).await;
            assert_eq!(result, if region == 2 { Err(VolumeError::Missing) } else { Ok(()) });
            assert!(region == 2 || buf[..] == second[(region << 20) as usize..][..1 << 20]);
        }
        assert_eq!(stack.notes(member).len(), 2);
    });
    mirror_rig(Some(&log(0))).refused(&[1], "mirror", Code::MissingPhysical, "no region");
    mirror_rig(Some(&[0; 4096])).refused(&[1], "mirror", Code::MissingPhysical, "magic");
    mirror_rig(None).refused(&[1], "mirror", Code::MissingPhysical, "no log");
}

/// Reads from a volume that is found by its name.
async fn read(
    core: &Core,
    stack: &mut Stack,
    name: &str,
    at: u64,
    len: usize,
) -> Result<Vec<u8>, VolumeError> {
    let member = stack.find(Some(name)).unwrap().member.unwrap();
    let volume = stack.volume(core, member).await.unwrap().open(core).unwrap();
    let (result, buf) = volume.read(at, BufMut::alloc(len)).await;
    result.map(|()| buf.to_vec())
}

/// A mirror with its second image, and a linear volume behind that, on the second physical volume.
fn two_layouts() -> (Rig, Vec<u8>, Vec<u8>) {
    let (mirror, other, line) = (noise(7, SIZE_BYTES), noise(9, SIZE_BYTES), noise(8, SIZE_BYTES));
    let mut rig = Rig::new();
    rig.raid1("mirror", [&mirror, &other]);
    rig.linear("line", true, 1, &line);
    (rig, mirror, line)
}

#[test]
fn what_is_past_the_end_of_a_physical_volume_is_missing() {
    let (rig, mirror, line) = two_layouts();
    let images = 1 + SIZE_BYTES as u64 / EXTENT_BYTES;
    let there = 2 * EXTENT_BYTES + 3 * 512;
    rig.cut(1, images * EXTENT_BYTES + there);
    rig.open(&[0, 1], async |core, stack| {
        let group = &stack.groups[GroupId::nth(0)];
        let state = |name: &str| group.volumes[&group.vg.lv(name).unwrap().id].clone();
        assert!(!state("mirror").partial && state("mirror").images_out == 0);
        assert!(state("line").partial && state("line").lost_bytes == SIZE_BYTES as u64 - there);
        let found = read(&core, stack, "made/line", 0, there as usize).await;
        assert!(found.unwrap() == line[..there as usize]);
        assert_eq!(read(&core, stack, "made/line", there, 512).await, Err(VolumeError::Missing));
    });
    let files = [rig.path(0), rig.path(1)];
    rig.look(&files, Purpose::Write, Forced::default(), async |_, stack| {
        let problem = stack.find(Some("made/line")).unwrap_err();
        assert_eq!(problem.code, Code::MissingPhysical, "{problem:?}");
        assert!(problem.what.contains("cut off") && problem.next.contains("copy again"), "{problem:?}");
    });
    // Of the mirror the second image alone is cut off now.
    rig.cut(1, images * EXTENT_BYTES - 512);
    rig.open(&[0, 1], async |core, stack| {
        let group = &stack.groups[GroupId::nth(0)];
        let state = &group.volumes[&group.vg.lv("mirror").unwrap().id];
        assert!(!state.partial && state.images_out == 1, "{state:?}");
        assert!(read(&core, stack, "made/mirror", 0, SIZE_BYTES).await.unwrap() == mirror);
        assert_eq!(read(&core, stack, "made/line", 0, 512).await, Err(VolumeError::Missing));
    });
}

#[test]
fn a_physical_volume_with_an_older_text_is_not_believed() {
    let (mut rig, mirror, line) = two_layouts();
    let before = rig.vg.clone();
    rig.vg.seqno += 1;
    let files = [rig.path(0), rig.path(1)];
    let open = |rig: &Rig, forced: Forced| {
        rig.look(&files, Purpose::Read, forced, async |core, stack| {
            let group = &stack.groups[GroupId::nth(0)];
            let changeable = check_changeable(group, State::Here).map_err(|problem| problem.code);
            let images_out = group.volumes[&group.vg.lv("mirror").unwrap().id].images_out;
            let found = read(&core, stack, "made/mirror", 0, SIZE_BYTES).await.unwrap();
            let line = match stack.find(Some("made/line")) {
                Ok(volume) => {
                    let notes = stack.notes(volume.member.unwrap());
                    Ok((read(&core, stack, "made/line", 0, SIZE_BYTES).await.unwrap(), notes))
                }
                Err(problem) => Err((problem.code, problem.force)),
            };
            (images_out, found, line, changeable)
        })
    };
    rig.commit(0, &rig.vg, None);
    rig.commit(1, &before, None);
    let refused = Err((Code::OlderPhysical, Some(Check::OlderPhysical)));
    let (images_out, found, line_found, changeable) = open(&rig, Forced::default());
    assert!(images_out == 1 && found == mirror && line_found == refused);
    assert_eq!(changeable, Err(Code::OlderPhysical), "a change would make it look current");
    let (images_out, _, line_found, changeable) = open(&rig, Forced::default().with(Check::OlderPhysical));
    let (found, notes) = line_found.unwrap();
    assert!(images_out == 0 && found == line && changeable.is_ok());
    assert!(notes.iter().any(|note| note.contains("out of date")), "{notes:?}");
    // A power cut between the headers of one commit: both have the text.
    rig.commit(1, &before, Some(&rig.vg));
    let (images_out, _, line_found, changeable) = open(&rig, Forced::default());
    assert!(images_out == 0 && line_found == Ok((line.clone(), Vec::new())) && changeable.is_ok());
    // One that the group went on without is told of otherwise.
    rig.vg.pvs[1].flags.push("MISSING".to_owned());
    rig.commit(0, &rig.vg, None);
    rig.commit(1, &before, None);
    let (_, _, line_found, changeable) = open(&rig, Forced::default());
    assert!(line_found.is_ok() && changeable == Err(Code::MissingPhysical));
}

#[test]
fn a_copy_beside_a_physical_volume_is_said_to_be_one() {
    let (rig, ..) = two_layouts();
    (0..PVS).for_each(|pv| rig.commit(pv, &rig.vg, None));
    let copy = rig.dir.path().join("copy");
    std::fs::copy(rig.path(0), &copy).unwrap();
    let files = [rig.path(0), rig.path(1), copy];
    rig.look(&files, Purpose::Look, Forced::default(), async |_, stack| {
        assert_eq!(stack.groups.len(), 1);
        let problem = stack.groups[GroupId::nth(0)].problem.clone().unwrap();
        assert_eq!(problem.code, Code::DuplicatePhysical);
        let of_members: Vec<_> = stack.scan.members.iter().map(|seen| seen.problem.clone()).collect();
        assert_eq!(of_members, [None, None, Some(problem)]);
    });
}
