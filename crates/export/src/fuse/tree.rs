//! The names and attributes of the files: a value, the same on every core, replaced when volumes
//! come and go.
//!
//! A volume is a file of its name; `vg/lv` is the file `lv` in the directory `vg`. A node keeps its
//! number for good, so that what the kernel remembers of one that is gone never means another.

use std::sync::Arc;
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

/// The owner of the files, and since when they are there.
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
pub struct TreeNode {
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

    /// It was opened.
    pub fn opened(&self) {
        self.opens.fetch_add(1, Ordering::Relaxed);
        self.was_opened.store(true, Ordering::Relaxed);
    }

    /// It was closed.
    pub fn closed(&self) {
        self.opens.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All nodes that ever were; the root is the first.
#[derive(Debug, Clone)]
pub struct NodeTree {
    nodes: Vec<Place>,
    owner: Owner,
}

/// A node, and whether it is found.
#[derive(Debug, Clone)]
struct Place {
    /// The same in every tree it is in: opens are counted there.
    node: Arc<TreeNode>,
    /// A file that is not found by its name and not opened any more. A process that has it open
    /// keeps it.
    hidden: bool,
}

/// Where the file of a volume is below the mounted directory.
#[must_use]
pub fn path_of(volume: &str) -> String {
    volume.split('/').map(file_name).collect::<Vec<_>>().join("/")
}

/// The longest name of one file (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;

impl NodeTree {
    /// # Errors
    /// Two volumes would be the same file, or one the directory of the other.
    pub fn new(volumes: &[FileFacts], owner: Owner) -> Result<Self, NameClash> {
        let root = TreeNode { name: String::new(), parent: ROOT_NODE, kind: NodeKind::Directory };
        let mut tree = Self { nodes: Vec::new(), owner };
        tree.push(root);
        for (volume, facts) in volumes.iter().enumerate() {
            tree.add(volume, facts)?;
        }
        Ok(tree)
    }

    /// Adds the file of another volume.
    ///
    /// # Errors
    /// It would be another one's file, or one of them the directory of the other. The tree may have
    /// new directories then.
    pub fn add(&mut self, volume: usize, facts: &FileFacts) -> Result<(), NameClash> {
        let clash = |tree: &Self, node| {
            let other = tree.files_below(node).next().unwrap_or(node);
            NameClash(tree.path(other), facts.name.clone())
        };
        let mut path: Vec<String> = facts.name.split('/').map(file_name).collect();
        let name = path.pop().expect("splitting gives one part at least");
        let mut parent = ROOT_NODE;
        for directory in path {
            if let Some(node) =
                self.child(parent, directory.as_bytes()).filter(|&node| self.file(node).is_some())
            {
                return Err(clash(self, node));
            }
            // One that is empty by now is the same directory again.
            let known = |(_, node): &(u64, &TreeNode)| {
                node.parent == parent && node.name == directory && matches!(node.kind, NodeKind::Directory)
            };
            let known = self.numbered().skip(1).find(known).map(|(number, _)| number);
            parent = known.unwrap_or_else(|| {
                self.push(TreeNode { name: directory, parent, kind: NodeKind::Directory })
            });
        }
        if let Some(node) = self.child(parent, name.as_bytes()) {
            return Err(clash(self, node));
        }
        let file = File {
            volume,
            size_bytes: AtomicU64::new(facts.size_bytes),
            read_only: facts.read_only,
            block_bytes: facts.block_bytes,
            opens: AtomicU32::new(0),
            was_opened: AtomicBool::new(false),
        };
        self.push(TreeNode { name, parent, kind: NodeKind::File(file) });
        Ok(())
    }

    fn push(&mut self, node: TreeNode) -> u64 {
        self.nodes.push(Place { node: Arc::new(node), hidden: false });
        self.nodes.len() as u64
    }

    /// Hides the file of a volume, or lets it be found again; how often it is open.
    pub fn hide(&mut self, volume: usize, hidden: bool) -> u32 {
        let mut opens = 0;
        for place in &mut self.nodes {
            if let NodeKind::File(file) = &place.node.kind
                && file.volume == volume
            {
                place.hidden = hidden;
                opens += file.opens.load(Ordering::Relaxed);
            }
        }
        opens
    }

    /// The node of a number, if there is one.
    #[must_use]
    pub fn node(&self, node: u64) -> Option<&TreeNode> {
        self.nodes.get(index(node)).map(|place| &*place.node)
    }

    /// Whether a node is found by its name: a file that is not hidden, a directory with one below
    /// it.
    #[must_use]
    pub fn is_found(&self, node: u64) -> bool {
        match self.node(node).map(|node| &node.kind) {
            None => false,
            Some(NodeKind::File(_)) => !self.nodes[index(node)].hidden,
            Some(NodeKind::Directory) => {
                node == ROOT_NODE || self.files_below(node).any(|file| self.is_found(file))
            }
        }
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
        let called = |(_, node): &(u64, &TreeNode)| node.parent == parent && node.name.as_bytes() == name;
        let mut called = self.numbered().skip(1).filter(called).map(|(number, _)| number);
        called.find(|&number| self.is_found(number))
    }

    fn children(&self, parent: u64) -> impl Iterator<Item = (u64, &TreeNode)> {
        let there = move |(number, node): &(u64, &TreeNode)| node.parent == parent && self.is_found(*number);
        self.numbered().skip(1).filter(there)
    }

    fn numbered(&self) -> impl Iterator<Item = (u64, &TreeNode)> {
        (ROOT_NODE..).zip(self.nodes.iter().map(|place| &*place.node))
    }

    /// The files in a directory and in those below it; of a file itself.
    fn files_below(&self, node: u64) -> impl Iterator<Item = u64> {
        let inside = move |(number, _): &(u64, &TreeNode)| {
            let mut at = *number;
            while at != node && at != ROOT_NODE {
                at = self.nodes[index(at)].node.parent;
            }
            at == node
        };
        let files = self.numbered().filter(|(_, node)| matches!(node.kind, NodeKind::File(_)));
        files.filter(inside).map(|(number, _)| number)
    }

    /// What a node is called, with its directories.
    fn path(&self, node: u64) -> String {
        let TreeNode { name, parent, .. } = &*self.nodes[index(node)].node;
        if *parent == ROOT_NODE { name.clone() } else { format!("{}/{name}", self.path(*parent)) }
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
        let mut files = self.numbered().filter_map(|(number, node)| match &node.kind {
            NodeKind::File(file) => Some((number, file)),
            NodeKind::Directory => None,
        });
        let (number, file) = files.find(|(_, file)| file.volume == volume)?;
        let before = file.size_bytes.swap(size_bytes, Ordering::Relaxed);
        (before != size_bytes).then_some(number)
    }

    fn files(&self) -> impl Iterator<Item = &File> {
        self.numbered().filter_map(|(_, node)| match &node.kind {
            NodeKind::File(file) => Some(file),
            NodeKind::Directory => None,
        })
    }

    /// `fuse_attr`. The node exists.
    #[must_use]
    pub fn attributes(&self, number: u64, out: Out) -> Out {
        const DIRECTORY: u32 = libc::S_IFDIR | 0o755;
        let node = &self.nodes[index(number)].node;
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
        let parent = self.nodes[index(directory)].node.parent;
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
        let found: Vec<_> =
            self.numbered().map(|(number, _)| number).filter(|&number| self.is_found(number)).collect();
        let files = found.iter().filter_map(|&number| self.file(number));
        let blocks = files.map(|file| file.size_bytes().div_ceil(BLOCK_BYTES)).sum();
        Out::default().u64s([blocks, 0, 0, found.len() as u64, 0]).u32s([
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
    use crate::fuse::protocol::StructReader;

    fn facts(name: &str) -> FileFacts {
        FileFacts { name: name.to_owned(), size_bytes: 1 << 20, read_only: false, block_bytes: 65_536 }
    }

    fn tree(names: &[&str]) -> Result<NodeTree, NameClash> {
        NodeTree::new(&names.iter().map(|name| facts(name)).collect::<Vec<_>>(), Owner::default())
    }

    fn listed(tree: &NodeTree, directory: u64, from: u64, space_bytes: usize) -> Vec<(u64, String)> {
        let bytes = tree.entries(directory, from, space_bytes).0;
        let (mut at, mut found) = (0, Vec::new());
        while at < bytes.len() {
            let fields = StructReader(&bytes[at..]);
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
            assert_eq!(clash, NameClash(path_of(names[0]), names[1].to_owned()));
        }
    }

    #[test]
    fn files_come_and_go_and_keep_their_numbers() {
        let first = tree(&["vg/a", "vg/b"]).unwrap();
        let group = first.child(ROOT_NODE, b"vg").unwrap();
        let (a, b) = (first.child(group, b"a").unwrap(), first.child(group, b"b").unwrap());
        first.file(b).unwrap().opened();
        let mut next = first.clone();
        assert_eq!((next.hide(0, true), next.hide(1, true)), (0, 1), "it is open in both trees");
        assert_eq!((next.child(group, b"a"), next.child(ROOT_NODE, b"vg")), (None, None));
        assert_eq!(listed(&next, ROOT_NODE, 0, 4096).len(), 2, "nothing but itself and its parent");
        assert!(next.file(b).is_some() && !next.is_found(b), "a process that has it open keeps it");
        next.hide(1, false);
        assert_eq!((next.child(ROOT_NODE, b"vg"), next.child(group, b"b")), (Some(group), Some(b)));
        next.add(2, &facts("vg/a")).unwrap();
        let new = next.child(group, b"a").unwrap();
        assert!(new != a && next.file(new).unwrap().volume == 2);
        assert!(next.add(3, &facts("vg/b")).is_err() && next.add(3, &facts("vg")).is_err());
        assert_eq!(first.child(group, b"a"), Some(a), "the tree before is as it was");
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
        let tree = NodeTree::new(&[FileFacts { read_only: true, ..facts("a") }], Owner::default()).unwrap();
        let attributes = tree.attributes(2, Out::default()).0;
        assert_eq!(attributes.len(), 88);
        let fields = StructReader(&attributes);
        assert_eq!((fields.u64(0), fields.u64(8), fields.u64(16)), (2, 1 << 20, 2048));
        assert_eq!(fields.u32(60), libc::S_IFREG | 0o400);
        assert_eq!(tree.statistics().0.len(), 80);
    }
}
