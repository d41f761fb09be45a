//! What is going to be served: made up, arrays that are claimed at once, or volumes that show only
//! when what they lie on runs.
//!
//! Invariant: what is chosen in one look is found in another by its UUID, never by where it came in
//! the first: members come and go between the two.

use wattle_control::members::MemberAccess;
use wattle_control::start::{self, Claimed};
use wattle_control::{ArrayScan, Code, Problem, Scan};
use wattle_format::md::Uuid;
use wattle_server::array::{MadeUpArray, ServedFacts};
use wattle_server::serving::layers::{self, ChosenArray, ServedChoice, ServedLayers};
use wattle_server::why;

use crate::cli::{Engine, ServeArgs};
use crate::{members, output};

/// What is going to be served.
pub enum Found {
    /// Arrays that are ours and not started yet.
    Claimed(Vec<(ServedFacts, Claimed)>),
    MadeUp(MadeUpArray),
    /// Volumes that show only when what they lie on runs: nothing is claimed yet.
    Layers(ServedLayers),
}

impl Found {
    /// What the server is called unless it is said.
    pub fn server_name(&self) -> String {
        match self {
            Self::Claimed(arrays) => arrays[0].0.name.clone(),
            Self::MadeUp(array) => array.facts.name.clone(),
            // A drive is named by its path, a logical volume with its group.
            Self::Layers(layers) => {
                let name = &layers.volumes[0].name;
                let parts: Vec<_> = name.split('/').filter(|part| !part.is_empty()).collect();
                let part = if name.starts_with(['/', '.']) { parts.last() } else { parts.first() };
                part.map_or_else(|| "volumes".to_owned(), |part| (*part).to_owned())
            }
        }
    }
}

/// Looks at the members with `look`, twice where volumes have to be looked for on arrays.
///
/// # Errors
/// Nothing can be served as asked, or a member is in use.
pub fn find(
    access: &MemberAccess,
    args: &ServeArgs,
    look: impl Fn() -> Result<Scan, Problem>,
) -> Result<Found, Problem> {
    if let Some(level) = &args.made_up.level {
        let name = args.name.as_deref().unwrap_or("array");
        let array = MadeUpArray::new(
            name,
            members::look_made_up_all(access, &args.members)?,
            args.made_up.shape(level),
            args.read_only,
        )?;
        return Ok(Found::MadeUp(array));
    }
    let scan = look()?;
    let named: Result<Vec<_>, _> = args.volumes.iter().map(|name| scan.find(Some(name))).collect();
    match named {
        // What is on it was not looked at. What an array lacks may be in what was not opened yet.
        Ok(arrays)
            if !arrays.is_empty() && arrays.iter().all(|array| array.assembly.missing().is_empty()) =>
        {
            let arrays: Vec<_> = arrays.into_iter().map(|array| (array, false)).collect();
            claim(&scan, &arrays, args.read_only)
        }
        // The volume asked for may lie on an array.
        Err(problem) if problem.code != Code::NoSuchVolume => Err(problem),
        _ => {
            let policy = members::policy(&args.force, args.degraded);
            let engine = Engine { cores: Some(1), ..args.engine.clone() };
            let looked = look()?;
            match members::run(&engine, 1, async |core| {
                let writes = !args.read_only;
                let looked = (looked, access.keys());
                layers::choose(&core, looked, policy, (&args.volumes, writes), &output::log()).await
            })? {
                ServedChoice::Arrays(chosen) => {
                    let array = |chosen: ChosenArray| {
                        let array = scan.array(chosen.uuid).ok_or_else(|| gone_meanwhile(chosen.uuid))?;
                        Ok((array, chosen.is_blank))
                    };
                    let arrays = chosen.into_iter().map(array).collect::<Result<Vec<_>, Problem>>()?;
                    claim(&scan, &arrays, args.read_only)
                }
                ServedChoice::Layers(chosen) => {
                    layers::refuse_same_names(chosen.volumes.iter().map(|volume| volume.name.as_str()))?;
                    Ok(Found::Layers(chosen))
                }
            }
        }
    }
}

fn gone_meanwhile(uuid: Uuid) -> Problem {
    Problem::new(
        Code::Changed,
        format!("array {uuid} is there in one look at the members, and not in the other"),
        "another process writes superblocks, or drives come and go",
        "find what changes the members, and try again",
    )
}

/// Claims arrays; with each comes whether nothing is recognised on it.
fn claim(scan: &Scan, arrays: &[(&ArrayScan, bool)], read_only: bool) -> Result<Found, Problem> {
    layers::refuse_same_names(arrays.iter().map(|(array, _)| array.assembly.name()))?;
    let claim_one = |&(array, is_blank): &(&ArrayScan, bool)| {
        let claimed = start::claim(scan, array, read_only)?;
        members::note_unused(scan, array);
        members::note_left_out(&claimed);
        let decisions = why::of_scan(scan, array).decisions;
        Ok((ServedFacts { decisions, is_blank, ..ServedFacts::of_claimed(&claimed) }, claimed))
    };
    Ok(Found::Claimed(arrays.iter().map(claim_one).collect::<Result<_, Problem>>()?))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use clap::Parser;
    use wattle_control::Forced;
    use wattle_control::create::{Consistency, CreateRequest, inspect, plan};
    use wattle_control::scan::scan;
    use wattle_engine::geometry::Level;
    use wattle_format::md::Version;
    use wattle_rt::WallTime;

    use super::*;
    use crate::cli::{Cli, CliCommand};

    /// Two mirrors, `a` and `b`, and the names of their members.
    struct Mirrors {
        dir: tempfile::TempDir,
    }

    impl Mirrors {
        fn new() -> Self {
            let mirrors = Self { dir: tempfile::tempdir().unwrap() };
            for (name, id) in [("a", 1), ("b", 2)] {
                let members = mirrors.members(name).map(|member| {
                    std::fs::File::create(&member).unwrap().set_len(16 << 20).unwrap();
                    MemberAccess::local().look(&member).unwrap()
                });
                let states: Vec<_> = members.iter().map(|member| inspect(member).unwrap()).collect();
                let request = CreateRequest {
                    bitmap_sweep_secs: None,
                    write_mostly: Vec::new(),
                    name: name.to_owned(),
                    level: Level::Raid1,
                    members: members.map(Some).to_vec(),
                    spares: Vec::new(),
                    version: Version::V12,
                    chunk_bytes: None,
                    layout: None,
                    data_offset_bytes: None,
                    size_bytes: None,
                    assume_clean: true,
                    consistency: Consistency::Resync,
                    forced: Forced::default(),
                    set_uuid: Uuid([id; 16]),
                    now: WallTime { secs: 1_700_000_000, micros: 0 },
                };
                let plan = plan(&request, &states).unwrap();
                plan.execute(&plan.claim(&states).unwrap()).unwrap();
            }
            mirrors
        }

        fn members(&self, name: &str) -> [String; 2] {
            [0, 1].map(|ix| self.dir.path().join(format!("{name}{ix}")).to_str().unwrap().to_owned())
        }

        /// What is found to serve where each look sees the members of these arrays.
        fn find(&self, looks: [&[&str]; 2]) -> Result<Found, Problem> {
            let CliCommand::Serve(args) =
                Cli::parse_from(["wattle", "serve", "a0", "a1", "b0", "b1"]).command
            else {
                panic!("not serve")
            };
            let taken = Cell::new(0);
            let look = || {
                let names: Vec<_> = looks[taken.replace(taken.get() + 1)]
                    .iter()
                    .flat_map(|name| self.members(name))
                    .collect();
                Ok(scan(MemberAccess::local().look_all(&names)?, Forced::default())?)
            };
            find(&MemberAccess::local(), &args, look)
        }
    }

    /// The first array of the second look was taken for the first one of the first look.
    #[test]
    fn an_array_is_found_again_when_other_members_went_between_two_looks() {
        let mirrors = Mirrors::new();
        for looks in [[&["a", "b"][..], &["b"]], [&["a", "b"], &["b", "a"]]] {
            let Found::Claimed(arrays) = mirrors.find(looks).unwrap() else { panic!("no arrays") };
            let names: Vec<_> = arrays.iter().map(|(facts, _)| facts.name.as_str()).collect();
            assert_eq!(names, looks[1]);
        }
    }

    #[test]
    fn an_array_that_is_not_in_both_looks_is_named() {
        let mirrors = Mirrors::new();
        let problem = mirrors.find([&["a"], &["a", "b"]]).err().unwrap();
        assert_eq!(problem.code, Code::Changed);
        assert!(problem.what.contains(&Uuid([2; 16]).to_string()), "{problem}");
    }
}
