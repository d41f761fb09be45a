//! `--map`: what is in members that are copies; and with it, because the same commands have both,
//! what opens members that are encrypted.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;
use wattle_control::members::MapChoice;
use wattle_control::{Code, Problem};
use wattle_rt::{path_of_text, text_of_path};

use super::{Cli, CliCommand, KeyArgs, LvCommand, PvCommand, VgCommand};

/// What is said of members beyond their names.
#[derive(Debug, Clone, Args)]
pub struct MapArgs {
    /// The map of a member that is a copy of a drive, as GNU ddrescue and `wattle copy` write it
    /// [default: FILE.map beside a member FILE]. What was not read is an unreadable sector of the
    /// member. MEMBER=none does without a map. May be given several times.
    #[arg(long = "map", value_name = "MEMBER=FILE")]
    pub maps: Vec<OsString>,
    #[command(flatten)]
    pub keys: KeyArgs,
}

/// Instead of a file: no map.
const NONE: &[u8] = b"none";

impl Cli {
    /// The maps that are named for members.
    ///
    /// # Errors
    /// One is named for what is no member.
    pub fn maps(&self) -> Result<Vec<(String, MapChoice)>, Problem> {
        if let CliCommand::Copy(args) = &self.command {
            return Ok(args.maps.iter().filter_map(|map| choice(&args.members, map)).collect());
        }
        let Some((members, args)) = self.command.map_args() else { return Ok(Vec::new()) };
        args.named(members)
    }
}

impl Cli {
    /// What opens encrypted members, and whether the command asks for it where nothing is given.
    pub fn keys(&self) -> Option<(&KeyArgs, bool)> {
        let asks = matches!(&self.command, CliCommand::Ls(_) | CliCommand::Get(_));
        if let CliCommand::Copy(args) = &self.command {
            return Some((&args.keys, asks));
        }
        self.command.map_args().map(|(_, args)| (&args.keys, asks))
    }
}

impl MapArgs {
    /// The maps that are named for these members.
    ///
    /// # Errors
    /// One is named for what is none of them.
    pub fn named(&self, members: &[String]) -> Result<Vec<(String, MapChoice)>, Problem> {
        let named = self.maps.iter().map(|map| choice(members, map).ok_or_else(|| for_no_member(map)));
        named.collect()
    }
}

impl CliCommand {
    /// The members, and the maps named for them.
    fn map_args(&self) -> Option<(&[String], &MapArgs)> {
        Some(match self {
            Self::Scan(args) => (&args.members, &args.maps),
            Self::Examine(args) => (&args.members, &args.maps),
            Self::Create(args) => (&args.members, &args.maps),
            Self::Partition(args) => (&args.members, &args.maps),
            Self::Compat(args) => (&args.members, &args.maps),
            Self::Erase(args) => (&args.members, &args.maps),
            Self::Undo(args) => (&args.members, &args.maps),
            Self::Cat(args) => (&args.members, &args.maps),
            Self::Rescue(args) => (&args.members, &args.maps),
            Self::Ls(args) => (&args.on.members, &args.on.maps),
            Self::Get(args) => (&args.on.members, &args.on.maps),
            Self::Serve(args) => (&args.members, &args.maps),
            Self::Mount(args) => (&args.targets, &args.maps),
            Self::Why(args) => (&args.targets, &args.maps),
            Self::Audit(args) => (&args.members, &args.maps),
            Self::Bench(args) => (&args.members, &args.maps),
            Self::Plan(args) => (&args.members, &args.maps),
            Self::Pv(args) => match &args.command {
                PvCommand::Create(args) | PvCommand::Remove(args) | PvCommand::Resize(args) => {
                    (&args.members, &args.maps)
                }
                PvCommand::List(args) => (&args.members, &args.maps),
            },
            Self::Vg(args) => match &args.command {
                VgCommand::List(args) => (&args.members, &args.maps),
                VgCommand::Create(args) => (&args.change.members, &args.change.maps),
                VgCommand::Restore(args) => (&args.change.members, &args.change.maps),
                VgCommand::Rename(args) => (&args.change.members, &args.change.maps),
                VgCommand::Extend(args)
                | VgCommand::Reduce(args)
                | VgCommand::Remove(args)
                | VgCommand::Export(args)
                | VgCommand::Import(args) => (&args.change.members, &args.change.maps),
            },
            Self::Lv(args) => match &args.command {
                LvCommand::List(args) => (&args.list.members, &args.list.maps),
                LvCommand::Create(args) => (&args.change.members, &args.change.maps),
                LvCommand::Extend(args) | LvCommand::Reduce(args) => {
                    (&args.change.members, &args.change.maps)
                }
                LvCommand::Remove(args) => (&args.change.members, &args.change.maps),
                LvCommand::Rename(args) => (&args.change.members, &args.change.maps),
                LvCommand::ActivateFlags(args) => (&args.change.members, &args.change.maps),
                LvCommand::Move(args) => (&args.change.members, &args.change.maps),
            },
            _ => return None,
        })
    }
}

/// The member and its map in `MEMBER=FILE`. Either may have further `=` in it: the first part that
/// is a member ends there.
pub fn choice(members: &[String], map: &OsStr) -> Option<(String, MapChoice)> {
    let bytes = map.as_bytes();
    let cuts = (0..bytes.len()).filter(|&at| bytes[at] == b'=');
    let names = cuts.map(|at| (text_of_path(OsStr::from_bytes(&bytes[..at])), &bytes[at + 1..]));
    let (name, map) = names.into_iter().find(|(name, _)| members.iter().any(|member| is(member, name)))?;
    let choice = match map {
        NONE => MapChoice::Without,
        path => MapChoice::At(PathBuf::from(OsStr::from_bytes(path))),
    };
    Some((name, choice))
}

/// Whether a member is meant, or the drive that it is a partition of.
fn is(member: &str, name: &str) -> bool {
    let whole = member.rsplit_once(":p").map(|(whole, _)| whole);
    let real = |name: &str| path_of_text(name).canonicalize().ok();
    member == name
        || whole == Some(name)
        || real(name)
            .is_some_and(|path| real(member) == Some(path.clone()) || whole.and_then(real) == Some(path))
}

fn for_no_member(map: &OsStr) -> Problem {
    Problem::new(
        Code::Usage,
        format!("--map {}", map.to_string_lossy()),
        "what stands before the = is none of the members given",
        "write MEMBER=FILE with the member as it is given; MEMBER=none does without its map",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_equals_signs_are_cut_where_a_member_ends() {
        let members = ["a=b.img", "nbd+unix:///x?socket=/s", "disk.img:p1"].map(str::to_owned);
        let choice = |map: &str| choice(&members, OsStr::new(map));
        let at = |name: &str, path: &str| Some((name.to_owned(), MapChoice::At(path.into())));
        assert_eq!(choice("a=b.img=x=y.map"), at("a=b.img", "x=y.map"));
        assert_eq!(choice("nbd+unix:///x?socket=/s=m"), at("nbd+unix:///x?socket=/s", "m"));
        assert_eq!(choice("disk.img=m"), at("disk.img", "m"));
        assert_eq!(choice("disk.img=none"), Some(("disk.img".to_owned(), MapChoice::Without)));
        assert_eq!(choice("disk.img=./none"), at("disk.img", "./none"));
        assert_eq!(choice("other.img=m"), None);
        assert_eq!(choice("m"), None);
    }
}
