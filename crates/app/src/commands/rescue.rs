//! `wattle rescue`: what an array was, why, and how to open it.

use serde::Serialize;
use wattle_control::members::MemberAccess;
use wattle_control::rescue::{Explanation, Findings, Restore, restore, search};
use wattle_control::{Code, Member, Problem};
use wattle_engine::geometry::layout_name;
use wattle_rt::path_of_text;
use wattle_server::ids::random_uuid;
use wattle_server::protocol::SCHEMA_VERSION;

use crate::cli::RescueArgs;
use crate::commands::loss::{ArrayLoss, LossFile, MemberLoss, RescueLoss, both};
use crate::environment::now;
use crate::output::text::{printable, table};
use crate::output::{self, Screen};

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    /// The first finding is told from all others.
    certain: bool,
    notes: Vec<String>,
    /// The best first.
    findings: Vec<FindingReport>,
    /// Which of them superblocks were written of, and where.
    written: Option<u16>,
    overlay: Option<String>,
    /// What is not known of it, and what of its members is missing.
    loss: RescueLoss,
}

#[derive(Serialize)]
struct FindingReport {
    level: String,
    layout: Option<String>,
    chunk_bytes: Option<u64>,
    data_offset_bytes: u64,
    size_bytes: u64,
    /// By slot; null where one is missing.
    members: Vec<Option<String>>,
    points: f64,
    reasons: Vec<String>,
    /// Writes superblocks to the members.
    mdadm: Option<String>,
}

/// # Errors
/// A member cannot be read, nothing was found, it is not told from others, or the overlay cannot be
/// written.
pub fn run(access: &MemberAccess, args: &RescueArgs, screen: Screen) -> Result<(), Problem> {
    let access = match &args.to_overlay {
        Some(dir) => super::keep_writes_in(access.clone(), dir, screen)?,
        None => access.clone(),
    };
    let members = access.look_all(&args.members)?;
    let findings = search(&members)?;
    let given: Vec<_> = args.members.iter().map(|name| path_of_text(name)).collect();
    let others: Vec<_> = given.iter().map(|path| &**path).collect();
    let report_to = args.report.as_ref().map(|path| LossFile::create(path, false, &others)).transpose()?;
    let pick = match args.pick {
        Some(pick) => Some(pick),
        None if args.to_overlay.is_some() && findings.certain => Some(1),
        None => None,
    };
    let pick = pick.filter(|_| !findings.found.is_empty());
    let result = match pick {
        Some(pick) => write(args, &findings, &members, pick),
        None => Ok(()),
    };
    let written = pick.filter(|_| result.is_ok());
    let result = result.and_then(|()| {
        if findings.found.is_empty() {
            return Err(nothing(&findings));
        }
        if findings.certain || args.pick.is_some() { Ok(()) } else { Err(not_told(&findings)) }
    });
    let loss = loss(&findings, &members, written, &result);
    let reported = report_to.map_or(Ok(()), |report_to| report_to.write(&loss, screen.units));
    let report = report(args, &findings, &members, written, loss);
    match args.json.json {
        true => both(both(result, reported), output::print_json(&report)),
        false => both(both(result, reported), output::print_fitted(&render(&report, screen))),
    }
}

/// What is not known of the array, and what of its members is missing.
fn loss(
    findings: &Findings,
    members: &[Member],
    written: Option<u16>,
    result: &Result<(), Problem>,
) -> RescueLoss {
    let order = written
        .map_or(1, usize::from)
        .checked_sub(1)
        .and_then(|number| findings.found.get(number))
        .map_or(&[][..], |finding| &finding.order);
    let missing_slots = (0..order.len()).filter(|&slot| order[slot].is_none()).collect();
    let is_unused = |ix: &usize| !order.is_empty() && !order.contains(&Some(*ix));
    let unused_members = (0..members.len()).filter(is_unused).map(|ix| members[ix].name.clone()).collect();
    let array = ArrayLoss {
        certain: findings.certain,
        written,
        missing_slots,
        unused_members,
        notes: findings.notes.clone(),
    };
    RescueLoss::new("rescue", MemberLoss::of_members(members), Vec::new(), 0, result)
        .of_array(array)
        .done_because(match written {
            Some(_) => "superblocks are in the overlay; the members are as they were",
            None => "the first finding is told from all others; nothing was written",
        })
}

fn plan(args: &RescueArgs, finding: &Explanation, members: &[Member]) -> Result<Restore, Problem> {
    restore(finding, members, &args.name, random_uuid()?, now())
}

fn write(args: &RescueArgs, findings: &Findings, members: &[Member], pick: u16) -> Result<(), Problem> {
    let Some(finding) = findings.found.get(usize::from(pick) - 1) else {
        return Err(Problem::new(
            Code::Usage,
            format!("--pick {pick}: there are {} findings", findings.found.len()),
            "superblocks are written for one of them",
            "name one by its number in the list, which the command shows without --to-overlay",
        ));
    };
    let restore = plan(args, finding, members)?;
    restore.write_over()?;
    Ok(())
}

fn nothing(findings: &Findings) -> Problem {
    Problem::new(
        Code::NothingFound,
        "no array was found on these members",
        match findings.notes.first() {
            Some(note) => format!("nothing speaks for any order: {note}"),
            None => "nothing speaks for any order".to_owned(),
        },
        "give all members of one array, and only these; encrypted or empty arrays without a parity cannot be found by what is on them",
    )
}

fn not_told(findings: &Findings) -> Problem {
    Problem::new(
        Code::NotToldApart,
        format!("{} arrays could have been, and the first is not told from the others", findings.found.len()),
        "what was looked at speaks for several of them alike",
        "give the members that are missing; or try them: --to-overlay DIR --pick N, then `wattle ls --overlay DIR`",
    )
}

fn report(
    args: &RescueArgs,
    findings: &Findings,
    members: &[Member],
    written: Option<u16>,
    loss: RescueLoss,
) -> Report {
    let of = |finding: &Explanation| {
        let shape = &finding.shape;
        let name = |who: &Option<usize>| who.map(|who| members[who].name.clone());
        FindingReport {
            level: shape.level.to_string(),
            layout: layout_name(shape.level, shape.layout),
            chunk_bytes: (shape.chunk_sectors > 0).then_some(shape.chunk_sectors * 512),
            data_offset_bytes: shape.data_offset_sectors * 512,
            size_bytes: shape.geometry.array_sectors().0 * 512,
            members: finding.order.iter().map(name).collect(),
            points: (finding.points * 10.0).round() / 10.0,
            reasons: finding.reasons.clone(),
            mdadm: plan(args, finding, members).ok().map(|restore| restore.plan.mdadm_command),
        }
    };
    let overlay = args.to_overlay.as_ref().map(|dir| dir.display().to_string());
    Report {
        schema_version: SCHEMA_VERSION,
        certain: findings.certain,
        notes: findings.notes.clone(),
        findings: findings.found.iter().map(of).collect(),
        written,
        overlay,
        loss,
    }
}

fn render(report: &Report, screen: Screen) -> String {
    let mut text = String::new();
    report.notes.iter().for_each(|note| text.push_str(&format!("{note}\n")));
    for (ix, finding) in report.findings.iter().enumerate() {
        let mut what = vec![finding.level.clone()];
        what.extend(finding.layout.clone());
        what.extend(finding.chunk_bytes.map(|bytes| format!("chunk {}", screen.units.show(bytes))));
        what.push(format!("data from {}", screen.units.show(finding.data_offset_bytes)));
        what.push(screen.units.show_capacity(finding.size_bytes));
        let head = screen.style.bold(&format!("{}  {}", ix + 1, what.join(", ")));
        text.push_str(&format!("\n{head}, {:.1} points\n", finding.points));
        let names = finding
            .members
            .iter()
            .enumerate()
            .map(|(slot, name)| vec![slot.to_string(), printable(name.as_deref().unwrap_or("missing"))]);
        text.push_str(&table("   ", &names.collect::<Vec<_>>()));
        finding.reasons.iter().for_each(|reason| text.push_str(&format!("   - {}\n", printable(reason))));
    }
    if let [first, second, ..] = &report.findings[..] {
        let lead = first.points - second.points;
        let told =
            if report.certain { "the first leads by" } else { "NOT TOLD APART: the first leads only by" };
        text.push_str(&format!("\n{told} {lead:.1} points\n"));
    }
    let number = report.written.unwrap_or(1);
    let Some(chosen) = report.findings.get(usize::from(number) - 1) else { return text };
    match (report.written, &report.overlay) {
        (Some(_), Some(dir)) => text.push_str(&format!(
            "\nsuperblocks of {number} are in the overlay: wattle scan --overlay {} MEMBER...\n",
            printable(dir)
        )),
        _ => text.push_str("\nto open it: --to-overlay DIR, then any command with --overlay DIR\n"),
    }
    if let Some(mdadm) = &chosen.mdadm {
        text.push_str(&format!(
            "the same by mdadm, WHICH WRITES TO THE MEMBERS and is not to be taken back: only on copies\n  {}\n",
            printable(mdadm)
        ));
    }
    text
}
