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
use crate::nbd::protocol::{self, NbdRequest, OPTION_REPLY_BYTES, REQUEST_BYTES, SIMPLE_REPLY_BYTES};
use crate::nbd::request::{self, NbdCommand};

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
    while let Some((bytes, after)) = rest.split_first_chunk::<REQUEST_BYTES>() {
        let Some(asked) = NbdRequest::decode(bytes) else { return };
        assert_eq!(asked.encode(), *bytes, "lossless");
        let export = &exports[chosen.export];
        if let Ok(command) = request::decide(&asked, export, chosen.structured) {
            let end = asked.offset_bytes.checked_add(u64::from(asked.length_bytes));
            assert!(end.is_some_and(|end| end <= SIZE_BYTES), "inside the export");
            let moves = matches!(command, NbdCommand::Read | NbdCommand::Write(_));
            assert!(!moves || asked.length_bytes <= REQUEST_BYTES_MAX);
            let changes =
                matches!(command, NbdCommand::Write(_) | NbdCommand::Trim(_) | NbdCommand::WriteZeroes(..));
            assert!(!changes || !export.read_only);
        }
        rest = after.get(asked.payload_bytes() as usize..).unwrap_or_default();
    }
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

/// Takes any bytes and returns, or the decoder has a bug.
pub type FuzzTarget = fn(&[u8]);

/// All of them, by the name of their file in `fuzz/`.
pub const ALL: [(&str, FuzzTarget); 3] =
    [("nbd", fuzz_nbd), ("nbd_client", fuzz_nbd_client), ("fuse", fuzz_fuse)];
