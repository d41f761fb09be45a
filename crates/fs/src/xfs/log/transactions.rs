//! Operations of records, put together to transactions.
//!
//! A transaction is a start, a head, regions, and a commit; those of several are mixed, and a
//! region that does not fit goes on in the next record. Regions are grouped to items: the first of
//! an item says how many it has. What has no commit never was.

use std::collections::BTreeMap;

use crate::bytes::be32;
use crate::xfs::log::record::LogRecord;
use crate::xfs::log::words::LogWords;
use crate::xfs::log::{LogDamage, Lsn};

/// An operation: whose it is and its length, then client and flags.
const OPERATION_BYTES: usize = 12;
const CLIENT_AT: usize = 8;
const FLAGS_AT: usize = 9;
const CLIENTS: [u8; 2] = [0x69, 0xaa];

const START: u8 = 0x01;
const COMMIT: u8 = 0x02;
/// The region goes on in another record, or goes on here.
const CONTINUES: u8 = 0x04;
const CONTINUED: u8 = 0x08;
const CONTINUED_END: u8 = 0x10;
const UNMOUNT: u8 = 0x20;

/// The head of a transaction, of this length and with this magic number.
const HEAD_BYTES: usize = 16;
const HEAD_MAGIC: u32 = 0x5452_414e;

/// Regions of an item at most: a buffer with every other 128 bytes changed.
const REGIONS_MAX: usize = 258;

/// Bytes of transactions that are not committed yet. Linux lets one have 64 MiB.
const OPEN_BYTES_MAX: usize = 256 << 20;

/// What an open transaction and a region of it count as beside their bytes: memory is taken for
/// each, and a damaged log may have nothing in them.
const OPEN_COST_BYTES: usize = 256;
const REGION_COST_BYTES: usize = 96;

/// One change of a transaction: what it is of, and what is new.
#[derive(Debug, Default)]
pub struct LogItem {
    pub regions: Vec<Vec<u8>>,
    due: usize,
}

impl LogItem {
    /// What a region holds.
    pub fn region(&self, ix: usize) -> Option<&[u8]> {
        self.regions.get(ix).map(Vec::as_slice)
    }
}

/// A transaction that is committed.
#[derive(Debug)]
pub struct Committed {
    /// Where it starts.
    pub lsn: Lsn,
    pub words: LogWords,
    pub items: Vec<LogItem>,
}

/// Takes transactions in the order in which they are committed.
pub type EachCommitted<'a> = dyn FnMut(Committed) -> Result<(), LogDamage> + 'a;

/// Transactions that have no commit yet, by their number.
#[derive(Default)]
pub struct OpenTransactions {
    open: BTreeMap<u32, Open>,
    bytes: usize,
}

struct Open {
    committed: Committed,
    head: Vec<u8>,
    bytes: usize,
}

impl OpenTransactions {
    /// Takes the operations of a record, whose data that is.
    ///
    /// # Errors
    /// They are damaged, more is open than is held, or what `each` says.
    pub fn take(
        &mut self,
        record: &LogRecord,
        data: &[u8],
        each: &mut EachCommitted<'_>,
    ) -> Result<(), LogDamage> {
        let mut rest = data;
        for _ in 0..record.operations {
            // Unused space behind the last one is no operation.
            let Some((header, behind)) = rest.split_at_checked(OPERATION_BYTES) else { break };
            let split = be32(header, 4).and_then(|len| behind.split_at_checked(len as usize));
            let (body, behind) = split.ok_or("an operation in it ends beyond its record")?;
            rest = behind;
            let (number, client, flags) = (be32(header, 0).unwrap_or(0), header[CLIENT_AT], header[FLAGS_AT]);
            if !CLIENTS.contains(&client) {
                return Err("an operation in it is none");
            }
            self.operation((record.lsn, record.words), number, flags, body, each)?;
        }
        Ok(())
    }

    fn operation(
        &mut self,
        (lsn, words): (Lsn, LogWords),
        number: u32,
        flags: u8,
        body: &[u8],
        each: &mut EachCommitted<'_>,
    ) -> Result<(), LogDamage> {
        if flags & START != 0 {
            let items = Vec::new();
            let committed = Committed { lsn, words, items };
            self.forget(number);
            self.open.insert(number, Open { committed, head: Vec::new(), bytes: OPEN_COST_BYTES });
            self.bytes += OPEN_COST_BYTES;
            return self.check_bytes();
        }
        // Of a transaction that started before the tail, all is in its place.
        let Some(open) = self.open.get_mut(&number) else { return Ok(()) };
        let flags = match flags & !CONTINUED_END {
            flags if flags & CONTINUED != 0 => flags & !CONTINUES,
            flags => flags,
        };
        match flags {
            0 | CONTINUES => open.region(body)?,
            CONTINUED => open.go_on(body)?,
            COMMIT => {
                let Some(open) = self.forget(number) else { return Ok(()) };
                if open.committed.items.iter().any(|item| item.regions.len() != item.due) {
                    return Err("an item in it is not whole");
                }
                return each(open.committed);
            }
            UNMOUNT => {
                self.forget(number);
                return Ok(());
            }
            _ => return Err("an operation in it is none"),
        }
        let bytes = body.len() + REGION_COST_BYTES;
        open.bytes += bytes;
        self.bytes += bytes;
        self.check_bytes()
    }

    fn check_bytes(&self) -> Result<(), LogDamage> {
        match self.bytes <= OPEN_BYTES_MAX {
            true => Ok(()),
            false => Err("transactions in it that have no end are larger than 256 MiB"),
        }
    }

    fn forget(&mut self, number: u32) -> Option<Open> {
        let open = self.open.remove(&number)?;
        self.bytes -= open.bytes;
        Some(open)
    }
}

impl Open {
    /// Another region, or the head, which is first.
    fn region(&mut self, body: &[u8]) -> Result<(), LogDamage> {
        if body.is_empty() {
            return Ok(());
        }
        if self.head.is_empty() {
            return self.head(body);
        }
        let items = &mut self.committed.items;
        if items.last().is_none_or(|item| item.regions.len() == item.due) {
            let due = self.committed.words.u16(body, 2).map(usize::from);
            let due = due.filter(|due| (1..=REGIONS_MAX).contains(due)).ok_or("an item in it is none")?;
            items.push(LogItem { regions: Vec::new(), due });
        }
        if let Some(item) = items.last_mut() {
            item.regions.push(body.to_vec());
        }
        Ok(())
    }

    /// The rest of what did not fit into the record before.
    fn go_on(&mut self, body: &[u8]) -> Result<(), LogDamage> {
        match self.committed.items.last_mut() {
            None => self.head(body),
            Some(item) => {
                let region = item.regions.last_mut().ok_or("an item in it is none")?;
                region.extend_from_slice(body);
                Ok(())
            }
        }
    }

    fn head(&mut self, body: &[u8]) -> Result<(), LogDamage> {
        self.head.extend_from_slice(body);
        let is_head = self.head.len() <= HEAD_BYTES
            && (self.head.len() < 4 || self.committed.words.u32(&self.head, 0) == Some(HEAD_MAGIC));
        if is_head { Ok(()) } else { Err("the head of a transaction in it is none") }
    }
}

/// Of which kind an item is.
pub fn kind_of(item: &LogItem, words: LogWords) -> Option<u16> {
    words.u16(item.region(0)?, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations of a transaction that has no end, until they are refused; at most so many.
    fn until_refused(limit: u32, each: impl Fn(u32) -> (u32, u8, &'static [u8])) -> u32 {
        let mut open = OpenTransactions::default();
        let of = (Lsn(1), LogWords::Little);
        (0..limit)
            .find(|&ix| {
                let (number, flags, body) = each(ix);
                open.operation(of, number, flags, body, &mut |_| Ok(())).is_err()
            })
            .unwrap_or(limit)
    }

    #[test]
    fn what_has_no_bytes_takes_memory_too() {
        let limit = 4 << 20;
        assert!(until_refused(limit, |ix| (ix, START, b"")) < limit, "starts");
        // A head, and items of one region of four bytes.
        let regions = until_refused(limit, |ix| match ix {
            0 => (7, START, b""),
            1 => (7, 0, b"NART\0\0\0\0\0\0\0\0\0\0\0\0"),
            _ => (7, 0, b"\x3c\x12\x01\0"),
        });
        assert!(regions > 1000 && regions < limit, "{regions} regions");
    }
}
