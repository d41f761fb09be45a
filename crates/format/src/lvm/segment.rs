//! Segments: what a run of an LV's extents is made of. docs/formats.md §11.3 to §11.5.

use super::error::{GroupPart, VgError};
use super::fields::{Fields, Known, Node, merge, number, text, words};
use super::raid::{RAID_TYPES, Raid};
use super::text::{Scalar, Section, TextValue};

/// Consecutive extents of one LV that are mapped alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LvSegment {
    /// First extent in the LV.
    pub start_extent: u64,
    /// How many.
    pub extents: u64,
    /// What they are made of.
    pub kind: SegmentKind,
    /// Words of the operator.
    pub tags: Vec<String>,
    /// The type's flags, in the order in which they follow its name, each with a `+`.
    suffix: String,
    /// The section as it was read, for what is not understood.
    kept: Section,
}

/// Where a stripe, a mirror's leg or the only area of a linear segment starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// A PV by its name in the text, or another LV. PVs go first, should both exist.
    pub name: String,
    /// Its first extent there.
    pub extent: u64,
}

/// What a segment is made of. Sizes are in sectors; names are of LVs unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentKind {
    /// Linear (one stripe) or striped.
    Striped {
        /// Not 0 when there are several.
        stripe_sectors: u64,
        /// In their order; each has an equal part of the segment's extents.
        stripes: Vec<Stripe>,
    },
    /// The old mirror, and what a pvmove in progress is made of.
    Mirror {
        /// Each has all extents of the segment.
        legs: Vec<Stripe>,
        /// Where it is recorded which regions are in sync; in memory only when there is none.
        log: Option<String>,
        /// Unit of the log.
        region_sectors: Option<u64>,
        /// How many extents a pvmove has copied already.
        extents_moved: Option<u64>,
    },
    /// Any RAID in md's layouts.
    Raid(Raid),
    /// Ties an old snapshot together; the LV is hidden and named `snapshotN`.
    Snapshot {
        /// What was snapshotted.
        origin: String,
        /// Holds the exceptions (docs/formats.md §13).
        store: String,
        /// Unit of copying.
        chunk_sectors: u64,
        /// Whether the snapshot is being merged back into its origin.
        merging: bool,
    },
    /// A pool of thin volumes (§14).
    ThinPool {
        /// Its data.
        data: String,
        /// Its mappings.
        metadata: String,
        /// Must be the one in the metadata's superblock.
        transaction_id: u64,
        /// Unit of allocation.
        chunk_sectors: u64,
        /// Whether blocks are zeroed before they are first used.
        zero_new_blocks: Option<u64>,
    },
    /// A thin volume.
    Thin {
        /// Its pool.
        pool: String,
        /// The pool's transaction in which it was made.
        transaction_id: u64,
        /// Its number in the pool's metadata.
        device_id: u64,
        /// What it is a snapshot of.
        origin: Option<String>,
        /// A read-only LV outside of the pool that has what the volume does not.
        external_origin: Option<String>,
        /// The thin volume that this one is about to be merged into.
        merge: Option<String>,
    },
    /// Data and metadata of a cache (§15).
    CachePool {
        /// Cached blocks.
        data: String,
        /// Which they are, and which are dirty.
        metadata: String,
        /// Unit of caching.
        chunk_sectors: Option<u64>,
        /// 1 or 2.
        metadata_format: Option<u64>,
        /// writethrough, writeback or passthrough.
        mode: Option<String>,
    },
    /// A cached LV.
    Cache {
        /// Its cache pool, or the one LV that holds both parts of its cache.
        pool: String,
        /// The slow LV under it.
        origin: String,
        /// Where the parts are when one LV holds both.
        single: Option<CacheParts>,
        /// As in the pool, which has it unless one LV holds both parts.
        chunk_sectors: Option<u64>,
        /// Likewise.
        metadata_format: Option<u64>,
        /// Likewise.
        mode: Option<String>,
    },
    /// An LV with a write-back log in front of it.
    Writecache {
        /// The log.
        cache: String,
        /// The LV under it.
        origin: String,
        /// Unit of the log in bytes.
        block_bytes: u64,
    },
    /// An LV with checksums.
    Integrity {
        /// Its data.
        origin: String,
        /// Length that is protected.
        data_sectors: u64,
        /// Where the checksums are; among the data if absent.
        metadata: Option<String>,
        /// `B`: a bitmap says which checksums are to be made again; `J`: a journal has what was
        /// written last.
        mode: Option<String>,
    },
    /// A VDO volume.
    Vdo {
        /// Its pool.
        pool: String,
        /// Where it starts in the pool's address space, in extents.
        offset_extents: u64,
    },
    /// A VDO pool.
    VdoPool {
        /// Holds everything.
        data: String,
    },
    /// Every access fails.
    Error,
    /// Reads zeros.
    Zero,
    /// A type, or flags of a type, that are not understood: kept, and not to be used.
    Unknown {
        /// The whole type with its flags.
        name: String,
    },
}

/// The two parts of a cache in one LV, in sectors of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheParts {
    /// Where the metadata starts.
    pub metadata_start: u64,
    /// Its length.
    pub metadata_len: u64,
    /// Where the cached blocks start.
    pub data_start: u64,
    /// Their length.
    pub data_len: u64,
}

/// Flags behind a type's name that do not change what its keys mean.
const KNOWN_FLAGS: [&str; 5] =
    ["METADATA_FORMAT", "CROP_METADATA", "CACHE_USES_CACHEVOL", "RESHAPE", "RESHAPE_DATA_OFFSET"];

impl LvSegment {
    /// Extents of one PV, or of one LV.
    #[must_use]
    pub fn linear(start_extent: u64, extents: u64, name: &str, extent: u64) -> LvSegment {
        let stripes = vec![Stripe { name: name.to_owned(), extent }];
        LvSegment::new(start_extent, extents, SegmentKind::Striped { stripe_sectors: 0, stripes })
    }

    /// Extents of any kind.
    #[must_use]
    pub fn new(start_extent: u64, extents: u64, kind: SegmentKind) -> LvSegment {
        let suffix = match &kind {
            SegmentKind::Cache { single: Some(_), .. } => "+CACHE_USES_CACHEVOL",
            SegmentKind::CachePool { metadata_format: Some(2..), .. } => "+METADATA_FORMAT",
            _ => "",
        };
        let (suffix, kept) = (suffix.to_owned(), Section::default());
        LvSegment { start_extent, extents, kind, tags: Vec::new(), suffix, kept }
    }

    /// First extent of the LV after the segment; saturates.
    #[must_use]
    pub fn end_extent(&self) -> u64 {
        self.start_extent.saturating_add(self.extents)
    }

    /// Whether it is a pool with messages that LVM2 sends when it activates the pool next. It
    /// commits them with the text first: until they are sent, the pool is a transaction behind.
    #[must_use]
    pub fn has_pool_messages(&self) -> bool {
        let is_message = |(name, _): (&str, &Section)| name.starts_with("message");
        matches!(self.kind, SegmentKind::ThinPool { .. }) && self.kept.sections().any(is_message)
    }

    /// Extents of it that a reshape left in reserve.
    pub(super) fn reserved_extents(&self) -> u64 {
        let SegmentKind::Raid(raid) = &self.kind else { return 0 };
        raid.usable_extents(self.extents).map_or(0, |usable| self.extents - usable)
    }

    pub(super) fn read(section: Section, place: GroupPart) -> Result<LvSegment, VgError> {
        let fields = Fields { section: &section, place };
        let start_extent = fields.need_number("start_extent")?;
        let extents = fields.need_number("extent_count")?;
        let tags = fields.words("tags")?;
        let type_name = fields.need_text("type")?;
        let base = type_name.split('+').next().unwrap_or_default();
        let suffix = type_name[base.len()..].to_owned();
        let understood = type_name.split('+').skip(1).all(|flag| KNOWN_FLAGS.contains(&flag));
        let kind = match understood {
            true => SegmentKind::read(&fields, base)?,
            false => None,
        };
        let kind = kind.unwrap_or(SegmentKind::Unknown { name: type_name });
        Ok(LvSegment { start_extent, extents, kind, tags, suffix, kept: section })
    }

    pub(super) fn write(&self) -> Section {
        let type_name = self.type_name();
        let kept_type = self.kept.value("type").and_then(TextValue::as_str);
        // A segment that was made into another kind has nothing to keep.
        let nothing = Section::default();
        let kept = if kept_type == Some(&type_name) { &self.kept } else { &nothing };
        let mut known = vec![
            ("start_extent", number(self.start_extent)),
            ("extent_count", number(self.extents)),
            ("type", text(&type_name)),
            ("tags", words(&self.tags).filter(|_| !self.tags.is_empty())),
        ];
        self.kind.write(&mut known);
        merge(kept, known)
    }

    /// The type as the text has it, flags included.
    #[must_use]
    pub fn type_name(&self) -> String {
        match &self.kind {
            SegmentKind::Unknown { name } => name.clone(),
            kind => format!("{}{}", kind.name(), self.suffix),
        }
    }
}

impl SegmentKind {
    /// The type's name without flags.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            SegmentKind::Striped { .. } => "striped",
            SegmentKind::Mirror { .. } => "mirror",
            SegmentKind::Raid(raid) => raid.raid_type.name,
            SegmentKind::Snapshot { .. } => "snapshot",
            SegmentKind::ThinPool { .. } => "thin-pool",
            SegmentKind::Thin { .. } => "thin",
            SegmentKind::CachePool { .. } => "cache-pool",
            SegmentKind::Cache { .. } => "cache",
            SegmentKind::Writecache { .. } => "writecache",
            SegmentKind::Integrity { .. } => "integrity",
            SegmentKind::Vdo { .. } => "vdo",
            SegmentKind::VdoPool { .. } => "vdo-pool",
            SegmentKind::Error => "error",
            SegmentKind::Zero => "zero",
            SegmentKind::Unknown { name } => name,
        }
    }

    /// What its blocks come from: everything it names, except for the thin volumes that a thin
    /// volume only descends from.
    #[must_use]
    pub fn made_of(&self) -> Vec<&str> {
        match self {
            SegmentKind::Thin { pool, external_origin, .. } => {
                [pool.as_str()].into_iter().chain(external_origin.as_deref()).collect()
            }
            kind => kind.references(),
        }
    }

    /// Everything it names: LVs, and PVs under stripes and legs.
    #[must_use]
    pub fn references(&self) -> Vec<&str> {
        match self {
            SegmentKind::Striped { stripes, .. } => {
                stripes.iter().map(|stripe| stripe.name.as_str()).collect()
            }
            SegmentKind::Mirror { legs, log, .. } => {
                legs.iter().map(|leg| leg.name.as_str()).chain(log.as_deref()).collect()
            }
            SegmentKind::Raid(raid) => raid
                .images
                .iter()
                .flat_map(|image| image.meta.as_deref().into_iter().chain([image.data.as_str()]))
                .collect(),
            SegmentKind::Snapshot { origin, store, .. } => vec![origin, store],
            SegmentKind::ThinPool { data, metadata, .. } | SegmentKind::CachePool { data, metadata, .. } => {
                vec![data, metadata]
            }
            SegmentKind::Thin { pool, origin, external_origin, merge, .. } => {
                let others = [origin, external_origin, merge].into_iter().filter_map(|name| name.as_deref());
                [pool.as_str()].into_iter().chain(others).collect()
            }
            SegmentKind::Cache { pool, origin, .. } => vec![pool, origin],
            SegmentKind::Writecache { cache, origin, .. } => vec![cache, origin],
            SegmentKind::Integrity { origin, metadata, .. } => {
                [origin.as_str()].into_iter().chain(metadata.as_deref()).collect()
            }
            SegmentKind::Vdo { pool, .. } => vec![pool],
            SegmentKind::VdoPool { data } => vec![data],
            SegmentKind::Error | SegmentKind::Zero | SegmentKind::Unknown { .. } => Vec::new(),
        }
    }

    /// `None`: not a type we know.
    fn read(fields: &Fields<'_>, name: &str) -> Result<Option<SegmentKind>, VgError> {
        if let Some(&raid_type) = RAID_TYPES.iter().find(|raid| raid.name == name) {
            return Ok(Some(SegmentKind::Raid(Raid::read(fields, raid_type)?)));
        }
        Ok(Some(match name {
            "striped" => SegmentKind::Striped {
                stripe_sectors: fields.number("stripe_size")?.unwrap_or(0),
                stripes: fields.places("stripes")?,
            },
            "mirror" => SegmentKind::Mirror {
                legs: fields.places("mirrors")?,
                log: fields.text("mirror_log")?,
                region_sectors: fields.number("region_size")?,
                extents_moved: fields.number("extents_moved")?,
            },
            "snapshot" => {
                let merging = fields.text("merging_store")?;
                SegmentKind::Snapshot {
                    origin: fields.need_text("origin")?,
                    merging: merging.is_some(),
                    store: merging.map_or_else(|| fields.need_text("cow_store"), Ok)?,
                    chunk_sectors: fields.need_number("chunk_size")?,
                }
            }
            "thin-pool" => SegmentKind::ThinPool {
                data: fields.need_text("pool")?,
                metadata: fields.need_text("metadata")?,
                transaction_id: fields.number("transaction_id")?.unwrap_or(0),
                chunk_sectors: fields.need_number("chunk_size")?,
                zero_new_blocks: fields.number("zero_new_blocks")?,
            },
            "thin" => SegmentKind::Thin {
                pool: fields.need_text("thin_pool")?,
                transaction_id: fields.number("transaction_id")?.unwrap_or(0),
                device_id: fields.need_number("device_id")?,
                origin: fields.text("origin")?,
                external_origin: fields.text("external_origin")?,
                merge: fields.text("merge")?,
            },
            "cache-pool" => SegmentKind::CachePool {
                data: fields.need_text("data")?,
                metadata: fields.need_text("metadata")?,
                chunk_sectors: fields.number("chunk_size")?,
                metadata_format: fields.number("metadata_format")?,
                mode: fields.text("cache_mode")?,
            },
            "cache" => SegmentKind::Cache {
                pool: fields.need_text("cache_pool")?,
                origin: fields.need_text("origin")?,
                single: read_cache_parts(fields)?,
                chunk_sectors: fields.number("chunk_size")?,
                metadata_format: fields.number("metadata_format")?,
                mode: fields.text("cache_mode")?,
            },
            "writecache" => SegmentKind::Writecache {
                cache: fields.need_text("writecache")?,
                origin: fields.need_text("origin")?,
                block_bytes: fields.need_number("writecache_block_size")?,
            },
            "integrity" => SegmentKind::Integrity {
                origin: fields.need_text("origin")?,
                data_sectors: fields.need_number("data_sectors")?,
                metadata: fields.text("meta_dev")?,
                mode: fields.text("mode")?,
            },
            "vdo" => SegmentKind::Vdo {
                pool: fields.need_text("vdo_pool")?,
                offset_extents: fields.number("vdo_offset")?.unwrap_or(0),
            },
            "vdo-pool" => SegmentKind::VdoPool { data: fields.need_text("data")? },
            "error" => SegmentKind::Error,
            "zero" => SegmentKind::Zero,
            _ => return Ok(None),
        }))
    }

    /// The keys that [`SegmentKind::read`] reads, and the counts that LVM2 wants with them, in
    /// LVM2's order.
    fn write(&self, known: &mut Vec<Known>) {
        let some_number = |value: Option<u64>| value.and_then(number);
        let some_text = |value: &Option<String>| value.as_deref().and_then(text);
        match self {
            SegmentKind::Striped { stripe_sectors, stripes } => known.extend([
                ("stripe_count", number(stripes.len() as u64)),
                ("stripe_size", number(*stripe_sectors).filter(|_| stripes.len() > 1)),
                ("stripes", places(stripes)),
            ]),
            SegmentKind::Mirror { legs, log, region_sectors, extents_moved } => known.extend([
                ("mirror_count", number(legs.len() as u64)),
                ("extents_moved", some_number(*extents_moved)),
                ("mirror_log", some_text(log)),
                ("region_size", some_number(*region_sectors)),
                ("mirrors", places(legs)),
            ]),
            SegmentKind::Raid(raid) => raid.write(known),
            SegmentKind::Snapshot { origin, store, chunk_sectors, merging } => known.extend([
                ("chunk_size", number(*chunk_sectors)),
                ("origin", text(origin)),
                ("cow_store", text(store).filter(|_| !merging)),
                ("merging_store", text(store).filter(|_| *merging)),
            ]),
            SegmentKind::ThinPool { data, metadata, transaction_id, chunk_sectors, zero_new_blocks } => known
                .extend([
                    ("metadata", text(metadata)),
                    ("pool", text(data)),
                    ("transaction_id", number(*transaction_id)),
                    ("chunk_size", number(*chunk_sectors)),
                    ("zero_new_blocks", some_number(*zero_new_blocks)),
                ]),
            SegmentKind::Thin { pool, transaction_id, device_id, origin, external_origin, merge } => known
                .extend([
                    ("thin_pool", text(pool)),
                    ("transaction_id", number(*transaction_id)),
                    ("device_id", number(*device_id)),
                    ("external_origin", some_text(external_origin)),
                    ("origin", some_text(origin)),
                    ("merge", some_text(merge)),
                ]),
            SegmentKind::CachePool { data, metadata, chunk_sectors, metadata_format, mode } => {
                known.extend([
                    ("data", text(data)),
                    ("metadata", text(metadata)),
                    ("metadata_format", some_number(*metadata_format)),
                    ("chunk_size", some_number(*chunk_sectors)),
                    ("cache_mode", some_text(mode)),
                ]);
            }
            SegmentKind::Cache { pool, origin, single, chunk_sectors, metadata_format, mode } => known
                .extend([
                    ("cache_pool", text(pool)),
                    ("origin", text(origin)),
                    ("metadata_format", some_number(*metadata_format)),
                    ("chunk_size", some_number(*chunk_sectors)),
                    ("cache_mode", some_text(mode)),
                    ("metadata_start", some_number(single.map(|parts| parts.metadata_start))),
                    ("metadata_len", some_number(single.map(|parts| parts.metadata_len))),
                    ("data_start", some_number(single.map(|parts| parts.data_start))),
                    ("data_len", some_number(single.map(|parts| parts.data_len))),
                ]),
            SegmentKind::Writecache { cache, origin, block_bytes } => known.extend([
                ("writecache", text(cache)),
                ("origin", text(origin)),
                ("writecache_block_size", number(*block_bytes)),
            ]),
            SegmentKind::Integrity { origin, data_sectors, metadata, mode } => known.extend([
                ("origin", text(origin)),
                ("data_sectors", number(*data_sectors)),
                ("meta_dev", some_text(metadata)),
                ("mode", some_text(mode)),
            ]),
            SegmentKind::Vdo { pool, offset_extents } => {
                known.extend([("vdo_pool", text(pool)), ("vdo_offset", number(*offset_extents))]);
            }
            SegmentKind::VdoPool { data } => known.push(("data", text(data))),
            SegmentKind::Error | SegmentKind::Zero | SegmentKind::Unknown { .. } => {}
        }
    }
}

fn read_cache_parts(fields: &Fields<'_>) -> Result<Option<CacheParts>, VgError> {
    let Some(metadata_start) = fields.number("metadata_start")? else { return Ok(None) };
    Ok(Some(CacheParts {
        metadata_start,
        metadata_len: fields.need_number("metadata_len")?,
        data_start: fields.need_number("data_start")?,
        data_len: fields.need_number("data_len")?,
    }))
}

fn places(stripes: &[Stripe]) -> Option<Node> {
    let mut list = Vec::with_capacity(2 * stripes.len());
    for stripe in stripes {
        list.push(Scalar::from(stripe.name.as_str()));
        // Extents have 32 bits; `problems` has refused what has more.
        list.push(Scalar::Int(stripe.extent.try_into().unwrap_or(i64::MAX)));
    }
    Some(Node::Value(TextValue::List(list)))
}
