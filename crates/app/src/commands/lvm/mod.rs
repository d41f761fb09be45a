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
use wattle_server::protocol::change::What;

use crate::cli::{LvArgs, LvCommand, PvArgs, PvCommand, VgArgs, VgCommand};
use crate::output::Screen;

/// # Errors
/// What the command says.
pub fn pv(args: &PvArgs, screen: Screen) -> Result<(), Problem> {
    match &args.command {
        PvCommand::Create(args) => pv::create(args, screen),
        PvCommand::Remove(args) => pv::remove(args, screen),
        PvCommand::Resize(args) => pv::resize(args, screen),
        PvCommand::List(args) => columns::list(args, screen, &fields::PV, fields::pvs),
    }
}

/// # Errors
/// What the command says.
pub fn vg(args: &VgArgs, screen: Screen) -> Result<(), Problem> {
    match &args.command {
        VgCommand::Create(args) => vg::create(args, screen),
        VgCommand::Extend(args) => {
            let (group, devices) = (args.group.clone(), order::devices(&args.change)?);
            order::run(What::GroupExtend { group, devices }, &args.change, screen)
        }
        VgCommand::Reduce(args) => {
            order::run(What::GroupReduce { group: args.group.clone() }, &args.change, screen)
        }
        VgCommand::Remove(args) => vg::remove(args, screen),
        VgCommand::Rename(args) => {
            let (group, to) = (args.name.clone(), args.to.clone());
            order::run(What::GroupRename { group, to }, &args.change, screen)
        }
        VgCommand::Export(args) => vg::export(args, screen, true),
        VgCommand::Import(args) => vg::export(args, screen, false),
        VgCommand::Restore(args) => vg::restore(args, screen),
        VgCommand::List(args) => columns::list(args, screen, &fields::VG, fields::vgs),
    }
}

/// # Errors
/// What the command says.
pub fn lv(args: &LvArgs, screen: Screen) -> Result<(), Problem> {
    match &args.command {
        LvCommand::Create(args) => order::run(order::create(args), &args.change, screen),
        LvCommand::Extend(args) => {
            let what = What::Extend { volume: args.volume.clone(), extents: args.extents.clone().into() };
            order::run(what, &args.change, screen)
        }
        LvCommand::Reduce(args) => {
            let what = What::Reduce { volume: args.volume.clone(), extents: args.extents.clone().into() };
            order::run(what, &args.change, screen)
        }
        LvCommand::Remove(args) => {
            order::run(What::Remove { volume: args.volume.clone() }, &args.change, screen)
        }
        LvCommand::Rename(args) => {
            let (volume, to) = (args.name.clone(), args.to.clone());
            order::run(What::Rename { volume, to }, &args.change, screen)
        }
        LvCommand::ActivateFlags(args) => {
            let what = What::Flags { volume: args.volume.clone(), flags: args.flags.into() };
            order::run(what, &args.change, screen)
        }
        LvCommand::Move(args) => relocate::run(args, screen),
        LvCommand::List(args) => {
            columns::list(&args.list, screen, &fields::LV, |stack| fields::lvs(stack, args.all))
        }
    }
}
