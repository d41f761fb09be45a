//! What is wanted, from what was typed and what was not.

use std::error::Error;

use clap::Parser;
use serde::Serialize;
use wattle_advise::plan::{
    FileSystemKind, NAMED, Named, PlanLevel, PlanShape, PowerCutCover, Reliability, Wish, Workload,
};
use wattle_control::Problem;
use wattle_control::members::MemberAccess;
use wattle_drives::{Drive, Media, ModelDrive};
use wattle_modelled::Load;

use super::usage;
use crate::cli::{ConsistencyArg, FileSystemArg, LoadArgs, PlanArgs};
use crate::commands::simulate::load_of;

/// Most drives of a plan.
const DRIVES_MAX: usize = 384;
const MEMORY_BYTES: u64 = 512 << 20;
const CORES: u32 = 4;
const REPLACE_HOURS: f64 = 24.0;

/// Something that the answer depends on and was not given.
#[derive(Debug, Clone, Serialize)]
pub struct Assumed {
    pub what: &'static str,
    pub value: String,
    pub because: &'static str,
    /// The option that says it.
    pub option: &'static str,
}

/// Everything that a plan is made of.
#[derive(Debug, Clone)]
pub struct PlanRequest {
    pub wish: Wish,
    /// The drives, each with its size.
    pub drives: Vec<Drive>,
    /// What they are called: as members, or by number.
    pub names: Vec<String>,
    /// As they were given.
    pub models: Vec<String>,
    pub load: Load,
    /// The load as it was given, or the line that a name stands for.
    pub workload_line: String,
    pub reliability: Reliability,
    /// What a rebuild gets of the drives' bandwidth, 0 to 1.
    pub rebuild_share: f64,
    pub memory_bytes: u64,
    pub assumed: Vec<Assumed>,
}

/// # Errors
/// Something is missing, is no such thing, or does not fit the rest.
pub fn asked(access: &MemberAccess, args: &PlanArgs) -> Result<PlanRequest, Problem> {
    let mut assumed = Vec::new();
    // It goes into commands, and into the names of groups and directories.
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !args.name.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !args.name.chars().all(plain)
        || args.name.len() > 24
    {
        return Err(usage(format!("--name {}: expected up to 24 letters, digits, - and _", args.name)));
    }
    let (names, models, drives) = drives(access, args)?;
    let rotational = drives.iter().any(|drive| matches!(drive.model.media, Media::Disk(_)));
    let mut assume = |what, value: String, because, option| {
        assumed.push(Assumed { what, value, because, option });
    };
    let level = args.level.as_deref().map(level).transpose()?;
    let survive = args.survive.unwrap_or_else(|| {
        let can = drives.len() > 1 && !matches!(level, Some(PlanLevel::None | PlanLevel::Raid0));
        let because =
            if can { "one drive fails sooner or later" } else { "there is no redundancy to be had" };
        assume("failures to survive", u32::from(can).to_string(), because, "--survive");
        u32::from(can)
    });
    let spares = args.spares.unwrap_or_else(|| {
        assume("spares", "0".to_owned(), "every drive is used", "--spares");
        0
    });
    if args.capacity.is_none() {
        assume(
            "capacity",
            "any".to_owned(),
            "the fastest comes first, however little room it leaves",
            "--capacity",
        );
    }
    let (name, line) = match args.workload.as_deref() {
        None => {
            assume("workload", "general".to_owned(), "nothing is known of the use", "--workload");
            let general = Named::of("general").expect("it is in the list");
            (Some(general.name), general.line)
        }
        Some(text) => match Named::of(text) {
            Some(named) => {
                let because = "what the name stands for; a load of one's own is better";
                assume("load", named.line.to_owned(), because, "--workload LINE");
                (Some(named.name), named.line)
            }
            None if text.contains('=') => (None, text),
            None => return Err(unknown_workload(text)),
        },
    };
    let load = load_of(&parse_line(line)?)?;
    let file_system = match args.fs {
        Some(FileSystemArg::Xfs) => FileSystemKind::Xfs,
        Some(FileSystemArg::Ext4) => FileSystemKind::Ext4,
        None => {
            assume("file system", "xfs".to_owned(), "it takes stripes and many writers well", "--fs");
            FileSystemKind::Xfs
        }
    };
    let cores = args.cores.unwrap_or_else(|| {
        assume("cores", CORES.to_string(), "they set the number of allocation groups", "--cores");
        CORES
    });
    let memory_bytes = args.memory.map_or_else(
        || {
            assume(
                "memory for md's stripe cache",
                "512M".to_owned(),
                "it caps stripe_cache_size",
                "--memory",
            );
            MEMORY_BYTES
        },
        |size| size.0,
    );
    let reliability = Reliability {
        failures_per_year: part("--afr", args.afr, 100.0)?.unwrap_or_else(|| {
            let (percent, because) = match rotational {
                true => (1.5, "about what fleets of disks report"),
                false => (0.9, "about what fleets of solid-state drives report"),
            };
            assume("drives that fail in a year", format!("{percent} %"), because, "--afr");
            percent
        }) / 100.0,
        unreadable_per_bit: part("--ure", args.ure, 1.0)?.unwrap_or_else(|| {
            let rate = if rotational { 1e-14 } else { 1e-17 };
            assume("unreadable bits for each bit read", format!("{rate:e}"), "as in data sheets", "--ure");
            rate
        }),
        replace_hours: part("--replace-hours", args.replace_hours, 8766.0)?.unwrap_or_else(|| {
            if spares == 0 && survive > 0 {
                let because = "a failure has to be noticed, and a drive brought";
                assume(
                    "hours until a failed drive is replaced",
                    REPLACE_HOURS.to_string(),
                    because,
                    "--replace-hours",
                );
            }
            REPLACE_HOURS
        }),
    };
    let rebuild_share = part("--rebuild-share", args.rebuild_share, 100.0)?.unwrap_or_else(|| {
        if survive > 0 {
            let because = "the load gets the other half";
            assume("what a rebuild gets of the drives", "50 %".to_owned(), because, "--rebuild-share");
        }
        50.0
    }) / 100.0;
    let wish = Wish {
        sizes_bytes: drives.iter().map(|drive| drive.size_bytes).collect(),
        rotational,
        capacity_bytes: args.capacity.map(|size| size.0),
        survive,
        spares,
        workload: Workload {
            name,
            random: load.rw.random(),
            read_part: load.read_part(),
            bytes: load.bs_bytes,
            depth: load.depth() as u64,
        },
        level,
        layout: args.layout.as_deref().map(layout).transpose()?,
        chunk_bytes: args.chunk.map(|size| size.0),
        consistency: args.consistency.map(|policy| match policy {
            ConsistencyArg::Resync => PowerCutCover::Resync,
            ConsistencyArg::Bitmap => PowerCutCover::Bitmap,
            ConsistencyArg::Ppl => PowerCutCover::Ppl,
        }),
        file_system,
        cores,
    };
    let workload_line = line.to_owned();
    Ok(PlanRequest {
        wish,
        drives,
        names,
        models,
        load,
        workload_line,
        reliability,
        rebuild_share,
        memory_bytes,
        assumed,
    })
}

/// A number above 0 and at most `most`.
fn part(option: &str, value: Option<f64>, most: f64) -> Result<Option<f64>, Problem> {
    match value {
        Some(value) if !(value > 0.0 && value <= most) => {
            Err(usage(format!("{option} {value}: expected a number above 0, at most {most}")))
        }
        value => Ok(value),
    }
}

fn level(text: &str) -> Result<PlanLevel, Problem> {
    let name = text.strip_prefix("raid").unwrap_or(text);
    PlanLevel::ALL
        .into_iter()
        .find(|level| level.name() == name)
        .ok_or_else(|| usage(format!("--level {text}: expected none, 0, 1, 5, 6 or 10")))
}

fn layout(text: &str) -> Result<PlanShape, Problem> {
    PlanShape::of_layout(text).ok_or_else(|| {
        usage(format!("--layout {text}: expected n, f or o and how many copies, like n2, f2 or o3"))
    })
}

fn unknown_workload(text: &str) -> Problem {
    let names: Vec<_> = NAMED.iter().map(|named| named.name).collect();
    usage(format!(
        "--workload {text}: expected {}, or fio's options like rw=randrw,bs=8k,iodepth=32",
        names.join(", ")
    ))
}

/// The options of a load alone.
#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    load: LoadArgs,
}

/// fio's options with commas between.
pub fn parse_line(line: &str) -> Result<LoadArgs, Problem> {
    let items: Vec<_> =
        line.split(',').filter(|item| !item.is_empty()).map(|item| format!("--{item}")).collect();
    let parse = |items: &[String]| {
        let words = std::iter::once("workload".to_owned()).chain(items.iter().cloned());
        Line::try_parse_from(words)
    };
    // One by one first, so that the one that is wrong can be named.
    for item in &items {
        if let Err(error) = parse(std::slice::from_ref(item)) {
            let item = item.trim_start_matches('-');
            let why = match error.kind() {
                clap::error::ErrorKind::UnknownArgument => {
                    "there is no such option of a load; `wattle simulate --help` lists them".to_owned()
                }
                // The parser of the value says what it expects.
                kind => match error.source() {
                    Some(source) => source.to_string(),
                    None => format!("{kind}; `wattle simulate --help` lists the options of a load"),
                },
            };
            return Err(usage(format!("--workload {line}: {item}: {why}")));
        }
    }
    let line_args =
        parse(&items).map_err(|_| usage(format!("--workload {line}: an option is given twice")))?;
    Ok(line_args.load)
}

type Drives = (Vec<String>, Vec<String>, Vec<Drive>);

/// The drives: what they are called, what they are like, and their figures.
fn drives(access: &MemberAccess, args: &PlanArgs) -> Result<Drives, Problem> {
    let mut models = Vec::new();
    for given in &args.models {
        let (count, model) = counted(given)?;
        if count.is_some() && args.drives.is_some() {
            return Err(usage(format!("--drives and --drive {given}: both say how many drives there are")));
        }
        let parsed: ModelDrive = model.parse().map_err(|error| usage(format!("--drive {given}: {error}")))?;
        models.push((count, model, parsed));
    }
    let count = |all: &[(Option<u32>, &str, ModelDrive)]| match args.drives {
        Some(_) if all.len() > 1 => Err(usage(
            "--drives and several --drive: with several kinds say 4xsata7200 for how many of each".to_owned(),
        )),
        Some(drives) => Ok(vec![drives as usize]),
        None => Ok(all.iter().map(|(count, ..)| count.unwrap_or(1) as usize).collect()),
    };
    if models.is_empty() {
        let what = match args.members.is_empty() {
            true => "--drive: none is given, and what to build depends on what the drives are like",
            false => "--drive: none is given; sizes are measured, but what members are like has to be said",
        };
        return Err(usage(what.to_owned()));
    }
    if !args.members.is_empty() {
        let [(None, model, ModelDrive { drive, .. })] = &models[..] else {
            return Err(usage("--drive: with members it is given once, without a number".to_owned()));
        };
        let looked = access.look_all(&args.members)?;
        let sized = |size_bytes| Drive { size_bytes, ..drive.clone() };
        let drives = looked.iter().map(|member| sized(member.device.size_bytes())).collect();
        return Ok((args.members.clone(), vec![(*model).to_owned(); looked.len()], drives));
    }
    let counts = count(&models)?;
    if counts.iter().sum::<usize>() > DRIVES_MAX {
        return Err(usage(format!(
            "--drive: more than {DRIVES_MAX} drives, which is more than an array has"
        )));
    }
    let mut all: Drives = Default::default();
    for ((_, model, ModelDrive { drive, size_given, .. }), count) in models.iter().zip(counts) {
        let sized_twice = args.drive_size.is_some() && *size_given;
        if sized_twice {
            return Err(usage(format!("--drive-size and --drive {model}: both say how large it is")));
        }
        let size_bytes = args.drive_size.map_or(drive.size_bytes, |size| size.0 / 4096 * 4096);
        for _ in 0..count {
            all.0.push(format!("drive{}", all.0.len()));
            all.1.push((*model).to_owned());
            all.2.push(Drive { size_bytes, ..drive.clone() });
        }
    }
    Ok(all)
}

/// `4xsata7200`: how many, and the rest.
fn counted(text: &str) -> Result<(Option<u32>, &str), Problem> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    match (text[..digits].parse::<u32>(), text[digits..].strip_prefix('x')) {
        (Ok(count), Some(model)) if (1..=DRIVES_MAX as u32).contains(&count) => Ok((Some(count), model)),
        (_, Some(_)) if digits > 0 => {
            Err(usage(format!("--drive {text}: expected from 1 to {DRIVES_MAX} drives of a kind")))
        }
        _ => Ok((None, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_front_is_not_part_of_a_name() {
        assert_eq!(counted("4xsata7200").unwrap(), (Some(4), "sata7200"));
        assert_eq!(counted("6xx25m,size=10G").unwrap(), (Some(6), "x25m,size=10G"));
        assert_eq!(counted("x25m").unwrap(), (None, "x25m"));
        assert!(counted("0xnvme").is_err() && counted("4000xnvme").is_err());
    }

    #[test]
    fn every_name_stands_for_a_load() {
        for named in NAMED {
            let load = load_of(&parse_line(named.line).unwrap()).unwrap();
            assert!(load.depth() > 1, "{}", named.name);
        }
        for (line, named) in [("bs=4q", "bs=4q"), ("rw=sideways", "rw=sideways"), ("colour=red", "colour")] {
            let error = parse_line(line).unwrap_err();
            assert!(error.exit_code() == 2 && error.what.contains(named), "{}", error.what);
        }
    }
}
