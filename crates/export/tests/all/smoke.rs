//! Random and mutated messages to every parser of a protocol, the same each run; `fuzz/` runs the
//! same functions under a coverage-guided fuzzer.

use wattle_export::fuzzing::ALL;
use wattle_export::nbd::protocol::{NbdRequest, commands, go};

const ROUNDS: u64 = 20_000;

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }
}

/// A client that gets as far as requests; the kernel opening, reading and writing; an address.
fn seeds() -> Vec<Vec<u8>> {
    let request = |kind, length_bytes| {
        NbdRequest { flags: 0, kind, cookie: 7, offset_bytes: 4096, length_bytes }.encode()
    };
    let mut client = go("data");
    client.extend(request(commands::READ, 4096));
    client.extend(request(commands::WRITE, 16));
    client.extend([0xAA; 16]);
    client.extend(request(commands::TRIM, u32::MAX.into()));
    let message = |opcode: u32, args: &[u64]| {
        let mut bytes = [0_u32.to_ne_bytes(), opcode.to_ne_bytes()].concat();
        bytes.extend([1, 2_u64, 0, 0].iter().chain(args).flat_map(|field| field.to_ne_bytes()));
        bytes
    };
    let mut all = vec![client, b"nbd+unix:///a%20b?socket=/run/x".to_vec(), b"nbd://[::1]:10809/x".to_vec()];
    all.extend([0, 1, 2, 3].map(nvme_host));
    all.extend((0..16).map(vhost_guest));
    all.extend((0..60).map(|opcode| message(opcode, &[0, 4096, 512, 0, 0])));
    all
}

/// A hypervisor's first messages, or a guest's memory with a read in a ring of eight, behind a log
/// of zeros; the first byte says which and how.
fn vhost_guest(how: u8) -> Vec<u8> {
    if how & 1 == 0 {
        let message = |request: u32, payload: &[u8]| {
            let words = [request, 1, payload.len() as u32];
            [words.map(u32::to_le_bytes).concat(), payload.to_vec()].concat()
        };
        let queue = [1u32.to_le_bytes(), 256u32.to_le_bytes()].concat();
        return [vec![how], message(1, &[]), message(8, &queue), message(15, &[]), message(24, &[0; 12])]
            .concat();
    }
    let packed = how & 2 != 0;
    let log = if packed { (32 + 8 * 32usize).next_multiple_of(64) } else { 16 + 8 * 16 };
    let mut memory = vec![0; 16 << 10];
    let mut put = |ix: usize, at: u64, len: u32, flags: u16| {
        let own = 16 * ix;
        memory[own..own + 8].copy_from_slice(&at.to_le_bytes());
        memory[own + 8..own + 12].copy_from_slice(&len.to_le_bytes());
        let (flags_at, other_at) = if packed { (14, 12) } else { (12, 14) };
        let flags = if packed { flags | 1 << 7 } else { flags };
        memory[own + flags_at..own + flags_at + 2].copy_from_slice(&flags.to_le_bytes());
        let other = if packed { 5 } else { ix as u16 + 1 };
        memory[own + other_at..own + other_at + 2].copy_from_slice(&other.to_le_bytes());
    };
    put(0, 4096, 16, 1);
    put(1, 8192, 512, 1 | 2);
    put(2, 12000, 1, 2);
    memory[130] = 1; // Available, in a split ring.
    [vec![how], vec![0; log.next_multiple_of(64)], memory].concat()
}

/// A host of NVMe/TCP that begins, writes with its data and when asked, and discards; which digests
/// it uses is in the first byte.
fn nvme_host(digests: u8) -> Vec<u8> {
    let (header_digest, data_digest) = (usize::from(digests & 1) * 4, usize::from(digests >> 1) * 4);
    let mut bytes = vec![digests, 0, 0, 128, 0, 128, 0, 0, 0];
    bytes.resize(1 + 128, 0);
    let mut pdu = |kind: u8, header: &[u8], data: usize| {
        let start = 8 + header.len() + header_digest;
        let digest = if data > 0 { data_digest } else { 0 };
        let flags = digests & 1 | if digest > 0 { 2 } else { 0 };
        bytes.extend([kind, flags, 8 + header.len() as u8, if data > 0 { start as u8 } else { 0 }]);
        bytes.extend(((start + data + digest) as u32).to_le_bytes());
        bytes.extend(header);
        bytes.resize(bytes.len() + header_digest + data + digest, 0);
    };
    let command = |opcode: u8, length: u32, kind: u8| {
        let mut entry = [0; 64];
        (entry[0], entry[2], entry[4], entry[39]) = (opcode, 7, 1, kind);
        entry[32..36].copy_from_slice(&length.to_le_bytes());
        entry
    };
    pdu(4, &command(0x7f, 1024, 1), 1024);
    pdu(4, &command(1, 512, 1), 512);
    pdu(4, &command(1, 512, 0x5a), 0);
    pdu(6, &[7, 0, 7, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0], 512);
    pdu(4, &command(2, 512, 0x5a), 0);
    pdu(4, &command(9, 16, 1), 16);
    bytes
}

/// Where the fuzzer's first inputs go, if that is what the tests run for.
#[test]
fn seeds_for_the_fuzzer() {
    let Some(corpus) = std::env::var_os("WATTLE_FUZZ_CORPUS") else { return };
    for (name, _) in ALL {
        let dir = std::path::Path::new(&corpus).join(name);
        std::fs::create_dir_all(&dir).unwrap();
        for (ix, seed) in seeds().iter().enumerate() {
            std::fs::write(dir.join(format!("made-{ix}")), seed).unwrap();
        }
    }
}

#[test]
fn messages_of_any_kind_are_no_panic() {
    let mut random = Random(1);
    for seed in seeds() {
        ALL.iter().for_each(|(_, target)| target(&seed));
        for _ in 0..ROUNDS / 60 {
            let mut bytes = seed.clone();
            for _ in 0..1 + random.next() % 4 {
                let at = random.next() as usize % bytes.len();
                bytes[at] = match random.next() % 4 {
                    0 => 0,
                    1 => 0xFF,
                    2 => bytes[at] ^ 1 << (random.next() % 8),
                    _ => random.next() as u8,
                };
            }
            bytes.truncate(bytes.len() - (random.next() % 3) as usize);
            ALL.iter().for_each(|(_, target)| target(&bytes));
        }
    }
    for _ in 0..ROUNDS {
        let bytes: Vec<u8> = (0..random.next() % 200).map(|_| random.next() as u8).collect();
        ALL.iter().for_each(|(_, target)| target(&bytes));
    }
}
