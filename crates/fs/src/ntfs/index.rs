//! Entries of a directory: in its record, and in blocks of their own.

use crate::bytes::{le16, le32, le64, u8_at};
use crate::names::units;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexEntry {
    /// The record, and how often it was used.
    pub reference: u64,
    pub name: Vec<u16>,
    /// A short name for DOS of what has another name.
    pub is_dos: bool,
}

/// The entries of a node, from its head on.
pub(super) fn entries(node: &[u8]) -> Result<Vec<IndexEntry>, &'static str> {
    const LAST: u16 = 2;
    let cut = "a node of its index is cut off";
    let (mut at, end) = (le32(node, 0).ok_or(cut)? as usize, le32(node, 4).ok_or(cut)? as usize);
    let node = &node[..end.min(node.len())];
    let mut found = Vec::new();
    loop {
        let len = usize::from(le16(node, at.saturating_add(8)).ok_or(cut)?);
        let bits = le16(node, at + 12).ok_or(cut)?;
        if bits & LAST != 0 {
            return Ok(found);
        }
        let entry =
            node.get(at..at + len).filter(|entry| entry.len() >= 16).ok_or("an entry of its index")?;
        found.push(entry_of(entry).ok_or("an entry of its index")?);
        at += len;
    }
}

fn entry_of(entry: &[u8]) -> Option<IndexEntry> {
    const DOS: u8 = 2;
    const KEY_AT: usize = 16;
    let key = entry.get(KEY_AT..KEY_AT + usize::from(le16(entry, 10)?))?;
    let len = usize::from(u8_at(key, 64)?) * 2;
    let name = units(key.get(66..66 + len)?).collect();
    Some(IndexEntry { reference: le64(entry, 0)?, name, is_dos: u8_at(key, 65)? == DOS })
}
