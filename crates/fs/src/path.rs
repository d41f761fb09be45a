//! From a path to what it names.

use crate::{DirEntry, Error, FileKind, FileSystem, FsNode};

/// As Linux: more links than that on the way of one path are taken for a circle.
const LINKS_MAX: usize = 40;

/// Finds what `path` names, from the root on. Symbolic links on the way are followed within the
/// file system, where `/` is its root; a link at the end is itself what is named, unless a slash
/// follows.
///
/// # Errors
/// There is nothing of that name, or a directory on the way cannot be read.
pub fn resolve(fs: &dyn FileSystem, path: &[u8]) -> Result<FsNode, Error> {
    // The directories from the root to where we are, for `..`.
    let mut way = vec![fs.root()];
    // What is still to go, the next part last.
    let mut parts = Vec::new();
    push_parts(&mut parts, path);
    let mut links = 0;
    while let Some(part) = parts.pop() {
        let here = *way.last().expect("the root is never taken away");
        // An empty part is a slash at the end.
        if matches!(&part[..], b"" | b"." | b"..") {
            if fs.metadata(here)?.kind != FileKind::Directory {
                return Err(Error::NotADirectory);
            }
            // The root's parent is the root.
            if part == b".." && way.len() > 1 {
                way.pop();
            }
            continue;
        }
        let found = lookup(fs, here, &fs.name_of_part(part))?;
        if fs.metadata(found)?.kind == FileKind::Symlink && !parts.is_empty() {
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::TooManyLinks);
            }
            let target = fs.link(found)?;
            if target.first() == Some(&b'/') {
                way.truncate(1);
            }
            push_parts(&mut parts, &target);
        } else {
            way.push(found);
        }
    }
    Ok(*way.last().expect("the root is never taken away"))
}

/// Puts the parts of a path on the stack of parts. Leading and double slashes say nothing; one at
/// the end does.
fn push_parts(parts: &mut Vec<Vec<u8>>, path: &[u8]) {
    let mut split: Vec<_> = path.split(|byte| *byte == b'/').collect();
    let ends_in_slash = split.len() > 1 && split.last().is_some_and(|part| part.is_empty());
    split.retain(|part| !part.is_empty());
    if ends_in_slash && !split.is_empty() {
        split.push(b"");
    }
    parts.extend(split.into_iter().rev().map(<[u8]>::to_vec));
}

fn lookup(fs: &dyn FileSystem, directory: FsNode, name: &[u8]) -> Result<FsNode, Error> {
    let mut found = None;
    let listed = fs.list(directory, &mut |entry: DirEntry| {
        if entry.name == name {
            found = Some(entry.node);
            return Err(Error::Stopped);
        }
        Ok(())
    });
    match (listed, found) {
        (_, Some(node)) => Ok(node),
        (Err(error), None) => Err(error),
        (Ok(()), None) => Err(Error::NoSuchEntry),
    }
}
