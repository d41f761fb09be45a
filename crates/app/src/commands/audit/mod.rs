//! `wattle audit`: what is wrong with a stack. The facts are collected here, from members
//! ([`members`]) and from what a system says of itself ([`system`], [`kernel`]); what is wrong with
//! them is `advise`'s to say.

pub mod baseline;
mod fragments;
mod kernel;
mod members;
mod show;
pub mod system;

use std::path::Path;
use std::process::ExitCode;
use wattle_control::members::MemberAccess;

use wattle_advise::audit::facts::IntendedUse;
use wattle_advise::audit::{self, AuditFacts, Unchecked};
use wattle_control::stack::Purpose;
use wattle_control::{Check, Code, Problem};
use wattle_rt::BackendChoice;
use wattle_server::socket::client::Servers;

use crate::cli::{AuditArgs, Engine};
use crate::environment::{runtime_dir, state_dir};
use crate::members as opened;
use crate::output::Screen;
use crate::volumes;
use system::SystemRoot;

/// Something is as bad as was asked for.
const FOUND: u8 = 1;

/// # Errors
/// The command line or the baseline is not understood, a member is given twice, or none can be
/// opened.
pub fn run(access: &MemberAccess, args: &AuditArgs, screen: Screen) -> Result<ExitCode, Problem> {
    let read_models = fragments::models(args.drive.as_deref())?;
    let known = args.baseline.as_deref().map(baseline::read).transpose()?.unwrap_or_default();
    let mut facts = facts(access, args, &Servers::ask(&runtime_dir(None)))?;
    facts.request = args.workload.as_deref().map(workload).transpose()?;
    facts.read_models = Some(read_models);
    let mut report = audit::audit(&facts);
    let all = report.findings.len();
    report.findings.retain(|finding| !known.has(finding));
    let suppressed = all - report.findings.len();
    if let Some(path) = &args.write_baseline {
        baseline::write(path, &report, known)?;
        return Ok(ExitCode::SUCCESS);
    }
    match args.json.json {
        true => show::show_json(&report, suppressed)?,
        false => show::show(&report, suppressed, args.verbose, screen)?,
    }
    let fails = report.findings.iter().any(|finding| args.fail_on.is_met_by(finding.code.severity()));
    Ok(if fails { ExitCode::from(FOUND) } else { ExitCode::SUCCESS })
}

/// What `--json` shows of this machine and of these members, as a value, with what else cannot be
/// checked.
///
/// # Errors
/// As [`run`].
pub fn document(
    access: &MemberAccess,
    servers: &Servers,
    members: &[String],
    unchecked: Vec<Unchecked>,
) -> Result<serde_json::Value, Problem> {
    let root = (!members.is_empty()).then_some(["--sysroot".to_owned(), "/".to_owned()]);
    let words = ["audit".to_owned(), "--json".to_owned()].into_iter().chain(root.into_iter().flatten());
    let args = AuditArgs::of_words(words.chain(["--".to_owned()]).chain(members.iter().cloned()))?;
    let mut facts = facts(access, &args, servers)?;
    facts.unread.extend(unchecked);
    facts.read_models = Some(fragments::models(None)?);
    Ok(serde_json::to_value(show::document(&audit::audit(&facts), 0)).unwrap_or_default())
}

fn facts(access: &MemberAccess, args: &AuditArgs, servers: &Servers) -> Result<AuditFacts, Problem> {
    let system = match &args.sysroot {
        Some(root) => Some(SystemRoot::at(root)?),
        None if args.members.is_empty() => Some(SystemRoot::at(Path::new("/"))?),
        None => None,
    };
    let names = match &system {
        Some(system) if args.members.is_empty() => system.members(),
        _ => args.members.clone(),
    };
    // An array that lacks a member and is being written is never clean: a finding where it matters,
    // and no reason not to look.
    let mut force = args.force.clone();
    force.checks.push(Check::DirtyDegraded);
    let (scan, unopened) = opened::look_each(access, &names, &force)?;
    // Of a system there is more to tell.
    if let (None, true, Some(problem)) = (&system, scan.members.is_empty(), unopened.first()) {
        return Err(problem.clone());
    }
    let state = args.sysroot.as_ref().map(|root| root.join("var/lib/wattle"));
    let state = state_dir(state.as_deref());
    let engine = Engine::small(BackendChoice::Auto);
    let mut facts = opened::run(&engine, 1, async |core| {
        let stack = volumes::open(&core, scan, access, &force, Purpose::Look).await?;
        let mut facts = members::facts(&core, &stack, &state, args.inodes).await;
        let arrays = facts.iter_mut().flat_map(|facts| &mut facts.arrays);
        for (array, found) in arrays.zip(&stack.scan.arrays) {
            let uuid = Some(found.assembly.uuid().to_string());
            array.served = servers.arrays().any(|(_, served)| served.uuid == uuid);
        }
        // Nothing was written.
        let _ = stack.close(&core).await;
        facts
    })?;
    facts.unread.extend(unopened.iter().map(|problem| Unchecked {
        what: problem.member.clone().unwrap_or_default(),
        why: format!("{} ({})", problem.what, problem.code),
    }));
    if let Some(system) = &system {
        system.describe(&mut facts);
    }
    Ok(facts)
}

/// `rw=randwrite bs=4k`, as fio has it.
pub fn workload(line: &str) -> Result<IntendedUse, Problem> {
    let usage = |what: String| {
        Problem::new(
            Code::Usage,
            format!("--workload: {what}"),
            "whether a chunk fits depends on how requests go and how large they are",
            "write it as fio does: --workload 'rw=randwrite bs=4k'; rw is read, write, rw, randread, randwrite or randrw",
        )
    };
    let (mut rw, mut size) = (None, None);
    for word in line.split([' ', ',']).filter(|word| !word.is_empty()) {
        match word.trim_start_matches('-').split_once('=') {
            Some(("rw", value)) => rw = Some(value),
            Some(("bs", value)) => {
                let bytes =
                    wattle_control::size::parse_size(value).map_err(|error| usage(error.to_string()))?;
                size = Some(bytes).filter(|bytes| *bytes > 0);
            }
            _ => return Err(usage(format!("`{word}` is not understood"))),
        }
    }
    let (random, writes) = match rw {
        Some("read") => (false, false),
        Some("write" | "rw" | "readwrite") => (false, true),
        Some("randread") => (true, false),
        Some("randwrite" | "randrw") => (true, true),
        Some(other) => return Err(usage(format!("rw={other} is not understood"))),
        None => return Err(usage("rw is missing".to_owned())),
    };
    Ok(IntendedUse { random, writes, size: size.ok_or_else(|| usage("bs is missing".to_owned()))? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_fios() {
        let request = IntendedUse { random: true, writes: true, size: 4096 };
        assert_eq!(workload("rw=randwrite bs=4k"), Ok(request));
        assert_eq!(workload("--rw=randrw,--bs=4K"), Ok(request));
        assert!(!workload("bs=1M rw=read").unwrap().writes);
        for line in [
            "",
            "rw=randwrite",
            "bs=4k",
            "rw=fast bs=4k",
            "rw=read bs=0",
            "rw=read bs=x",
            "rw=read bs=4k iops=7",
        ] {
            assert_eq!(workload(line).unwrap_err().code, Code::Usage, "{line}");
        }
    }
}
