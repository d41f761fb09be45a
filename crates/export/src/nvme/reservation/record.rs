//! Reservations as text, so that they outlast the server.
//!
//! ```text
//! wattle reservations 1
//! generation 7
//! host 0f0e… 00000000000000ab nqn.…     identifier, key, name
//! reserved 3 0f0e… nqn.…                 type, and the holder's if it is one's
//! end
//! ```

use super::table::{Held, ReservationTable, ReservationType};
use crate::nvme::subsystem::{Host, NQN_BYTES_MAX};

const FIRST: &str = "wattle reservations 1";
/// What ends a record that is whole.
const LAST: &str = "end\n";

/// As text, of a table that is to outlast the server.
#[must_use]
pub fn encode(table: &ReservationTable) -> String {
    let mut text = format!("{FIRST}\ngeneration {}\n", table.generation);
    for (host, key) in &table.registrants {
        text += &format!("host {} {key:016x} {}\n", hex(host.id), host.nqn);
    }
    if let Some(held) = &table.held {
        let of = held.holder.as_ref().map(|host| format!(" {} {}", hex(host.id), host.nqn));
        text += &format!("reserved {}{}\n", held.kind as u8, of.unwrap_or_default());
    }
    text + LAST
}

/// The table; `None` if it is none, or not whole.
#[must_use]
pub fn decode(text: &str) -> Option<ReservationTable> {
    let body = text.strip_prefix(FIRST)?.strip_prefix('\n')?.strip_suffix(LAST)?;
    let mut table = ReservationTable { persists: true, ..ReservationTable::default() };
    for line in body.lines() {
        let (what, rest) = line.split_once(' ')?;
        match what {
            "generation" => table.generation = rest.parse().ok()?,
            "host" => {
                let (id, rest) = rest.split_once(' ')?;
                let (key, nqn) = rest.split_once(' ')?;
                table.registrants.insert(host(id, nqn)?, u64::from_str_radix(key, 16).ok()?);
            }
            "reserved" => {
                let (kind, of) = rest.split_once(' ').map_or((rest, None), |(kind, of)| (kind, Some(of)));
                let kind = ReservationType::decode(kind.parse().ok()?)?;
                let holder = match of {
                    Some(of) => Some(of.split_once(' ').and_then(|(id, nqn)| host(id, nqn))?),
                    None => None,
                };
                table.held = Some(Held { kind, holder });
            }
            _ => return None,
        }
    }
    let is_sound = table.held.as_ref().is_none_or(|held| match &held.holder {
        Some(holder) => table.registrants.contains_key(holder),
        None => !table.registrants.is_empty(),
    });
    is_sound.then_some(table)
}

fn hex(id: [u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn host(id: &str, nqn: &str) -> Option<Host> {
    if id.len() != 32 || !id.is_ascii() || nqn.is_empty() || nqn.len() > NQN_BYTES_MAX {
        return None;
    }
    let mut bytes = [0; 16];
    for (ix, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&id[2 * ix..2 * ix + 2], 16).ok()?;
    }
    Some(Host { nqn: nqn.to_owned(), id: bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> ReservationTable {
        let host = |id| Host { nqn: format!("nqn.{id}"), id: [id; 16] };
        ReservationTable {
            registrants: [(host(1), 0xab), (host(2), u64::MAX)].into(),
            held: Some(Held { kind: ReservationType::WriteExclusiveRegistrants, holder: Some(host(2)) }),
            generation: 9,
            persists: true,
        }
    }

    #[test]
    fn what_was_kept_is_what_is_found() {
        let of_all = Some(Held { kind: ReservationType::ExclusiveAccessAll, holder: None });
        for held in [table().held, of_all, None] {
            let table = ReservationTable { held, ..table() };
            assert_eq!(decode(&encode(&table)), Some(table));
        }
    }

    #[test]
    fn a_record_that_is_not_whole_is_none() {
        let text = encode(&table());
        for end in 0..text.len() {
            assert_eq!(decode(&text[..end]), None, "cut at {end}");
        }
        assert_eq!(
            decode(&text.replace("reserved 3 0202", "reserved 3 0303")),
            None,
            "the holder is not registered"
        );
    }
}
