//! Sweeps: one case for each value of a key, several keys multiplied.

use wattle_control::Problem;

use super::case::SimulatedCase;
use super::usage;
use crate::cli::SimulateArgs;
use crate::output;

/// Most runs at once.
const RUNS_MAX: usize = 1000;

const KEYS: [&str; 12] = [
    "members",
    "level",
    "layout",
    "chunk",
    "drive",
    "degraded",
    "cache",
    "rw",
    "bs",
    "iodepth",
    "numjobs",
    "rwmixread",
];

/// Keys whose values can be given as a range.
const NUMBERS: [&str; 5] = ["members", "degraded", "iodepth", "numjobs", "rwmixread"];

/// One key and its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    key: String,
    values: Vec<String>,
}

/// Every case, the last key changing fastest; the one case without sweeps.
///
/// # Errors
/// A sweep is not understood, or no case can exist. Of several, those that cannot are left out and
/// named.
pub fn cases(args: &SimulateArgs) -> Result<Vec<SimulatedCase>, Problem> {
    let sweeps = args.sweep.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
    if let Some((first, _)) = sweeps
        .iter()
        .enumerate()
        .find(|(index, sweep)| sweeps[..*index].iter().any(|earlier| earlier.key == sweep.key))
    {
        return Err(usage(format!("--sweep {}: this key is swept already", args.sweep[first])));
    }
    let count = sweeps.iter().try_fold(1usize, |count, sweep| count.checked_mul(sweep.values.len()));
    if count.is_none_or(|count| count > RUNS_MAX) {
        return Err(usage(format!("--sweep: more than {RUNS_MAX} runs; sweep fewer values")));
    }
    let mut combinations: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for sweep in &sweeps {
        let more = combinations.iter().flat_map(|so_far| {
            sweep.values.iter().map(move |value| {
                let mut so_far = so_far.clone();
                so_far.push((sweep.key.clone(), value.clone()));
                so_far
            })
        });
        combinations = more.collect();
    }
    let mut cases = Vec::new();
    let mut left_out = Vec::new();
    for swept in combinations {
        match case(args, &swept) {
            Ok(case) => cases.push(SimulatedCase { swept, ..case }),
            Err(problem) => left_out.push(problem),
        }
    }
    if cases.is_empty() {
        return Err(left_out.remove(0));
    }
    for problem in left_out {
        output::note(&format!("left out: {}", problem.what));
    }
    Ok(cases)
}

fn case(args: &SimulateArgs, swept: &[(String, String)]) -> Result<SimulatedCase, Problem> {
    let mut args = args.clone();
    for (key, value) in swept {
        set(&mut args, key, value)?;
    }
    SimulatedCase::new(&args)
}

fn set(args: &mut SimulateArgs, key: &str, value: &str) -> Result<(), Problem> {
    fn parsed<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, Problem>
    where
        T::Err: std::fmt::Display,
    {
        value.parse().map_err(|error| usage(format!("--sweep {key}={value}: {error}")))
    }
    match key {
        "members" => args.members = Some(parsed(key, value)?),
        "level" => args.level = Some(value.to_owned()),
        "layout" => args.layout = Some(value.to_owned()),
        "chunk" => args.chunk = Some(parsed(key, value)?),
        "drive" => args.drives = vec![value.to_owned()],
        "degraded" => args.degraded = parsed(key, value)?,
        "cache" => args.cache = Some(parsed(key, value)?),
        "rw" => args.load.rw = parsed(key, value)?,
        "bs" => args.load.bs = parsed(key, value)?,
        "iodepth" => args.load.iodepth = parsed(key, value)?,
        "numjobs" => args.load.numjobs = parsed(key, value)?,
        "rwmixread" => {
            args.load.rwmixread = parsed(key, value)?;
            if args.load.rwmixread > 100 {
                return Err(usage(format!("--sweep {key}={value}: expected at most 100 percent")));
            }
        }
        _ => return Err(unknown(key)),
    }
    Ok(())
}

fn unknown(key: &str) -> Problem {
    usage(format!("--sweep {key}: there is no such key; there are {}", KEYS.join(", ")))
}

/// From what was typed.
///
/// # Errors
/// It is no sweep of a key there is.
pub fn parse(text: &str) -> Result<Sweep, Problem> {
    let Some((key, values)) = text.split_once('=') else {
        return Err(usage(format!(
            "--sweep {text}: expected KEY=VALUES, like members=3..24 or chunk=16k,64k"
        )));
    };
    if !KEYS.contains(&key) {
        return Err(unknown(key));
    }
    let mut all = Vec::new();
    for value in values.split(',').filter(|value| !value.is_empty()) {
        match value.split_once("..") {
            Some((from, to)) if NUMBERS.contains(&key) => all.extend(range(text, from, to)?),
            _ => all.push(value.to_owned()),
        }
    }
    if all.is_empty() {
        return Err(usage(format!("--sweep {text}: there is no value in it")));
    }
    Ok(Sweep { key: key.to_owned(), values: all })
}

/// Both ends included.
fn range(text: &str, from: &str, to: &str) -> Result<Vec<String>, Problem> {
    let number = |part: &str| {
        part.parse::<u32>().map_err(|_| usage(format!("--sweep {text}: `{part}` is not a whole number")))
    };
    let (from, to) = (number(from)?, number(to)?);
    if from > to {
        return Err(usage(format!("--sweep {text}: the range is empty, {from} is above {to}")));
    }
    if (to - from) as usize >= RUNS_MAX {
        return Err(usage(format!("--sweep {text}: more than {RUNS_MAX} runs; sweep fewer values")));
    }
    Ok((from..=to).map(|number| number.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_both_ends_and_lists_may_hold_them() {
        assert_eq!(parse("members=3..5,8").unwrap().values, ["3", "4", "5", "8"]);
        assert_eq!(parse("level=0,10").unwrap().values, ["0", "10"]);
        for wrong in
            ["members", "members=", "members=5..3", "members=0..4000000000", "colour=red", "iodepth=a..b"]
        {
            assert_eq!(parse(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }
}
