//! `wattle pv`, `wattle vg`, `wattle lv`: changes of LVM2's volume groups on members that are not
//! in use, and lists.
//!
//! A command decides on a stack that it only looked at (`wattle_server::groups` decides); [`work`]
//! shows what that comes to, or claims the same members and carries it out. What the server of a
//! group can do too is an [`order`].

mod attributes;
pub mod columns;
pub mod fields;
pub mod order;
pub mod pv;
mod relocate;
pub mod select;
pub mod vg;
pub mod work;

use wattle_control::Problem;
use wattle_control::members::MemberAccess;
use wattle_server::protocol::change::What;

use crate::cli::{LvArgs, LvCommand, PvArgs, PvCommand, VgArgs, VgCommand};
use crate::output::Screen;

/// # Errors
/// What the command says.
pub fn pv(access: &MemberAccess, args: &PvArgs, screen: Screen) -> Result<(), Problem> {
    match &args.command {
        PvCommand::Create(args) => pv::create(access, args, screen),
        PvCommand::Remove(args) => pv::remove(access, args, screen),
        PvCommand::Resize(args) => pv::resize(access, args, screen),
        PvCommand::List(args) => columns::list(access, args, screen, &fields::PV, fields::pvs),
    }
}

/// # Errors
/// What the command says.
pub fn vg(access: &MemberAccess, args: &VgArgs, screen: Screen) -> Result<(), Problem> {
    match &args.command {
        VgCommand::Create(args) => vg::create(access, args, screen),
        VgCommand::Extend(args) => {
            let (group, devices) = (args.group.clone(), order::devices(&args.change)?);
            order::run(access, What::GroupExtend { group, devices }, &args.change, screen)
        }
        VgCommand::Reduce(args) => {
            order::run(access, What::GroupReduce { group: args.group.clone() }, &args.change, screen)
        }
        VgCommand::Remove(args) => vg::remove(access, args, screen),
        VgCommand::Rename(args) => {
            let (group, to) = (args.name.clone(), args.to.clone());
            order::run(access, What::GroupRename { group, to }, &args.change, screen)
        }
        VgCommand::Export(args) => vg::export(access, args, screen, true),
        VgCommand::Import(args) => vg::export(access, args, screen, false),
        VgCommand::Restore(args) => vg::restore(access, args, screen),
        VgCommand::List(args) => columns::list(access, args, screen, &fields::VG, fields::vgs),
    }
}

/// # Errors
/// What the command says.
pub fn lv(access: &MemberAccess, args: &LvArgs, screen: Screen) -> Result<(), Problem> {
    match &args.command {
        LvCommand::Create(args) => order::run(access, order::create(args), &args.change, screen),
        LvCommand::Extend(args) => {
            let what = What::Extend { volume: args.volume.clone(), extents: args.extents.clone().into() };
            order::run(access, what, &args.change, screen)
        }
        LvCommand::Reduce(args) => {
            let what = What::Reduce { volume: args.volume.clone(), extents: args.extents.clone().into() };
            order::run(access, what, &args.change, screen)
        }
        LvCommand::Remove(args) => {
            order::run(access, What::Remove { volume: args.volume.clone() }, &args.change, screen)
        }
        LvCommand::Rename(args) => {
            let (volume, to) = (args.name.clone(), args.to.clone());
            order::run(access, What::Rename { volume, to }, &args.change, screen)
        }
        LvCommand::ActivateFlags(args) => {
            let what = What::Flags { volume: args.volume.clone(), flags: args.flags.into() };
            order::run(access, what, &args.change, screen)
        }
        LvCommand::Move(args) => relocate::run(access, args, screen),
        LvCommand::List(args) => {
            columns::list(access, &args.list, screen, &fields::LV, |stack| fields::lvs(stack, args.all))
        }
    }
}
