//! What speaks against a new array.

use wattle_engine::geometry::{Level, LevelKind};
use wattle_format::md::Version;

use super::plan::{MemberContents, NewDevice};
use super::{Consistency, CreateRequest};
use crate::members::Member;
use crate::problem::{Check, Code, Problem};

pub(super) fn refuse_request(
    what: impl Into<String>,
    why: impl Into<String>,
    next: impl Into<String>,
) -> Problem {
    Problem::new(Code::BadRequest, what, why, next)
}

pub(super) fn bad_request(member: &Member, error: &impl ToString) -> Problem {
    refuse_request(
        format!("{}: {}", member.name, error.to_string()),
        "the metadata version cannot store it",
        "use --metadata 1.2, or ask for less",
    )
    .of_member(&member.name)
}

/// What can be said without looking at members.
pub(super) fn check_request(request: &CreateRequest) -> Result<(), Problem> {
    let CreateRequest { level, members, .. } = request;
    let present = members.iter().flatten().count();
    let redundant = level.kind() != LevelKind::Striped;
    if present == 0 {
        return Err(refuse_request(
            "no member is given",
            "an array of missing members holds nothing",
            "name its members",
        ));
    }
    if request.name.is_empty() || request.name.len() > 32 {
        return Err(refuse_request(
            format!("the name `{}` is {} bytes long", request.name, request.name.len()),
            "a superblock stores 1 to 32 bytes, with `host:` if given",
            if request.name.is_empty() { "give it a name" } else { "choose a shorter name" },
        ));
    }
    let short = request.name.rsplit(':').next().unwrap_or_default();
    if short.is_empty() || request.name.contains(|c: char| c == '/' || c.is_control()) {
        return Err(refuse_request(
            format!("the name `{}`", request.name.escape_default()),
            "it names a device node, /dev/md/NAME, and sockets",
            "use 1 to 32 bytes without `/` and control characters, optionally with `host:` in front",
        ));
    }
    if present < members.len() && !redundant {
        return Err(refuse_request(
            format!("{level} with a missing member"),
            "a level without redundancy needs all of its members",
            "give all members, or choose a level with redundancy",
        ));
    }
    if !request.spares.is_empty() && !redundant {
        return Err(refuse_request(
            format!("{level} with spares"),
            "a level without redundancy cannot rebuild onto a spare",
            "leave out the spares",
        ));
    }
    if *level == Level::Raid1 && request.chunk_bytes.is_some() {
        return Err(refuse_request("raid1 with a chunk", "mirrors have no chunks", "leave out --chunk"));
    }
    if request.size_bytes.is_some() && !redundant {
        return Err(refuse_request(
            format!("{level} with a size"),
            "each member of such an array is used as far as it goes",
            "leave out --size",
        ));
    }
    if request.data_offset_bytes.is_some() && matches!(request.version, Version::V090 | Version::V10) {
        return Err(refuse_request(
            format!("a data offset with metadata {}", request.version),
            "its superblock is at the end and the data starts at the start",
            "leave out --data-offset, or use --metadata 1.2",
        ));
    }
    let max = wattle_format::md::max_devices(request.version) as usize;
    if members.len() + request.spares.len() > max {
        return Err(refuse_request(
            format!("{} devices", members.len() + request.spares.len()),
            format!("metadata {} lists at most {max}", request.version),
            "use fewer, or --metadata 1.2",
        ));
    }
    match request.consistency {
        Consistency::Resync => Ok(()),
        Consistency::Bitmap { .. } if redundant => Ok(()),
        Consistency::Bitmap { .. } => Err(refuse_request(
            format!("{level} with a bitmap"),
            "without redundancy there is nothing to resynchronise",
            "leave out --bitmap",
        )),
        Consistency::Ppl => check_ppl(request),
        Consistency::Journal => Err(Problem::new(
            Code::NotSupportedYet,
            "creating an array with a journal",
            "this version does not write one",
            "use --consistency resync, bitmap or ppl, or create it with mdadm",
        )),
    }
}

/// What a partial parity log needs (docs/formats.md §4).
fn check_ppl(request: &CreateRequest) -> Result<(), Problem> {
    /// Most members whose logs the kernel keeps.
    const MEMBERS_MAX: usize = 64;
    let refuse = |what: String, why: &str, next: &str| Err(refuse_request(what, why, next));
    let members = request.members.len();
    if request.level != Level::Raid5 {
        return refuse(
            format!("{} with a partial parity log", request.level),
            "only RAID 5 has one",
            "leave out --consistency=ppl",
        );
    }
    if !request.version.is_1x() {
        return refuse(
            format!("a partial parity log with metadata {}", request.version),
            "its superblock has no room to say so",
            "use --metadata 1.2",
        );
    }
    if !(3..=MEMBERS_MAX).contains(&members) {
        return refuse(
            format!("a partial parity log over {members} members"),
            "it is kept for 3 to 64",
            "leave out --consistency=ppl, or use another number of members",
        );
    }
    if request.chunk_bytes.is_some_and(|bytes| !bytes.is_multiple_of(4096)) {
        return refuse(
            "a partial parity log with chunks that are no whole pages".to_owned(),
            "it is kept in pages of 4 KiB",
            "choose a --chunk that is a multiple of 4K",
        );
    }
    Ok(())
}

/// Refuses members that something is on, unless the operator insists. Returns what they insist on.
pub(super) fn check_empty(
    request: &CreateRequest,
    devices: &[NewDevice<'_>],
    states: &[MemberContents],
) -> Result<Vec<Problem>, Problem> {
    let mut overridden = Vec::new();
    for (device, state) in devices.iter().zip(states) {
        let found: Vec<_> =
            state.superblocks.iter().chain(&state.signatures).map(ToString::to_string).collect();
        if found.is_empty() {
            continue;
        }
        let problem = Problem::new(
            Code::SignatureFound,
            format!("{}: it holds data: {}", device.member.name, found.join(", ")),
            "creating an array here destroys it",
            "check that this is the right member; --force=signature creates the array all the same",
        )
        .of_member(&device.member.name)
        .forced_by(Check::Signature);
        if !request.forced.has(Check::Signature) {
            return Err(problem);
        }
        overridden.push(problem);
    }
    Ok(overridden)
}
