//! Checkpoints of what is offered: since when it is known what has changed.

use std::rc::Rc;

use wattle_control::{Code, Problem};
use wattle_engine::volume::qos::GovernedHandle;

use super::{Serving, being_stopped};
use crate::array::Served;
use crate::protocol::report::CheckpointReport;
use crate::time::rfc3339;

/// A name is a part of names that other programs pass on.
const NAME_BYTES_MAX: usize = 64;

impl Serving {
    /// From now on a repair that makes what clients read another counts as a change.
    pub fn follow_repairs(self: &Rc<Self>) {
        for served in self.arrays.borrow().iter() {
            let (serving, array) = (Rc::downgrade(self), Rc::downgrade(served));
            served.when_repaired(move || {
                if let (Some(serving), Some(array)) = (serving.upgrade(), array.upgrade()) {
                    serving.note_repaired(&array);
                }
            });
        }
    }

    /// What lies on this array may read otherwise now. Where it lies on it is not asked: repairs
    /// that find something are rare.
    fn note_repaired(&self, array: &Served) {
        let volume = array.handle.volume();
        for offered in
            self.offered().iter().filter(|offered| offered.lv.is_some() || offered.volume.is(&volume))
        {
            offered.volume.governed().into_iter().for_each(GovernedHandle::note_all_changed);
        }
    }

    /// Makes a checkpoint of a volume, or gives one up.
    pub(super) fn checkpoint(&self, volume: &str, name: &str, remove: bool) -> Result<String, Problem> {
        let offered = self.offered_as(volume)?;
        let governed = offered.volume.governed().ok_or_else(|| being_stopped(volume))?;
        let what = || format!("{}: checkpoint {name}", offered.name);
        if remove {
            return match governed.end_checkpoint(name) {
                true => Ok(format!("{}: what changed since {name} is not noted any more", offered.name)),
                false => Err(Problem::new(
                    Code::Usage,
                    what(),
                    "there is none of this name",
                    "`wattle checkpoint VOLUME` lists them; they end with their server",
                )),
            };
        }
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_good) {
            return Err(Problem::new(
                Code::Usage,
                what(),
                "that is no name for one",
                "use letters, digits and -_.: of ASCII, 64 at most",
            ));
        }
        governed.begin_checkpoint(&self.core, name).map_err(|error| {
            let next = "give one up first: wattle checkpoint VOLUME NAME --remove";
            Problem::new(Code::Usage, what(), error.to_string(), next)
        })?;
        Ok(format!("{}: what changes from now on is noted, as {name}", offered.name))
    }

    pub(super) fn checkpoints(&self) -> Vec<CheckpointReport> {
        let mut reports = Vec::new();
        for offered in self.offered().iter() {
            let Some(governed) = offered.volume.governed() else { continue };
            reports.extend(governed.checkpoints().iter().map(|map| CheckpointReport {
                volume: offered.name.clone(),
                name: map.name().to_owned(),
                since: rfc3339(map.since().secs).unwrap_or_default(),
                changed_bytes: map.changed_bytes(),
            }));
        }
        reports
    }
}
