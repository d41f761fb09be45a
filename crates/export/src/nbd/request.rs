//! What a request asks for, or why it is refused. Pure.
//!
//! [`decide`] sees every request before anything of it is done. The errors are the ones the
//! protocol recommends.

use wattle_rt::{Durability, Unmap};

use super::handshake::{ChosenExport, ExportFacts};
use super::limits::REQUEST_BYTES_MAX;
use super::protocol::{NbdErrno, NbdHeaders, NbdRequest, command_flags as flags, commands};

/// A request that can be done: its range lies inside the export, and the export allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NbdCommand {
    /// Read the range; the data goes into the reply.
    Read,
    /// Write the payload to the range.
    Write(Durability),
    /// Make acknowledged writes durable.
    Flush,
    /// Forget the range.
    Trim(Durability),
    /// Make the range read as zeroes.
    WriteZeroes(Unmap, Durability),
    /// Tell what was agreed on; of one extent, or of as many as are known.
    Status {
        /// One extent.
        one: bool,
    },
    /// A range of no bytes.
    Nothing,
}

/// Decides about a request.
///
/// # Errors
/// `EPERM` for a change of a read-only export; `EINVAL` for unknown commands and flags, for a
/// status that was not agreed on, for ranges
/// beyond the end and for reads and writes longer than [`REQUEST_BYTES_MAX`]; `ENOSPC` for writes
/// beyond the end.
pub fn decide(
    request: &NbdRequest,
    export: &ExportFacts,
    agreed: &ChosenExport,
) -> Result<NbdCommand, NbdErrno> {
    // `flags_allowed`: FUA is allowed everywhere, clients are known to set it on anything.
    let df = if agreed.headers >= NbdHeaders::Structured { flags::DF } else { 0 };
    let payload = if agreed.headers == NbdHeaders::Extended { flags::PAYLOAD_LEN } else { 0 };
    let transfer_max = u64::from(REQUEST_BYTES_MAX);
    let (flags_allowed, changes, beyond_end, length_max) = match request.kind {
        commands::READ => (flags::FUA | df, false, NbdErrno::Invalid, transfer_max),
        commands::WRITE => (flags::FUA | payload, true, NbdErrno::NoSpace, transfer_max),
        commands::FLUSH => (flags::FUA, false, NbdErrno::Invalid, 0),
        commands::TRIM => (flags::FUA, true, NbdErrno::Invalid, u64::MAX),
        commands::WRITE_ZEROES => (flags::FUA | flags::NO_HOLE, true, NbdErrno::NoSpace, u64::MAX),
        commands::BLOCK_STATUS if !agreed.contexts.is_empty() && request.length_bytes > 0 => {
            (flags::FUA | flags::REQ_ONE, false, NbdErrno::Invalid, u64::MAX)
        }
        _ => return Err(NbdErrno::Invalid),
    };
    if changes && export.read_only {
        return Err(NbdErrno::NotPermitted);
    }
    if request.flags & !flags_allowed != 0 || request.length_bytes > length_max {
        return Err(NbdErrno::Invalid);
    }
    let end = request.offset_bytes.checked_add(request.length_bytes);
    if end.is_none_or(|end| end > export.size_bytes) {
        return Err(beyond_end);
    }

    let durability = if request.flags & flags::FUA != 0 { Durability::Fua } else { Durability::Cached };
    let unmap = if request.flags & flags::NO_HOLE != 0 { Unmap::No } else { Unmap::Yes };
    Ok(match request.kind {
        commands::FLUSH => NbdCommand::Flush,
        _ if request.length_bytes == 0 => NbdCommand::Nothing,
        commands::READ => NbdCommand::Read,
        commands::BLOCK_STATUS => NbdCommand::Status { one: request.flags & flags::REQ_ONE != 0 },
        commands::WRITE => NbdCommand::Write(durability),
        commands::TRIM => NbdCommand::Trim(durability),
        _ => NbdCommand::WriteZeroes(unmap, durability),
    })
}

#[cfg(test)]
mod tests {
    use super::super::handshake::Contexts;
    use super::*;

    const SIZE: u64 = 1 << 30;

    fn ask(
        kind: u16,
        flags: u16,
        offset_bytes: u64,
        length_bytes: u64,
        read_only: bool,
    ) -> Result<NbdCommand, NbdErrno> {
        let export = ExportFacts {
            name: String::new(),
            description: String::new(),
            size_bytes: SIZE,
            read_only,
            io_min_bytes: 512,
            checkpoints: Vec::new(),
        };
        let headers = NbdHeaders::Structured;
        let agreed = ChosenExport { export: 0, headers, contexts: Contexts::ALLOCATION };
        decide(&NbdRequest { flags, kind, cookie: 0, offset_bytes, length_bytes }, &export, &agreed)
    }

    #[test]
    fn good_requests_become_commands() {
        use Durability::{Cached, Fua};
        assert_eq!(ask(commands::READ, flags::DF | flags::FUA, SIZE - 1, 1, true), Ok(NbdCommand::Read));
        assert_eq!(
            ask(commands::WRITE, 0, 0, u64::from(REQUEST_BYTES_MAX), false),
            Ok(NbdCommand::Write(Cached))
        );
        assert_eq!(ask(commands::WRITE, flags::FUA, 3, 5, false), Ok(NbdCommand::Write(Fua)));
        assert_eq!(ask(commands::FLUSH, flags::FUA, 0, 0, true), Ok(NbdCommand::Flush));
        assert_eq!(ask(commands::TRIM, flags::FUA, 0, SIZE, false), Ok(NbdCommand::Trim(Fua)));
        let zeroes = |flags| ask(commands::WRITE_ZEROES, flags, 0, SIZE, false);
        assert_eq!(zeroes(0), Ok(NbdCommand::WriteZeroes(Unmap::Yes, Cached)));
        assert_eq!(zeroes(flags::NO_HOLE | flags::FUA), Ok(NbdCommand::WriteZeroes(Unmap::No, Fua)));
        assert_eq!(ask(commands::READ, 0, SIZE, 0, false), Ok(NbdCommand::Nothing));
    }

    #[test]
    fn ranges_end_inside_the_export() {
        for (kind, errno) in [
            (commands::READ, NbdErrno::Invalid),
            (commands::WRITE, NbdErrno::NoSpace),
            (commands::TRIM, NbdErrno::Invalid),
            (commands::WRITE_ZEROES, NbdErrno::NoSpace),
        ] {
            for offset in [SIZE - 4095, SIZE, u64::MAX - 100, u64::MAX] {
                assert_eq!(ask(kind, 0, offset, 4096, false), Err(errno), "{kind} at {offset}");
            }
            assert!(ask(kind, 0, SIZE - 4096, 4096, false).is_ok());
        }
    }

    #[test]
    fn a_read_only_export_is_only_read() {
        for kind in [commands::WRITE, commands::TRIM, commands::WRITE_ZEROES] {
            assert_eq!(ask(kind, 0, 0, 512, true), Err(NbdErrno::NotPermitted));
            // Even where the request is wrong in other ways, and where nothing would change.
            assert_eq!(ask(kind, u16::MAX, SIZE, 0, true), Err(NbdErrno::NotPermitted));
        }
    }

    #[test]
    fn extended_headers_bring_long_ranges_and_say_that_a_payload_follows() {
        let size_bytes = 1 << 40;
        let facts = ExportFacts {
            name: String::new(),
            description: String::new(),
            size_bytes,
            read_only: false,
            io_min_bytes: 512,
            checkpoints: Vec::new(),
        };
        let agreed =
            ChosenExport { export: 0, headers: NbdHeaders::Extended, contexts: Contexts::ALLOCATION };
        let asked = |kind, flags, length_bytes| {
            decide(&NbdRequest { flags, kind, cookie: 0, offset_bytes: 0, length_bytes }, &facts, &agreed)
        };
        for kind in [commands::TRIM, commands::WRITE_ZEROES, commands::BLOCK_STATUS] {
            assert!(asked(kind, 0, size_bytes).is_ok(), "{kind}");
            assert!(asked(kind, 0, size_bytes + 1).is_err(), "{kind}");
            assert_eq!(asked(kind, flags::PAYLOAD_LEN, 8), Err(NbdErrno::Invalid), "{kind}");
        }
        for flags in [0, flags::PAYLOAD_LEN] {
            assert_eq!(asked(commands::WRITE, flags, 512), Ok(NbdCommand::Write(Durability::Cached)));
        }
        assert_eq!(asked(commands::READ, flags::PAYLOAD_LEN, 512), Err(NbdErrno::Invalid));
        assert_eq!(asked(commands::READ, 0, 1 << 32), Err(NbdErrno::Invalid));
    }

    #[test]
    fn a_status_is_told_to_clients_that_agreed_on_it() {
        let facts = ExportFacts {
            name: String::new(),
            description: String::new(),
            size_bytes: SIZE,
            read_only: false,
            io_min_bytes: 512,
            checkpoints: Vec::new(),
        };
        let kind = commands::BLOCK_STATUS;
        let request = NbdRequest { flags: 0, kind, cookie: 0, offset_bytes: 0, length_bytes: 512 };
        for (contexts, expected) in [
            (Contexts::ALLOCATION, Ok(NbdCommand::Status { one: false })),
            (Contexts::default(), Err(NbdErrno::Invalid)),
        ] {
            let agreed = ChosenExport { export: 0, headers: NbdHeaders::Structured, contexts };
            assert_eq!(decide(&request, &facts, &agreed), expected);
        }
    }

    #[test]
    fn what_is_not_known_is_invalid() {
        for kind in (0..=u16::MAX).filter(|kind| ![0, 1, 3, 4, 6, 7].contains(kind)) {
            assert_eq!(ask(kind, 0, 0, 512, false), Err(NbdErrno::Invalid), "command {kind}");
        }
        for (kind, allowed) in [(0, 0b101), (1, 0b001), (3, 0b001), (4, 0b001), (6, 0b011)] {
            for bit in 0..16 {
                let good = ask(kind, 1 << bit, 0, 0, false).is_ok();
                assert_eq!(good, allowed & (1 << bit) != 0, "flag {bit} of command {kind}");
            }
        }
        for bit in 0..16 {
            let good = ask(commands::BLOCK_STATUS, 1 << bit, 0, SIZE, true);
            let one = (bit == 3).then_some(true).or((bit == 0).then_some(false));
            assert_eq!(
                good,
                one.map(|one| NbdCommand::Status { one }).ok_or(NbdErrno::Invalid),
                "flag {bit}"
            );
        }
        assert_eq!(ask(commands::BLOCK_STATUS, 0, 0, 0, true), Err(NbdErrno::Invalid));
        let long = u64::from(REQUEST_BYTES_MAX) + 1;
        assert_eq!(ask(commands::READ, 0, 0, long, false), Err(NbdErrno::Invalid));
        assert_eq!(ask(commands::WRITE, 0, 0, long, false), Err(NbdErrno::Invalid));
        assert_eq!(ask(commands::FLUSH, 0, 0, 1, false), Err(NbdErrno::Invalid));
        assert_eq!(ask(commands::FLUSH, 0, SIZE + 1, 0, false), Err(NbdErrno::Invalid));
    }
}
