//! What comes into an array that runs, on which terms, and what came of it.

use wattle_format::md::{Superblock, Uuid};
use wattle_rt::{Core, Device, Either, race};

use super::look;
use super::problems::made_up;
use crate::md::admit::{OfferedDevice, Seat};
use crate::members::{Claim, MemberAccess};
use crate::problem::{Forced, Problem};
use crate::undo::Recorder;

/// A device that is offered to an array: open for writing, and ours alone.
#[derive(Debug, Clone)]
pub struct Newcomer {
    /// What is on it.
    pub offer: OfferedDevice,
    /// Itself.
    pub device: Device,
    /// Random; its id if it was not of the array before.
    pub device_uuid: Uuid,
}

impl Newcomer {
    /// Opens a file or block device for writing, alone, and looks at what is on it.
    ///
    /// # Errors
    /// A [`Problem`]: it cannot be opened, is in use, does not answer or cannot be read where
    /// something may be; or it is a made-up drive.
    pub async fn open(
        core: &Core,
        access: &MemberAccess,
        name: &str,
        device_uuid: Uuid,
    ) -> Result<Self, Problem> {
        let (access, named) = (access.clone(), name.to_owned());
        let opened = core.offload(move || {
            let member = access.look(&named)?;
            if member.is_made_up() {
                return Err(made_up(&named));
            }
            Ok(member.claim(Claim::Write)?.device)
        });
        // A thread that hangs in the system goes on alone.
        let Either::First(opened) = race(opened, core.sleep(look::ANSWER_TIME_MAX)).await else {
            return Err(look::silent(name));
        };
        Self::look(core, name, opened.map_err(Problem::no_thread)??, device_uuid).await
    }

    /// A device that is open, by what is on it.
    ///
    /// # Errors
    /// A [`Problem`]: it does not answer, or cannot be read where something may be.
    pub async fn look(core: &Core, name: &str, device: Device, device_uuid: Uuid) -> Result<Self, Problem> {
        Ok(Self { offer: look::look(core, name, &device).await?, device, device_uuid })
    }

    /// A device of which its superblock of this array is known, by what else is on it.
    pub(super) async fn known(
        core: &Core,
        name: &str,
        device: &Device,
        superblock: &Superblock,
    ) -> Result<Self, Problem> {
        let offer = look::look_again(core, name, device, superblock).await?;
        let device_uuid = superblock.device_uuid().unwrap_or(Uuid([0; 16]));
        Ok(Self { offer, device: device.clone(), device_uuid })
    }
}

/// On which terms a device comes in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms<'a> {
    /// Checks that are overridden.
    pub forced: Forced,
    /// Saves what identifies its content before the first byte of it changes; `None` if that is
    /// not wanted, or if the array does it by itself with what is its own already.
    pub undo: Option<&'a Recorder>,
    /// It was away, and comes back by itself.
    pub comes_back: bool,
    /// It comes in only if nothing has to be written but what it missed.
    pub only_missed: bool,
    /// Reads go to other copies while one can be had.
    pub write_mostly: bool,
    /// What the operator typed, where the name is a path that was made of that.
    pub typed: Option<&'a str>,
}

impl From<Forced> for Terms<'_> {
    fn from(forced: Forced) -> Self {
        Self { forced, ..Self::default() }
    }
}

/// A device that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberTaken {
    /// What the array calls it.
    pub name: String,
    /// Where it is.
    pub seat: Seat,
}
