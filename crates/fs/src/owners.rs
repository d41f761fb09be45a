//! Which files lie on given places of a volume.
//!
//! The tree is walked from the root, and of each file only where its data is, is looked at: no data
//! is read. What is damaged is passed over, and said.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::error::Error;
use crate::{FileKind, FileSystem, FsNode};

/// Files that are told.
const FILES_MAX: usize = 1000;

/// A part of a file that lies on one of the places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileAtPlace {
    /// Its path from the root: any bytes. One of its paths, if it has several.
    pub path: Vec<u8>,
    /// Which bytes of it; of compressed ones those that are made of what lies there.
    pub bytes: Range<u64>,
    /// Which of the places.
    pub place: usize,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilesAtPlaces {
    /// In the order of the walk.
    pub files: Vec<FileAtPlace>,
    /// Every file was looked at. If so, a place of no file is free, or belongs to the file system
    /// itself.
    pub complete: bool,
}

/// The files that lie on `places`, in bytes of the volume. At most `nodes_max` files and
/// directories are looked at.
#[must_use]
pub fn files_at(fs: &dyn FileSystem, places: &[Range<u64>], nodes_max: u64) -> FilesAtPlaces {
    let mut found = FilesAtPlaces { files: Vec::new(), complete: true };
    let mut left = nodes_max;
    let mut seen: BTreeSet<FsNode> = BTreeSet::new();
    let mut directories = vec![(fs.root(), Vec::new())];
    while let Some((directory, path)) = directories.pop() {
        if !seen.insert(directory) {
            continue;
        }
        let mut entries = Vec::new();
        let listed = fs.list(directory, &mut |entry| {
            if left == 0 {
                return Err(Error::Stopped);
            }
            left -= 1;
            entries.push(entry);
            Ok(())
        });
        found.complete &= listed.is_ok();
        for entry in entries {
            let path: Vec<u8> = [&path[..], b"/", &entry.name].concat();
            match fs.metadata(entry.node).map(|metadata| metadata.kind) {
                Ok(FileKind::Directory) => directories.push((entry.node, path)),
                Ok(FileKind::File) if seen.insert(entry.node) => {
                    found.complete &= look(fs, entry.node, &path, places, &mut found.files).is_ok();
                }
                Ok(_) => {}
                Err(_) => found.complete = false,
            }
            if found.files.len() >= FILES_MAX {
                found.complete = false;
                return found;
            }
        }
    }
    found
}

fn look(
    fs: &dyn FileSystem,
    file: FsNode,
    path: &[u8],
    places: &[Range<u64>],
    files: &mut Vec<FileAtPlace>,
) -> Result<(), Error> {
    let first = files.len();
    fs.runs(file, &mut |run| {
        for (number, place) in places.iter().enumerate() {
            let Some(bytes) = run.made_of(place).filter(|_| files.len() < FILES_MAX) else { continue };
            // What follows, or what is told already: by another copy on the same device, or by
            // another piece of a compressed extent.
            let goes_on = |other: &&mut FileAtPlace| {
                other.place == number && other.bytes.start <= bytes.start && bytes.start <= other.bytes.end
            };
            match files[first..].iter_mut().rev().find(goes_on) {
                Some(other) => other.bytes.end = other.bytes.end.max(bytes.end),
                None => files.push(FileAtPlace { path: path.to_vec(), bytes, place: number }),
            }
        }
        Ok(())
    })
}
