//! Names of devices, and names that have to differ.

use std::collections::{BTreeMap, BTreeSet};

use super::source::ServerSight;

/// As a kernel would name an array's device: `md0`, or `md_data`. What could not stand in
/// `/proc/mdstat` is replaced.
#[must_use]
pub fn md_device_name(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_graphic() && c != '/' { c } else { '_' }).collect();
    let number = !plain.is_empty() && plain.chars().all(|c| c.is_ascii_digit());
    if number { format!("md{plain}") } else { format!("md_{plain}") }
}

/// What has a name of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NamedKind {
    Device,
    Array,
    Volume,
    Group,
}

/// The kind, the server, the name there, and which of that name.
type NameOwner = (NamedKind, String, String, usize);

/// Names that were given. Two samples of one name and the same labels make a scrape fail, and
/// arrays of two servers may have one name. What has a name keeps it from one scrape to the next,
/// also while its server does not answer: no other array gets its series.
#[derive(Debug, Default)]
pub struct GivenNames(BTreeMap<NameOwner, String>);

impl GivenNames {
    /// Frees the names of what is not there any more: of servers that are gone, and of what those
    /// that answered do not have.
    pub(super) fn keep(&mut self, servers: &[ServerSight]) {
        let mut silent = BTreeSet::new();
        let mut there = BTreeSet::new();
        for sight in servers {
            let server = sight.name.as_str();
            let Some(report) = &sight.report else {
                silent.insert(server);
                continue;
            };
            for array in &report.arrays {
                there.insert((NamedKind::Array, server, array.name.as_str()));
                there.insert((NamedKind::Device, server, array.name.as_str()));
            }
            there.extend(report.volumes.iter().map(|v| (NamedKind::Volume, server, v.name.as_str())));
            there.extend(report.groups.iter().map(|g| (NamedKind::Group, server, g.name.as_str())));
        }
        self.0.retain(|(kind, server, name, _), _| {
            silent.contains(server.as_str()) || there.contains(&(*kind, server.as_str(), name.as_str()))
        });
    }

    /// For what a server has now.
    pub(super) fn of<'a>(&'a mut self, server: &'a str) -> ServerNames<'a> {
        ServerNames { given: self, server, seen: BTreeMap::new() }
    }
}

/// Gives names to what a server has.
pub(super) struct ServerNames<'a> {
    given: &'a mut GivenNames,
    server: &'a str,
    seen: BTreeMap<(NamedKind, String), usize>,
}

impl ServerNames<'_> {
    /// For the next one that its server calls `name`: the name that it was given before, or that
    /// which is wanted, with a number behind it if another one has it.
    pub(super) fn unique(&mut self, kind: NamedKind, name: &str, wanted: String) -> String {
        let nth = self.seen.entry((kind, name.to_owned())).or_default();
        *nth += 1;
        let owner = (kind, self.server.to_owned(), name.to_owned(), *nth);
        let all = &mut self.given.0;
        if let Some(given) = all.get(&owner) {
            return given.clone();
        }
        let is_free = |name: &String| !all.iter().any(|(owner, given)| owner.0 == kind && given == name);
        let numbered = (2..).map(|number| format!("{wanted}_{number}"));
        let free = std::iter::once(wanted.clone()).chain(numbered).find(is_free);
        let given = free.unwrap_or(wanted);
        all.insert(owner, given.clone());
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_in_mdstat_and_each_once() {
        assert_eq!(
            ["0", "data", "my data", "a/b", ""].map(md_device_name),
            ["md0", "md_data", "md_my_data", "md_a_b", "md_"]
        );
        let mut given = GivenNames::default();
        let mut names = given.of("server");
        let names = ["a", "a", "a_2", "b"].map(|name| names.unique(NamedKind::Array, name, name.to_owned()));
        assert_eq!(names, ["a", "a_2", "a_2_2", "b"]);
    }
}
