//! Waiting for the drives of a stack: they come in any order, and some come late.

use std::collections::BTreeSet;
use std::time::Duration;

use wattle_control::members::MemberAccess;
use wattle_control::{ArrayScan, Code, MemberScan, Problem, Scan};
use wattle_format::probe::SignatureKind;
use wattle_operate::config::{MissingPolicy, Placed, StackConfig, pattern};

use super::late::{KnownMember, known_members};
use super::read_only::{self, LookedDrives};
use crate::environment::clock;
use crate::notify::Notifier;
use crate::output;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// A server across a network may take this long to show a drive, however short the wait is.
const REMOTE_MIN: Duration = Duration::from_secs(5);

/// What a service manager gives beyond what is waited for, to open and start everything.
const START_TIME: Duration = Duration::from_secs(90);

/// What was found.
pub struct FoundMembers {
    /// What is to be served.
    pub members: Vec<String>,
    /// Every name that could be opened, other arrays' too.
    pub seen: BTreeSet<String>,
    /// What members are on them.
    pub known: BTreeSet<KnownMember>,
}

/// What a look at the drives says.
#[derive(Debug, PartialEq, Eq)]
struct Judged {
    /// The members of the stack's arrays.
    members: Vec<String>,
    /// What is missing, in words; nothing if the stack is whole.
    missing: Vec<String>,
    /// Of an array that is named there is nothing.
    is_array_absent: bool,
}

/// Looks for the members of a stack until all are there, for as long as its file says.
///
/// # Errors
/// Some are missing and the stack is not to start without them, or nothing at all is there.
pub fn members(
    access: &MemberAccess,
    stack: &StackConfig,
    notifier: &Notifier,
) -> Result<FoundMembers, Problem> {
    let (begun, timeout) = (clock(), stack.wait.timeout);
    // What does not answer is looked for again once the stack runs.
    let access = access.clone().with_remote_patience(timeout.max(REMOTE_MIN));
    notifier.waiting("looking for members", timeout.max(REMOTE_MIN) + START_TIME);
    let (mut told, mut told_read_only) = (String::new(), BTreeSet::new());
    loop {
        let names = names(stack);
        let LookedDrives { scan, unopened, notes } = read_only::look(&access, stack, &names)?;
        for note in notes.into_iter().filter(|note| told_read_only.insert(note.clone())) {
            output::note(&output::text::printable(&format!("{}: {note}", stack.name)));
        }
        let closed: BTreeSet<_> = unopened.iter().filter_map(|problem| problem.member.clone()).collect();
        let seen: BTreeSet<_> = names.into_iter().filter(|name| !closed.contains(name)).collect();
        let judged = judge(stack, &scan, &closed)?;
        let left = timeout.saturating_sub(begun.elapsed());
        if judged.missing.is_empty() || left.is_zero() {
            if let ([], Some(problem)) = (judged.members.as_slice(), unopened.into_iter().next()) {
                return Err(problem);
            }
            let members = end(stack, judged)?;
            return Ok(FoundMembers { members, seen, known: known_members(&scan) });
        }
        let line = format!("waiting up to {} s for {}", timeout.as_secs(), judged.missing.join(", "));
        if line != told {
            output::note(&format!("{}: {}", stack.name, output::text::printable(&line)));
            notifier.waiting(&line, left + START_TIME);
            told = line;
        }
        pause(LOOK.min(left));
    }
}

/// What is to be started, or why nothing is.
fn end(stack: &StackConfig, judged: Judged) -> Result<Vec<String>, Problem> {
    let Judged { members, missing, is_array_absent } = judged;
    if !missing.is_empty() {
        let missing = missing.join(", ");
        let seconds = stack.wait.timeout.as_secs();
        // No redundancy makes up for an array that is not there at all.
        if stack.wait.missing == MissingPolicy::Refuse || members.is_empty() || is_array_absent {
            return Err(Problem::new(
                Code::DrivesMissing,
                format!("{}: {missing} not there after {seconds} s", stack.name),
                match (members.is_empty(), is_array_absent) {
                    (true, _) => "nothing of the stack is there",
                    (_, true) => "no redundancy makes up for a whole array",
                    _ => "its file says that it is not to start without",
                },
                format!("attach what is missing, or see {}: members, [wait]", stack.file.display()),
            ));
        }
        let missing = output::text::printable(&missing);
        output::note(&format!("{}: {missing} not there after {seconds} s: starting without", stack.name));
    }
    Ok(members)
}

/// Everything that may be a member.
pub fn names(stack: &StackConfig) -> Vec<String> {
    expanded(&stack.members, &stack.spares)
}

/// What patterns stand for now, each file or device once.
pub fn expanded(members: &[Placed<String>], spares: &[Placed<String>]) -> Vec<String> {
    let mut names: Vec<String> = match members {
        [] => pattern::drives(),
        members => members.iter().flat_map(|member| pattern::expand(&member.value)).collect(),
    };
    names.extend(
        spares.iter().flat_map(|spare| pattern::expand(&spare.value)).filter(|name| pattern::is_there(name)),
    );
    let mut known = BTreeSet::new();
    names.retain(|name| known.insert(pattern::real_name(name)));
    names
}

/// What is there of the stack, and what is waited for: of an array the members that its superblocks
/// count on. One that was recorded as degraded is as whole as it was.
fn judge(stack: &StackConfig, scan: &Scan, closed: &BTreeSet<String>) -> Result<Judged, Problem> {
    let mut judged = Judged { members: Vec::new(), missing: Vec::new(), is_array_absent: false };
    // With keys, what lacks here may be in what is encrypted: that is opened later, and not waited
    // for.
    let has_keys = !stack.passphrase_files.is_empty() || !stack.key_files.is_empty();
    let encrypted = scan.members.iter().filter(|seen| has_keys && is_encrypted(seen));
    let encrypted: Vec<String> = encrypted.map(|seen| seen.member.name.clone()).collect();
    let mut arrays: Vec<&ArrayScan> = Vec::new();
    for Placed { value: name, .. } in &stack.arrays {
        match scan.find(Some(name)) {
            Ok(array) => arrays.push(array),
            Err(problem) if problem.code == Code::NoSuchVolume && !encrypted.is_empty() => {}
            Err(problem) if problem.code == Code::NoSuchVolume => {
                judged.missing.push(format!("the array {name}"));
                judged.is_array_absent = true;
            }
            Err(problem) => return Err(problem),
        }
    }
    let name_of = |id: &_| scan.members[*id].member.name.clone();
    if stack.arrays.is_empty() {
        arrays.extend(scan.arrays.iter());
        judged.missing.extend(
            stack.members.iter().map(|member| &member.value).filter(|name| closed.contains(*name)).cloned(),
        );
        let given = |origin| matches!(origin, wattle_control::scan::MemberOrigin::Given);
        let all = scan.members.iter().filter(|member| given(member.origin));
        judged.members.extend(all.map(|member| member.member.name.clone()));
    } else {
        let of_arrays = arrays.iter().flat_map(|array| array.members.iter().chain(&array.unused));
        judged.members.extend(of_arrays.map(name_of));
        judged.members.extend(encrypted.iter().cloned());
    }
    for array in arrays {
        let assembly = &array.assembly;
        let counted_on = assembly.counted_on().len();
        if counted_on > 0 && encrypted.is_empty() {
            let of = assembly.slots.len();
            judged.missing.push(format!("{counted_on} of {of} members of {}", assembly.name()));
        }
    }
    Ok(judged)
}

/// Whether what lies on it is not known before it is opened.
pub(super) fn is_encrypted(seen: &MemberScan) -> bool {
    use SignatureKind::{Bcache, Integrity, Luks1, Luks2};
    // What has checksums or a cache hides what lies on it as well.
    let is_hidden = |kind| matches!(kind, Some(Luks1 | Luks2 | Integrity | Bcache));
    seen.signatures.iter().any(|signature| is_hidden(signature.kind))
}

#[allow(clippy::disallowed_methods, reason = "there is no core yet to await on")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
