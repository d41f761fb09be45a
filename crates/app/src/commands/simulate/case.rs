//! One array and one load, from what was typed.

use wattle_control::{Code, Problem};
use wattle_drives::{Drive, ModelDrive};
use wattle_engine::geometry::{Level, LevelKind, default_layout, parse_layout};
use wattle_modelled::{
    DATA_OFFSET, Load, ModelledSetup, Ramp, Study, WriteHoleGuard, member_bytes_max, used_up,
};

use super::usage;
use crate::cli::{ConsistencyArg, LoadArgs, SimulateArgs};

/// As mdadm's.
const CHUNK_BYTES: u64 = 512 << 10;

/// Most jobs, and most requests in flight.
const JOBS_MAX: u32 = 1024;
const DEPTH_MAX: u64 = 65_536;
/// Most bytes in flight: they are in memory.
const IN_FLIGHT_BYTES_MAX: u64 = 4 << 30;

/// What is simulated.
#[derive(Debug, Clone)]
pub struct SimulatedCase {
    /// What is different about it: key and value of each sweep.
    pub swept: Vec<(String, String)>,
    /// The array and the load.
    pub study: Study,
    /// The drives as they were given, one by slot.
    pub drives: Vec<String>,
    /// It is measured beside a rebuild as well.
    pub rebuild: bool,
}

impl SimulatedCase {
    /// # Errors
    /// Something is missing, is no such thing, or does not fit the rest.
    pub fn new(args: &SimulateArgs) -> Result<Self, Problem> {
        let level = args.level.as_deref().ok_or_else(|| usage("--level: none is given".to_owned()))?;
        let level: Level = level.parse().map_err(|error| usage(format!("--level {level}: {error}")))?;
        let (names, drives) = drives(args)?;
        let members = u32::try_from(drives.len()).unwrap_or(u32::MAX);
        let layout = match &args.layout {
            None => default_layout(level),
            Some(name) => parse_layout(level, members, name)
                .map_err(|error| usage(format!("--layout {name}: {error}")))?,
        };
        let chunk_bytes = args.chunk.map_or(CHUNK_BYTES, |size| size.0);
        if !chunk_bytes.is_multiple_of(512) {
            return Err(usage(format!("--chunk {chunk_bytes}: not a multiple of 512")));
        }
        let room = member_bytes_max(&drives);
        let member_bytes = args.member_size.map_or(room, |size| size.0);
        if member_bytes > room {
            return Err(usage(format!(
                "--member-size {member_bytes}: the smallest drive has room for {room} bytes of data"
            )));
        }
        let setup = ModelledSetup {
            level,
            layout,
            members,
            chunk_bytes,
            member_bytes,
            data_offset: DATA_OFFSET,
            missing: args.degraded.max(u32::from(args.rebuild)),
            guard: guard(args.consistency, level),
            cache_bytes: cache_bytes(args)?,
            cores: usize::from(args.cores),
            seed: args.load.randseed,
        };
        setup.check().map_err(|error| {
            Problem::new(
                Code::BadRequest,
                error.to_string(),
                "level, members, chunk, layout and size have to fit together",
                "see `wattle explain WTL-0008`",
            )
        })?;
        let mut asked = args.load.clone();
        if let Some(depth) = args.iodepth_per_member {
            asked.iodepth = depth.saturating_mul(members);
        }
        let load = load(&asked)?;
        Ok(Self {
            swept: Vec::new(),
            study: Study { setup, drives, load },
            drives: names,
            rebuild: args.rebuild,
        })
    }
}

/// More is no slip of the pen.
const CACHE_BYTES_MAX: u64 = 16 << 30;

fn cache_bytes(args: &SimulateArgs) -> Result<Option<usize>, Problem> {
    let bytes = args.cache.map(|size| size.0);
    match bytes.filter(|bytes| *bytes > CACHE_BYTES_MAX) {
        Some(bytes) => Err(usage(format!("--cache {bytes}: expected at most {CACHE_BYTES_MAX} bytes"))),
        None => Ok(bytes.and_then(|bytes| usize::try_from(bytes).ok())),
    }
}

fn guard(consistency: Option<ConsistencyArg>, level: Level) -> WriteHoleGuard {
    match consistency {
        Some(ConsistencyArg::Resync) => WriteHoleGuard::Resync,
        Some(ConsistencyArg::Bitmap) => WriteHoleGuard::Bitmap,
        Some(ConsistencyArg::Ppl) => WriteHoleGuard::Ppl,
        None if level.kind() == LevelKind::Striped => WriteHoleGuard::Resync,
        None => WriteHoleGuard::Bitmap,
    }
}

/// One by slot, as they were given and as they are.
fn drives(args: &SimulateArgs) -> Result<(Vec<String>, Vec<Drive>), Problem> {
    let given = args.drives.len();
    let members = args.members.map_or(given, |members| members as usize);
    if members == 0 {
        return Err(usage("--members 0: an array has members".to_owned()));
    }
    if members > usize::from(u16::MAX) {
        return Err(usage(format!("--members {members}: more than any array has")));
    }
    let names: Vec<_> = match given {
        0 => return Err(usage("--drive: none is given".to_owned())),
        1 => vec![args.drives[0].clone(); members],
        _ if given == members => args.drives.clone(),
        _ => {
            return Err(usage(format!(
                "--drive is given {given} times for {members} members: one is for all, else one for each"
            )));
        }
    };
    let drive = |name: &String| -> Result<Drive, Problem> {
        let model = name.parse::<ModelDrive>().map_err(|error| usage(format!("--drive {name}: {error}")))?;
        Ok(if args.fresh { model.drive } else { used_up(model.drive) })
    };
    let drives = names.iter().map(drive).collect::<Result<_, _>>()?;
    Ok((names, drives))
}

/// The load that was asked for.
///
/// # Errors
/// An option makes no sense.
pub fn load(args: &LoadArgs) -> Result<Load, Problem> {
    let bs_bytes = args.bs.0;
    if bs_bytes == 0 || !bs_bytes.is_multiple_of(512) {
        return Err(usage(format!(
            "--bs {bs_bytes}: expected a multiple of 512 bytes, the smallest block of a drive"
        )));
    }
    let depth = u64::from(args.iodepth) * u64::from(args.numjobs);
    if depth == 0 {
        return Err(usage(format!(
            "--iodepth {} --numjobs {}: nothing would ever be in flight",
            args.iodepth, args.numjobs
        )));
    }
    if args.numjobs > JOBS_MAX || depth > DEPTH_MAX || depth.saturating_mul(bs_bytes) > IN_FLIGHT_BYTES_MAX {
        return Err(usage(format!(
            "--iodepth {} --numjobs {} --bs {bs_bytes}: expected at most {JOBS_MAX} jobs, {DEPTH_MAX} requests and \
             {IN_FLIGHT_BYTES_MAX} bytes in flight",
            args.iodepth, args.numjobs
        )));
    }
    let load = Load {
        rw: args.rw,
        bs_bytes,
        iodepth: args.iodepth as usize,
        numjobs: args.numjobs as usize,
        rwmixread: args.rwmixread,
        offset_bytes: args.offset.0,
        offset_increment_bytes: args.offset_increment.0,
        size_bytes: args.size.map(|size| size.0),
        norandommap: args.norandommap,
        fsync: args.fsync,
        seed: args.randseed,
        runtime: args.runtime.map(|time| time.0),
        ..Load::new()
    };
    Ok(match args.ramp_time {
        Some(time) => Load { ramp: Ramp::For(time.0), ..load },
        None => load.until_steady(),
    })
}
