//! Volumes for commands: the one that is meant, opened with everything below it, and found again
//! when it is opened to be written.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use wattle_control::MemberId;
use wattle_control::members::MemberAccess;
use wattle_control::stack::{self, MemberIdentity};
use wattle_control::stack::{Plain, Purpose, Stack, StackOptions, WantedLayers};
use wattle_control::{Policy, Problem, Scan};
use wattle_engine::VolumeRef;
use wattle_rt::Core;

use crate::cli::{Engine, Force};
use crate::members;
use crate::output;
use crate::output::text::printable;

/// The volume that a command is about.
#[derive(Debug, Clone, Copy)]
pub enum Meant<'a> {
    /// The one of this name; without a name the only one there is.
    Volume(Option<&'a str>),
    /// The same for its files: among several the only one with a file system.
    Files(Option<&'a str>),
}

/// Opens the volume that is meant, read-only, and runs `main` with it, and with what was found on
/// the members.
///
/// # Errors
/// A member cannot be opened or read, there is no such volume, it cannot be used, or what `main`
/// says.
pub fn read<T>(
    access: &MemberAccess,
    names: &[String],
    meant: Meant<'_>,
    force: &Force,
    (engine, cores_max): (&Engine, usize),
    main: impl AsyncFnOnce(Core, VolumeRef, &Scan) -> Result<T, Problem>,
) -> Result<T, Problem> {
    read_all(access, names, meant, force, (engine, cores_max), async |core, volumes, scan| {
        let first = volumes.into_iter().next().expect("the volume that is meant is the first");
        main(core, first, scan).await
    })
}

/// As [`read`], with every volume that may hold a part of the file system that is meant, the one
/// that is named first.
///
/// # Errors
/// As [`read`].
pub fn read_all<T>(
    access: &MemberAccess,
    names: &[String],
    meant: Meant<'_>,
    force: &Force,
    (engine, cores_max): (&Engine, usize),
    main: impl AsyncFnOnce(Core, Vec<VolumeRef>, &Scan) -> Result<T, Problem>,
) -> Result<T, Problem> {
    let scan = members::look(access, names, force)?;
    members::run(engine, cores_max, async |core| {
        let mut stack = open(&core, scan, access, force, Purpose::Read).await?;
        let done = match find(&core, &mut stack, meant).await {
            Ok(volumes) => main(core.clone(), volumes, &stack.scan).await,
            Err(problem) => Err(problem),
        };
        // Nothing was written, so there is nothing to record and nothing that could fail.
        let _ = stack.close(&core).await;
        done
    })
}

/// A way to what a server offers that another process of this machine can open as a member: NBD
/// without TLS, a file of FUSE, or a block device. None if there is only another one.
pub fn way_in(exports: &[String]) -> Option<String> {
    let nbd = |way: &&String| way.starts_with("nbd+unix:") || way.starts_with("nbd://");
    let file = |way: &&String| {
        let kind = std::fs::metadata(Path::new(way)).map(|metadata| metadata.file_type());
        kind.is_ok_and(|kind| kind.is_file() || kind.is_block_device())
    };
    exports.iter().find(nbd).or_else(|| exports.iter().find(file)).cloned()
}

/// Everything that lies on the members of a scan.
///
/// # Errors
/// A [`Problem`] of the machine.
pub async fn open(
    core: &Core,
    scan: Scan,
    access: &MemberAccess,
    force: &Force,
    purpose: Purpose,
) -> Result<Stack, Problem> {
    let policy = Policy::from(members::forced(force));
    let options = StackOptions { policy, purpose, wanted: None, keys: access.keys() };
    Stack::open(core, scan, options, &mut Plain).await
}

/// Members of a stack, so that they are found again in another one.
pub struct Sites {
    keys: Vec<MemberIdentity>,
    /// What has to run for them.
    pub wanted: WantedLayers,
}

impl Sites {
    pub fn of(stack: &Stack, members: &[MemberId]) -> Self {
        let keys = members.iter().map(|&member| stack::key(stack, member)).collect();
        Self { keys, wanted: stack.below(members).wanted }
    }

    /// The members in this stack; `None` where one is not there, or cannot be told from another.
    pub fn find(&self, stack: &Stack) -> Vec<Option<MemberId>> {
        self.keys.iter().map(|identity| stack.find_again(identity)).collect()
    }
}

/// The volume that is meant, opened; behind it those that may hold further parts of its files.
async fn find(core: &Core, stack: &mut Stack, meant: Meant<'_>) -> Result<Vec<VolumeRef>, Problem> {
    let (volume, takes_further) = match meant {
        Meant::Volume(name) => (stack.find(name)?, false),
        Meant::Files(name) => (stack.find_files(name)?, true),
    };
    let member = volume.member?;
    let further = if takes_further { stack.further_devices(member) } else { Vec::new() };
    let others = stack.volumes().iter().filter(|volume| volume.is_top).count() > 1;
    if takes_further && others && stack.file_systems().len() == 1 && matches!(meant, Meant::Files(None)) {
        output::note(&printable(&format!("{} is the only volume with a file system", volume.name)));
    }
    let all: Vec<MemberId> = [member].into_iter().chain(further.iter().copied()).collect();
    for &array in &stack.below(&all).arrays {
        let array = &stack.scan.arrays[array];
        members::note_unused(&stack.scan, array);
        members::note_state(array);
        if let Some(note) = array.assembly.unsynced_note() {
            output::note(note);
        }
    }
    for note in all.iter().flat_map(|&member| stack.notes(member)) {
        output::note(&printable(&note));
    }
    let mut opened = vec![stack.volume(core, member).await?];
    for member in further {
        match stack.volume(core, member).await {
            Ok(volume) => opened.push(volume),
            // It is as if it were missing, which is told if it is needed.
            Err(problem) => output::note(&printable(&format!("not read: {}", problem.what))),
        }
    }
    Ok(opened)
}
