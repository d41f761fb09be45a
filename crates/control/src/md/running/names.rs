//! What the names mean that an operator gives.

use std::io::ErrorKind;
use std::time::Duration;

use wattle_engine::MemberKey;
use wattle_rt::{Either, path_of_text, race};

use super::RunningArray;
use super::problems::not_a_member;
use crate::members::resolved;
use crate::problem::{Code, Problem};

/// How long it may take to find out where a name leads.
const RESOLVE_TIME: Duration = Duration::from_secs(1);

impl RunningArray {
    /// Which device an operator means: by the name as given, by the file name if no other has it,
    /// by the end of the path, by slot.
    pub(super) fn find(&self, asked: &str) -> Result<MemberKey, Problem> {
        let seats = self.books()?.state().seats().to_vec();
        let devices = self.devices.borrow();
        let matching = |matches: &dyn Fn(&str) -> bool| -> Vec<MemberKey> {
            devices.iter().filter(|(_, known)| matches(&known.name)).map(|(key, _)| *key).collect()
        };
        let tail = format!("/{}", asked.trim_start_matches("./"));
        let slot = asked.parse().ok().filter(|slot: &usize| *slot < seats.len() / 2);
        for found in [
            matching(&|name| name == asked),
            matching(&|name| file_name(name) == asked),
            matching(&|name| asked.contains('/') && name.ends_with(&tail)),
            slot.and_then(|slot| seats[slot].key).into_iter().collect(),
        ] {
            match found[..] {
                [key] => return Ok(key),
                [] => {}
                [..] => return Err(self.ambiguous(asked, found.len())),
            }
        }
        let names: Vec<_> = devices.values().map(|known| known.name.as_str()).collect();
        Err(not_a_member(asked, &self.name, &names))
    }

    /// Lets go of a member that may come back; whether there is one of this name.
    ///
    /// # Errors
    /// There are several.
    pub(super) async fn forget_returning(&self, member: &str) -> Result<bool, Problem> {
        let names = self.returning_names();
        let named: Vec<_> = names.iter().filter(|name| file_name(name) == member).cloned().collect();
        let found = match named.as_slice() {
            _ if names.iter().any(|name| name == member) => Some(member.to_owned()),
            [] => self.same_place(member, names).await,
            [found] => Some(found.clone()),
            [..] => return Err(self.ambiguous(member, named.len())),
        };
        let mut returning = self.returning.borrow_mut();
        let before = returning.len();
        returning.retain(|away| Some(&away.member.name) != found.as_ref());
        Ok(returning.len() < before)
    }

    fn ambiguous(&self, asked: &str, count: usize) -> Problem {
        self.problem(
            Code::Usage,
            format!("{asked} means {count} members of {}", self.name),
            "several members have this name",
            "name the member by its path or its slot: `wattle status` shows them",
        )
    }

    pub(super) fn returning_names(&self) -> Vec<String> {
        self.returning.borrow().iter().map(|away| away.member.name.clone()).collect()
    }

    /// The member that may come back which `name` means: by where the name leads; or, where there
    /// is nothing, by what the operator typed. What is in an encrypted device, or a volume of
    /// another array, has a name and no path, and a command elsewhere makes a path of it.
    pub(super) async fn find_returning(&self, name: &str, typed: Option<&str>) -> Option<String> {
        let names = self.returning_names();
        let typed = typed.filter(|typed| names.iter().any(|other| other == typed));
        if let Some(found) = self.same_place(name, names.clone()).await {
            return Some(found);
        }
        let typed = typed?.to_owned();
        (self.leads_nowhere(name).await && self.leads_nowhere(&typed).await).then_some(typed)
    }

    /// Whether it is known that there is no file of this name.
    async fn leads_nowhere(&self, name: &str) -> bool {
        let path = path_of_text(name).into_owned();
        let looked = self.core.offload(move || std::fs::symlink_metadata(path));
        let looked = race(looked, self.core.sleep(RESOLVE_TIME)).await;
        matches!(looked, Either::First(Ok(Err(error))) if error.kind() == ErrorKind::NotFound)
    }

    /// Which of these names leads to the same file or device as `name`. Threads look, for a file
    /// system may hang: a name for which that takes too long counts as another, and whether the
    /// device is another shows when it is opened.
    pub(super) async fn same_place(&self, name: &str, names: Vec<String>) -> Option<String> {
        if names.iter().any(|other| other == name) {
            return Some(name.to_owned());
        }
        let resolve = |name: &str| {
            let (core, name) = (self.core.clone(), name.to_owned());
            self.core.spawn(async move { core.offload(move || resolved(&name)).await.ok().flatten() })
        };
        let until = self.core.now() + RESOLVE_TIME;
        let asked = resolve(name);
        let others: Vec<_> = names.into_iter().map(|other| (resolve(&other), other)).collect();
        let Either::First(Some(asked)) = race(asked, self.core.sleep_until(until)).await else { return None };
        for (place, other) in others {
            if let Either::First(Some(place)) = race(place, self.core.sleep_until(until)).await
                && place == asked
            {
                return Some(other);
            }
        }
        None
    }
}

fn file_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}
