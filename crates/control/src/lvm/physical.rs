//! A physical volume as it is on a member: its label, and what each of its metadata areas says.

use wattle_format::lvm::area::{AreaError, Header};
use wattle_format::lvm::label::{Area, LabelError};
use wattle_format::lvm::text::MAX_BYTES as TEXT_BYTES_MAX;
use wattle_format::lvm::{AreaState, Label, Vg};

use super::edit;
use super::plan::say_in_a_group;
use crate::members::Member;
use crate::nodes::MemberId;

/// Where labels are.
const HEAD_BYTES: usize = 4 * 512;
const HEADER_BYTES: usize = 512;
/// LVM2 makes no more. Of others that a label lists the texts are not read: all of them may be one
/// text of many megabytes.
const READ_AREAS_MAX: usize = 2;

/// A physical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalVolume {
    /// Its label.
    pub label: Label,
    /// What its metadata areas say, in their order.
    pub areas: Vec<AreaScan>,
    /// How large what it is on is, whatever it says itself.
    pub size_bytes: u64,
}

/// The members among which physical volumes are found.
pub trait Members {
    /// All of them.
    fn ids(&self) -> impl Iterator<Item = MemberId>;

    /// What a member is called.
    fn name(&self, member: MemberId) -> &str;

    /// What it is as a physical volume, if it is one.
    fn physical(&self, member: MemberId) -> Option<&PhysicalVolume>;
}

/// A metadata area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AreaScan {
    /// Where the label says that it is.
    pub place: Area,
    /// Its header, if that is whole.
    pub header: Option<Header>,
    /// What it says, for choosing among the copies.
    pub state: AreaState,
    /// Its text and what that says, if both are whole.
    pub text: Option<(Vec<u8>, Vg)>,
    /// Why it says nothing, if it should.
    pub error: Option<String>,
}

impl PhysicalVolume {
    /// What its metadata areas say, as far as they are whole.
    pub fn texts(&self) -> impl Iterator<Item = &Vg> {
        self.areas.iter().filter_map(|area| area.text.as_ref()).map(|(_, vg)| vg)
    }

    /// The group that it is in by its own newest text.
    #[must_use]
    pub fn own_group(&self) -> Option<&Vg> {
        self.texts().filter(|vg| vg.pv_of(self.label.id).is_some()).max_by_key(|vg| vg.seqno)
    }

    /// Names of the volumes that lie on it by this text.
    #[must_use]
    pub fn volumes_of<'a>(&self, vg: &'a Vg) -> Vec<&'a str> {
        vg.pv_of(self.label.id).map_or(Vec::new(), |pv| edit::users(vg, &pv.name).collect())
    }

    /// Whether it is what is `known` of it, but for areas that have this text by now.
    #[must_use]
    pub(crate) fn is_as_known(&self, known: &Self, text: &[u8]) -> bool {
        let has_text = |area: &AreaScan| area.text.as_ref().is_some_and(|(found, _)| found == text);
        let label = |of: &Self| {
            let mut label = of.label.clone();
            say_in_a_group(&mut label, true);
            label
        };
        let mut areas = self.areas.iter().zip(&known.areas);
        label(self) == label(known) && areas.all(|(area, known)| area == known || has_text(area))
    }
}

/// The physical volume on a member; `None` if it is none, or cannot be read where labels are.
///
/// # Errors
/// Something that says to be a label does not hold.
pub fn read(member: &Member) -> Option<Result<PhysicalVolume, LabelError>> {
    let head_bytes = HEAD_BYTES.min(usize::try_from(member.device.size_bytes()).unwrap_or(HEAD_BYTES));
    let head = member.read(0, head_bytes).ok()?;
    let label = Label::find(&head).transpose()?;
    Some(label.map(|label| {
        let areas = (0..).zip(&label.metadata_areas).map(|(at, &place)| {
            let area =
                AreaScan { place, header: None, state: AreaState::Unreadable, text: None, error: None };
            if at < READ_AREAS_MAX { read_area(member, area) } else { read_header(member, area) }
        });
        let areas = areas.collect();
        PhysicalVolume { label, areas, size_bytes: member.device.size_bytes() }
    }))
}

/// An area whose text is not read, but written with those of the others.
fn read_header(member: &Member, mut area: AreaScan) -> AreaScan {
    let header = member.read(area.place.offset_bytes, HEADER_BYTES).ok();
    area.header = header.and_then(|bytes| Header::decode(&bytes, area.place).ok());
    match &area.header {
        Some(header) if header.is_ignored() => area.state = AreaState::Ignored,
        Some(header) if header.committed().is_none() => area.state = AreaState::Empty,
        _ => {
            area.error = Some(format!(
                "it is not among the first {READ_AREAS_MAX}, and LVM2 makes no more: its text is not read"
            ));
        }
    }
    area
}

fn read_area(member: &Member, mut area: AreaScan) -> AreaScan {
    match try_read_area(member, &mut area) {
        Ok(state) => area.state = state,
        Err(AreaProblem::Area(error)) => {
            (area.state, area.error) = (AreaState::Damaged(error), Some(error.to_string()));
        }
        Err(AreaProblem::Other(error)) => area.error = Some(error),
    }
    area
}

enum AreaProblem {
    Area(AreaError),
    Other(String),
}

impl From<AreaError> for AreaProblem {
    fn from(error: AreaError) -> Self {
        Self::Area(error)
    }
}

fn try_read_area(member: &Member, area: &mut AreaScan) -> Result<AreaState, AreaProblem> {
    let read = |offset_bytes, len_bytes: u64| {
        let len_bytes = usize::try_from(len_bytes).unwrap_or(usize::MAX);
        member.read(offset_bytes, len_bytes).map_err(|error| AreaProblem::Other(error.to_string()))
    };
    let header = Header::decode(&read(area.place.offset_bytes, HEADER_BYTES as u64)?, area.place)?;
    let header = area.header.insert(header);
    if header.is_ignored() {
        return Ok(AreaState::Ignored);
    }
    let Some(location) = header.committed() else { return Ok(AreaState::Empty) };
    let ranges = header.ranges(&location)?;
    if location.size_bytes > TEXT_BYTES_MAX as u64 + 1 {
        return Err(AreaProblem::Other(format!("its text has {} bytes", location.size_bytes)));
    }
    let pieces = ranges
        .iter()
        .map(|range| read(range.offset_bytes, range.size_bytes))
        .collect::<Result<Vec<_>, _>>()?;
    let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
    let text = header.text(&location, &pieces)?;
    let vg = Vg::parse(&text).map_err(|error| AreaProblem::Other(error.to_string()))?;
    let state = AreaState::Text { vg: vg.id, seqno: vg.seqno, crc: location.crc };
    area.text = Some((text, vg));
    Ok(state)
}
