//! `wattle ls`: what is in the file system on a volume.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use wattle_control::members::MemberAccess;

use serde::{Serialize, Serializer};
use wattle_control::{Code, Problem};
use wattle_fs::{DeviceNumber, FileKind, FileMetadata, FileTime, FsNode};
use wattle_server::protocol::SCHEMA_VERSION;
use wattle_server::time;

use super::{Failure, FileSystemReport, Opened, hex_unless_text, kind_name, shown, with_file_system};
use crate::cli::LsArgs;
use crate::output;
use crate::output::text::printable;

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    volume: &'a str,
    file_system: FileSystemReport,
    path: String,
    #[serde(serialize_with = "serialize_entries")]
    entries: &'a Listing<'a>,
    #[serde(serialize_with = "serialize_failures")]
    unreadable: &'a Listing<'a>,
}

fn serialize_entries<S: Serializer>(listing: &&Listing<'_>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(listing.found.iter().map(|found| listing.report(found)))
}

fn serialize_failures<S: Serializer>(listing: &&Listing<'_>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(listing.failures.iter().map(|failed| listing.failure(failed)))
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

/// Text that is written at once.
const TEXT_BYTES: usize = 64 << 10;

/// A name in one of the directories that are listed.
struct ListedName {
    /// The directory's place among them.
    directory: usize,
    name: Vec<u8>,
}

/// What was found under a name.
struct Found {
    name: ListedName,
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
    let mut listing = Listing::new(opened, args.recursive);
    let metadata =
        opened.fs.metadata(root).map_err(|error| opened.unreadable(args.path.as_bytes(), &error))?;
    match metadata.kind {
        FileKind::Directory => listing.directories(root),
        _ => {
            let name = args.path.as_bytes().split(|byte| *byte == b'/').rfind(|part| !part.is_empty());
            let name = name.unwrap_or_default().to_vec();
            listing.add(ListedName { directory: 0, name }, root);
        }
    }
    for failed in &listing.failures {
        let failure = listing.failure(failed);
        output::note(&printable(&format!("{}: {}", failure.path, failure.reason)));
    }
    if args.json.json {
        output::print_json(&Report {
            schema_version: SCHEMA_VERSION,
            volume: &opened.volume,
            file_system: FileSystemReport::of(opened),
            path: shown(args.path.as_bytes()),
            entries: &listing,
            unreadable: &listing,
        })?;
    } else {
        listing.print(args.long)?;
    }
    Ok(listing.failures.len())
}

/// What is listed. Paths are put together only where they are shown: those of all that lies deep
/// would take memory by the square of the depth.
struct Listing<'a> {
    opened: &'a Opened,
    recursive: bool,
    /// The directories that are listed, the first of which has no name.
    directories: Vec<Option<ListedName>>,
    found: Vec<Found>,
    /// What could not be read, and why.
    failures: Vec<(ListedName, String)>,
}

impl<'a> Listing<'a> {
    fn new(opened: &'a Opened, recursive: bool) -> Self {
        Self { opened, recursive, directories: vec![None], found: Vec::new(), failures: Vec::new() }
    }

    /// A directory, and with `recursive` all below, each once: in a damaged file system one may be
    /// in itself.
    fn directories(&mut self, root: FsNode) {
        let mut seen = BTreeSet::from([root]);
        let mut waiting = vec![(None, root)];
        while let Some((name, node)) = waiting.pop() {
            let directory = match name {
                None => 0,
                Some(name) => {
                    self.directories.push(Some(name));
                    self.directories.len() - 1
                }
            };
            let mut entries = Vec::new();
            let listed = self.opened.fs.list(node, &mut |entry| {
                entries.push(entry);
                Ok(())
            });
            if let Err(error) = listed {
                self.failures.push((ListedName { directory, name: Vec::new() }, error.to_string()));
            }
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            let mut below = Vec::new();
            for entry in entries {
                let is_directory = self.add(ListedName { directory, name: entry.name.clone() }, entry.node);
                if is_directory && self.recursive && !self.opened.fs.is_stub(entry.node) {
                    let name = ListedName { directory, name: entry.name };
                    match seen.insert(entry.node) {
                        true => below.push((Some(name), entry.node)),
                        false => self.failures.push((name, "the directory is there twice".to_owned())),
                    }
                }
            }
            waiting.extend(below.into_iter().rev());
        }
    }

    /// Whether it is a directory.
    fn add(&mut self, name: ListedName, node: FsNode) -> bool {
        let fs = &self.opened.fs;
        let read = fs.metadata(node).and_then(|metadata| {
            let target = (metadata.kind == FileKind::Symlink).then(|| fs.link(node)).transpose()?;
            Ok((metadata, target))
        });
        match read {
            Ok((metadata, target)) => {
                self.found.push(Found { name, node, metadata, target });
                metadata.kind == FileKind::Directory
            }
            Err(error) => {
                self.failures.push((name, error.to_string()));
                false
            }
        }
    }

    /// The path of a name; of a directory itself, whose name is empty there, its own.
    fn path(&self, name: &ListedName) -> Vec<u8> {
        let mut parts = vec![&name.name[..]];
        let mut directory = name.directory;
        while let Some(Some(above)) = self.directories.get(directory) {
            parts.push(&above.name);
            directory = above.directory;
        }
        let parts: Vec<_> = parts.into_iter().rev().filter(|part| !part.is_empty()).collect();
        parts.join(&b'/')
    }

    fn failure(&self, (name, why): &(ListedName, String)) -> Failure {
        let path = self.path(name);
        Failure::new(if path.is_empty() { b"/" } else { &path }, why)
    }

    fn print(&self, long: bool) -> Result<(), Problem> {
        let widths = if long { widths(&self.found) } else { [0; COLUMNS] };
        let mut text = String::new();
        for found in &self.found {
            if long {
                for (cell, width) in columns(found).iter().zip(widths) {
                    text.push_str(&format!("{cell:width$}  "));
                }
            }
            text.push_str(&printable(&shown(&self.path(&found.name))));
            if let Some(target) = found.target.as_ref().filter(|_| long) {
                text.push_str(&format!(" -> {}", printable(&shown(target))));
            }
            text.push('\n');
            if text.len() >= TEXT_BYTES {
                output::print(&text)?;
                text.clear();
            }
            if output::reader_is_gone() {
                return Ok(());
            }
        }
        output::print(&text)
    }

    fn report(&self, found: &Found) -> EntryReport {
        let Found { name, node, metadata, target } = found;
        let path = self.path(name);
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
}

/// Columns of `--long` before the name.
const COLUMNS: usize = 6;

fn columns(found: &Found) -> [String; COLUMNS] {
    let metadata = &found.metadata;
    [
        mode_text(metadata),
        metadata.links.to_string(),
        metadata.uid.to_string(),
        metadata.gid.to_string(),
        size_text(metadata),
        rfc3339(metadata.modified).unwrap_or_else(|| metadata.modified.seconds.to_string()),
    ]
}

fn widths(found: &[Found]) -> [usize; COLUMNS] {
    let mut widths = [0; COLUMNS];
    for cells in found.iter().map(columns) {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.len().max(*width);
        }
    }
    widths
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

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use wattle_fs::{About, DirEntry, EachData, EachEntry, EachRun, Error, FileSystem};

    use super::*;

    fn metadata(kind: FileKind, mode: u32) -> FileMetadata {
        let at = FileTime::default();
        FileMetadata {
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
        }
    }

    const DEPTH: usize = 2000;
    const NAME_BYTES: usize = 200;

    /// Directories each in the other.
    struct Chain(About);

    impl FileSystem for Chain {
        fn about(&self) -> &About {
            &self.0
        }

        fn root(&self) -> FsNode {
            FsNode { tree: 0, inode: 0 }
        }

        fn metadata(&self, _: FsNode) -> Result<FileMetadata, Error> {
            Ok(metadata(FileKind::Directory, 0o755))
        }

        fn list(&self, directory: FsNode, each: &mut EachEntry<'_>) -> Result<(), Error> {
            let node = FsNode { tree: 0, inode: directory.inode + 1 };
            match node.inode <= DEPTH as u64 {
                true => each(DirEntry { name: vec![b'n'; NAME_BYTES], node }),
                false => Err(Error::NoSuchEntry),
            }
        }

        fn link(&self, _: FsNode) -> Result<Vec<u8>, Error> {
            Err(Error::NotALink)
        }

        fn read(&self, _: FsNode, _: Range<u64>, _: &mut EachData<'_>) -> Result<(), Error> {
            Err(Error::NotAFile)
        }

        fn attributes(&self, _: FsNode) -> Result<Vec<Vec<u8>>, Error> {
            Ok(Vec::new())
        }

        fn attribute(&self, _: FsNode, _: &[u8]) -> Result<Vec<u8>, Error> {
            Err(Error::NoSuchEntry)
        }

        fn runs(&self, _: FsNode, _: &mut EachRun<'_>) -> Result<(), Error> {
            Err(Error::NotAFile)
        }
    }

    #[test]
    fn what_lies_deep_takes_memory_for_its_names_and_not_for_its_paths() {
        let about = About { kind: "xfs", label: Vec::new(), uuid: [0; 16], size_bytes: 0, notes: Vec::new() };
        let fs = Box::new(Chain(about));
        let opened = Opened { volume: "chain".to_owned(), fs, members: Vec::new(), devices: Vec::new() };
        let mut listing = Listing::new(&opened, true);
        listing.directories(opened.fs.root());
        let names = listing.directories.iter().flatten().chain(listing.found.iter().map(|found| &found.name));
        let held: usize = names.map(|name| name.name.len()).sum();
        assert_eq!((listing.found.len(), held), (DEPTH, 2 * DEPTH * NAME_BYTES));
        let path_bytes = DEPTH * (NAME_BYTES + 1) - 1;
        assert_eq!(listing.report(&listing.found[DEPTH - 1]).path.len(), path_bytes);
        // The last of them could not be listed.
        assert_eq!(listing.failures.len(), 1);
        assert_eq!(listing.failure(&listing.failures[0]).path.len(), path_bytes);
    }

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
            assert_eq!(mode_text(&metadata(kind, mode)), text);
        }
    }
}
