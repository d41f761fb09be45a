use super::*;
use proptest::prelude::*;

fn export(name: &str) -> ExportFacts {
    ExportFacts {
        name: name.to_owned(),
        description: "a test".to_owned(),
        size_bytes: 1 << 30,
        read_only: false,
        io_min_bytes: 512,
        checkpoints: vec!["monday".to_owned(), "tuesday".to_owned()],
    }
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = proto::OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn query(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = server_entry(name);
    data.extend_from_slice(&(wanted.len() as u16).to_be_bytes());
    wanted.iter().for_each(|info| data.extend_from_slice(&info.to_be_bytes()));
    data
}

const FIXED: [u8; 4] = [0, 0, 0, 3];

/// Feeds `input` in pieces of `piece` bytes; returns what was answered, how it ended, and the
/// bytes left over.
fn run(exports: &[ExportFacts], input: &[u8], piece: usize) -> (Vec<u8>, HandshakeStep, usize) {
    let mut handshake = Handshake::new(exports, (exports.len() == 1).then_some(0));
    let (mut out, mut pending, mut fed) = (Vec::new(), Vec::new(), 0);
    loop {
        let (used, step) = handshake.advance(&pending, &mut out);
        pending.drain(..used);
        assert!(pending.len() <= HANDSHAKE_BYTES_MAX + piece);
        match step {
            HandshakeStep::Reply => {}
            HandshakeStep::More if fed < input.len() => {
                let end = input.len().min(fed + piece);
                pending.extend_from_slice(&input[fed..end]);
                fed = end;
            }
            ended => return (out, ended, pending.len() + input.len() - fed),
        }
    }
}

/// Option, reply and data.
type OptionReply = (u32, u32, Vec<u8>);

/// Splits a stream of option replies.
fn split(mut out: &[u8]) -> Vec<OptionReply> {
    let mut split = Vec::new();
    while !out.is_empty() {
        let mut fields = Fields(out);
        assert_eq!(fields.u64(), Some(proto::OPTION_REPLY_MAGIC));
        let (option, reply, length) = (fields.u32().unwrap(), fields.u32().unwrap(), fields.u32().unwrap());
        split.push((option, reply, fields.take(length as usize).unwrap().to_vec()));
        out = fields.0;
    }
    split
}

#[test]
fn go_chooses_an_export_however_the_bytes_arrive() {
    let mut input = FIXED.to_vec();
    input.extend(option(options::STRUCTURED_REPLY, &[]));
    input.extend(option(options::GO, &query("b", &[infos::NAME, infos::DESCRIPTION, infos::BLOCK_SIZE])));
    input.extend_from_slice(b"the first request");
    let exports = [export("a"), export("b")];
    for piece in [1, 2, 3, 7, 1000] {
        let (out, step, left) = run(&exports, &input, piece);
        assert_eq!(
            step,
            HandshakeStep::Transmit(ChosenExport {
                export: 1,
                headers: NbdHeaders::Structured,
                contexts: Contexts::default()
            })
        );
        assert_eq!(left, 17, "requests behind the handshake are left alone");
        let replies = split(&out);
        assert_eq!(replies[0], (options::STRUCTURED_REPLY, replies::ACK, vec![]));
        // 0x1ed: has flags, flush, fua, trim, write zeroes, df, multi-conn.
        assert_eq!(replies[1], (options::GO, replies::INFO, b"\0\0\0\0\0\0\x40\0\0\0\x01\xed".to_vec()));
        assert_eq!(replies[2].2, b"\0\x01b");
        assert_eq!(replies[3].2, b"\0\x02a test");
        assert_eq!(replies[4].2, b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0");
        assert_eq!(replies[5], (options::GO, replies::ACK, vec![]));
    }
}

#[test]
fn export_name_is_answered_without_zeroes_only_if_the_client_agrees() {
    for (flags, zeroes) in [([0, 0, 0, 3], 0), ([0, 0, 0, 2], 0), ([0, 0, 0, 1], 124), ([0, 0, 0, 0], 124)] {
        let mut input = flags.to_vec();
        input.extend(option(options::EXPORT_NAME, b"a"));
        let (out, step, _) = run(&[export("a")], &input, 5);
        assert_eq!(
            step,
            HandshakeStep::Transmit(ChosenExport {
                export: 0,
                headers: NbdHeaders::Simple,
                contexts: Contexts::default()
            })
        );
        assert_eq!(out.len(), 10 + zeroes);
        assert_eq!(&out[..10], b"\0\0\0\0\x40\0\0\0\x01\x6d");
    }
}

#[test]
fn the_empty_name_is_the_only_export_or_none() {
    let go = [FIXED.to_vec(), option(options::GO, &query("", &[]))].concat();
    let (_, step, _) = run(&[export("a")], &go, 64);
    assert_eq!(
        step,
        HandshakeStep::Transmit(ChosenExport {
            export: 0,
            headers: NbdHeaders::Simple,
            contexts: Contexts::default()
        })
    );
    let (out, step, _) = run(&[export("a"), export("b")], &go, 64);
    assert_eq!((split(&out)[0].1, step), (replies::ERR_UNKNOWN, HandshakeStep::More));
    let name = [FIXED.to_vec(), option(options::EXPORT_NAME, b"")].concat();
    assert_eq!(run(&[export("a"), export("b")], &name, 64).1, HandshakeStep::Close);
}

#[test]
fn info_leaves_the_handshake_open() {
    let mut input = FIXED.to_vec();
    input.extend(option(options::INFO, &query("a", &[])));
    input.extend(option(options::ABORT, &[]));
    let (out, step, _) = run(&[export("a")], &input, 64);
    assert_eq!(step, HandshakeStep::Close);
    let kinds: Vec<u32> = split(&out).iter().map(|reply| reply.1).collect();
    assert_eq!(kinds, [replies::INFO, replies::ACK, replies::ACK]);
}

#[test]
fn list_names_every_export() {
    let input = [FIXED.to_vec(), option(options::LIST, &[]), option(options::LIST, b"x")].concat();
    let (out, _, _) = run(&[export("a"), export("vg/lv")], &input, 64);
    let replies = split(&out);
    assert_eq!(replies[0], (options::LIST, replies::SERVER, b"\0\0\0\x01a".to_vec()));
    assert_eq!(replies[1], (options::LIST, replies::SERVER, b"\0\0\0\x05vg/lv".to_vec()));
    assert_eq!(replies[2].1, replies::ACK);
    assert_eq!(replies[3].1, replies::ERR_INVALID);
}

#[test]
fn what_is_not_offered_is_refused_and_the_handshake_goes_on() {
    let mut input = FIXED.to_vec();
    let refused = [options::STARTTLS, 13, 0, u32::MAX, 12, 99];
    refused.iter().for_each(|unknown| input.extend(option(*unknown, b"data")));
    input.extend(option(options::GO, &query("none such", &[])));
    input.extend(option(options::GO, b"junk"));
    input.extend(option(options::GO, &query("a", &[])));
    let (out, step, _) = run(&[export("a")], &input, 64);
    assert_eq!(
        step,
        HandshakeStep::Transmit(ChosenExport {
            export: 0,
            headers: NbdHeaders::Simple,
            contexts: Contexts::default()
        })
    );
    let replies = split(&out);
    assert!(replies[..6].iter().all(|reply| reply.1 == replies::ERR_UNSUP));
    assert_eq!(replies[6].1, replies::ERR_UNKNOWN);
    assert_eq!(replies[7].1, replies::ERR_INVALID);
}

#[test]
fn long_options_are_skipped_and_refused() {
    let mut input = FIXED.to_vec();
    input.extend(option(options::GO, &vec![b'a'; OPTION_BYTES_MAX + 1]));
    input.extend(option(options::GO, &query("a", &[])));
    for piece in [100, 100_000] {
        let (out, step, _) = run(&[export("a")], &input, piece);
        assert_eq!(
            step,
            HandshakeStep::Transmit(ChosenExport {
                export: 0,
                headers: NbdHeaders::Simple,
                contexts: Contexts::default()
            })
        );
        assert_eq!(split(&out)[0], (options::GO, replies::ERR_TOO_BIG, vec![]));
    }
}

#[test]
fn clients_that_make_no_sense_are_hung_up_on() {
    let endless = std::iter::repeat_n(option(options::LIST, &[]), OPTIONS_MAX as usize + 1).flatten();
    let cases = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        [FIXED.to_vec(), b"IHAVEOPS\0\0\0\x03\0\0\0\0".to_vec()].concat(),
        [FIXED.to_vec(), option(options::EXPORT_NAME, &[b'a'; 4097])].concat(),
        [FIXED.to_vec(), option(options::EXPORT_NAME, b"none such")].concat(),
        [FIXED.to_vec(), option(options::EXPORT_NAME, b"\xff")].concat(),
        // Without fixed newstyle, only EXPORT_NAME is known to the client.
        [vec![0, 0, 0, 0], option(options::LIST, &[])].concat(),
        FIXED.into_iter().chain(endless).collect(),
    ];
    for input in cases {
        assert_eq!(run(&[export("a")], &input, 64).1, HandshakeStep::Close);
    }
}

/// Feeds a handshake that requires TLS; what was answered, how it ended, and what is left.
fn run_in_clear(input: &[u8]) -> (Vec<OptionReply>, HandshakeStep, usize) {
    let exports = [export("a")];
    let mut handshake = Handshake::new(&exports, Some(0)).requiring_tls();
    let (mut out, mut rest) = (Vec::new(), input);
    loop {
        let (used, step) = handshake.advance(rest, &mut out);
        rest = &rest[used..];
        if step != HandshakeStep::Reply && (step != HandshakeStep::More || used == 0) {
            return (split(&out), step, rest.len());
        }
    }
}

#[test]
fn nothing_is_told_before_tls() {
    let mut input = FIXED.to_vec();
    let asked = [options::LIST, options::STRUCTURED_REPLY, options::SET_META_CONTEXT, 77];
    asked.iter().for_each(|kind| input.extend(option(*kind, &[])));
    for kind in [options::INFO, options::GO] {
        input.extend(option(kind, &query("a", &[infos::NAME])));
    }
    input.extend(option(options::GO, &[0; OPTION_BYTES_MAX + 1]));
    input.extend(option(options::STARTTLS, b"data"));
    input.extend(option(options::STARTTLS, &[]));
    input.extend_from_slice(b"injected");
    let (answers, step, left) = run_in_clear(&input);
    assert_eq!((step, left), (HandshakeStep::StartTls, 8));
    let kinds: Vec<u32> = answers.iter().map(|(_, kind, _)| *kind).collect();
    let required = [replies::ERR_TLS_REQD; 7];
    assert_eq!(kinds, [&required[..], &[replies::ERR_INVALID, replies::ACK]].concat());
    assert!(answers.iter().all(|(.., data)| data.is_empty()));
    // An export name cannot be refused in another way, and a goodbye is one.
    let name = [&FIXED[..], &option(options::EXPORT_NAME, b"a")].concat();
    assert_eq!(run_in_clear(&name).1, HandshakeStep::Close);
    let (answers, step, _) = run_in_clear(&[&FIXED[..], &option(options::ABORT, &[])].concat());
    assert_eq!((answers[0].1, step), (replies::ACK, HandshakeStep::Close));
    // The first bytes of TLS itself.
    assert_eq!(run_in_clear(&[0x16, 3, 1, 0, 5]).1, HandshakeStep::Close);
}

#[test]
fn what_was_said_in_clear_is_forgotten() {
    let exports = [export("a")];
    let (mut handshake, mut out) = (Handshake::new(&exports, Some(0)).requiring_tls(), Vec::new());
    handshake.headers = NbdHeaders::Structured;
    for message in [FIXED.to_vec(), option(options::STARTTLS, &[])] {
        assert_eq!(handshake.advance(&message, &mut out).0, message.len());
    }
    out.clear();
    handshake.advance(&option(options::STARTTLS, &[]), &mut out);
    assert_eq!(split(&out), [(options::STARTTLS, replies::ERR_INVALID, vec![])], "once is enough");
    let (_, step) = handshake.advance(&option(options::GO, &query("", &[])), &mut out);
    assert_eq!(
        step,
        HandshakeStep::Transmit(ChosenExport {
            export: 0,
            headers: NbdHeaders::Simple,
            contexts: Contexts::default()
        })
    );
}

#[test]
fn the_preferred_size_is_one_the_protocol_can_say() {
    let preferred = |io_min_bytes| ExportFacts { io_min_bytes, ..export("a") }.block_sizes()[1];
    assert_eq!(preferred(512), 4096);
    assert_eq!(preferred(64 << 10), 64 << 10);
    assert_eq!(preferred(32 << 20), 32 << 20);
    assert_eq!(preferred(64 << 20), 4096);
    assert_eq!(preferred(3 << 16), 4096);
    assert_eq!(preferred(0), 4096);
}

#[test]
fn a_read_only_export_says_so() {
    let facts = ExportFacts { read_only: true, ..export("a") };
    // Has flags, read-only, flush, multi-conn.
    assert_eq!(facts.flags(NbdHeaders::Simple), 0x107);
}

/// Sometimes an option that makes sense, sometimes any bytes.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let data = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        Just(query("a", &[0, 1, 2, 3])),
        Just(query("b", &[])),
        Just(vec![0; OPTION_BYTES_MAX + 1]),
    ];
    prop_oneof![
        8 => (0..12_u32, data).prop_map(|(code, data)| option(code, &data)),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #[test]
    fn the_answer_depends_on_the_bytes_and_not_on_their_arrival(
        messages in prop::collection::vec(message(), 0..20),
        flags in 0..4_u8,
        piece in 1..3000_usize,
    ) {
        let input = [vec![0, 0, 0, flags], messages.concat()].concat();
        let exports = [export("a"), export("b")];
        prop_assert_eq!(run(&exports, &input, piece), run(&exports, &input, usize::MAX / 2));
    }
}

fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = server_entry(name);
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend(server_entry(query)));
    data
}

/// Option, export, queries; the names that are answered, and what is agreed on.
type AskedContexts<'a> = (u32, &'a str, &'a [&'a str], &'a [&'a str], u64);

#[test]
fn contexts_are_agreed_on_for_the_export_that_is_chosen() {
    let exports = [export("a"), export("b")];
    let (base, monday, tuesday) =
        ("base:allocation", "qemu:dirty-bitmap:monday", "qemu:dirty-bitmap:tuesday");
    let (set, list) = (options::SET_META_CONTEXT, options::LIST_META_CONTEXT);
    // What is asked of which export, what is answered, and what is agreed on for `a`.
    let cases: [AskedContexts<'_>; 13] = [
        (set, "a", &[base], &[base], 0b1),
        (set, "a", &["other:x", base], &[base], 0b1),
        (set, "a", &[tuesday], &[tuesday], 0b100),
        (set, "a", &[tuesday, monday, base, base], &[base, monday, tuesday], 0b111),
        (set, "b", &[base], &[base], 0),
        (set, "a", &["base:"], &[], 0),
        (set, "a", &["qemu:dirty-bitmap:"], &[], 0),
        (set, "a", &[], &[], 0),
        (list, "a", &[], &[base, monday, tuesday], 0),
        (list, "a", &["base:"], &[base], 0),
        (list, "a", &["qemu:"], &[monday, tuesday], 0),
        (list, "a", &["qemu:dirty-bitmap:"], &[monday, tuesday], 0),
        (list, "a", &["other:", monday], &[monday], 0),
    ];
    for (kind, of, queries, answered, agreed) in cases {
        let input = [
            FIXED.to_vec(),
            option(options::STRUCTURED_REPLY, &[]),
            option(kind, &contexts(of, queries)),
            option(options::GO, &query("a", &[])),
        ];
        let (out, step, _) = run(&exports, &input.concat(), 64);
        let chosen = ChosenExport { export: 0, headers: NbdHeaders::Structured, contexts: Contexts(agreed) };
        assert_eq!(step, HandshakeStep::Transmit(chosen), "{queries:?}");
        let number = |name: &str| match [base, monday, tuesday].iter().position(|known| *known == name) {
            Some(at) if kind == set => at as u32 + 1,
            _ => 0,
        };
        let context = |name: &&str| {
            (kind, replies::META_CONTEXT, [&number(name).to_be_bytes()[..], name.as_bytes()].concat())
        };
        let expected: Vec<_> = answered.iter().map(context).chain([(kind, replies::ACK, vec![])]).collect();
        let replies: Vec<_> = split(&out).into_iter().filter(|reply| reply.0 == kind).collect();
        assert_eq!(replies, expected, "{queries:?}");
    }
    let all = Contexts(0b111);
    assert!(all.has_allocation() && all.checkpoints().eq([0, 1]) && Contexts(0).is_empty());
}

#[test]
fn contexts_need_structured_replies_and_sense() {
    let asked = contexts("a", &["base:allocation"]);
    let structured = option(options::STRUCTURED_REPLY, &[]);
    let cut = &asked[..asked.len() - 1];
    let many = [server_entry("a"), u32::MAX.to_be_bytes().to_vec()].concat();
    for (before, data, error) in [
        (vec![], &asked[..], replies::ERR_INVALID),
        (structured.clone(), cut, replies::ERR_INVALID),
        (structured.clone(), &many, replies::ERR_INVALID),
        (structured.clone(), &contexts("z", &[]), replies::ERR_UNKNOWN),
    ] {
        let input = [FIXED.to_vec(), before, option(options::SET_META_CONTEXT, data)].concat();
        let (out, step, _) = run(&[export("a")], &input, 64);
        let last = split(&out).pop().expect("it is answered");
        assert_eq!((last.0, last.1, step), (options::SET_META_CONTEXT, error, HandshakeStep::More));
    }
    // A choice that fails takes the earlier one back.
    let set = |data: &[u8]| option(options::SET_META_CONTEXT, data);
    let go = option(options::GO, &query("a", &[]));
    let input = [FIXED.to_vec(), structured, set(&asked), set(&contexts("z", &[])), go].concat();
    let (_, step, _) = run(&[export("a")], &input, 64);
    assert_eq!(
        step,
        HandshakeStep::Transmit(ChosenExport {
            export: 0,
            headers: NbdHeaders::Structured,
            contexts: Contexts::default()
        })
    );
}

#[test]
fn extended_headers_imply_structured_replies_and_outlast_them() {
    let asked = [options::STRUCTURED_REPLY, options::EXTENDED_HEADERS, options::STRUCTURED_REPLY];
    let go = option(options::GO, &query("a", &[]));
    let set = option(options::SET_META_CONTEXT, &contexts("a", &["base:allocation"]));
    let input = [FIXED.to_vec(), asked.map(|asked| option(asked, &[])).concat(), set, go].concat();
    let (out, step, _) = run(&[export("a")], &input, 64);
    let kinds: Vec<u32> = split(&out).into_iter().map(|(_, kind, _)| kind).take(3).collect();
    assert_eq!(kinds, [replies::ACK, replies::ACK, replies::ERR_EXT_HEADER_REQD]);
    let (headers, contexts) = (NbdHeaders::Extended, Contexts::ALLOCATION);
    assert_eq!(step, HandshakeStep::Transmit(ChosenExport { export: 0, headers, contexts }));
}
