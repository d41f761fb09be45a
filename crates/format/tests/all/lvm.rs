//! A VG that LVM2 2.03.16 made on a Linux 6.12 kernel, with one LV of every kind
//! (`data/lvm/every.vg`, its labels and the header of a metadata area), and the backup of one in
//! the middle of a pvmove (`moving.vg`).

use wattle_format::lvm::area::{Header, Location};
use wattle_format::lvm::label::{Area, SCAN_BYTES};
use wattle_format::lvm::segment::CacheParts;
use wattle_format::lvm::text::{Section, TextValue};
use wattle_format::lvm::{Label, LvSegment, SegmentKind, Stamp, Vg, crc};

const EVERY: &[u8] = include_bytes!("../data/lvm/every.vg");
const MOVING: &[u8] = include_bytes!("../data/lvm/moving.vg");

/// The recordings end at their last byte that is not zero.
fn padded(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(len, 0);
    bytes
}

fn label(head: &[u8]) -> Label {
    let head = padded(head, SCAN_BYTES);
    let label = Label::find(&head).unwrap().unwrap();
    let at = 512 * label.sector as usize;
    assert_eq!(label.encode().unwrap()[..], head[at..at + 512], "lossless");
    label
}

fn area(offset_bytes: u64, size_bytes: u64) -> Area {
    Area { offset_bytes, size_bytes }
}

/// `pvcreate --metadatacopies 2 --bootloaderareasize 256k`, then
/// `--dataalignment 192k --dataalignmentoffset 7s`, then `--labelsector 3`.
#[test]
fn labels() {
    let two_areas = label(include_bytes!("../data/lvm/every-pv0.head"));
    assert_eq!(two_areas.metadata_areas, [area(4096, 0xff000), area(159 << 20, 1 << 20)]);
    assert_eq!(two_areas.data_areas, [area(2 << 20, 0)]);
    let extension = two_areas.extension.unwrap();
    assert!(extension.in_vg());
    assert_eq!(extension.bootloader_areas, [area(1 << 20, 1 << 20)]);
    let shifted = label(include_bytes!("../data/lvm/every-pv1.head"));
    assert_eq!(shifted.data_areas, [area(2311 * 512, 0)]);
    assert_eq!(shifted.metadata_areas, [area(4096, 2311 * 512 - 4096)]);
    assert_eq!(shifted.device_bytes, 160 << 20);
    assert_eq!(label(include_bytes!("../data/lvm/every-pv3.head")).sector, 3);
}

#[test]
fn the_header_names_the_text() {
    let bytes = padded(include_bytes!("../data/lvm/every-pv0.mda"), 512);
    let header = Header::decode(&bytes, area(4096, 0xff000)).unwrap();
    assert_eq!(header.bytes()[..], bytes);
    let committed = header.committed().unwrap();
    let text = [EVERY, &[0]].concat();
    assert_eq!(
        committed,
        Location { offset_bytes: 377_856, size_bytes: text.len() as u64, crc: crc(&text), flags: 0 }
    );
    assert_eq!(header.text(&committed, &[&text]).unwrap(), EVERY);
    assert_eq!(header.precommitted(), None);
    assert_eq!(header.commit(EVERY).unwrap().commit.committed().unwrap().offset_bytes, 377_856 + 30_720);
}

/// What is written differs from what LVM2 wrote in white space only; comments, order and empty
/// sections stay.
#[test]
fn texts_are_written_as_lvm_writes_them() {
    let squeezed = |text: &[u8]| -> Vec<u8> {
        let text = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        String::from_utf8(text).unwrap().replace(",]", "]").into_bytes()
    };
    for text in [EVERY, MOVING] {
        let section = Section::parse(text).unwrap();
        let written = section.write();
        assert_eq!(
            String::from_utf8(squeezed(&written)).unwrap(),
            String::from_utf8(squeezed(text)).unwrap()
        );
        assert_eq!(Section::parse(&written), Ok(section));
    }
    let section = Section::parse(EVERY).unwrap();
    let vg = section.section("every").unwrap();
    assert_eq!(vg.value("extent_size").and_then(TextValue::as_int), Some(1024));
    assert_eq!(vg.section("logical_volumes").unwrap().sections().count(), 96);
}

fn every() -> Vg {
    Vg::parse(EVERY).unwrap()
}

fn stamp() -> Stamp {
    Stamp { description: "a test".to_owned(), host: "here".to_owned(), time: 1_795_324_924 }
}

fn kind<'a>(vg: &'a Vg, lv: &str) -> &'a SegmentKind {
    &vg.lv(lv).unwrap().segments[0].kind
}

/// Through the typed value and back nothing changes: every key, list and section is where it was.
#[test]
fn nothing_is_lost_in_the_model() {
    for (text, name) in [(EVERY, "every"), (MOVING, "moving")] {
        let vg = Vg::parse(text).unwrap();
        let (written, read) = (Section::parse(&vg.to_text(&stamp())).unwrap(), Section::parse(text).unwrap());
        let (written, read) = (written.section(name).unwrap(), read.section(name).unwrap());
        let without_comments = |section: &Section| {
            let text = String::from_utf8(section.write()).unwrap();
            let lines =
                text.lines().map(|line| line.split(['\t', '#']).next().unwrap_or_default().to_owned());
            lines.collect::<Vec<_>>()
        };
        assert_eq!(without_comments(written), without_comments(read), "{name}");
    }
}

#[test]
fn the_volume_group() {
    let vg = every();
    assert_eq!(vg.problems(), []);
    assert_eq!(
        (vg.name.as_str(), vg.extent_sectors, vg.tags.as_slice()),
        ("every", 1024, &["tagged:1".to_owned()][..])
    );
    assert_eq!(vg.pvs.iter().map(|pv| pv.pe_start).collect::<Vec<_>>(), [4096, 2311, 2048, 2048]);
    let labels = [
        label(include_bytes!("../data/lvm/every-pv0.head")),
        label(include_bytes!("../data/lvm/every-pv1.head")),
        label(include_bytes!("../data/lvm/every-pv3.head")),
    ];
    for (pv, label) in [&vg.pvs[0], &vg.pvs[1], &vg.pvs[3]].into_iter().zip(labels) {
        assert_eq!((pv.id, pv.pe_count), (label.id, label.pe_count(vg.extent_sectors)), "{}", pv.name);
    }
    assert_eq!(vg.lvs.len(), 96);
    assert!(
        vg.lvs.iter().flat_map(|lv| &lv.segments).all(|s| !matches!(s.kind, SegmentKind::Unknown { .. }))
    );
    // What `pvs` said is free, in MiB of two extents.
    let free = |pv| vg.free_extents(pv).iter().map(|range| range.end - range.start).sum::<u64>();
    assert_eq!(["pv0", "pv1", "pv2", "pv3", "none"].map(free), [2 * 25, 2 * 132, 2 * 149 + 1, 2 * 152, 0]);
}

#[test]
fn segments_of_every_kind() {
    let vg = every();
    let lin = vg.lv("lin").unwrap();
    let places: Vec<_> =
        lin.segments.iter().map(|s| (s.start_extent, s.extents, s.kind.references())).collect();
    assert_eq!(places, [(0, 5, vec!["pv0"]), (5, 3, vec!["pv0"])]);
    assert!(
        matches!(kind(&vg, "str"), SegmentKind::Striped { stripe_sectors: 64, stripes } if stripes.len() == 3)
    );
    assert!(
        matches!(kind(&vg, "mir"), SegmentKind::Mirror { log: Some(log), region_sectors: Some(4096), .. } if log == "mir_mlog")
    );
    for (lv, name, level, layout, images) in [
        ("r0", "raid0", 0, 0, 2),
        ("r0m", "raid0_meta", 0, 0, 2),
        ("r1", "raid1", 1, 0, 3),
        ("r4", "raid4", 5, 4, 3),
        ("r5", "raid5_la", 5, 0, 4),
        ("r6", "raid6", 6, 8, 5),
        ("r10", "raid10", 10, 0x100, 4),
    ] {
        let SegmentKind::Raid(raid) = kind(&vg, lv) else { panic!("{lv}") };
        let found = (raid.raid_type.name, raid.raid_type.level, raid.raid_type.layout, raid.images.len());
        assert_eq!(found, (name, level, layout, images), "{lv}");
        assert_eq!(raid.images[0].meta.is_some(), lv != "r0");
        let image = vg.lv(&raid.images[1].data).unwrap();
        assert_eq!(raid.image_extents(vg.lv(lv).unwrap().extents()), Some(image.extents()), "{lv}");
    }
    let store = |kind: &SegmentKind| match kind {
        SegmentKind::Snapshot { origin, store, chunk_sectors: 8, merging: false } => {
            format!("{origin} {store}")
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(store(kind(&vg, "snapshot0")), "org snap");
    assert!(matches!(
        kind(&vg, "pool"),
        SegmentKind::ThinPool { transaction_id: 10, chunk_sectors: 128, zero_new_blocks: Some(1), .. }
    ));
    assert!(
        matches!(kind(&vg, "ths"), SegmentKind::Thin { device_id: 2, origin: Some(origin), .. } if origin == "th")
    );
    assert!(
        matches!(kind(&vg, "thx"), SegmentKind::Thin { external_origin: Some(origin), .. } if origin == "ext")
    );
    assert_eq!(vg.lv("cp_cpool").unwrap().segments[0].type_name(), "cache-pool+METADATA_FORMAT");
    assert!(matches!(kind(&vg, "slow"), SegmentKind::Cache { single: None, pool, .. } if pool == "cp_cpool"));
    let parts = CacheParts { metadata_start: 0, metadata_len: 9216, data_start: 9216, data_len: 15360 };
    assert!(matches!(kind(&vg, "slow2"), SegmentKind::Cache { single: Some(found), .. } if *found == parts));
    assert!(matches!(kind(&vg, "slow3"), SegmentKind::Writecache { block_bytes: 4096, .. }));
    let SegmentKind::Integrity { data_sectors: 8192, metadata: Some(metadata), .. } =
        kind(&vg, "ri_rimage_0")
    else {
        panic!("integrity");
    };
    assert_eq!(metadata, "ri_rimage_0_imeta");
    assert_eq!((kind(&vg, "err"), kind(&vg, "zer")), (&SegmentKind::Error, &SegmentKind::Zero));
}

#[test]
fn a_pvmove_in_progress() {
    let vg = Vg::parse(MOVING).unwrap();
    assert_eq!(vg.problems(), []);
    assert!(vg.lv("m").unwrap().has_status("LOCKED"));
    assert_eq!(kind(&vg, "m").references(), ["pvmove0"]);
    assert!(matches!(kind(&vg, "pvmove0"), SegmentKind::Mirror { extents_moved: Some(0), log: None, .. }));
}

/// A change reaches the text, and only the change does.
#[test]
fn changes_leave_the_rest_alone() {
    let before = String::from_utf8(every().to_text(&stamp())).unwrap();
    let mut vg = every().next().unwrap();
    vg.lvs.iter_mut().find(|lv| lv.name == "lin").unwrap().segments.push(LvSegment::linear(8, 3, "pv3", 100));
    vg.lvs.iter_mut().find(|lv| lv.name == "slow").unwrap().tags.push("new".to_owned());
    vg.lvs.retain(|lv| lv.name != "zer");
    let after = String::from_utf8(vg.to_text(&stamp())).unwrap();
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let common = |lines: &[&str], others: &[&str]| lines.iter().filter(|line| others.contains(line)).count();
    assert_eq!(before.len() - common(&before, &after), 4, "seqno, and of zer its name, id and type");
    let new = ["tags = [\"new\"]", "segment_count = 3", "segment3 {", "stripes = [\"pv3\", 100]"];
    assert!(new.iter().all(|line| after.contains(line)));
    assert_eq!(Vg::parse(after.join("\n").as_bytes()).unwrap().problems(), []);
}

/// Keys, sections and segment types of a version to come.
#[test]
fn what_is_not_known_stays() {
    let text = String::from_utf8(EVERY.to_vec()).unwrap();
    let text = text
        .replacen("extent_size", "new_key = [1, \"two\"]\nextent_size", 1)
        .replacen("\npe_start = 4096", "\nnew_hint {\nx = 0.5\n}\npe_start = 4096", 1)
        .replacen("type = \"zero\"", "type = \"quantum+FLAG\"\nstate = both", 1)
        .replacen("type = \"raid10\"", "type = \"raid10+RESHAPE_DELTA_DISKS_PLUS\"", 1)
        + "\nnew_top = 1\n";
    let vg = Vg::parse(text.as_bytes()).unwrap();
    assert_eq!(kind(&vg, "zer"), &SegmentKind::Unknown { name: "quantum+FLAG".to_owned() });
    assert_eq!(
        kind(&vg, "r10"),
        &SegmentKind::Unknown { name: "raid10+RESHAPE_DELTA_DISKS_PLUS".to_owned() },
        "its keys mean something else"
    );
    let written = String::from_utf8(vg.next().unwrap().to_text(&stamp())).unwrap();
    for kept in [
        "new_key = [1, \"two\"]\n",
        "new_hint {\nx = 0.5\n}\n",
        "type = \"quantum+FLAG\"\nstate = both\n",
        "new_top = 1\n",
        "type = \"raid10+RESHAPE_DELTA_DISKS_PLUS\"\ndevice_count = 4\n",
    ] {
        assert!(written.contains(kept), "{kept}");
    }
}

/// As `lvconvert --stripesize` of LVM 2.03.16 leaves it: images and volume have extents that
/// clients have not.
#[test]
fn extents_in_reserve_from_a_reshape_are_not_the_clients() {
    let plain = Vg::parse(EVERY).unwrap();
    let text = String::from_utf8(EVERY.to_vec()).unwrap();
    for (lv, name, reserved) in
        [("r5", "raid5_la", 3), ("r6", "raid6", 3), ("r10", "raid10", 2), ("r1", "raid1", 1)]
    {
        let marked = format!("reshape_count = 1\ntype = \"{name}+RESHAPE+RESHAPE_DATA_OFFSET\"");
        let vg = Vg::parse(text.replacen(&format!("type = \"{name}\""), &marked, 1).as_bytes()).unwrap();
        let (volume, before) = (vg.lv(lv).unwrap(), plain.lv(lv).unwrap());
        let SegmentKind::Raid(raid) = kind(&vg, lv) else { panic!("{lv}: {volume:?}") };
        assert_eq!((raid.reserve_extents, volume.extents()), (Some(1), before.extents()), "{lv}");
        let usable = before.extents() - reserved;
        assert_eq!((before.usable_extents(), volume.usable_extents()), (before.extents(), usable), "{lv}");
        let image = vg.lv(&raid.images[0].data).unwrap().extents();
        assert_eq!(raid.image_extents(usable), Some(image - 1), "{lv}");
        let written = String::from_utf8(vg.next().unwrap().to_text(&stamp())).unwrap();
        assert!(written.contains(&marked), "{lv}");
    }
}

/// Bytes all over a real text are damaged: an error or a value, never a panic, and what is accepted
/// can be written and read again.
#[test]
fn damage_never_panics() {
    let mut text = EVERY.to_vec();
    // Whole VGs only now and then: each is thirty kilobytes.
    for at in (0..text.len()).step_by(29) {
        let good = text[at];
        text[at] = b"\"{}[]=,#9- \0"[at % 12];
        if let Ok(vg) = Vg::parse(&text) {
            let _ = vg.problems();
            assert!(Vg::parse(&vg.to_text(&stamp())).is_ok(), "byte {at}");
        }
        text[at] = good;
    }
}
