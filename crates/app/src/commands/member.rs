//! `wattle fail`, `remove`, `add` and `replace`: the members of an array that is being served.

use wattle_control::members::MapChoice;
use wattle_control::{Check, Problem};
use wattle_rt::{path_of_text, text_of_path};
use wattle_server::protocol::{MapOrder, ServerRequest};
use wattle_server::socket::client::request;

use super::order_report::OrderReport;
use crate::cli::{AddArgs, FailArgs, Force, MapArgs, RemoveArgs, ReplaceArgs, Runtime};
use crate::saving;
use crate::target::ServedTarget;

/// # Errors
/// No such array or member, nothing else holds its data, or it could not be recorded.
pub fn fail(args: &FailArgs) -> Result<(), Problem> {
    let member = args.member.clone();
    let (report, ..) = order(&args.runtime, &args.name, |array| ServerRequest::Fail { array, member })?;
    report.finish(&args.json)
}

/// # Errors
/// No such array or member, it works, or it could not be recorded.
pub fn remove(args: &RemoveArgs) -> Result<(), Problem> {
    let member = args.member.clone();
    let (report, ..) = order(&args.runtime, &args.name, |array| ServerRequest::Remove { array, member })?;
    report.finish(&args.json)
}

/// # Errors
/// No such array, the member cannot be used, or it could not be recorded; with `--wait` also if it
/// is not in sync in the end.
pub fn add(args: &AddArgs) -> Result<(), Problem> {
    let (undo, map) = (saving::order(&args.saving)?, map_order(Some(&args.member), &args.maps)?);
    let add = |array| ServerRequest::Add {
        array,
        member: absolute(&args.member),
        force: forced(&args.force),
        write_mostly: args.write_mostly,
        undo,
        map,
        typed: Some(args.member.clone()),
    };
    taking(&args.runtime, &args.name, add, args.wait)?.finish(&args.json)
}

/// # Errors
/// As [`add`], or the member to be replaced does not work.
pub fn replace(args: &ReplaceArgs) -> Result<(), Problem> {
    let new = args.new.as_ref().or(args.with.as_ref());
    let (undo, map) = (saving::order(&args.saving)?, map_order(new, &args.maps)?);
    let replace = |array| ServerRequest::Replace {
        array,
        member: args.member.clone(),
        with: new.map(|new| absolute(new)),
        force: forced(&args.force),
        undo,
        map,
        typed: new.cloned(),
    };
    taking(&args.runtime, &args.name, replace, args.wait)?.finish(&args.json)
}

/// The map that is named for the new member, as the server can use it.
fn map_order(new: Option<&String>, maps: &MapArgs) -> Result<Option<MapOrder>, Problem> {
    let named = maps.named(new.map_or(&[], std::slice::from_ref))?.pop();
    let Some((_, choice)) = named else { return Ok(None) };
    let MapChoice::At(path) = choice else { return Ok(Some(MapOrder::Without)) };
    let path = std::path::absolute(&path).unwrap_or(path);
    Ok(Some(MapOrder::At(text_of_path(path))))
}

/// Has the server take a member, and waits for it if that is wanted: by the name that the server
/// has for it, for another member's may end alike.
fn taking(
    runtime: &Runtime,
    name: &str,
    take: impl FnOnce(String) -> ServerRequest,
    wait: bool,
) -> Result<OrderReport, Problem> {
    let (mut report, target, member) = order(runtime, name, take)?;
    if let Some(member) = member.filter(|_| wait) {
        report.ended(target.wait_until_filled(&member)?);
    }
    Ok(report)
}

/// Orders what `order` makes of the array that is meant, and tells what its server says. The member
/// that came in, if one did.
fn order(
    runtime: &Runtime,
    name: &str,
    order: impl FnOnce(String) -> ServerRequest,
) -> Result<(OrderReport, ServedTarget, Option<String>), Problem> {
    let target = ServedTarget::find(runtime.runtime_dir.as_deref(), name)?;
    let mut report = OrderReport::new();
    // By what no other array ever has.
    let answer = request(target.socket(), &order(target.id().to_owned()))?;
    let member = answer.member.clone();
    report.answer(answer);
    Ok((report, target, member))
}

/// The checks that are overridden, as a server is told.
pub fn forced(force: &Force) -> Vec<String> {
    force.checks.iter().map(|check: &Check| check.name().to_owned()).collect()
}

/// The path as the server can use it, whose working directory is another one. Made-up drives and
/// addresses have none.
pub fn absolute(member: &str) -> String {
    let made_up =
        ["mem:", "null:", "model:"].iter().any(|kind| member.starts_with(kind)) || member.contains("://");
    if made_up || member.is_empty() {
        return member.to_owned();
    }
    std::path::absolute(path_of_text(member)).map_or_else(|_| member.to_owned(), text_of_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_elsewhere_finds_the_member() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute("a.img"), here.join("a.img").to_str().unwrap());
        assert_eq!(absolute("./mem:1G"), here.join("mem:1G").to_str().unwrap());
        for same in ["/dev/sda", "mem:64M", "null:1G", "model:x25m", "nbd://host/export", ""] {
            assert_eq!(absolute(same), same);
        }
    }
}
