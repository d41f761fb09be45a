//! Serving what lies on arrays and drives: logical volumes, partitions, file systems on bare
//! drives.
//!
//! What there is can only be seen by running what is below it. So everything is looked at first,
//! read-only and without a lock; then only what the chosen volumes lie on is claimed and started.

use std::rc::Rc;
use std::time::Duration;

use wattle_control::members::{Keyring, MemberAccess};
use wattle_control::scan::MemberOrigin;
use wattle_control::stack::{
    MemberIdentity, NamedVolume, Plain, Purpose, StackOptions, Starter, WantedLayers, key,
};
use wattle_control::start::{Claimed, ClaimedMember};
use wattle_control::sums::open_sums_file;
use wattle_control::undo::UndoSite;
use wattle_control::{ArrayId, MemberId};
use wattle_control::{Code, Policy, Problem, Scan, Stack, shell_word};
use wattle_engine::{ArrayHandle, VolumeRef};
use wattle_format::md::Uuid;
use wattle_rt::Core;

use super::stop::stop_problem;
use crate::array::{Served, ServedFacts};
use crate::exports::of_this_process;
use crate::history::{History, StateDir};
use crate::log::ServerLog;
use crate::saving::ServerSaving;
use crate::{settings, why};

/// What is going to be served.
pub enum ServedChoice {
    /// Whole arrays on drives.
    Arrays(Vec<ChosenArray>),
    /// Other volumes too.
    Layers(ServedLayers),
}

/// An array that was chosen in one look at drives.
pub struct ChosenArray {
    /// Another look finds it by this.
    pub uuid: Uuid,
    /// Nothing is recognised on it.
    pub is_blank: bool,
}

/// A volume that runs, to be offered.
pub struct OpenedVolume {
    /// How the operator would name it.
    pub name: String,
    /// Itself.
    pub volume: VolumeRef,
    /// What tells it from every other volume.
    pub identity: String,
    /// Nothing is recognised on it.
    pub is_blank: bool,
}

/// Volumes, and what they lie on.
pub struct ServedLayers {
    /// The volumes.
    pub volumes: Vec<ServedVolume>,
    /// They are all there are: none was named.
    pub all: bool,
    wanted: WantedLayers,
}

/// A volume that was chosen in one look, to be found again in the next.
pub struct ServedVolume {
    /// How the operator would name it. Another volume may be called the same.
    pub name: String,
    identity: MemberIdentity,
}

/// Looks at everything and chooses: the volumes named, or those that nothing else lies on. Says
/// which encrypted members stay closed.
///
/// # Errors
/// There is none, none of that name, or it cannot be used; or it is to be written, and lacks what a
/// member may hold that the keys given do not open.
pub async fn choose(
    core: &Core,
    (scan, keys): (Scan, Keyring),
    policy: Policy,
    (names, writes): (&[String], bool),
    log: &ServerLog,
) -> Result<ServedChoice, Problem> {
    let options = StackOptions { policy, purpose: Purpose::Look, wanted: None, keys };
    let stack = Stack::open(core, scan, options, &mut Plain).await?;
    let chosen = choose_of(&stack, (names, writes), log);
    // Nothing was written.
    let _ = stack.close(core).await;
    chosen
}

fn choose_of(
    stack: &Stack,
    (names, writes): (&[String], bool),
    log: &ServerLog,
) -> Result<ServedChoice, Problem> {
    for problem in stack.not_opened() {
        log.note(&format!("{}: {}", problem.code, problem.what));
    }
    let found: Vec<NamedVolume> = match names {
        [] => {
            let top = stack.volumes().into_iter().filter(|volume| volume.is_top);
            let (skipped, found): (Vec<_>, Vec<_>) = top.partition(|volume| volume.is_skipped);
            for volume in &skipped {
                log.note(&format!("{} says that it is left out: name it with -V to serve it", volume.name));
            }
            if found.is_empty()
                && let Some(skipped) = skipped.first()
            {
                return Err(all_skipped(&skipped.name));
            }
            found
        }
        names => names.iter().map(|name| stack.find(Some(name))).collect::<Result<_, _>>()?,
    };
    if found.is_empty() {
        // Explains why there is none.
        return stack.find(None).map(|_| ServedChoice::Arrays(Vec::new()));
    }
    if writes {
        let members: Vec<_> =
            found.iter().filter_map(|volume| volume.member.as_ref().ok()).copied().collect();
        stack.check_not_opened(&members)?;
        refuse_one_on_another(stack, &found)?;
    }
    // A whole array that cannot be used is refused where it is claimed.
    let is_array = |volume: &NamedVolume| volume.array.is_some_and(|array| on_drives(stack, array));
    if found.iter().all(is_array) {
        let chosen = |volume: &NamedVolume| {
            let uuid = stack.scan.arrays[volume.array?].assembly.array.set_uuid;
            let is_blank = volume.member.as_ref().is_ok_and(|&member| stack.is_blank(member));
            Some(ChosenArray { uuid, is_blank })
        };
        return Ok(ServedChoice::Arrays(found.iter().filter_map(chosen).collect()));
    }
    let members = found.iter().map(|volume| volume.member.clone()).collect::<Result<Vec<_>, _>>()?;
    let wanted = stack.below(&members).wanted;
    let volumes = found.into_iter().zip(members);
    let volumes =
        volumes.map(|(volume, member)| ServedVolume { name: volume.name, identity: key(stack, member) });
    let all = names.is_empty();
    Ok(ServedChoice::Layers(ServedLayers { volumes: volumes.collect(), all, wanted }))
}

/// What is written to a volume changes what lies on it, and the other way round, below what each of
/// them has: limits, checkpoints, reservations, the text of its group.
fn refuse_one_on_another(stack: &Stack, volumes: &[NamedVolume]) -> Result<(), Problem> {
    for upper in volumes {
        for lower in volumes {
            let (Ok(above), Ok(below)) = (&upper.member, &lower.member) else { continue };
            if let Some(drive) = stack.shared_with_partition(*above, *below) {
                let drive = &stack.scan.members[drive].member.name;
                return Err(Problem::new(
                    Code::SeveralVolumes,
                    format!(
                        "{} and {} are both on {drive}, one of them in a partition",
                        upper.name, lower.name
                    ),
                    "the partition table is older or newer than what lies on the drive as a whole: what is written to one goes over the other",
                    format!(
                        "look at both with --read-only, and serve the one that is there: -V {}",
                        shell_word(&upper.name)
                    ),
                ));
            }
            if stack.lies_on(*above, *below) {
                return Err(Problem::new(
                    Code::SeveralVolumes,
                    format!("{} lies on {}, and both are to be written", upper.name, lower.name),
                    "clients of each would change what the other one's rely on, unseen",
                    format!("serve {} alone, or both with --read-only", upper.name),
                ));
            }
        }
    }
    Ok(())
}

fn all_skipped(name: &str) -> Problem {
    Problem::new(
        Code::NoSuchVolume,
        "there is no volume to serve that was not named",
        format!("{name} and all others are to be left out unless they are named (LVM2's activation skip)"),
        format!("name it: -V {name}; or let it not be left out: `wattle lv activate-flags {name} -k n`"),
    )
}

/// Whether an array's members are drives and partitions of drives.
fn on_drives(stack: &Stack, array: ArrayId) -> bool {
    stack.scan.arrays[array].members.iter().all(|&member| on_drive(stack, member))
}

fn on_drive(stack: &Stack, member: MemberId) -> bool {
    match stack.scan.members[member].origin {
        MemberOrigin::Given => true,
        MemberOrigin::Partition { of, .. } | MemberOrigin::Container { of, .. } => on_drive(stack, of),
        MemberOrigin::Array(_)
        | MemberOrigin::Logical { .. }
        | MemberOrigin::Decrypted { .. }
        | MemberOrigin::Layered { .. } => false,
    }
}

/// Starts arrays so that they are looked after.
pub struct ArrayStarter<'a> {
    access: &'a MemberAccess,
    state_dir: &'a StateDir,
    settings: &'a [String],
    saving: &'a ServerSaving,
    log: ServerLog,
    /// In the order of their start: what lies on others comes behind them.
    pub served: Vec<Rc<Served>>,
    /// How many were ever begun.
    begun: usize,
}

impl<'a> ArrayStarter<'a> {
    /// With these settings for each array.
    pub fn new(
        access: &'a MemberAccess,
        state_dir: &'a StateDir,
        settings: &'a [String],
        saving: &'a ServerSaving,
        log: &ServerLog,
    ) -> Self {
        Self { access, state_dir, settings, saving, log: log.clone(), served: Vec::new(), begun: 0 }
    }

    /// Starts an array and looks after it. `site` says what its members are, for an undo log.
    ///
    /// # Errors
    /// It does not start, or a setting is not for it.
    pub async fn keep(
        &mut self,
        core: &Core,
        facts: ServedFacts,
        claimed: Claimed,
        site: impl Fn(usize, &ClaimedMember) -> UndoSite,
        exports: Vec<String>,
    ) -> Result<Rc<Served>, Problem> {
        let (history, problem) = History::open(core, self.state_dir, facts.uuid.as_deref()).await?;
        if let Some(problem) = problem {
            self.log.note(&problem.what);
        }
        self.begun += 1;
        self.saving.save_start(core, &claimed, site).await?;
        let claimed = self.with_sums(&facts, claimed);
        let started = claimed.launch(core).await?;
        let served = Served::of_started(core, self.access, facts, started, exports, history, &self.log).await;
        for (key, value) in settings::parse_all(self.settings)? {
            served.set(key, value).await?;
        }
        self.served.push(served.clone());
        Ok(served)
    }
}

impl ArrayStarter<'_> {
    /// With what recorded scrubs remember, where that can be kept. Under an overlay the members do
    /// not hold what is written.
    fn with_sums(&self, facts: &ServedFacts, claimed: Claimed) -> Claimed {
        let (dir, uuid) = (self.state_dir.dir(), facts.uuid.as_deref());
        let spec = claimed.sum_spec().filter(|_| !self.saving.is_overlaid());
        let (Some(dir), Some(uuid), Some(spec)) = (dir, uuid, spec) else { return claimed };
        match open_sums_file(dir, uuid, &spec) {
            Ok(device) => claimed.with_sums(device),
            Err(problem) => {
                self.log.note(&problem.what);
                claimed
            }
        }
    }
}

impl Starter for ArrayStarter<'_> {
    async fn start(
        &mut self,
        core: &Core,
        stack: &Stack,
        array: ArrayId,
        claimed: Claimed,
    ) -> Result<ArrayHandle, Problem> {
        let (scan, array) = (&stack.scan, &stack.scan.arrays[array]);
        why::unused(scan, array).iter().for_each(|line| self.log.note(line));
        let facts = ServedFacts {
            decisions: why::of_scan(scan, array).decisions,
            ..ServedFacts::of_claimed(&claimed)
        };
        let site = |ix, member: &ClaimedMember| UndoSite::of(stack, array.members[ix], member.device.clone());
        Ok(self.keep(core, facts, claimed, site, Vec::new()).await?.handle.clone())
    }
}

impl ServedLayers {
    /// Claims and starts what the volumes lie on, and opens them; looks again if a server that just
    /// ended wrote after the first look.
    ///
    /// # Errors
    /// One of them cannot be used as it was asked for; everything is given back then.
    pub async fn start(
        &self,
        core: &Core,
        look: impl Fn() -> Result<Scan, Problem>,
        (policy, read_only): (Policy, bool),
        starter: &mut ArrayStarter<'_>,
    ) -> Result<(Stack, Vec<OpenedVolume>), Problem> {
        const TRIES: u32 = 20;
        const PAUSE: Duration = Duration::from_millis(100);
        let mut tries = 0;
        loop {
            tries += 1;
            match self.start_once(core, look()?, (policy, read_only), starter).await {
                // What this very process claimed before would be in its own way.
                Err(problem) if tries < TRIES && problem.code == Code::Changed && starter.begun == 0 => {
                    core.sleep(PAUSE).await;
                }
                result => return result,
            }
        }
    }

    async fn start_once(
        &self,
        core: &Core,
        scan: Scan,
        (policy, read_only): (Policy, bool),
        starter: &mut ArrayStarter<'_>,
    ) -> Result<(Stack, Vec<OpenedVolume>), Problem> {
        let purpose = if read_only { Purpose::Read } else { Purpose::Write };
        let keys = starter.access.keys();
        let options = StackOptions { policy, purpose, wanted: Some(self.wanted.clone()), keys };
        let mut stack = Stack::open(core, scan, options, starter).await?;
        let mut volumes = Vec::new();
        for chosen in &self.volumes {
            match open(core, &mut stack, chosen, &starter.log).await {
                Ok(volume) => volumes.push(volume),
                Err(problem) => {
                    let problem = stack.blocked_by().cloned().unwrap_or(problem);
                    // The problem that is told is the first.
                    let _ = stop_all(core, Some(stack), &mut starter.served).await;
                    return Err(problem);
                }
            }
        }
        Ok((stack, volumes))
    }
}

/// Stops a stack and the arrays that are looked after, the upper layers first.
///
/// # Errors
/// The first that could not be recorded clean; the others are stopped all the same.
pub async fn stop_all(
    core: &Core,
    stack: Option<Stack>,
    arrays: &mut Vec<Rc<Served>>,
) -> Result<(), Problem> {
    let stop = async |served: Rc<Served>| {
        served.stop().await.map_err(|error| stop_problem(&served.facts.name, error))
    };
    let mut result = Ok(());
    if let Some(stack) = stack {
        let closed = stack.close_by(core, async |array| {
            let at = arrays.iter().position(|served| served.handle.volume().is(&array.volume()))?;
            Some(stop(arrays.remove(at)).await)
        });
        result = closed.await;
    }
    // What lies on others was started behind them.
    for served in arrays.drain(..).rev() {
        result = result.and(stop(served).await);
    }
    result
}

async fn open(
    core: &Core,
    stack: &mut Stack,
    chosen: &ServedVolume,
    log: &ServerLog,
) -> Result<OpenedVolume, Problem> {
    let member = match stack.find_again(&chosen.identity) {
        Some(member) => member,
        // It says why it is not there.
        None => stack.find(Some(&chosen.name))?.member.and_then(|_| Err(gone(&chosen.name)))?,
    };
    stack.notes(member).iter().for_each(|note| log.note(note));
    let (name, is_blank) = (chosen.name.clone(), stack.is_blank(member));
    let identity = stack.lasting_identity(member).unwrap_or_else(|| of_this_process(&name));
    Ok(OpenedVolume { name, volume: stack.volume(core, member).await?, identity, is_blank })
}

fn gone(name: &str) -> Problem {
    Problem::new(
        Code::Changed,
        format!("{name} is another volume than a moment ago"),
        "another process changes the group, or drives come and go",
        "find what changes the members, and try again",
    )
}

/// Clients find volumes by name.
///
/// # Errors
/// Two have the same.
pub fn refuse_same_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), Problem> {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if seen.contains(&name) {
            return Err(Problem::new(
                Code::SeveralVolumes,
                format!("two of the volumes are called {name}, or one is named twice"),
                "clients ask for a volume by its name",
                "serve them with two servers: -V with the UUID, and --name for each",
            ));
        }
        seen.push(name);
    }
    Ok(())
}
