//! RAID segments: LVM2's types in md's numbers. docs/formats.md §11.5.

use super::error::VgError;
use super::fields::{Fields, Known, Node, number};
use super::text::{Scalar, TextValue};

/// One image of a RAID LV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The LV with superblock and bitmap; plain raid0 has none.
    pub meta: Option<String>,
    /// The LV with data.
    pub data: String,
}

/// A RAID level and layout in md's numbers: docs/formats.md §11.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaidType {
    /// LVM2's name.
    pub name: &'static str,
    /// md's level.
    pub level: i32,
    /// md's layout; RAID 10 adds the number of copies in the lowest byte.
    pub layout: u32,
    /// Images that hold parity.
    pub parity_images: u64,
}

/// Every RAID type. raid4 is RAID 5 with parity on the first image.
pub const RAID_TYPES: [RaidType; 21] = [
    raid("raid0", 0, 0, 0),
    raid("raid0_meta", 0, 0, 0),
    raid("raid1", 1, 0, 0),
    raid("raid4", 5, 4, 1),
    raid("raid5", 5, 2, 1),
    raid("raid5_n", 5, 5, 1),
    raid("raid5_ls", 5, 2, 1),
    raid("raid5_rs", 5, 3, 1),
    raid("raid5_la", 5, 0, 1),
    raid("raid5_ra", 5, 1, 1),
    raid("raid6", 6, 8, 2),
    raid("raid6_zr", 6, 8, 2),
    raid("raid6_nr", 6, 9, 2),
    raid("raid6_nc", 6, 10, 2),
    raid("raid6_n_6", 6, 5, 2),
    raid("raid6_ls_6", 6, 18, 2),
    raid("raid6_rs_6", 6, 19, 2),
    raid("raid6_la_6", 6, 16, 2),
    raid("raid6_ra_6", 6, 17, 2),
    raid("raid10", 10, 0x100, 0),
    raid("raid10_near", 10, 0x100, 0),
];

const fn raid(name: &'static str, level: i32, layout: u32, parity_images: u64) -> RaidType {
    RaidType { name, level, layout, parity_images }
}

/// A RAID segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raid {
    /// Level and layout.
    pub raid_type: RaidType,
    /// Absent in raid1.
    pub stripe_sectors: Option<u64>,
    /// Unit of the bitmap; absent in raid0.
    pub region_sectors: Option<u64>,
    /// RAID 10 only; 2 if absent.
    pub data_copies: Option<u64>,
    /// Where data starts in the images, after a reshape.
    pub data_offset_sectors: Option<u64>,
    /// Extents of each image that a reshape left in reserve: images and segment have them, clients
    /// do not.
    pub reserve_extents: Option<u64>,
    /// In their order.
    pub images: Vec<Image>,
}

impl Raid {
    /// Extents that each image has of a segment of so many, its reserve included; `None` when the
    /// numbers do not go together.
    #[must_use]
    pub fn image_extents(&self, extents: u64) -> Option<u64> {
        let (copies, data_images) = self.copies_and_data_images()?;
        let total = extents.checked_mul(copies)?;
        total.is_multiple_of(data_images).then_some(total / data_images)
    }

    /// Extents that clients have of a segment of so many: all but the reserve. `None` when the
    /// numbers do not go together.
    #[must_use]
    pub fn usable_extents(&self, extents: u64) -> Option<u64> {
        let Some(reserve) = self.reserve_extents.filter(|reserve| *reserve > 0) else { return Some(extents) };
        let (copies, data_images) = self.copies_and_data_images()?;
        let total = reserve.checked_mul(data_images)?;
        let reserve = total.is_multiple_of(copies).then_some(total / copies)?;
        extents.checked_sub(reserve).filter(|usable| *usable > 0)
    }

    /// How often everything is there, and on how many images. `None` when they are too few.
    fn copies_and_data_images(&self) -> Option<(u64, u64)> {
        let images = self.images.len() as u64;
        let (copies, data_images) = match self.raid_type.level {
            1 => (1, 1),
            10 => (self.data_copies.unwrap_or(2), images),
            _ => (1, images.checked_sub(self.raid_type.parity_images)?),
        };
        (data_images > 0 && copies > 0 && copies <= images).then_some((copies, data_images))
    }

    pub(super) fn write(&self, known: &mut Vec<Known>) {
        let count = if self.raid_type.level == 0 { "stripe_count" } else { "device_count" };
        let (list, with_meta) =
            if self.raid_type.name == "raid0" { ("raid0_lvs", false) } else { ("raids", true) };
        let names = self.images.iter().flat_map(|image| {
            image.meta.as_deref().filter(|_| with_meta).into_iter().chain([image.data.as_str()])
        });
        known.extend([
            (count, number(self.images.len() as u64)),
            ("data_copies", self.data_copies.and_then(number)),
            ("region_size", self.region_sectors.and_then(number)),
            ("stripe_size", self.stripe_sectors.and_then(number)),
            ("data_offset", self.data_offset_sectors.and_then(number)),
            ("reshape_count", self.reserve_extents.and_then(number)),
            (list, Some(Node::Value(TextValue::List(names.map(Scalar::from).collect())))),
        ]);
    }

    pub(super) fn read(fields: &Fields<'_>, raid_type: RaidType) -> Result<Raid, VgError> {
        let images = if raid_type.name == "raid0" {
            let names = fields.words("raid0_lvs")?;
            names.into_iter().map(|data| Image { meta: None, data }).collect()
        } else {
            let names = fields.words("raids")?;
            let (pairs, rest) = names.as_chunks::<2>();
            if !rest.is_empty() {
                let (place, expected) = (fields.place.clone(), "a list of pairs of LVs");
                return Err(VgError::Value { place, key: "raids", expected });
            }
            pairs.iter().map(|[meta, data]| Image { meta: Some(meta.clone()), data: data.clone() }).collect()
        };
        Ok(Raid {
            raid_type,
            stripe_sectors: fields.number("stripe_size")?,
            region_sectors: fields.number("region_size")?,
            data_copies: fields.number("data_copies")?,
            data_offset_sectors: fields.number("data_offset")?,
            reserve_extents: fields.number("reshape_count")?,
            images,
        })
    }
}
