//! A file as a member of an archive, read to its end or as far as it can be.

use std::io::{self, Write};
use std::mem;
use std::ops::Range;

use wattle_fs::{Error, FileKind, FileMetadata, FsNode};

use super::header::{BLOCK_BYTES, TarKind};
use super::{HELD_BYTES, PARTIAL, Stop, TarStream};
use crate::commands::files::Failure;
use crate::commands::files::get::extract::ExtractCounts;

/// More than what is stored of a file and this cannot be unreadable block by block: its map is
/// damaged, and the size may be any.
const BEYOND_STORED_BYTES: u64 = 256 << 20;

/// A file on its way.
struct FileOut<'a> {
    node: FsNode,
    metadata: &'a FileMetadata,
    /// What it is called in the archive.
    path: Vec<u8>,
    size_bytes: u64,
    /// What was read and waits for the header.
    held: Vec<u8>,
    /// Up to where its data was read.
    at: u64,
    /// Whether its header went out.
    headed: bool,
}

impl<W: Write> TarStream<'_, W> {
    pub(super) fn file(&mut self, path: &[u8], node: FsNode, metadata: &FileMetadata) -> Result<(), Stop> {
        let size_bytes = metadata.size_bytes;
        let mut file = FileOut {
            node,
            metadata,
            path: path.to_vec(),
            size_bytes,
            held: Vec::new(),
            at: 0,
            headed: false,
        };
        let read = self.part(&mut file, 0..size_bytes)?;
        let reason = match read {
            None => None,
            Some(error) => {
                let reason = self.opened.unreadable_part(node, file.at, size_bytes, &error);
                if !file.headed && !self.partial {
                    return Err(Stop::This(reason));
                }
                Some(reason)
            }
        };
        let Some(reason) = reason else {
            self.complete(&mut file)?;
            if metadata.links > 1 {
                self.named.insert(node, path.to_vec());
            }
            self.counts += ExtractCounts { bytes: size_bytes, ..ExtractCounts::one(FileKind::File, false) };
            return Ok(());
        };
        let partial = self.partial_path(path);
        let is_named = file.headed;
        if !is_named {
            file.path.clone_from(&partial);
        }
        let unreadable = self.rest(&mut file)?;
        self.complete(&mut file)?;
        if is_named {
            self.head(&partial, TarKind::HardLink(path), node, metadata)?;
        }
        let missing: u64 = unreadable.iter().map(|part| part.end - part.start).sum();
        let reason = format!(
            "{missing} of its {size_bytes} bytes are zeros in {} (places: {}){}; {reason}",
            String::from_utf8_lossy(partial.rsplit(|byte| *byte == b'/').next().unwrap_or(&partial)),
            unreadable.len(),
            if is_named { ", which is a link to it: its name was in the archive already" } else { "" },
        );
        let attributes = self.attributes_left(node).all;
        let failure = Failure::new(path, reason).in_part(&partial, &unreadable, attributes);
        self.failed("extracted in part", failure);
        Err(Stop::Noted)
    }

    /// Sends a part of a file's data behind what was sent of it; why not all of that can be read,
    /// if it cannot.
    fn part(&mut self, file: &mut FileOut<'_>, part: Range<u64>) -> Result<Option<Error>, Stop> {
        let mut failed = None;
        let opened = self.opened;
        let read = opened.fs.read(file.node, part.clone(), &mut |offset, bytes| {
            let room = file.size_bytes.saturating_sub(offset).min(bytes.len() as u64);
            let hole = offset.saturating_sub(file.at).min(file.size_bytes - file.at);
            let sent = self.send_zeros(file, hole).and_then(|()| self.send(file, &bytes[..room as usize]));
            sent.map_err(|stop| {
                failed = Some(stop);
                Error::Stopped
            })
        });
        match (failed, read) {
            (Some(stop), _) => Err(stop),
            (None, Err(error)) => Ok(Some(error)),
            (None, Ok(())) => {
                // A hole at its end.
                let hole = part.end.min(file.size_bytes).saturating_sub(file.at);
                self.send_zeros(file, hole)?;
                Ok(None)
            }
        }
    }

    /// What can be read of the rest of a file that cannot be read as a whole, with zeros for what
    /// cannot.
    fn rest(&mut self, file: &mut FileOut<'_>) -> Result<Vec<Range<u64>>, Stop> {
        let size_bytes = file.size_bytes;
        let stored_bytes = file.metadata.stored_bytes.min(self.opened.fs.about().size_bytes);
        let mut unreadable: Vec<Range<u64>> = Vec::new();
        let mut missing = 0_u64;
        while file.at < size_bytes {
            let rest = file.at..size_bytes;
            if self.part(file, rest.clone())?.is_none() {
                break;
            }
            // It cannot be read in one go, and each block can: nothing tells what is right.
            let rest = file.at..size_bytes;
            let mut part = self.opened.first_unreadable(file.node, file.at, size_bytes).unwrap_or(rest);
            part.start = part.start.max(file.at);
            if file.at < part.start {
                let before = file.at..part.start;
                if self.part(file, before)?.is_some() {
                    part.start = file.at;
                }
            }
            // So that a size that is nonsense ends: from here on in steps that double.
            if missing > stored_bytes.saturating_add(BEYOND_STORED_BYTES) {
                part.end = part.end.saturating_add(missing);
            }
            part.end = part.end.clamp(file.at + 1, size_bytes);
            missing += part.end - part.start;
            self.send_zeros(file, part.end - file.at)?;
            match unreadable.last_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                _ => unreadable.push(part),
            }
        }
        Ok(unreadable)
    }

    fn send(&mut self, file: &mut FileOut<'_>, bytes: &[u8]) -> Result<(), Stop> {
        self.make_room(file, bytes.len() as u64)?;
        match file.headed {
            true => self.put(bytes)?,
            false => file.held.extend_from_slice(bytes),
        }
        file.at += bytes.len() as u64;
        self.progress.inc(bytes.len() as u64);
        Ok(())
    }

    fn send_zeros(&mut self, file: &mut FileOut<'_>, len: u64) -> Result<(), Stop> {
        self.make_room(file, len)?;
        match file.headed {
            true => self.zeros(len)?,
            false => file.held.resize(file.held.len() + len as usize, 0),
        }
        file.at += len;
        Ok(())
    }

    /// Sends the header and what is held if so much more is too much to hold.
    fn make_room(&mut self, file: &mut FileOut<'_>, more: u64) -> Result<(), Stop> {
        if !file.headed && file.held.len() as u64 + more > HELD_BYTES as u64 {
            self.send_held(file)?;
        }
        Ok(())
    }

    fn send_held(&mut self, file: &mut FileOut<'_>) -> Result<(), Stop> {
        self.head(&file.path, TarKind::File(file.size_bytes), file.node, file.metadata)?;
        file.headed = true;
        Ok(self.put(&mem::take(&mut file.held))?)
    }

    /// Ends the member: as many bytes as its header says, and then a whole block.
    fn complete(&mut self, file: &mut FileOut<'_>) -> Result<(), Stop> {
        let hole = file.size_bytes - file.at;
        self.send_zeros(file, hole)?;
        if !file.headed {
            self.send_held(file)?;
        }
        let end = file.size_bytes.next_multiple_of(BLOCK_BYTES as u64);
        self.pad(end - file.size_bytes)
    }

    fn pad(&mut self, len: u64) -> Result<(), Stop> {
        let padded: io::Result<()> = self.zeros(len);
        Ok(padded?)
    }

    /// A path that no other file of the directory has, of those that come out.
    fn partial_path(&self, path: &[u8]) -> Vec<u8> {
        let mut path = [path, PARTIAL].concat();
        while self.taken.contains(&path) {
            path.extend_from_slice(PARTIAL);
        }
        path
    }
}
