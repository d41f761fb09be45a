//! Arrays without metadata over made-up drives: for trying things and for measuring. Nothing of
//! them outlives the process, so superblocks would have nothing to record; files are refused for
//! the same reason.

use wattle_control::members::Member;
use wattle_control::{Code, Problem};
use wattle_engine::geometry::{Geometry, Level, LevelKind, Params, default_layout, parse_layout};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::{SECTOR_BYTES, Sector};
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec};
use wattle_rt::Core;

use super::ServedFacts;

/// The same as mdadm's.
const CHUNK_BYTES: u64 = 512 << 10;

/// What such an array is to be.
#[derive(Debug, Clone, Copy)]
pub struct MadeUpShape<'a> {
    /// `5`, `raid5`.
    pub level: &'a str,
    /// The default where nothing is said.
    pub chunk_bytes: Option<u64>,
    /// `left-symmetric`; the level's default where nothing is said.
    pub layout: Option<&'a str>,
}

/// An array that is ready to start.
#[derive(Debug)]
pub struct MadeUpArray {
    /// What it is.
    pub facts: ServedFacts,
    members: Vec<Member>,
    read_only: bool,
}

impl MadeUpArray {
    /// The array of `members`, in that order, called `name`.
    ///
    /// # Errors
    /// A member is a file, or the numbers do not fit together.
    pub fn new(
        name: &str,
        members: Vec<Member>,
        shape: MadeUpShape<'_>,
        read_only: bool,
    ) -> Result<Self, Problem> {
        if let Some(real) = members.iter().find(|member| !member.is_made_up()) {
            return Err(Problem::new(
                Code::BadRequest,
                format!(
                    "{}: an array without metadata is only made of mem:, null: and model: drives",
                    real.name
                ),
                "without superblocks nothing would protect what is on it, nor tell next time how to read it",
                "make an array with `wattle create` and serve that, without --level",
            )
            .of_member(&real.name));
        }
        let geometry = geometry(&members, shape)?;
        let facts = ServedFacts { is_blank: true, ..ServedFacts::without_metadata(name, geometry) };
        Ok(Self { facts, members, read_only })
    }

    /// Starts it on every core.
    pub async fn start(self, core: &Core) -> ArrayHandle {
        let spec = |member: Member| MemberSpec::in_sync(member.device, Sector::ZERO);
        let members = self.members.into_iter().map(spec).collect();
        // In sync: they are all zeros, and so are the parity and the copies of zeros.
        let spec = ArraySpec::new(self.facts.name, self.facts.geometry, members);
        let spec = ArraySpec { read_only: self.read_only, ..spec };
        ArrayHandle::start(core, spec, Box::new(NoMetadata)).await
    }
}

fn geometry(members: &[Member], shape: MadeUpShape<'_>) -> Result<Geometry, Problem> {
    let MadeUpShape { level, chunk_bytes, layout } = shape;
    let bad = |what: String| {
        Problem::new(
            Code::BadRequest,
            what,
            "level, members, chunk and layout have to fit together",
            "see `wattle explain WTL-0008`",
        )
    };
    let level: Level = level.parse().map_err(|error| bad(format!("--level {level}: {error}")))?;
    let raid_disks = u32::try_from(members.len()).unwrap_or(u32::MAX);
    let layout = match layout {
        None => default_layout(level),
        Some(name) => {
            parse_layout(level, raid_disks, name).map_err(|error| bad(format!("--layout {name}: {error}")))?
        }
    };
    let chunk = match (level, chunk_bytes) {
        (Level::Raid1, _) | (Level::Linear, None) => 0,
        (_, chunk) => chunk.unwrap_or(CHUNK_BYTES),
    };
    if !chunk.is_multiple_of(SECTOR_BYTES) {
        return Err(bad(format!("--chunk {chunk}: not a multiple of 512")));
    }
    let chunk = chunk / SECTOR_BYTES;
    let sizes = members.iter().map(|member| member.device.size_bytes() / SECTOR_BYTES);
    let smallest = sizes.clone().min().unwrap_or(0);
    let component_size = match level.kind() {
        LevelKind::Striped => 0,
        LevelKind::Mirrored | LevelKind::Parity => smallest / chunk.max(1) * chunk.max(1),
    };
    let params = Params {
        level,
        layout,
        chunk: Sector(chunk),
        raid_disks,
        component_size: Sector(component_size),
        member_sizes: sizes.map(Sector).collect(),
    };
    let geometry = Geometry::new(&params).map_err(|error| bad(error.to_string()))?;
    match geometry.hazard() {
        None => Ok(geometry),
        Some(hazard) => Err(bad(format!("{level} with this layout and {raid_disks} members: {hazard}"))),
    }
}
