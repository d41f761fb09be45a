//! One function per protocol that takes any bytes of the other side and must return: the targets in
//! `fuzz/` and the smoke test call the same code. Beyond "no panic" each asserts what must hold for
//! whatever was accepted.

use crate::Address;
use crate::fuse::protocol::{HEAD_BYTES, KernelOffer};
use crate::fuse::request::{FuseStep, decide, parse};
use crate::fuse::tree::{FileFacts, NodeTree, Owner};
use crate::nbd::Uri;
use crate::nbd::handshake::{self, ExportFacts, Handshake};
use crate::nbd::limits::REQUEST_BYTES_MAX;
use crate::nbd::protocol::{
    self, EXTENDED_REQUEST_BYTES, NbdHeaders, NbdRequest, OPTION_REPLY_BYTES, REQUEST_BYTES,
    SIMPLE_REPLY_BYTES,
};
use crate::nbd::request::{self, NbdCommand};
use crate::nvme::auth::{AUTH_MESSAGE_BYTES_MAX, AuthProgress, Exchange, NvmeSecrets};
use crate::nvme::command::{IoPlan, IoRange, NvmeCommand, decide_io, discard_ranges};
use crate::nvme::connect::ConnectRequest;
use crate::nvme::pdu::{self, Digests, HostPdu, PduLimits};
use crate::nvme::reservation::record;
use crate::nvme::reservation::table::{ReservationOrder, ReservationTable};
use crate::nvme::subsystem::Host;

use crate::vhost::fuzzing::Guest;
use crate::vhost::message::{FrontHeader, FrontMessage, HEADER_BYTES as FRONT_HEADER_BYTES};

const SIZE_BYTES: u64 = 1 << 30;
/// What one message may be answered with: names and descriptions of all exports.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Before TLS a client gets nowhere, and is told nothing of what is offered.
fn nothing_in_clear(mut shake: Handshake<'_>, mut rest: &[u8]) {
    let mut out = Vec::new();
    loop {
        out.clear();
        let (taken, step) = shake.advance(rest, &mut out);
        assert!(out.len() <= OPTION_REPLY_BYTES, "an answer without data");
        rest = &rest[taken..];
        match step {
            handshake::HandshakeStep::Transmit(_) => panic!("it has to be TLS"),
            handshake::HandshakeStep::Close | handshake::HandshakeStep::StartTls => return,
            handshake::HandshakeStep::More if taken == 0 || rest.is_empty() => return,
            handshake::HandshakeStep::More | handshake::HandshakeStep::Reply => {}
        }
    }
}

/// All that a client says on one connection: the handshake, and requests if it gets there.
pub fn fuzz_nbd(data: &[u8]) {
    let export = |name: &str, read_only| ExportFacts {
        name: name.to_owned(),
        description: "an export".to_owned(),
        size_bytes: SIZE_BYTES,
        read_only,
        io_min_bytes: 65536,
        checkpoints: Vec::new(),
    };
    let exports = [export("data", false), export("group/volume", true)];
    nothing_in_clear(Handshake::new(&exports, Some(0)).requiring_tls(), data);
    let mut shake = Handshake::new(&exports, Some(0));
    let mut rest = data;
    let mut out = Vec::new();
    let chosen = loop {
        out.clear();
        let (taken, step) = shake.advance(rest, &mut out);
        assert!(out.len() <= ANSWER_BYTES_MAX, "a message has an answer of bounded length");
        rest = &rest[taken..];
        match step {
            handshake::HandshakeStep::Transmit(chosen) => break chosen,
            handshake::HandshakeStep::Close => return,
            handshake::HandshakeStep::StartTls => unreachable!("there is no TLS"),
            handshake::HandshakeStep::More if taken == 0 || rest.is_empty() => return,
            handshake::HandshakeStep::More | handshake::HandshakeStep::Reply => {}
        }
    };
    let next = |rest: &'_ [u8]| match chosen.headers {
        NbdHeaders::Extended => {
            let bytes = rest.first_chunk::<EXTENDED_REQUEST_BYTES>()?;
            Some((NbdRequest::decode_extended(bytes)?, bytes.len()))
        }
        NbdHeaders::Simple | NbdHeaders::Structured => {
            let bytes = rest.first_chunk::<REQUEST_BYTES>()?;
            let asked = NbdRequest::decode(bytes)?;
            assert_eq!(asked.encode(), *bytes, "lossless");
            Some((asked, bytes.len()))
        }
    };
    while let Some((asked, taken)) = next(rest) {
        let export = &exports[chosen.export];
        if let Ok(command) = request::decide(&asked, export, &chosen) {
            let end = asked.offset_bytes.checked_add(asked.length_bytes);
            assert!(end.is_some_and(|end| end <= SIZE_BYTES), "inside the export");
            let moves = matches!(command, NbdCommand::Read | NbdCommand::Write(_));
            assert!(!moves || asked.length_bytes <= u64::from(REQUEST_BYTES_MAX));
            let changes =
                matches!(command, NbdCommand::Write(_) | NbdCommand::Trim(_) | NbdCommand::WriteZeroes(..));
            assert!(!changes || !export.read_only);
        }
        let payload = asked.payload_bytes(chosen.headers);
        let Some(after) = (taken as u64).checked_add(payload) else { return };
        rest = usize::try_from(after).ok().and_then(|after| rest.get(after..)).unwrap_or_default();
    }
}

/// What a hypervisor says, and a guest's memory with rings and requests in it; the first byte says
/// which, and how the ring is laid out.
pub fn fuzz_vhost(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    if how & 1 == 0 {
        let mut rest = rest;
        while let Some((header, after)) = rest.split_first_chunk::<FRONT_HEADER_BYTES>() {
            let Ok(header) = FrontHeader::decode(header) else { return };
            let Some((payload, next)) = after.split_at_checked(header.payload_bytes) else { return };
            let _ = FrontMessage::decode(header.request, payload, Vec::new());
            rest = next;
        }
        return;
    }
    Guest { packed: how & 2 != 0, event_index: how & 4 != 0, logged: how & 8 != 0 }.run(rest, SIZE_BYTES);
}

/// What a server says of itself or of a request, and addresses.
pub fn fuzz_nbd_client(data: &[u8]) {
    if let Some(reply) = data.first_chunk::<SIMPLE_REPLY_BYTES>() {
        let _ = protocol::decode_simple_reply(reply);
    }
    let text = String::from_utf8_lossy(data);
    if let Ok(uri) = text.parse::<Uri>() {
        assert_eq!(uri.to_string().parse(), Ok(uri), "what is shown reads back");
    }
    if let Ok(address) = text.parse::<Address>() {
        let _ = address.to_string();
    }
}

/// A message of the kernel's, or of any process that has the device. Its length is made right
/// first, or nothing would get past it.
pub fn fuzz_fuse(data: &[u8]) {
    let facts = |name: &str, read_only| FileFacts {
        name: name.to_owned(),
        size_bytes: SIZE_BYTES,
        read_only,
        block_bytes: 4096,
    };
    let volumes = [facts("a", false), facts("group/b", true)];
    let Ok(tree) = NodeTree::new(&volumes, Owner::default()) else { return };
    let mut message = data.to_vec();
    if let Some(length) = message.first_chunk_mut::<4>() {
        *length = (data.len() as u32).to_ne_bytes();
    }
    let (head, body) = message.split_at(message.len().min(HEAD_BYTES));
    let mut joined = Vec::new();
    let Ok(asked) = parse(head, body, message.len(), &mut joined) else { return };
    let _ = KernelOffer::decode(asked.args).accept(u64::MAX, 1 << 20, 64);
    if let Ok(FuseStep::Job(job)) = decide(&tree, &asked) {
        assert!(job.volume < volumes.len());
        let end = job.offset_bytes.checked_add(job.length_bytes);
        assert!(end.is_some_and(|end| end <= SIZE_BYTES), "inside the volume");
    }
}

/// All that a host says on one connection: PDUs, commands, and what a queue is connected with.
pub fn fuzz_nvme(data: &[u8]) {
    let Some((first, mut rest)) = data.split_first() else { return };
    let digests = Digests { header: first & 1 != 0, data: first & 2 != 0 };
    let limits = PduLimits::of_queue(first & 4 != 0);
    while let Some(bytes) = rest.first_chunk() {
        let Ok(frame) = pdu::frame(bytes, digests, limits) else { return };
        let digest = if frame.has_data_digest { pdu::DIGEST_BYTES } else { 0 };
        let total = frame.head_bytes() + frame.data_bytes + digest;
        let claimed = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        assert_eq!(total, claimed as usize, "the parts are the whole");
        assert!(frame.data_bytes <= limits.capsule_data_bytes.max(limits.host_data_bytes));
        let Some((pdu, after)) = rest.split_at_checked(total) else { return };
        rest = after;
        // A wrong digest ends the connection; here what follows is looked at all the same.
        let _ = pdu::check_header(&frame, pdu);
        let (header, body) = (&pdu[..frame.header_bytes], &pdu[frame.head_bytes()..][..frame.data_bytes]);
        match frame.kind {
            HostPdu::Initialize => {
                if let Ok(asked) = pdu::InitializeRequest::decode(header) {
                    assert!((4..=128).contains(&asked.data_align_bytes) && asked.transfers_max > 0);
                }
            }
            HostPdu::Terminate => {}
            HostPdu::Data => {
                let _ = pdu::HostData::decode(header, &frame);
            }
            HostPdu::Command => {
                let Some(entry) = header[8..].first_chunk() else { return };
                fuzz_nvme_command(&NvmeCommand(*entry), body);
            }
        }
    }
}

/// Orders of hosts in turn, and a record that may be none.
fn fuzz_reservations(command: &NvmeCommand, body: &[u8]) {
    let hosts = [1, 2].map(|id| Host { nqn: format!("nqn.{id}"), id: [id; 16] });
    let mut table = ReservationTable::default();
    for (part, host) in body.chunks(16).zip(hosts.iter().cycle()) {
        if let Ok(order) = ReservationOrder::decode(command, part) {
            let before = table.clone();
            if table.apply(host, &order).is_err() {
                assert_eq!(table, before, "what is refused changes nothing");
            }
        }
        table.persists = true;
        assert_eq!(record::decode(&record::encode(&table)).as_ref(), Some(&table), "lossless");
        assert_eq!(table.report().len(), 64 * (1 + table.registrants.len()));
    }
    if let Some(table) = std::str::from_utf8(body).ok().and_then(record::decode) {
        assert_eq!(record::decode(&record::encode(&table)), Some(table));
    }
}

fn fuzz_nvme_command(command: &NvmeCommand, body: &[u8]) {
    let inside = |range: IoRange| {
        let end = range.offset_bytes.checked_add(range.length_bytes);
        assert!(end.is_some_and(|end| end <= SIZE_BYTES), "inside the namespace");
    };
    let _ = ConnectRequest::decode(command, body);
    fuzz_reservations(command, body);
    let secret = "DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:";
    let secrets = NvmeSecrets::parse(&format!("nqn.h {secret} {secret}")).expect("good secrets");
    let mut exchange = Exchange::new("nqn.h", "nqn.s");
    let (first, second) = body.split_at(body.len().min(72));
    for message in [first, second] {
        let progress = exchange.take(message, &secrets, |random| {
            random.fill(7);
            true
        });
        if let AuthProgress::Computes(_) = progress {
            // What it would be takes too long.
            exchange.computed(Some(vec![7; 256].into()), &secrets);
        }
        let (given, proved) = exchange.give().expect("something is said of every message");
        assert!(given.len() <= AUTH_MESSAGE_BYTES_MAX && !proved, "no such message is found by chance");
    }
    for read_only in [false, true] {
        match decide_io(command, SIZE_BYTES, read_only, body.len()) {
            Ok(IoPlan::Read(range)) => inside(range),
            Ok(IoPlan::Write(range, _, in_capsule)) => {
                inside(range);
                assert!(!read_only && (!in_capsule || range.length_bytes == body.len() as u64));
            }
            Ok(IoPlan::WriteZeroes(range, ..)) => {
                inside(range);
                assert!(!read_only);
            }
            Ok(IoPlan::Discard(count, in_capsule)) => {
                assert!(!read_only && (!in_capsule || count * 16 <= body.len()));
                let ranges = discard_ranges(body, count, SIZE_BYTES);
                ranges.into_iter().flatten().for_each(inside);
            }
            Ok(IoPlan::Flush | IoPlan::Nothing) | Err(_) => {}
        }
    }
}

/// Takes any bytes and returns, or the decoder has a bug.
pub type FuzzTarget = fn(&[u8]);

/// All of them, by the name of their file in `fuzz/`.
pub const ALL: [(&str, FuzzTarget); 5] = [
    ("nbd", fuzz_nbd),
    ("nbd_client", fuzz_nbd_client),
    ("nvme", fuzz_nvme),
    ("fuse", fuzz_fuse),
    ("vhost", fuzz_vhost),
];
