//! A volume group as a value: from its text, and back into the next one. docs/formats.md §11.3.
//!
//! Every PV, LV and segment keeps the section it came from. Writing puts the typed fields back into
//! it, so an unknown key stays, in its place, until what it belongs to is removed.

use super::error::{GroupPart, VgError};
use super::fields::{Fields, Known, Node, merge, number, text, words};
use super::id::Id;
use super::segment::{LvSegment, SegmentKind};
use super::text::{Item, Section, TextValue};

const CONTENTS: &str = "Text Format Volume Group";
const VERSION: i64 = 1;
const PVS: &str = "physical_volumes";
const LVS: &str = "logical_volumes";
/// What surrounds the VG's section; each commit writes it anew.
const STAMP_KEYS: [&str; 5] = ["contents", "version", "description", "creation_host", "creation_time"];

/// A volume group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vg {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: Id,
    /// Counts commits; see [`Vg::next`].
    pub seqno: u64,
    /// RESIZEABLE, READ, WRITE, EXPORTED, ...: words that must be understood.
    pub status: Vec<String>,
    /// Words that may be ignored.
    pub flags: Vec<String>,
    /// Words of the operator.
    pub tags: Vec<String>,
    /// The host that may use it, if it is bound to one.
    pub system_id: Option<String>,
    /// How hosts that share it lock it: none, or `sanlock` or `dlm`.
    pub lock_type: Option<String>,
    /// Unit of allocation, in sectors.
    pub extent_sectors: u64,
    /// Most LVs; 0 for no limit.
    pub max_lv: u64,
    /// Most PVs; 0 for no limit.
    pub max_pv: u64,
    /// How many metadata areas are wanted in use; 0 for all.
    pub metadata_copies: u64,
    /// In their order.
    pub pvs: Vec<Pv>,
    /// In their order, hidden ones as well.
    pub lvs: Vec<Lv>,
    kept: Section,
    kept_around: Section,
}

/// A physical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pv {
    /// What segments call it: `pv0`, `pv1`, ...
    pub name: String,
    /// The id in its label.
    pub id: Id,
    /// Where it was seen last: a hint.
    pub device: Option<String>,
    /// ALLOCATABLE, EXPORTED.
    pub status: Vec<String>,
    /// MISSING.
    pub flags: Vec<String>,
    /// Words of the operator.
    pub tags: Vec<String>,
    /// Size of the device, in sectors; absent or 0 where it is not known. A hint: `pvresize` leaves
    /// out what is before `pe_start`.
    pub dev_sectors: Option<u64>,
    /// Where its first extent is, in sectors.
    pub pe_start: u64,
    /// How many extents it has.
    pub pe_count: u64,
    kept: Section,
}

/// A logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lv {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: Id,
    /// READ, WRITE, VISIBLE, ...: words that must be understood.
    pub status: Vec<String>,
    /// Words that may be ignored.
    pub flags: Vec<String>,
    /// Words of the operator.
    pub tags: Vec<String>,
    /// Seconds since 1970.
    pub creation_time: Option<u64>,
    /// Where it was made.
    pub creation_host: Option<String>,
    /// In their order, from extent 0 on without holes.
    pub segments: Vec<LvSegment>,
    kept: Section,
}

/// The program that commits, for an operator that reads the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// What was done.
    pub description: String,
    /// Name of this machine.
    pub host: String,
    /// Seconds since 1970.
    pub time: u64,
}

impl Vg {
    /// An empty VG, as `vgcreate` makes it.
    #[must_use]
    pub fn new(name: &str, id: Id, extent_sectors: u64) -> Vg {
        Vg {
            name: name.to_owned(),
            id,
            seqno: 1,
            status: strings(&["RESIZEABLE", "READ", "WRITE"]),
            flags: Vec::new(),
            tags: Vec::new(),
            system_id: None,
            lock_type: None,
            extent_sectors,
            max_lv: 0,
            max_pv: 0,
            metadata_copies: 0,
            pvs: Vec::new(),
            lvs: Vec::new(),
            kept: Section::default(),
            kept_around: Section::default(),
        }
    }

    /// Reads a text: one from a metadata area, or a backup. Whether what it says makes sense is
    /// [`Vg::problems`]' to tell.
    pub fn parse(text: &[u8]) -> Result<Vg, VgError> {
        let mut around = Section::parse(text)?;
        let contents = around.value("contents").and_then(TextValue::as_str);
        let version = around.value("version").and_then(TextValue::as_int);
        if (contents, version) != (Some(CONTENTS), Some(VERSION)) {
            return Err(VgError::Contents);
        }
        let found = around.sections().count();
        let at = around.items.iter().position(|item| matches!(item, Item::Section(..)));
        let Some((at, 1)) = at.map(|at| (at, found)) else {
            return Err(VgError::NotOneVg { found });
        };
        let Item::Section(name, section) = around.items.remove(at) else {
            return Err(VgError::NotOneVg { found });
        };
        around.items.retain(|item| match item {
            Item::Value(key, _) => !STAMP_KEYS.contains(&key.as_str()),
            Item::Section(..) => true,
            Item::Comment { .. } => false,
        });
        Vg::read(name, section, around)
    }

    /// Where extents of its LVs may be, unless an LV says otherwise: `normal` if it is not said.
    #[must_use]
    pub fn allocation_policy(&self) -> Option<&str> {
        self.kept.value("allocation_policy").and_then(TextValue::as_str)
    }

    fn read(name: String, mut section: Section, kept_around: Section) -> Result<Vg, VgError> {
        let pvs = take_list(&mut section, PVS)?
            .into_iter()
            .map(|(name, pv)| Pv::read(name, pv))
            .collect::<Result<_, _>>()?;
        let lvs = take_list(&mut section, LVS)?
            .into_iter()
            .map(|(name, lv)| Lv::read(name, lv))
            .collect::<Result<_, _>>()?;
        let fields = Fields { section: &section, place: GroupPart::Vg };
        Ok(Vg {
            id: fields.id()?,
            seqno: fields.need_number("seqno")?,
            status: fields.words("status")?,
            flags: fields.words("flags")?,
            tags: fields.words("tags")?,
            system_id: fields.text("system_id")?,
            lock_type: fields.text("lock_type")?,
            extent_sectors: fields.need_number("extent_size")?,
            max_lv: fields.number("max_lv")?.unwrap_or(0),
            max_pv: fields.number("max_pv")?.unwrap_or(0),
            metadata_copies: fields.number("metadata_copies")?.unwrap_or(0),
            name,
            pvs,
            lvs,
            kept: section,
            kept_around,
        })
    }

    /// The text that a metadata area holds.
    #[must_use]
    pub fn to_text(&self, stamp: &Stamp) -> Vec<u8> {
        let mut items = vec![Item::Section(self.name.clone(), self.section())];
        items.extend(self.kept_around.items.clone());
        let stamped = [
            TextValue::text(CONTENTS),
            TextValue::int(VERSION),
            TextValue::text(&stamp.description),
            TextValue::text(&stamp.host),
            TextValue::int(stamp.time.try_into().unwrap_or(i64::MAX)),
        ];
        let keys = STAMP_KEYS.into_iter().map(str::to_owned);
        items.extend(keys.zip(stamped).map(|(key, value)| Item::Value(key, value)));
        Section { items }.write()
    }

    fn section(&self) -> Section {
        let pvs = self.pvs.iter().map(|pv| Item::Section(pv.name.clone(), pv.section())).collect();
        let lvs: Vec<Item> = self.lvs.iter().map(|lv| Item::Section(lv.name.clone(), lv.section())).collect();
        let lvs = (!lvs.is_empty()).then_some(Node::Section(Section { items: lvs }));
        let known: Vec<Known> = vec![
            ("id", text(&self.id.to_string())),
            ("seqno", number(self.seqno)),
            ("format", text("lvm2")),
            ("status", words(&self.status)),
            ("flags", words(&self.flags)),
            ("tags", words(&self.tags).filter(|_| !self.tags.is_empty())),
            ("system_id", self.system_id.as_deref().and_then(text)),
            ("lock_type", self.lock_type.as_deref().and_then(text)),
            ("extent_size", number(self.extent_sectors)),
            ("max_lv", number(self.max_lv)),
            ("max_pv", number(self.max_pv)),
            ("metadata_copies", number(self.metadata_copies)),
            (PVS, Some(Node::Section(Section { items: pvs }))),
            (LVS, lvs),
        ];
        merge(&self.kept, known)
    }

    /// The VG to change and commit: the same with the next sequence number. `None` at the end of
    /// its 32 bits.
    #[must_use]
    pub fn next(&self) -> Option<Vg> {
        let seqno = self.seqno.checked_add(1).filter(|&seqno| seqno <= u64::from(u32::MAX))?;
        Some(Vg { seqno, ..self.clone() })
    }

    /// The PV of a name, as segments have it.
    #[must_use]
    pub fn pv(&self, name: &str) -> Option<&Pv> {
        self.pvs.iter().find(|pv| pv.name == name)
    }

    /// The PV of an id, as labels have it.
    #[must_use]
    pub fn pv_of(&self, id: Id) -> Option<&Pv> {
        self.pvs.iter().find(|pv| pv.id == id)
    }

    /// Whether an LV is an operator's volume, not a part of one. An old snapshot is known by the
    /// name of its store, which is hidden, and not by that of what ties the store to its origin,
    /// which is not; while it is merged it is not shown at all.
    #[must_use]
    pub fn is_visible(&self, lv: &Lv) -> bool {
        let segments = self.lvs.iter().flat_map(|tie| tie.segments.iter().map(move |segment| (tie, segment)));
        let shown = segments.into_iter().find_map(|(tie, segment)| match &segment.kind {
            SegmentKind::Snapshot { .. } if tie.name == lv.name => Some(false),
            SegmentKind::Snapshot { store, merging, .. } if *store == lv.name => {
                Some(!merging && tie.has_status("VISIBLE"))
            }
            _ => None,
        });
        shown.unwrap_or_else(|| lv.has_status("VISIBLE"))
    }

    /// The LV of a name.
    #[must_use]
    pub fn lv(&self, name: &str) -> Option<&Lv> {
        self.lvs.iter().find(|lv| lv.name == name)
    }
}

impl Pv {
    /// A PV to be added, as `vgcreate` writes it.
    #[must_use]
    pub fn new(name: &str, id: Id, dev_sectors: u64, pe_start: u64, pe_count: u64) -> Pv {
        Pv {
            name: name.to_owned(),
            id,
            device: None,
            status: strings(&["ALLOCATABLE"]),
            flags: Vec::new(),
            tags: Vec::new(),
            dev_sectors: Some(dev_sectors),
            pe_start,
            pe_count,
            kept: Section::default(),
        }
    }

    /// Whether LVM2 went on without it: its contents may be out of date.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.flags.iter().any(|flag| flag == "MISSING")
    }

    fn read(name: String, section: Section) -> Result<Pv, VgError> {
        let fields = Fields { section: &section, place: GroupPart::Pv(name.clone()) };
        Ok(Pv {
            id: fields.id()?,
            device: fields.text("device")?,
            status: fields.words("status")?,
            flags: fields.words("flags")?,
            tags: fields.words("tags")?,
            dev_sectors: fields.number("dev_size")?,
            pe_start: fields.need_number("pe_start")?,
            pe_count: fields.need_number("pe_count")?,
            name,
            kept: section,
        })
    }

    fn section(&self) -> Section {
        let known = vec![
            ("id", text(&self.id.to_string())),
            // LVM2 wants one, though it is only a hint.
            ("device", text(self.device.as_deref().unwrap_or("[unknown]"))),
            ("status", words(&self.status)),
            ("flags", words(&self.flags)),
            ("tags", words(&self.tags).filter(|_| !self.tags.is_empty())),
            ("dev_size", self.dev_sectors.and_then(number)),
            ("pe_start", number(self.pe_start)),
            ("pe_count", number(self.pe_count)),
        ];
        merge(&self.kept, known)
    }
}

impl Lv {
    /// A visible LV to be added, as `lvcreate` writes it.
    #[must_use]
    pub fn new(name: &str, id: Id, stamp: &Stamp, segments: Vec<LvSegment>) -> Lv {
        Lv {
            name: name.to_owned(),
            id,
            status: strings(&["READ", "WRITE", "VISIBLE"]),
            flags: Vec::new(),
            tags: Vec::new(),
            creation_time: Some(stamp.time),
            creation_host: Some(stamp.host.clone()),
            segments,
            kept: Section::default(),
        }
    }

    /// Its length; saturates.
    #[must_use]
    pub fn extents(&self) -> u64 {
        self.segments.last().map_or(0, LvSegment::end_extent)
    }

    /// What of that clients have: RAID may have extents in reserve for a reshape.
    #[must_use]
    pub fn usable_extents(&self) -> u64 {
        let reserved = self.segments.iter().map(LvSegment::reserved_extents);
        self.extents().saturating_sub(reserved.fold(0, u64::saturating_add))
    }

    /// Where its extents may be, unless it is as the group has it: `contiguous`, `cling`, `normal`,
    /// `anywhere`.
    #[must_use]
    pub fn allocation_policy(&self) -> Option<&str> {
        self.kept.value("allocation_policy").and_then(TextValue::as_str)
    }

    /// Whether it may be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.has_status("WRITE")
    }

    /// Whether a word is among its status.
    #[must_use]
    pub fn has_status(&self, word: &str) -> bool {
        self.status.iter().any(|found| found == word)
    }

    fn read(name: String, mut section: Section) -> Result<Lv, VgError> {
        let place = GroupPart::Lv(name.clone());
        let promised = Fields { section: &section, place }.need_number("segment_count")?;
        let segments = take_segments(&mut section, &name, promised)?;
        let fields = Fields { section: &section, place: GroupPart::Lv(name.clone()) };
        Ok(Lv {
            id: fields.id()?,
            status: fields.words("status")?,
            flags: fields.words("flags")?,
            tags: fields.words("tags")?,
            creation_time: fields.number("creation_time")?,
            creation_host: fields.text("creation_host")?,
            name,
            segments,
            kept: section,
        })
    }

    fn section(&self) -> Section {
        let known = vec![
            ("id", text(&self.id.to_string())),
            ("status", words(&self.status)),
            ("flags", words(&self.flags)),
            ("tags", words(&self.tags).filter(|_| !self.tags.is_empty())),
            ("creation_time", self.creation_time.and_then(number)),
            ("creation_host", self.creation_host.as_deref().and_then(text)),
            ("segment_count", number(self.segments.len() as u64)),
        ];
        let mut section = merge(&self.kept, known);
        let segments = self.segments.iter().enumerate();
        section
            .items
            .extend(segments.map(|(i, segment)| Item::Section(format!("segment{}", i + 1), segment.write())));
        section
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Takes the sections out of a list and leaves it in its place, empty. A VG without LVs has no list
/// of them.
fn take_list(vg: &mut Section, list: &'static str) -> Result<Vec<(String, Section)>, VgError> {
    let found = vg.items.iter_mut().find_map(|item| match item {
        Item::Section(key, section) if key == list => Some(section),
        _ => None,
    });
    let mut sections = Vec::new();
    for item in found.map(std::mem::take).unwrap_or_default().items {
        match item {
            Item::Section(key, section) => sections.push((key, section)),
            Item::Value(key, _) => return Err(VgError::NotSection { list, key }),
            Item::Comment { .. } => {}
        }
    }
    Ok(sections)
}

/// Takes `segment1` to `segmentN` out of an LV, whatever their order.
fn take_segments(lv: &mut Section, name: &str, promised: u64) -> Result<Vec<LvSegment>, VgError> {
    let mut numbered = Vec::new();
    let mut others = Vec::new();
    for item in std::mem::take(&mut lv.items) {
        let number = |key: &str| key.strip_prefix("segment")?.parse::<usize>().ok();
        match item {
            Item::Section(key, section) => match number(&key) {
                Some(number) => numbered.push((number, section)),
                None => others.push(Item::Section(key, section)),
            },
            other => others.push(other),
        }
    }
    lv.items = others;
    numbered.sort_by_key(|(number, _)| *number);
    let in_order = numbered.iter().enumerate().all(|(i, (number, _))| *number == i + 1);
    if !in_order || numbered.len() as u64 != promised {
        return Err(VgError::Segments { lv: name.to_owned(), promised });
    }
    numbered
        .into_iter()
        .map(|(number, section)| LvSegment::read(section, GroupPart::Segment(name.to_owned(), number)))
        .collect()
}
