//! A logical volume of type raid5 that lacks an image and whose parity was never made
//! (`lvcreate --nosync`): what lies on the images that are there is read, the rest is refused.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use wattle_format::dm::raid::{DmRaidShape, Superblock};
use wattle_format::lvm::area::Header;
use wattle_format::lvm::{Label, Vg};

use crate::harness::{Room, Said, run};

const EXTENT: u64 = 512 << 10;
/// Extents of an image, behind one extent of its metadata.
const IMAGE_EXTENTS: u64 = 8;
const CHUNK: u64 = 64 << 10;
const IMAGES: u64 = 3;
/// Where extents begin on a physical volume.
const START: u64 = 1 << 20;
const PV_BYTES: u64 = START + 16 * EXTENT;

/// What a refused read says of the check that can be overridden.
const REFUSED: &str =
    "where parity alone has the data and was never made, --force=dirty-degraded computes it";

const PV_IDS: [&str; 3] = [
    "AmwMod-AY5L-lg0X-rZAK-rs2V-jG86-meMu6z",
    "p0GL9f-Syee-IIJR-TnOq-svzF-XcSe-P0qAAB",
    "WlUDu4-vguY-4tzI-CGlX-PKOI-ZGDu-QQyuqZ",
];

/// The id of LV number `number`.
fn lv_id(number: u64) -> String {
    format!("M3W2Qm-7Tcm-tl2A-FVdj-raB8-zUEk-bRglT{number}")
}

fn lv(text: &mut String, name: &str, number: u64, status: &str, extents: u64, segment: &str) {
    let id = lv_id(number);
    write!(
        text,
        "{name} {{\nid = \"{id}\"\nstatus = [{status}]\nflags = []\nsegment_count = 1\n\
         segment1 {{\nstart_extent = 0\nextent_count = {extents}\n{segment}\n}}\n}}\n"
    )
    .unwrap();
}

/// The text of LVM2 for `vg/r5` on three physical volumes, one image on each.
fn text() -> String {
    let mut text = "vg {\nid = \"cdAZju-7pSF-lNbh-wPZB-fTw2-memv-pNAzN1\"\nseqno = 3\n\
         format = \"lvm2\"\nstatus = [\"RESIZEABLE\", \"READ\", \"WRITE\"]\nflags = []\n\
         extent_size = 1024\nmax_lv = 0\nmax_pv = 0\nmetadata_copies = 0\nphysical_volumes {\n"
        .to_owned();
    for (ix, id) in PV_IDS.iter().enumerate() {
        write!(
            text,
            "pv{ix} {{\nid = \"{id}\"\ndevice = \"/dev/pv{ix}\"\nstatus = [\"ALLOCATABLE\"]\n\
             flags = []\ndev_size = {}\npe_start = {}\npe_count = 16\n}}\n",
            PV_BYTES / 512,
            START / 512
        )
        .unwrap();
    }
    text.push_str("}\nlogical_volumes {\n");
    let pairs: Vec<_> = (0..IMAGES).map(|ix| format!("\"r5_rmeta_{ix}\", \"r5_rimage_{ix}\"")).collect();
    let raid = format!(
        "type = \"raid5_ls\"\ndevice_count = {IMAGES}\nregion_size = 1024\nstripe_size = {}\n\
         raids = [{}]",
        CHUNK / 512,
        pairs.join(", ")
    );
    let visible = "\"READ\", \"WRITE\", \"VISIBLE\", \"NOTSYNCED\"";
    lv(&mut text, "r5", 0, visible, IMAGE_EXTENTS * (IMAGES - 1), &raid);
    for ix in 0..IMAGES {
        let on = |extent| format!("type = \"striped\"\nstripe_count = 1\nstripes = [\"pv{ix}\", {extent}]");
        let status = "\"READ\", \"WRITE\"";
        lv(&mut text, &format!("r5_rmeta_{ix}"), 1 + 2 * ix, status, 1, &on(0));
        lv(&mut text, &format!("r5_rimage_{ix}"), 2 + 2 * ix, status, IMAGE_EXTENTS, &on(1));
    }
    text.push_str("}\n}\ncontents = \"Text Format Volume Group\"\nversion = 1\n");
    text
}

/// Chunk `chunk` of image `image`: different everywhere, and parity of nothing.
fn chunk_of(image: u64, chunk: u64) -> Vec<u8> {
    let byte = |at: u64| ((at >> 9) + at * 7 + image * 89 + chunk * 31) as u8;
    (0..CHUNK).map(byte).collect()
}

/// The physical volumes, each with its label, the group's text, a superblock and an image.
fn members(room: &Room) -> Vec<String> {
    let text = text();
    let vg = Vg::parse(text.as_bytes()).unwrap();
    let names: Vec<_> = ["a", "b", "c"].into_iter().map(|name| room.device(name, PV_BYTES)).collect();
    let image_sectors = IMAGE_EXTENTS * EXTENT / 512;
    let shape = DmRaidShape {
        devices: IMAGES as u32,
        level: 5,
        layout: 2,
        stripe_sectors: (CHUNK / 512) as u32,
        array_sectors: image_sectors * (IMAGES - 1),
        device_sectors: image_sectors,
    };
    for (ix, (pv, name)) in (0..).zip(vg.pvs.iter().zip(&names)) {
        let file = File::options().write(true).open(name).unwrap();
        let label = Label::create(pv.id, PV_BYTES, 0).unwrap();
        let area = label.metadata_areas[0];
        assert!(area.offset_bytes + area.size_bytes <= START);
        let commit = Header::new(area).unwrap().commit(text.as_bytes()).unwrap();
        file.write_all_at(&label.encode().unwrap(), 512).unwrap();
        commit.texts.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
        file.write_all_at(commit.commit.bytes(), area.offset_bytes).unwrap();
        // `--nosync` tells the kernel that there is nothing to resync.
        file.write_all_at(Superblock::new(&shape, ix, u64::MAX).bytes(), START).unwrap();
        for chunk in 0..IMAGE_EXTENTS * EXTENT / CHUNK {
            let at = START + EXTENT + chunk * CHUNK;
            file.write_all_at(&chunk_of(u64::from(ix), chunk), at).unwrap();
        }
    }
    names
}

/// `wattle cat` of one chunk of the volume: less than the 2 MiB that it reads at a time otherwise.
fn cat(members: &[String], chunk: u64, force: bool) -> Said {
    let at = (chunk * CHUNK).to_string();
    let words = ["cat", "-V", "vg/r5", "--offset", &at, "--length", "64K"].map(str::to_owned);
    let force = force.then(|| "--force=dirty-degraded".to_owned());
    run(words.into_iter().chain(force).chain(members.iter().cloned()))
}

/// The image and its chunk that hold a chunk of the volume, in md's left-symmetric layout.
fn place(chunk: u64) -> (u64, u64) {
    let (stripe, number) = (chunk / (IMAGES - 1), chunk % (IMAGES - 1));
    let parity = IMAGES - 1 - stripe % IMAGES;
    ((parity + 1 + number) % IMAGES, stripe)
}

#[test]
fn a_raid5_volume_made_without_parity_is_read_where_none_is_needed() {
    let room = Room::new();
    let whole = members(&room);
    let everything = run(["cat", "-V", "vg/r5"].map(str::to_owned).into_iter().chain(whole.clone())).ok();
    assert_eq!(everything.stdout.len() as u64, IMAGE_EXTENTS * EXTENT * (IMAGES - 1));
    let missing = 0;
    fs::remove_file(&whole[missing as usize]).unwrap();
    let left = &whole[1..];
    // Two turns of the layout: parity is on each image, the missing one too.
    for chunk in 0..4 * IMAGES {
        let (image, at) = place(chunk);
        let said = room.untouched(|| cat(left, chunk, false));
        // The check, and that it is about parity, is named whether or not this read needs parity.
        let named = ["vg/r5", "parity was never made", "--force=dirty-degraded"];
        if image != missing {
            let said = said.ok();
            assert!(said.stdout == chunk_of(image, at), "chunk {chunk} holds something else");
            assert!(said.stdout == everything.stdout[(chunk * CHUNK) as usize..][..CHUNK as usize]);
            for word in named {
                assert!(said.stderr.contains(word), "expected `{word}`: {}", said.stderr);
            }
            continue;
        }
        assert!(said.stdout.is_empty());
        let said = said.failed(1, "WTL-0104", &[REFUSED]);
        assert!(named.iter().all(|word| said.stderr.contains(word)), "{}", said.stderr);
        // Forced, it is what the other images come to: here the data of no client.
        let said = room.untouched(|| cat(left, chunk, true)).ok();
        let others: Vec<_> = (1..IMAGES).map(|image| chunk_of(image, at)).collect();
        let computed: Vec<u8> = others[0].iter().zip(&others[1]).map(|(a, b)| a ^ b).collect();
        assert!(said.stdout == computed && said.stdout != chunk_of(missing, at));
        assert!(said.stderr.contains("what is computed there may be wrong"), "{}", said.stderr);
    }
    // A window of 2 MiB has chunks of every image.
    let all = run(["cat", "-V", "vg/r5"].map(str::to_owned).into_iter().chain(left.to_vec()));
    all.failed(1, "WTL-0104", &[REFUSED]);
}
