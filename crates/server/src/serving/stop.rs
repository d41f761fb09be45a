//! `wattle stop`: ends the serving of an array, or of everything.
//!
//! Invariant: nothing is stopped that was not meant. Where volumes lie on each other only the
//! server as a whole can be stopped, and what is asked for is compared with what would end.

use std::rc::Rc;

use wattle_control::{Code, Problem, shell_word};
use wattle_engine::geometry::LevelKind;
use wattle_engine::units::Sector;
use wattle_engine::{ArrayStatus, VolumeError};
use wattle_rt::sync::oneshot;

use super::{Serving, apart, being_stopped};
use crate::array::{Served, ServedFacts};
use crate::exports::{Offered, VolumeUse};
use crate::time::rfc3339;

impl Serving {
    /// Stops the array of a name, or what lies on arrays with them; the server of this name as a
    /// whole if `server` says so, or if nothing of it ever had this name.
    pub(super) async fn stop(&self, name: &str, server: bool) -> Result<String, Problem> {
        if server && name != self.server {
            return Err(being_stopped(name));
        }
        if self.has_layers() {
            return self.stop_all(name, server).await;
        }
        if server || self.is_own_name(name) {
            let arrays = self.arrays();
            return match &arrays[..] {
                [array] => self.stop_array(array.clone()).await,
                _ => self.stop_all(name, true).await,
            };
        }
        let array = self.find(name)?;
        self.stop_array(array).await
    }

    /// Whether a name is the server's, and no array's of it, now or before.
    fn is_own_name(&self, name: &str) -> bool {
        let is_array = self.arrays.borrow().iter().any(|served| served.facts.name == name);
        name == self.server && !is_array && !self.stopped.borrow().iter().any(|stopped| stopped == name)
    }

    /// Stops one array. The last one ends the process, and the answer waits until the process has
    /// released the members: a command that stops an array wants to do something with them.
    async fn stop_array(&self, served: Rc<Served>) -> Result<String, Problem> {
        {
            // An order that changes a group takes devices too, and gives back what it took.
            let _turn = self.changing.acquire(1).await;
            self.take_unused(&[&served.facts.name]).await?;
        }
        let message = stopped_message(&served.facts, &served.handle.status(&self.core).await);
        served.stopping.set(true);
        self.release(Some(&served.facts.name)).await;
        // Two that are stopped at once are not both one of several.
        let others_go_on = self.arrays.borrow().iter().any(|other| !other.stopping.get());
        if others_go_on {
            self.stop_one_of_several(&served).await?;
        } else {
            let (sender, ended) = oneshot();
            self.waiting_for_end.borrow_mut().push(sender);
            self.last_stop.set();
            let name = served.facts.name.clone();
            drop(served);
            ended.await.unwrap_or_else(|| Err(stop_problem(&name, VolumeError::Stopped)))?;
        }
        Ok(message)
    }

    async fn stop_one_of_several(&self, served: &Rc<Served>) -> Result<(), Problem> {
        let name = &served.facts.name;
        // Nothing of it is to be found any more: a device would go on over nothing.
        for place in self.places() {
            place.remove(&self.core, name).await;
        }
        let stopped = served.stop().await;
        self.end_qos(name).await;
        self.arrays.borrow_mut().retain(|other| !Rc::ptr_eq(other, served));
        let volume = served.handle.volume();
        let left: Vec<Offered> =
            self.offered().iter().filter(|offered| !offered.volume.is(&volume)).cloned().collect();
        self.offered.replace(left.into());
        self.stopped.borrow_mut().push(name.clone());
        let time = rfc3339(self.core.wall_clock().secs).unwrap_or_default();
        self.feed.stopped(&served.feed_array(), &time);
        stopped.map_err(|error| stop_problem(name, error))
    }

    /// Volumes that lie on each other are stopped together.
    async fn stop_all(&self, name: &str, server: bool) -> Result<String, Problem> {
        // An order that changes a group has the stack until it is carried out, and may take long:
        // what lies on what is only known then.
        let turn = self.changing.acquire(1).await;
        // What ends already ends whatever was meant.
        if !server && !self.ending.get() {
            self.check_all_meant(name)?;
        }
        let offered = self.offered();
        let names: Vec<_> = offered.iter().map(|offered| offered.name.as_str()).collect();
        self.take_unused(&names).await?;
        let (sender, ended) = oneshot();
        self.waiting_for_end.borrow_mut().push(sender);
        self.last_stop.set();
        drop(turn);
        ended.await.unwrap_or_else(|| Err(stop_problem(name, VolumeError::Stopped)))?;
        let what = if names.is_empty() { self.server.clone() } else { names.join(", ") };
        let below = if self.has_layers() { " and what is below" } else { "" };
        Ok(format!("{what}{below}: stopped"))
    }

    /// With volumes that lie on each other everything is stopped: an order that names something
    /// with which others have nothing to do does not mean them.
    fn check_all_meant(&self, name: &str) -> Result<(), Problem> {
        let stack = self.stack.borrow();
        let stack = stack.as_ref().ok_or_else(|| being_stopped(name))?;
        let others = match apart::apart_from(stack, &self.arrays.borrow(), &self.offered(), name) {
            Some(others) => others,
            None if name == self.server => return Ok(()),
            None => return Err(being_stopped(name)),
        };
        if others.is_empty() {
            return Ok(());
        }
        let arrays = self.arrays.borrow();
        let by_uuid = arrays.iter().find(|served| served.facts.uuid.as_deref() == Some(name));
        let name = by_uuid.map_or(name, |served| &served.facts.name);
        Err(Problem::new(
            Code::InUse,
            format!("{name} was not stopped: {} would be stopped with it", others.join(", ")),
            "a server with volume groups, partitions or drives as they are stops as a whole",
            format!(
                "stop all of it: `wattle stop --server {}`; serve what has nothing to do with each other apart",
                shell_word(&self.server)
            ),
        ))
    }

    /// Sees that nothing uses the files and devices of volumes; nothing can begin to use the
    /// devices from then on, until they are removed.
    ///
    /// # Errors
    /// One is in use. All of them can be used as before then.
    async fn take_unused(&self, names: &[&str]) -> Result<(), Problem> {
        for (ix, name) in names.iter().enumerate() {
            for place in self.places() {
                let Some(used) = place.take(name).await else { continue };
                for name in &names[..=ix] {
                    for place in self.places() {
                        place.give_back(name).await;
                    }
                }
                return Err(in_use_problem(name, &used));
            }
        }
        Ok(())
    }
}

/// What a stop leaves behind. Only what was recorded is said to be: an array whose parity was not
/// trusted stays dirty.
fn stopped_message(facts: &ServedFacts, status: &ArrayStatus) -> String {
    let left = match (status.read_only, status.level.kind(), status.synced_below == Sector::MAX) {
        _ if facts.uuid.is_none() => " and gone: it had no metadata",
        (true, _, _) => "; it was served read-only, and its members are as they were",
        (false, LevelKind::Striped, _) => " and flushed",
        (false, _, true) => " and recorded clean",
        (false, LevelKind::Parity, false) => {
            " and flushed; parity is still not known to be right everywhere: the next start resyncs it, here or in Linux"
        }
        (false, LevelKind::Mirrored, false) => {
            " and flushed; copies are still not known to agree everywhere: the next start resyncs them, here or in Linux"
        }
    };
    format!("{} is stopped{left}", facts.name)
}

fn in_use_problem(name: &str, used: &VolumeUse) -> Problem {
    let VolumeUse { times, looks } = used;
    let times = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
    Problem::new(
        Code::InUse,
        format!("{name} is not stopped: its file or device is in use, {times}"),
        "what a mounted file system or a program has not written yet would be lost",
        format!("unmount or close it first: {looks} tell what uses it"),
    )
}

pub(super) fn stop_problem(array: &str, error: VolumeError) -> Problem {
    Problem::new(
        Code::MetadataNotWritten,
        format!("{array} is stopped and could not be recorded clean: {error}"),
        "a member failed, or more than redundancy covers; parity may not fit what was written last",
        "`wattle scan` shows the members; the next start takes the array as not cleanly stopped",
    )
}
