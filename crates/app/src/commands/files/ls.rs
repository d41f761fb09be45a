//! `wattle ls`: what is in the file system on a volume.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use wattle_control::members::MemberAccess;

use serde::Serialize;
use wattle_control::{Code, Problem};
use wattle_fs::{DeviceNumber, FileKind, FileMetadata, FileTime, FsNode};
use wattle_server::protocol::SCHEMA_VERSION;
use wattle_server::time;

use super::{Failure, FileSystemReport, Opened, hex_unless_text, join, kind_name, shown, with_file_system};
use crate::cli::LsArgs;
use crate::output;
use crate::output::text::{printable, table};

#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    volume: String,
    file_system: FileSystemReport,
    path: String,
    entries: Vec<EntryReport>,
    unreadable: Vec<Failure>,
}

#[derive(Debug, Serialize)]
struct EntryReport {
    path: String,
    /// The path's bytes in hexadecimal, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    kind: &'static str,
    /// As `chmod` takes it.
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    size_bytes: u64,
    modified: Option<String>,
    /// Which device it stands for: major and minor number.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<[u32; 2]>,
    /// Where a symbolic link leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    inode: u64,
    /// The subvolume of btrfs.
    #[serde(skip_serializing_if = "Option::is_none")]
    subvolume: Option<u64>,
}

/// What was found at a path.
struct Found {
    path: Vec<u8>,
    node: FsNode,
    metadata: FileMetadata,
    target: Option<Vec<u8>>,
}

/// # Errors
/// There is no such volume, file system or path, or something of it could not be read.
pub fn run(access: &MemberAccess, args: &LsArgs) -> Result<(), Problem> {
    let asked = args.clone();
    with_file_system(access, &args.on, move |opened| match list(opened, &asked)? {
        0 => opened.check_as_mounted("what is listed"),
        failures => Err(Problem::new(
            Code::FileUnreadable,
            format!("{failures} of what is there could not be read"),
            "the file system is damaged there, or its volume cannot be read; the lines above say where",
            "the rest is listed, and can be read",
        )),
    })
}

/// How many could not be read.
fn list(opened: &Opened, args: &LsArgs) -> Result<usize, Problem> {
    let root = opened.resolve(&args.path)?;
    let mut listing = Listing { opened, recursive: args.recursive, found: Vec::new(), failures: Vec::new() };
    let metadata =
        opened.fs.metadata(root).map_err(|error| opened.unreadable(args.path.as_bytes(), &error))?;
    match metadata.kind {
        FileKind::Directory => listing.directories(root),
        _ => {
            let name = args.path.as_bytes().split(|byte| *byte == b'/').rfind(|part| !part.is_empty());
            listing.add(name.unwrap_or_default().to_vec(), root);
        }
    }
    let Listing { found, failures, .. } = listing;
    for failure in &failures {
        output::note(&printable(&format!("{}: {}", failure.path, failure.reason)));
    }
    let count = failures.len();
    if args.json.json {
        output::print_json(&Report {
            schema_version: SCHEMA_VERSION,
            volume: opened.volume.clone(),
            file_system: FileSystemReport::of(opened),
            path: shown(args.path.as_bytes()),
            entries: found.into_iter().map(report).collect(),
            unreadable: failures,
        })?;
    } else {
        output::print(&text(&found, args.long))?;
    }
    Ok(count)
}

struct Listing<'a> {
    opened: &'a Opened,
    recursive: bool,
    found: Vec<Found>,
    failures: Vec<Failure>,
}

impl Listing<'_> {
    /// A directory, and with `recursive` all below, each once: in a damaged file system one may be
    /// in itself.
    fn directories(&mut self, root: FsNode) {
        let mut seen = BTreeSet::from([root]);
        let mut waiting = vec![(Vec::new(), root)];
        while let Some((path, directory)) = waiting.pop() {
            let mut entries = Vec::new();
            let listed = self.opened.fs.list(directory, &mut |entry| {
                entries.push(entry);
                Ok(())
            });
            if let Err(error) = listed {
                self.failures.push(Failure::new(if path.is_empty() { b"/" } else { &path }, error));
            }
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            let mut below = Vec::new();
            for entry in entries {
                let path = join(&path, &entry.name);
                let is_directory = self.add(path.clone(), entry.node);
                if is_directory && self.recursive && !self.opened.fs.is_stub(entry.node) {
                    match seen.insert(entry.node) {
                        true => below.push((path, entry.node)),
                        false => self.failures.push(Failure::new(&path, "the directory is there twice")),
                    }
                }
            }
            waiting.extend(below.into_iter().rev());
        }
    }

    /// Whether it is a directory.
    fn add(&mut self, path: Vec<u8>, node: FsNode) -> bool {
        let fs = &self.opened.fs;
        let read = fs.metadata(node).and_then(|metadata| {
            let target = (metadata.kind == FileKind::Symlink).then(|| fs.link(node)).transpose()?;
            Ok((metadata, target))
        });
        match read {
            Ok((metadata, target)) => {
                self.found.push(Found { path, node, metadata, target });
                metadata.kind == FileKind::Directory
            }
            Err(error) => {
                self.failures.push(Failure::new(&path, error));
                false
            }
        }
    }
}

fn text(found: &[Found], long: bool) -> String {
    if !long {
        return found.iter().map(|found| printable(&shown(&found.path)) + "\n").collect();
    }
    let row = |found: &Found| {
        let metadata = &found.metadata;
        let mut name = printable(&shown(&found.path));
        if let Some(target) = &found.target {
            name = format!("{name} -> {}", printable(&shown(target)));
        }
        vec![
            mode_text(metadata),
            metadata.links.to_string(),
            metadata.uid.to_string(),
            metadata.gid.to_string(),
            size_text(metadata),
            rfc3339(metadata.modified).unwrap_or_else(|| metadata.modified.seconds.to_string()),
            name,
        ]
    };
    table("", &found.iter().map(row).collect::<Vec<_>>())
}

/// Of a device its number, as ls(1) has it.
fn size_text(metadata: &FileMetadata) -> String {
    match metadata.device {
        Some(DeviceNumber { major, minor }) => format!("{major},{minor}"),
        None => metadata.size_bytes.to_string(),
    }
}

/// As ls(1) shows it.
fn mode_text(metadata: &FileMetadata) -> String {
    let kind = match metadata.kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    };
    let mode = metadata.mode;
    let mut text = String::from(kind);
    for (shift, special, with_x, without) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        text.push(if mode >> shift & 4 != 0 { 'r' } else { '-' });
        text.push(if mode >> shift & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode >> shift & 1 != 0, mode & special != 0) {
            (true, true) => with_x,
            (false, true) => without,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

fn rfc3339(at: FileTime) -> Option<String> {
    time::rfc3339(u64::try_from(at.seconds).ok()?)
}

fn report(found: Found) -> EntryReport {
    let Found { path, node, metadata, target } = found;
    EntryReport {
        path: shown(&path),
        path_hex: hex_unless_text(&path),
        kind: kind_name(metadata.kind),
        mode: format!("{:04o}", metadata.mode),
        links: metadata.links,
        uid: metadata.uid,
        gid: metadata.gid,
        size_bytes: metadata.size_bytes,
        modified: rfc3339(metadata.modified),
        device: metadata.device.map(|device| [device.major, device.minor]),
        target: target.as_deref().map(shown),
        inode: node.inode,
        subvolume: (node.tree != 0).then_some(node.tree),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_look_as_in_ls() {
        for (kind, mode, text) in [
            (FileKind::File, 0o644, "-rw-r--r--"),
            (FileKind::File, 0o4711, "-rws--x--x"),
            (FileKind::File, 0o6600, "-rwS--S---"),
            (FileKind::Directory, 0o1777, "drwxrwxrwt"),
            (FileKind::Directory, 0o1770, "drwxrwx--T"),
            (FileKind::Symlink, 0o777, "lrwxrwxrwx"),
        ] {
            let at = FileTime::default();
            let metadata = FileMetadata {
                kind,
                mode,
                uid: 0,
                gid: 0,
                links: 1,
                size_bytes: 0,
                stored_bytes: 0,
                accessed: at,
                modified: at,
                changed: at,
                created: None,
                device: None,
            };
            assert_eq!(mode_text(&metadata), text);
        }
    }
}
