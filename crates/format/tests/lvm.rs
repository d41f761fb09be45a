//! A VG that LVM2 2.03.16 made on a Linux 6.12 kernel, with one LV of every kind (`data/lvm/every.vg`, its labels and the
//! header of a metadata area), and the backup of one in the middle of a pvmove (`moving.vg`).
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use wattle_format::lvm::Label;
use wattle_format::lvm::area::{Header, Location};
use wattle_format::lvm::crc;
use wattle_format::lvm::label::{Area, SCAN_BYTES};
use wattle_format::lvm::text::{Section, Value};

const EVERY: &[u8] = include_bytes!("data/lvm/every.vg");
const MOVING: &[u8] = include_bytes!("data/lvm/moving.vg");

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

/// `pvcreate --metadatacopies 2 --bootloaderareasize 256k`, then `--dataalignment 192k --dataalignmentoffset 7s`, then
/// `--labelsector 3`.
#[test]
fn labels() {
    let two_areas = label(include_bytes!("data/lvm/every-pv0.head"));
    assert_eq!(two_areas.metadata_areas, [area(4096, 0xff000), area(159 << 20, 1 << 20)]);
    assert_eq!(two_areas.data_areas, [area(2 << 20, 0)]);
    let extension = two_areas.extension.unwrap();
    assert!(extension.in_vg());
    assert_eq!(extension.bootloader_areas, [area(1 << 20, 1 << 20)]);
    let shifted = label(include_bytes!("data/lvm/every-pv1.head"));
    assert_eq!(shifted.data_areas, [area(2311 * 512, 0)]);
    assert_eq!(shifted.metadata_areas, [area(4096, 2311 * 512 - 4096)]);
    assert_eq!(shifted.device_bytes, 160 << 20);
    assert_eq!(label(include_bytes!("data/lvm/every-pv3.head")).sector, 3);
}

#[test]
fn the_header_names_the_text() {
    let bytes = padded(include_bytes!("data/lvm/every-pv0.mda"), 512);
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

/// What is written differs from what LVM2 wrote in white space only; comments, order and empty sections stay.
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
    assert_eq!(vg.value("extent_size").and_then(Value::as_int), Some(1024));
    assert_eq!(vg.section("logical_volumes").unwrap().sections().count(), 96);
}
