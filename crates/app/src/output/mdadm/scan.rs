//! Lines for a configuration file: `--examine --scan` and `--detail --scan`.

use wattle_format::md::{DeviceRole, Features, SuperblockFields, Version};

use super::detail::DetailView;
use super::examine::Examined;
use super::{device_path, examine0, level_name};

/// Members of one array.
struct Group<'a> {
    first: &'a Examined<'a>,
    names: Vec<&'a str>,
    spares: usize,
}

/// What `mdadm --examine --scan` prints of members that have superblocks; `verbose` as with `-v`.
/// The array that was found last comes first.
pub fn examine_scan(members: &[Examined<'_>], verbose: bool) -> String {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for member in members {
        let spare = is_spare(member.fields);
        match groups.iter_mut().find(|group| is_same_array(group.first.fields, member.fields)) {
            Some(group) => {
                group.names.push(member.name);
                group.spares += usize::from(spare);
            }
            None => groups.push(Group { first: member, names: vec![member.name], spares: spare.into() }),
        }
    }
    groups.iter().rev().map(|group| group_lines(group, verbose)).collect()
}

/// Whether mdadm counts it among the spares: also what failed, a journal, what replaces a member.
fn is_spare(fields: &SuperblockFields) -> bool {
    match fields.version() {
        Version::V090 => examine0::is_spare(fields),
        _ => {
            let replaces = fields.features().contains(Features::REPLACEMENT);
            replaces || !matches!(fields.role(), DeviceRole::Active(_))
        }
    }
}

/// Whether mdadm takes two superblocks for those of one array.
fn is_same_array(one: &SuperblockFields, other: &SuperblockFields) -> bool {
    let shape = |fields: &SuperblockFields| {
        let one = fields.version().is_1x();
        let (made, disks) = (fields.ctime(), fields.raid_disks());
        let stripes = one.then(|| (fields.layout(), fields.chunk_sectors()));
        let array = (one, fields.set_uuid(), made.secs, made.micros);
        (array, fields.level(), fields.size_sectors(), disks, stripes)
    };
    shape(one) == shape(other)
}

fn group_lines(group: &Group<'_>, verbose: bool) -> String {
    let fields = group.first.fields;
    let (version, name) = (fields.version(), fields.name());
    let path = device_path(Some(version), &name, fields.md_minor().unwrap_or_default());
    let mut words = vec!["ARRAY".to_owned()];
    // 1.x has one more space behind the path.
    match (path, version) {
        (Some(path), Version::V090) => words.push(path),
        (Some(path), _) => words.extend([path, String::new()]),
        (None, _) => words.push(String::new()),
    }
    words.extend(level_name(fields.level()).filter(|_| verbose).map(|level| format!("level={level}")));
    if version.is_1x() {
        words.push(format!("metadata={version}"));
    }
    if verbose {
        words.push(format!("num-devices={}", fields.raid_disks()));
    }
    words.push(format!("UUID={}", fields.set_uuid()));
    if version.is_1x() && !name.is_empty() {
        words.push(format!("name={}", config_word(&name)));
    }
    let mut text = words.join(" ") + "\n";
    if group.spares > 0 {
        text += &format!("   spares={}", group.spares);
    }
    if verbose {
        text += &format!("   devices={}", group.names.join(","));
    }
    if group.spares > 0 || verbose {
        text.push('\n');
    }
    text
}

/// What `mdadm --detail --scan` prints of an array; `verbose` as with `-v`.
pub fn detail_scan(array: &DetailView<'_>, verbose: bool) -> String {
    let mut words = vec!["ARRAY".to_owned(), array.path.to_owned()];
    if verbose {
        words.push(format!("level={}", array.level));
        words.push(format!("num-devices={}", array.raid_disks));
    }
    words.push(format!("metadata={}", array.metadata.unwrap_or_default()));
    let spares = array.spare_devices();
    if spares > 0 {
        words.push(format!("spares={spares}"));
    }
    words.extend(array.stored_name().map(|name| format!("name={}", config_word(name))));
    words.extend(array.uuid.map(|uuid| format!("UUID={uuid}")));
    let mut text = words.join(" ") + "\n";
    if verbose {
        let mut names: Vec<_> = array.devices.iter().map(|device| device.name).collect();
        names.sort_unstable();
        text += &format!("   devices={}\n", names.join(","));
    }
    text
}

/// A word of a configuration file: in quotes where it has blanks or quotes in it.
fn config_word(word: &str) -> String {
    if !word.contains([' ', '\t', '"', '\'']) {
        return word.to_owned();
    }
    let (mut text, mut rest) = (String::new(), word);
    while !rest.is_empty() {
        let quote = match rest.find(['"', '\'']).map(|at| rest.as_bytes()[at]) {
            Some(b'"') => '\'',
            _ => '"',
        };
        let (part, after) = rest.split_at(rest.find(quote).unwrap_or(rest.len()));
        text.push(quote);
        text.push_str(part);
        text.push(quote);
        rest = after;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As mdadm 4.2 printed them.
    #[test]
    fn names_with_blanks_and_quotes_are_quoted() {
        let rows = [
            ("data", "data"),
            ("a=b#c", "a=b#c"),
            ("a b:c d", "\"a b:c d\""),
            ("a\"b", "'a\"b'"),
            ("a'b", "\"a'b\""),
            ("a\"b'c", "'a\"b'\"'c\""),
        ];
        for (name, word) in rows {
            assert_eq!(config_word(name), word);
        }
    }
}
