//! Names of devices, and names that have to differ.

use std::collections::BTreeSet;

/// As a kernel would name an array's device: `md0`, or `md_data`. What could not stand in
/// `/proc/mdstat` is replaced.
#[must_use]
pub fn md_device_name(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_graphic() && c != '/' { c } else { '_' }).collect();
    let number = !plain.is_empty() && plain.chars().all(|c| c.is_ascii_digit());
    if number { format!("md{plain}") } else { format!("md_{plain}") }
}

/// Names that were given. Two samples of one name and the same labels make a scrape fail, and
/// arrays of two servers may have one name.
#[derive(Debug, Default)]
pub(super) struct Given(BTreeSet<String>);

impl Given {
    /// The name, or with a number behind it if it was given before.
    pub(super) fn unique(&mut self, name: String) -> String {
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !self.0.contains(name));
        let name = free.unwrap_or(name);
        self.0.insert(name.clone());
        name
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
        let mut given = Given::default();
        let names = ["a", "a", "a_2", "b"].map(|name| given.unique(name.to_owned()));
        assert_eq!(names, ["a", "a_2", "a_2_2", "b"]);
    }
}
