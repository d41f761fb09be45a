//! The names and attributes of the files: made once, the same on every core.
//!
//! A volume is a file of its name; `vg/lv` is the file `lv` in the directory `vg`.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use thiserror::Error;
use wattle_rt::WallTime;

use super::protocol::{Out, ROOT_NODE};

/// What of a volume is seen in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFacts {
    /// The volume's name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Whether it is only read.
    pub read_only: bool,
    /// What a program should ask for at once.
    pub block_bytes: u32,
}

/// Two volumes cannot both have their files.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the volumes {0} and {1} would be one file, or one the directory of the other")]
pub struct NameClash(pub String, pub String);

/// Who the files belong to, and since when they are there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The time of every file.
    pub since: WallTime,
}

/// A file or directory.
#[derive(Debug)]
pub struct Node {
    name: String,
    parent: u64,
    /// What it is.
    pub kind: NodeKind,
}

/// What a node is.
#[derive(Debug)]
pub enum NodeKind {
    /// A directory.
    Directory,
    /// The file of a volume.
    File(File),
}

/// The file of a volume.
#[derive(Debug)]
pub struct File {
    /// Which volume.
    pub volume: usize,
    /// Its size. It may grow.
    size_bytes: AtomicU64,
    /// Whether it is only read.
    pub read_only: bool,
    block_bytes: u32,
    /// How often it is open now. Only opening and closing touch it.
    opens: AtomicU32,
    /// Whether it ever was: it may be open for less time than passes between two looks.
    was_opened: AtomicBool,
}

impl File {
    /// Its size.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Somebody has opened it.
    pub fn opened(&self) {
        self.opens.fetch_add(1, Ordering::Relaxed);
        self.was_opened.store(true, Ordering::Relaxed);
    }

    /// Somebody has closed it.
    pub fn closed(&self) {
        self.opens.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All nodes; the root is the first.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    owner: Owner,
}

/// Where the file of a volume is below the mounted directory.
#[must_use]
pub fn path_of(volume: &str) -> String {
    volume.split('/').map(file_name).collect::<Vec<_>>().join("/")
}

/// The longest name of one file (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;

impl Tree {
    /// # Errors
    /// Two volumes would be the same file, or one the directory of the other.
    pub fn new(volumes: &[FileFacts], owner: Owner) -> Result<Self, NameClash> {
        let root = Node { name: String::new(), parent: ROOT_NODE, kind: NodeKind::Directory };
        let mut tree = Self { nodes: vec![root], owner };
        for (volume, facts) in volumes.iter().enumerate() {
            let clash = |tree: &Self, node| {
                let other = tree.volumes_below(node).next().unwrap_or(volume);
                NameClash(volumes[other].name.clone(), facts.name.clone())
            };
            let mut path: Vec<String> = facts.name.split('/').map(file_name).collect();
            let name = path.pop().expect("splitting gives one part at least");
            let mut parent = ROOT_NODE;
            for directory in path {
                parent = match tree.child(parent, directory.as_bytes()) {
                    Some(node) if matches!(tree.nodes[index(node)].kind, NodeKind::Directory) => node,
                    Some(node) => return Err(clash(&tree, node)),
                    None => tree.add(Node { name: directory, parent, kind: NodeKind::Directory }),
                };
            }
            if let Some(node) = tree.child(parent, name.as_bytes()) {
                return Err(clash(&tree, node));
            }
            let file = File {
                volume,
                size_bytes: AtomicU64::new(facts.size_bytes),
                read_only: facts.read_only,
                block_bytes: facts.block_bytes,
                opens: AtomicU32::new(0),
                was_opened: AtomicBool::new(false),
            };
            tree.add(Node { name, parent, kind: NodeKind::File(file) });
        }
        Ok(tree)
    }

    fn add(&mut self, node: Node) -> u64 {
        self.nodes.push(node);
        self.nodes.len() as u64
    }

    /// The node of a number, if there is one.
    #[must_use]
    pub fn node(&self, node: u64) -> Option<&Node> {
        self.nodes.get(index(node))
    }

    /// The file of a node.
    #[must_use]
    pub fn file(&self, node: u64) -> Option<&File> {
        match &self.node(node)?.kind {
            NodeKind::File(file) => Some(file),
            NodeKind::Directory => None,
        }
    }

    /// The node of a name in a directory.
    #[must_use]
    pub fn child(&self, parent: u64, name: &[u8]) -> Option<u64> {
        self.children(parent).find(|(_, node)| node.name.as_bytes() == name).map(|(number, _)| number)
    }

    fn children(&self, parent: u64) -> impl Iterator<Item = (u64, &Node)> {
        let numbered = (ROOT_NODE..).zip(&self.nodes).skip(1);
        numbered.filter(move |(_, node)| node.parent == parent)
    }

    fn volumes_below(&self, node: u64) -> impl Iterator<Item = usize> {
        let inside = move |(number, _): &(u64, &Node)| {
            let mut at = *number;
            while at != node && at != ROOT_NODE {
                at = self.nodes[index(at)].parent;
            }
            at == node
        };
        (ROOT_NODE..).zip(&self.nodes).filter(inside).filter_map(|(_, node)| match &node.kind {
            NodeKind::File(file) => Some(file.volume),
            NodeKind::Directory => None,
        })
    }

    /// Which volumes have files, and how often each is open.
    pub fn opens(&self) -> impl Iterator<Item = (usize, u32)> {
        self.files().map(|file| (file.volume, file.opens.load(Ordering::Relaxed)))
    }

    /// Whether any file was ever open.
    pub fn was_opened(&self) -> bool {
        self.files().any(|file| file.was_opened.load(Ordering::Relaxed))
    }

    /// The file of a volume has this size from now on; its node, if that is news.
    pub fn resize(&self, volume: usize, size_bytes: u64) -> Option<u64> {
        let numbered = (ROOT_NODE..).zip(&self.nodes);
        let mut files = numbered.filter_map(|(number, node)| match &node.kind {
            NodeKind::File(file) => Some((number, file)),
            NodeKind::Directory => None,
        });
        let (number, file) = files.find(|(_, file)| file.volume == volume)?;
        let before = file.size_bytes.swap(size_bytes, Ordering::Relaxed);
        (before != size_bytes).then_some(number)
    }

    fn files(&self) -> impl Iterator<Item = &File> {
        self.nodes.iter().filter_map(|node| match &node.kind {
            NodeKind::File(file) => Some(file),
            NodeKind::Directory => None,
        })
    }

    /// `fuse_attr`. The node exists.
    #[must_use]
    pub fn attributes(&self, number: u64, out: Out) -> Out {
        const DIRECTORY: u32 = libc::S_IFDIR | 0o755;
        let node = &self.nodes[index(number)];
        let (size_bytes, mode, links, block_bytes) = match &node.kind {
            NodeKind::Directory => {
                let directories =
                    self.children(number).filter(|(_, node)| matches!(node.kind, NodeKind::Directory));
                (0, DIRECTORY, 2 + directories.count() as u32, 4096)
            }
            NodeKind::File(file) => {
                let mode = libc::S_IFREG | if file.read_only { 0o400 } else { 0o600 };
                (file.size_bytes(), mode, 1, file.block_bytes)
            }
        };
        let Owner { uid, gid, since } = self.owner;
        let nanos = since.micros * 1000;
        out.u64s([number, size_bytes, size_bytes / 512, since.secs, since.secs, since.secs]).u32s([
            nanos,
            nanos,
            nanos,
            mode,
            links,
            uid,
            gid,
            0,
            block_bytes,
            0,
        ])
    }

    /// As many entries of a directory as fit into `space_bytes`, from the `from`th on.
    #[must_use]
    pub fn entries(&self, directory: u64, from: u64, space_bytes: usize) -> Out {
        let parent = self.nodes[index(directory)].parent;
        let dots = [(directory, ".", true), (parent, "..", true)];
        let children = self
            .children(directory)
            .map(|(number, node)| (number, node.name.as_str(), matches!(node.kind, NodeKind::Directory)));
        let mut out = Out::default();
        for (at, (number, name, is_directory)) in
            (1..).zip(dots.into_iter().chain(children)).skip(from as usize)
        {
            let length = (24 + name.len()).next_multiple_of(8);
            if out.0.len() + length > space_bytes {
                break;
            }
            let kind = u32::from(if is_directory { libc::DT_DIR } else { libc::DT_REG });
            let end = out.0.len() + length;
            out = out.u64s([number, at]).u32s([name.len() as u32, kind]);
            out.0.extend(name.as_bytes());
            out.0.resize(end, 0);
        }
        out
    }

    /// `fuse_statfs_out`: full of volumes.
    #[must_use]
    pub fn statistics(&self) -> Out {
        const BLOCK_BYTES: u64 = 4096;
        let blocks = self.files().map(|file| file.size_bytes().div_ceil(BLOCK_BYTES)).sum();
        Out::default().u64s([blocks, 0, 0, self.nodes.len() as u64, 0]).u32s([
            BLOCK_BYTES as u32,
            NAME_BYTES_MAX as u32,
            BLOCK_BYTES as u32,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ])
    }
}

fn index(node: u64) -> usize {
    usize::try_from(node.wrapping_sub(ROOT_NODE)).unwrap_or(usize::MAX)
}

/// What a part of a volume's name is called: itself, unless no file can be called that.
fn file_name(part: &str) -> String {
    let mut name = part.replace('\0', "_");
    let end = (0..=NAME_BYTES_MAX.min(name.len())).rfind(|at| name.is_char_boundary(*at)).unwrap_or(0);
    name.truncate(end);
    if matches!(name.as_str(), "" | "." | "..") { "_".repeat(name.len().max(1)) } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::protocol::Fields;

    fn facts(name: &str) -> FileFacts {
        FileFacts { name: name.to_owned(), size_bytes: 1 << 20, read_only: false, block_bytes: 65_536 }
    }

    fn tree(names: &[&str]) -> Result<Tree, NameClash> {
        Tree::new(&names.iter().map(|name| facts(name)).collect::<Vec<_>>(), Owner::default())
    }

    fn listed(tree: &Tree, directory: u64, from: u64, space_bytes: usize) -> Vec<(u64, String)> {
        let bytes = tree.entries(directory, from, space_bytes).0;
        let (mut at, mut found) = (0, Vec::new());
        while at < bytes.len() {
            let fields = Fields(&bytes[at..]);
            let length = fields.u32(16) as usize;
            let name = String::from_utf8(bytes[at + 24..at + 24 + length].to_vec()).unwrap();
            found.push((fields.u64(0), name));
            at += (24 + length).next_multiple_of(8);
        }
        found
    }

    #[test]
    fn logical_volumes_lie_in_the_directory_of_their_group() {
        let tree = tree(&["vg/home", "data", "vg/root"]).unwrap();
        let group = tree.child(ROOT_NODE, b"vg").unwrap();
        assert!(tree.file(group).is_none());
        let root = tree.child(group, b"root").unwrap();
        assert_eq!(tree.file(root).unwrap().volume, 2);
        assert_eq!(tree.child(ROOT_NODE, b"root"), None);
        assert_eq!(tree.child(ROOT_NODE, b""), None);
        assert!(tree.node(0).is_none() && tree.node(99).is_none() && tree.node(u64::MAX).is_none());
    }

    #[test]
    fn what_no_file_can_be_called_is_called_something_else() {
        for (volume, path) in [("vg/lv", "vg/lv"), ("../a", "__/a"), ("", "_"), (".", "_"), ("b\0c", "b_c")] {
            assert_eq!(path_of(volume), path);
        }
        let long = path_of(&"ü".repeat(200));
        assert!(long.len() <= NAME_BYTES_MAX && long.chars().all(|letter| letter == 'ü'));
    }

    #[test]
    fn two_volumes_are_never_one_file() {
        for names in [["a", "a"], ["vg", "vg/lv"], ["vg/lv", "vg"], ["", "_"]] {
            let clash = tree(&names).unwrap_err();
            assert_eq!(clash, NameClash(names[0].to_owned(), names[1].to_owned()));
        }
    }

    #[test]
    fn a_directory_is_read_in_pieces_of_any_size() {
        let tree = tree(&["a", "vg/x", "a long name that needs more room than others"]).unwrap();
        let all = listed(&tree, ROOT_NODE, 0, 4096);
        let names: Vec<_> = all.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, [".", "..", "a", "vg", "a long name that needs more room than others"]);
        let mut pieces = Vec::new();
        loop {
            let piece = listed(&tree, ROOT_NODE, pieces.len() as u64, 80);
            if piece.is_empty() {
                break;
            }
            pieces.extend(piece);
        }
        assert_eq!(pieces, all);
        assert!(listed(&tree, ROOT_NODE, u64::MAX, 4096).is_empty());
    }

    #[test]
    fn attributes_are_as_long_as_the_kernels() {
        let tree = Tree::new(&[FileFacts { read_only: true, ..facts("a") }], Owner::default()).unwrap();
        let attributes = tree.attributes(2, Out::default()).0;
        assert_eq!(attributes.len(), 88);
        let fields = Fields(&attributes);
        assert_eq!((fields.u64(0), fields.u64(8), fields.u64(16)), (2, 1 << 20, 2048));
        assert_eq!(fields.u32(60), libc::S_IFREG | 0o400);
        assert_eq!(tree.statistics().0.len(), 80);
    }
}
