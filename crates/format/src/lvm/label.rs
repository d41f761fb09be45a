//! The PV label: which PV this device is and where its areas are. docs/formats.md §11.1.
//!
//! One sector among the first four. It changes only when the PV is made, resized, or joins or
//! leaves a VG; everything else is in the text of the metadata areas.

use super::checksum::crc;
use super::id::Id;
use crate::bytes::{array, le32, le64, put, put_le32, put_le64};

/// Bytes to read from the start of a device: the label is in one of these sectors.
pub const SCAN_BYTES: usize = 4 * SECTOR_BYTES;
/// The sector where LVM2 puts it unless told otherwise.
pub const DEFAULT_SECTOR: u64 = 1;

const SECTOR_BYTES: usize = 512;
const MAGIC: &[u8; 8] = b"LABELONE";
const TYPE: &[u8; 8] = b"LVM2 001";
const CRC: usize = 16;
/// The checksum covers everything behind itself.
const CRC_FROM: usize = 20;
const LABEL_BYTES: usize = 32;
/// Id and device size, before the lists.
const PV_HEADER_BYTES: usize = 40;
const AREA_BYTES: usize = 16;
const METADATA_AT: u64 = 4096;
const DATA_AT: u64 = 1 << 20;
const IN_VG: u32 = 1;

/// A range of bytes on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Area {
    /// First byte.
    pub offset_bytes: u64,
    /// Length; 0 in a data area means up to the end of the device.
    pub size_bytes: u64,
}

/// What headers since LVM2 2.02.99 add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// 2 is current; 0 cannot be stored.
    pub version: u32,
    /// Bit 0: the PV belongs to a VG.
    pub flags: u32,
    /// Space set aside for boot loaders.
    pub bootloader_areas: Vec<Area>,
}

impl Extension {
    /// The current version, without boot loader areas.
    #[must_use]
    pub fn new(in_vg: bool) -> Extension {
        Extension { version: 2, flags: if in_vg { IN_VG } else { 0 }, bootloader_areas: Vec::new() }
    }

    /// Whether the PV says that it belongs to a VG, which it does even when its own metadata areas
    /// are empty.
    #[must_use]
    pub fn in_vg(&self) -> bool {
        self.flags & IN_VG != 0
    }
}

/// A valid label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The sector it is in, 0 to 3.
    pub sector: u64,
    /// The PV's id.
    pub id: Id,
    /// Size of the device when the label was written.
    pub device_bytes: u64,
    /// Where extents are; the text's `pe_start` wins once the PV is in a VG.
    pub data_areas: Vec<Area>,
    /// Where texts are: none, one at the start, or a second at the end.
    pub metadata_areas: Vec<Area>,
    /// Absent in old headers.
    pub extension: Option<Extension>,
    /// Bytes between the label and its header, and behind the last list: not ours to lose.
    gap: Vec<u8>,
    tail: Vec<u8>,
}

/// Why a sector with the magic is no valid label, or a label cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LabelError {
    /// Written for another place.
    #[error("PV label says it is in sector {stored}, found in sector {found_at}")]
    Sector {
        /// The stored number.
        stored: u64,
        /// Where it is.
        found_at: u64,
    },
    /// Damaged or torn.
    #[error("PV label checksum is {stored:08x}, the bytes add up to {computed:08x}")]
    BadChecksum {
        /// The stored value.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// A label of something that is not LVM2.
    #[error("label type is not LVM2 001")]
    Type,
    /// The header is not inside the sector.
    #[error("PV header at byte {found} of its label's sector")]
    HeaderOffset {
        /// The stored offset.
        found: u32,
    },
    /// Not 32 characters of an id.
    #[error("PV id has characters that ids do not have")]
    Id,
    /// A list without its end, or lists too long to be written.
    #[error("the PV header's lists of areas do not fit into the label's sector")]
    Lists,
    /// An area that ends past 2^64.
    #[error("area of {size_bytes} bytes at byte {offset_bytes} ends past any device")]
    AreaEnd {
        /// Its start.
        offset_bytes: u64,
        /// Its length.
        size_bytes: u64,
    },
}

impl Label {
    /// A new PV laid out as `pvcreate` does: one metadata area from 4 KiB up to the data, which
    /// starts at 1 MiB or, if the stripes of what is below are no power of two, at the next
    /// multiple of them (`stripe_bytes`; 0 if there are none). `None` when the device has no room
    /// for data.
    #[must_use]
    pub fn create(id: Id, device_bytes: u64, stripe_bytes: u64) -> Option<Label> {
        let aligned = stripe_bytes != 0 && stripe_bytes.is_multiple_of(SECTOR_BYTES as u64);
        let data_at = DATA_AT.checked_next_multiple_of(if aligned { stripe_bytes } else { DATA_AT })?;
        let metadata = Area { offset_bytes: METADATA_AT, size_bytes: data_at - METADATA_AT };
        let data = Area { offset_bytes: data_at, size_bytes: 0 };
        (data_at < device_bytes).then(|| Label::new(id, device_bytes, data, vec![metadata]))
    }

    /// How many extents fit between the start of the data and its end: the device's, or a metadata
    /// area behind it.
    #[must_use]
    pub fn pe_count(&self, extent_sectors: u64) -> u64 {
        let Some(data) = self.data_areas.first() else { return 0 };
        let behind = self.metadata_areas.iter().map(|area| area.offset_bytes);
        let end = behind.filter(|&at| at >= data.offset_bytes).min().unwrap_or(self.device_bytes);
        let end = if data.size_bytes == 0 { end } else { end.min(data.offset_bytes + data.size_bytes) };
        let sectors = end.saturating_sub(data.offset_bytes) / SECTOR_BYTES as u64;
        sectors.checked_div(extent_sectors).unwrap_or(0)
    }

    /// The label of a new PV in the default sector; the areas are the caller's.
    #[must_use]
    pub fn new(id: Id, device_bytes: u64, data: Area, metadata_areas: Vec<Area>) -> Label {
        Label {
            sector: DEFAULT_SECTOR,
            id,
            device_bytes,
            data_areas: vec![data],
            metadata_areas,
            extension: Some(Extension::new(false)),
            gap: Vec::new(),
            tail: Vec::new(),
        }
    }

    /// The first valid label in the first [`SCAN_BYTES`] of a device. `Ok(None)`: nothing here says
    /// that it is one.
    pub fn find(head: &[u8]) -> Result<Option<Label>, LabelError> {
        let mut broken = None;
        for (sector, bytes) in head.chunks_exact(SECTOR_BYTES).take(SCAN_BYTES / SECTOR_BYTES).enumerate() {
            if !bytes.starts_with(MAGIC) {
                continue;
            }
            match Label::decode(&array(bytes, 0), sector as u64) {
                Ok(label) => return Ok(Some(label)),
                Err(error) => broken = broken.or(Some(error)),
            }
        }
        broken.map_or(Ok(None), Err)
    }

    /// The label in a sector with the magic.
    fn decode(bytes: &[u8; SECTOR_BYTES], found_at: u64) -> Result<Label, LabelError> {
        let stored = le64(bytes, 8);
        if stored != found_at {
            return Err(LabelError::Sector { stored, found_at });
        }
        let (stored, computed) = (le32(bytes, CRC), crc(&bytes[CRC_FROM..]));
        if stored != computed {
            return Err(LabelError::BadChecksum { stored, computed });
        }
        if bytes[24..32] != TYPE[..] {
            return Err(LabelError::Type);
        }
        let found = le32(bytes, 20);
        let header_at = usize::try_from(found)
            .ok()
            .filter(|at| (LABEL_BYTES..=SECTOR_BYTES - PV_HEADER_BYTES).contains(at))
            .ok_or(LabelError::HeaderOffset { found })?;
        let id = Id::from_bytes(array(bytes, header_at)).ok_or(LabelError::Id)?;
        let device_bytes = le64(bytes, header_at + 32);
        let mut at = header_at + PV_HEADER_BYTES;
        let data_areas = decode_list(bytes, &mut at)?;
        let metadata_areas = decode_list(bytes, &mut at)?;
        // An old header ends here, and has zeros.
        let version = if at + 8 <= SECTOR_BYTES { le32(bytes, at) } else { 0 };
        let extension = if version == 0 {
            None
        } else {
            let flags = le32(bytes, at + 4);
            at += 8;
            Some(Extension { version, flags, bootloader_areas: decode_list(bytes, &mut at)? })
        };
        let end = SECTOR_BYTES - bytes.iter().rev().take_while(|&&byte| byte == 0).count();
        let tail = bytes[at..end.max(at)].to_vec();
        let gap = bytes[LABEL_BYTES..header_at].to_vec();
        let sector = found_at;
        Ok(Label { sector, id, device_bytes, data_areas, metadata_areas, extension, gap, tail })
    }

    /// The sector's bytes, sealed.
    pub fn encode(&self) -> Result<[u8; SECTOR_BYTES], LabelError> {
        let mut body = self.gap.clone();
        body.extend(self.id.bytes());
        body.extend(self.device_bytes.to_le_bytes());
        encode_list(&mut body, &self.data_areas);
        encode_list(&mut body, &self.metadata_areas);
        if let Some(extension) = &self.extension {
            body.extend(extension.version.to_le_bytes());
            body.extend(extension.flags.to_le_bytes());
            encode_list(&mut body, &extension.bootloader_areas);
        }
        body.extend(&self.tail);
        if LABEL_BYTES + body.len() > SECTOR_BYTES {
            return Err(LabelError::Lists);
        }
        let mut bytes = [0; SECTOR_BYTES];
        put(&mut bytes, 0, MAGIC);
        put_le64(&mut bytes, 8, self.sector);
        put_le32(&mut bytes, 20, (LABEL_BYTES + self.gap.len()) as u32);
        put(&mut bytes, 24, TYPE);
        put(&mut bytes, LABEL_BYTES, &body);
        let sum = crc(&bytes[CRC_FROM..]);
        put_le32(&mut bytes, CRC, sum);
        Ok(bytes)
    }
}

/// Areas up to an entry of zeros; `at` moves behind it.
fn decode_list(bytes: &[u8; SECTOR_BYTES], at: &mut usize) -> Result<Vec<Area>, LabelError> {
    let mut areas = Vec::new();
    loop {
        if *at + AREA_BYTES > SECTOR_BYTES {
            return Err(LabelError::Lists);
        }
        let (offset_bytes, size_bytes) = (le64(bytes, *at), le64(bytes, *at + 8));
        *at += AREA_BYTES;
        if (offset_bytes, size_bytes) == (0, 0) {
            return Ok(areas);
        }
        if offset_bytes.checked_add(size_bytes).is_none() {
            return Err(LabelError::AreaEnd { offset_bytes, size_bytes });
        }
        areas.push(Area { offset_bytes, size_bytes });
    }
}

fn encode_list(body: &mut Vec<u8>, areas: &[Area]) {
    for area in areas.iter().chain([&Area { offset_bytes: 0, size_bytes: 0 }]) {
        body.extend(area.offset_bytes.to_le_bytes());
        body.extend(area.size_bytes.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id() -> Id {
        "vpgTv6-Hkit-mGXD-iyeK-sXNZ-JYJq-mGK5wG".parse().unwrap()
    }

    fn label() -> Label {
        let data = Area { offset_bytes: 1 << 20, size_bytes: 0 };
        Label::new(id(), 64 << 20, data, vec![Area { offset_bytes: 4096, size_bytes: 0xff000 }])
    }

    fn head(label: &Label) -> Vec<u8> {
        let mut head = vec![0; SCAN_BYTES];
        put(&mut head, 512 * label.sector as usize, &label.encode().unwrap());
        head
    }

    fn resealed(mut head: Vec<u8>, at: usize, value: &[u8]) -> Vec<u8> {
        put(&mut head, 512 + at, value);
        let sum = crc(&head[512 + CRC_FROM..1024]);
        put_le32(&mut head, 512 + CRC, sum);
        head
    }

    /// The label that `vgcreate` of LVM2 2.03.16 wrote on a device of 64 MiB with this id.
    #[test]
    fn bytes_as_lvm_writes_them() {
        let mut label = label();
        label.extension = Some(Extension::new(true));
        let bytes = label.encode().unwrap();
        assert_eq!(le32(&bytes, CRC), 0x8552_2189);
        assert!(Label::find(&head(&label)).unwrap().unwrap().extension.unwrap().in_vg());
    }

    /// docs/formats.md §16: where LVM2 put the data on arrays of these stripes.
    #[test]
    fn data_starts_at_stripes() {
        for (stripe_kib, pe_start) in [(0, 2048), (64, 2048), (192, 2304), (1536, 3072), (2048, 4096)] {
            let label = Label::create(id(), 64 << 20, stripe_kib << 10).unwrap();
            assert_eq!(label.data_areas[0].offset_bytes, pe_start * 512, "{stripe_kib} KiB");
            assert_eq!(
                label.metadata_areas,
                [Area { offset_bytes: 4096, size_bytes: pe_start * 512 - 4096 }]
            );
        }
        assert_eq!(Label::create(id(), 1 << 20, 0), None);
        assert_eq!(Label::create(id(), 64 << 20, u64::MAX - 511), None);
        assert_eq!(label().pe_count(2048), 63);
        assert_eq!(label().pe_count(0), 0);
    }

    #[test]
    fn the_first_valid_label_wins() {
        assert_eq!(Label::find(&[0; SCAN_BYTES]), Ok(None));
        assert_eq!(Label::find(&[0; 100]), Ok(None), "less than a sector could be read");
        let third = Label { sector: 3, ..label() };
        let mut both = head(&third);
        put(&mut both, 512, &label().encode().unwrap());
        assert_eq!(Label::find(&both).unwrap().unwrap().sector, 1);
        both[512 + 100] ^= 1;
        assert_eq!(Label::find(&both), Ok(Some(third)), "one that is damaged hides no other");
    }

    #[test]
    fn what_is_wrong_with_it() {
        let good = head(&label());
        let find = |at: usize, value: &[u8]| Label::find(&resealed(good.clone(), at, value));
        assert_eq!(find(8, &[2]), Err(LabelError::Sector { stored: 2, found_at: 1 }));
        assert_eq!(find(24, b"LVM3"), Err(LabelError::Type));
        for offset in [0_u32, 31, 473, u32::MAX] {
            let error = LabelError::HeaderOffset { found: offset };
            assert_eq!(find(20, &offset.to_le_bytes()), Err(error), "header at {offset}");
        }
        assert_eq!(find(32, b"_"), Err(LabelError::Id));
        assert_eq!(find(88, &[1; 424]), Err(LabelError::Lists), "no end of the list");
        let end = LabelError::AreaEnd { offset_bytes: 1 << 20, size_bytes: u64::MAX };
        assert_eq!(find(80, &[255; 8]), Err(end));
        let mut torn = good.clone();
        torn[1023] ^= 1;
        assert!(matches!(Label::find(&torn), Err(LabelError::BadChecksum { .. })));
        let mut full = label();
        full.metadata_areas = vec![Area { offset_bytes: 1, size_bytes: 1 }; 30];
        assert_eq!(full.encode(), Err(LabelError::Lists));
    }

    fn areas() -> impl Strategy<Value = Vec<Area>> {
        let area = (1..u64::MAX / 2, 0..u64::MAX / 2);
        let area = area.prop_map(|(offset_bytes, size_bytes)| Area { offset_bytes, size_bytes });
        prop::collection::vec(area, 0..4)
    }

    proptest! {
        #[test]
        fn round_trip(
            sector in 0..4_u64, seed: [u8; 32], device_bytes: u64, data_areas in areas(), metadata_areas in areas(),
            extension in prop::option::of((1..5_u32, any::<u32>(), areas())),
        ) {
            let extension = extension
                .map(|(version, flags, bootloader_areas)| Extension { version, flags, bootloader_areas });
            let id = Id::from_random(seed);
            let label = Label { sector, id, device_bytes, data_areas, metadata_areas, extension, ..label() };
            prop_assert_eq!(Label::find(&head(&label)), Ok(Some(label)));
        }

        /// Whatever is accepted is written back byte for byte, what is not understood included.
        #[test]
        fn lossless(at in 20..510_usize, value: [u8; 2]) {
            let bytes = resealed(head(&label()), at, &value);
            if let Ok(Some(read)) = Label::find(&bytes) {
                prop_assert_eq!(&read.encode().unwrap()[..], &bytes[512..1024]);
            }
        }
    }
}
