use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::group::{Exponentiation, FfdheGroup};
use super::secrets::{SecretHash, crc32};
use super::{AuthProgress, Exchange, NvmeSecretError, NvmeSecrets};

const HOST: &str = "nqn.h";
// What `nvme gen-dhchap-key` prints has this form; the checksum is of the 32 bytes before it.
fn secret(kind: &str, key: &[u8]) -> String {
    let bytes = [key, &crc32(key).to_le_bytes()].concat();
    format!("DHHC-1:{kind}:{}:", STANDARD.encode(bytes))
}

fn negotiate(hashes: &[u8], groups: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 72];
    (message[4], message[7], message[8]) = (9, 1, 1);
    (message[10], message[11]) = (hashes.len() as u8, groups.len() as u8);
    message[12..12 + hashes.len()].copy_from_slice(hashes);
    message[42..42 + groups.len()].copy_from_slice(groups);
    message
}

fn reply(challenge: &[u8], key: &[u8]) -> Vec<u8> {
    let hash = SecretHash::of(challenge[8]).unwrap();
    let response = hash.hmac(
        key,
        &[
            &challenge[16..],
            &challenge[12..16],
            &challenge[4..6],
            &[0],
            b"HostHost",
            HOST.as_bytes(),
            &[0],
            b"nqn.s",
        ],
    );
    let mut message = vec![1, 2, 0, 0, 9, 0, hash.bytes() as u8, 0, 0, 0, 0, 0];
    message.extend(&challenge[12..16]);
    message.extend(response);
    message
}

fn fill(bytes: &mut [u8]) -> bool {
    bytes.fill(0x5c);
    true
}

#[test]
fn the_check_value_of_the_checksum() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
}

#[test]
fn secrets_are_read_as_they_are_made() {
    let two = [secret("02", &[7; 48]), secret("01", &[9; 32])].join(" ");
    let good = format!("# hosts\n\n{HOST} {}\nnqn.i {two}\n", secret("00", &[7; 48]));
    let secrets = NvmeSecrets::parse(&good).unwrap();
    let key = |host: &str| secrets.host_key(host).map(|key| key.to_vec());
    assert_eq!(key(HOST), Some(vec![7; 48]));
    assert_eq!(key("nqn.i").unwrap().len(), 48);
    assert_ne!(key("nqn.i"), key(HOST));
    // The controller's is bound to the subsystem's name.
    let bound = |subsystem: &str| secrets.controller_key("nqn.i", subsystem).map(|key| key.to_vec());
    assert_ne!(bound("nqn.s"), bound("nqn.t"));
    assert_eq!(bound("nqn.s").unwrap().len(), 32);
    assert!(secrets.controller_key(HOST, "nqn.s").is_none());
    assert!(!format!("{secrets:?}").contains("7, 7"), "secrets are not shown");
    let damaged = secret("00", &[7; 32]).replace("Bw", "Bx");
    for (text, error) in [
        (String::new(), NvmeSecretError::Empty),
        ("nqn.h".to_owned(), NvmeSecretError::NotALine(1)),
        (format!("{HOST} {damaged}"), NvmeSecretError::Damaged(1)),
        (format!("{HOST} {}", secret("01", &[7; 48])), NvmeSecretError::Damaged(1)),
        (format!("{HOST} {}", secret("00", &[7; 31])), NvmeSecretError::Damaged(1)),
        (format!("{HOST} {}", secret("04", &[7; 32])), NvmeSecretError::Damaged(1)),
        (format!("{HOST} DHHC-1:00::"), NvmeSecretError::Damaged(1)),
        (format!("{HOST} {two} {two}"), NvmeSecretError::NotALine(1)),
        (format!("{HOST} {} {damaged}", secret("00", &[7; 32])), NvmeSecretError::ControllerDamaged(1)),
        (format!("{good}{HOST} {}", secret("00", &[7; 32])), NvmeSecretError::Twice(5)),
    ] {
        assert_eq!(NvmeSecrets::parse(&text).err(), Some(error), "{text}");
    }
}

#[test]
fn who_has_the_secret_is_let_in_and_no_other() {
    for (kind, length, hashes) in [("00", 32, &[1][..]), ("01", 32, &[3, 1]), ("03", 64, &[9, 2])] {
        let text = format!("{HOST} {}", secret(kind, &vec![7; length]));
        let secrets = NvmeSecrets::parse(&text).unwrap();
        let key = &secrets.host_key(HOST).unwrap()[..];
        let run = |host: &str, key: &[u8]| {
            let mut exchange = Exchange::new(host, "nqn.s");
            assert!(exchange.give().is_none());
            exchange.take(&negotiate(hashes, &[9, 0]), &secrets, fill);
            let (challenge, false) = exchange.give().unwrap() else { panic!("not proved") };
            exchange.take(&reply(&challenge, key), &secrets, fill);
            exchange.give().unwrap()
        };
        assert!(run(HOST, key).1);
        let refused = run(HOST, b"another");
        assert_eq!((&refused.0[..8], refused.1), (&[0, 0xf0, 0, 0, 9, 0, 1, 1][..], false));
        // A name without a secret does not get in with an empty one.
        assert!(!run("nqn.i", &[]).1);
        assert!(!run("nqn.i", key).1);
    }
}

#[test]
fn what_comes_out_of_its_order_is_refused() {
    let secrets = NvmeSecrets::parse(&format!("{HOST} {}", secret("00", &[7; 32]))).unwrap();
    let key = &secrets.host_key(HOST).unwrap()[..];
    let after = |messages: &[Vec<u8>]| {
        let mut exchange = Exchange::new(HOST, "nqn.s");
        for message in messages {
            exchange.take(message, &secrets, fill);
        }
        let (message, proved) = exchange.give().unwrap();
        assert!(!proved);
        (message[1], message[7])
    };
    let offer = negotiate(&[1], &[0]);
    let mut exchange = Exchange::new(HOST, "nqn.s");
    exchange.take(&offer, &secrets, fill);
    let right = reply(&exchange.give().unwrap().0, key);
    // A reply to a challenge that was not fetched, or that there was not; twice; anything.
    assert_eq!(after(&[offer.clone(), right.clone()]), (0xf0, 7));
    assert_eq!(after(&[right]), (0xf0, 7));
    assert_eq!(after(&[offer.clone(), offer.clone()]), (0xf0, 7));
    assert_eq!(after(&[negotiate(&[7], &[0])]), (0xf0, 4));
    assert_eq!(after(&[negotiate(&[1], &[6, 9])]), (0xf0, 5));
    assert_eq!(after(&[vec![0; 8]]), (0xf0, 6));
    assert_eq!(after(&[vec![1]]), (0xf0, 6));
    let mut exchange = Exchange::new(HOST, "nqn.s");
    assert!(matches!(exchange.take(&[0, 0xf1, 0, 0, 0, 0, 1, 1], &secrets, fill), AuthProgress::Over));
}

/// What a host that is written in another language computed, with the primes of OpenSSL's groups.
/// The host's private key is 1000, its secret 32 times 7, its challenge 3s with the number
/// 0x01020304; the controller's secret is 32 times 9, and its random bytes are [`fill`]'s.
struct Vector {
    group: FfdheGroup,
    hash: u8,
    /// SHA-256 of the prime, and of the controller's public value.
    prime: &'static str,
    public: &'static str,
    response: &'static str,
    proof: &'static str,
}

const VECTORS: [Vector; 5] = [
    Vector {
        group: FfdheGroup::Ffdhe2048,
        hash: 1,
        prime: "9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966",
        public: "a2683df4c3a7cd7a96abf062e7b7b05f91b717a870cd1607b3a4b42da9b1126c",
        response: "f13e6a4829cc791ae2dfd9a91e6cecd8f790f9dfb7bf46b63016e9fd40da05d2",
        proof: "a6a3ebe4924f3f458ce1a1fb84f1aedeb6b94cee60d65c1a512ba95aaf4bdeaf",
    },
    Vector {
        group: FfdheGroup::Ffdhe3072,
        hash: 2,
        prime: "0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17",
        public: "bcd0be735d0ffedfc20b5cb943004f11b8ab92b147919e6a95050a29c9939245",
        response: "4a7524c96b634c194bd96982bc9190fb71327dfbee06feb76ff5e87530fa72563e8947c6963023553034e05cd8990009",
        proof: "c041cf789ba92d84a96cb7171435863da7b49c52f308a264e785eb2cc3a3a0e055fed47a98f190398f4862754daef60f",
    },
    Vector {
        group: FfdheGroup::Ffdhe4096,
        hash: 3,
        prime: "4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e",
        public: "f486274b31209f646e7eec6776f2a0f7288c60ff4ada1f375fe5f3593716cfbc",
        response: "3eb1ded257a474b96ebea1722d7ddff1675ccc846275b1335b49fdf80eb3e31f941d690266bfbe71addb9de638bcf6d6465205da30f84dcce83053b91c6dcc73",
        proof: "a15103a5c5040d06db8acdc73e666b64af4ef0c24862d9ae1daf6c1cf64eedc94659d3967c0a310069b3c8e5ce001a56f41a734a3452fa26daeed7611629ffc9",
    },
    Vector {
        group: FfdheGroup::Ffdhe6144,
        hash: 1,
        prime: "227ac9066b3ddd9e193670cda2388fa884f65ba0cf98b742d1fe77a6687c79c7",
        public: "e2602725925d379f7d939b81551856d548057c479044be5dd30e2137c196e9e6",
        response: "64d74e3881e801272d8ca3a08a9cdb49aa0a706dbcdbf1218ff4f57ed9d5932e",
        proof: "77d99d151390355192373433daa745eee26616caabe57baeb2e3c8a0c84b5b26",
    },
    Vector {
        group: FfdheGroup::Ffdhe8192,
        hash: 2,
        prime: "770b14efaf6f049929c523113b3fa99a8d11dab1b18af3609590122075d19833",
        public: "05d252d8757efebb845e454b5a3ec326bef7a24fe8697b04d47d62cbc17c3404",
        response: "9d189269ad7df2aa36647837fca0925bed0b517defd9d77c6a50b58161135e85ae63959ad31a6d83c14660241d012e4d",
        proof: "e45d921d0ba3a8f6162157f519eb3b4de383f00a48efddfc0ffc72003eeb8341db2ddafe2c5ba267855508364ae80802",
    },
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn both_secrets() -> NvmeSecrets {
    let text = format!("{HOST} {} {}", secret("00", &[7; 32]), secret("01", &[9; 32]));
    NvmeSecrets::parse(&text).unwrap()
}

/// Lets an exchange take a message, and computes what it asks for.
fn carry(exchange: &mut Exchange, secrets: &NvmeSecrets, message: &[u8]) -> AuthProgress {
    match exchange.take(message, secrets, fill) {
        AuthProgress::Computes(power) => {
            assert!(exchange.give().is_none(), "not before it was computed");
            exchange.computed(Some(power.compute()), secrets);
            AuthProgress::GoesOn
        }
        progress => progress,
    }
}

/// A reply with a value of the group, and a challenge with its number.
fn reply_with(hash: u8, response: &[u8], public: &[u8], asks: Option<u32>) -> Vec<u8> {
    let length = SecretHash::of(hash).unwrap().bytes();
    let mut message = vec![1, 2, 0, 0, 9, 0, length as u8, 0, asks.is_some().into(), 0];
    message.extend((public.len() as u16).to_le_bytes());
    message.extend(asks.unwrap_or(0).to_le_bytes());
    message.extend(response);
    message.extend(vec![if asks.is_some() { 3 } else { 0 }; length]);
    message.extend(public);
    message
}

/// 2^1000, which is less than every prime.
fn host_public(group: FfdheGroup) -> Vec<u8> {
    let mut public = vec![0; group.bytes()];
    public[group.bytes() - 1 - 125] = 1;
    public
}

#[test]
fn both_ends_come_to_what_another_implementation_computes() {
    let secrets = both_secrets();
    for vector in &VECTORS {
        let group = vector.group;
        assert_eq!(hex(&Sha256::digest(group.prime())), vector.prime, "{group:?}");
        let mut exchange = Exchange::new(HOST, "nqn.s");
        carry(&mut exchange, &secrets, &negotiate(&[vector.hash], &[0, group as u8]));
        let (challenge, false) = exchange.give().unwrap() else { panic!("not proved") };
        let length = usize::from(challenge[6]);
        assert_eq!((challenge[8], challenge[9]), (vector.hash, group as u8));
        assert_eq!(usize::from(u16::from_le_bytes([challenge[10], challenge[11]])), group.bytes());
        let public = &challenge[16 + length..];
        assert_eq!((public.len(), hex(&Sha256::digest(public))), (group.bytes(), vector.public.to_owned()));
        let response = unhex(vector.response);
        let reply = reply_with(vector.hash, &response, &host_public(group), Some(0x0102_0304));
        carry(&mut exchange, &secrets, &reply);
        let (success, false) = exchange.give().unwrap() else { panic!("the host has to agree") };
        assert_eq!((success[1], success[6], success[8]), (3, length as u8, 1));
        assert_eq!(hex(&success[16..]), vector.proof, "{group:?}");
        let agrees = [1, 4, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(matches!(carry(&mut exchange, &secrets, &agrees), AuthProgress::Proved));
        // A host that asks for no proof has proved its name with the response alone; another
        // response, or another value of the group, fails.
        for (flipped, value, proved) in [(0, 1, true), (1, 1, false), (0, 3, false)] {
            let mut exchange = Exchange::new(HOST, "nqn.s");
            carry(&mut exchange, &secrets, &negotiate(&[vector.hash], &[group as u8]));
            exchange.give().unwrap();
            let (mut response, mut public) = (response.clone(), host_public(group));
            response[0] ^= flipped;
            public[group.bytes() - 1 - 125] = value;
            carry(&mut exchange, &secrets, &reply_with(vector.hash, &response, &public, None));
            let (message, is_proved) = exchange.give().unwrap();
            assert_eq!((is_proved, message[8..].iter().all(|byte| *byte == 0)), (proved, true));
        }
    }
}

#[test]
fn the_group_is_the_one_that_is_preferred() {
    let secrets = both_secrets();
    for (offered, chosen) in [
        (&[0, 1, 2, 3, 4, 5][..], 2),
        (&[5, 4, 3, 2, 1, 0], 2),
        (&[0, 1, 3], 3),
        (&[1, 5, 4], 4),
        (&[1, 5], 5),
        (&[9, 0, 1], 1),
        (&[9, 0], 0),
    ] {
        let mut exchange = Exchange::new(HOST, "nqn.s");
        exchange.take(&negotiate(&[1], offered), &secrets, fill);
        exchange.computed(Some(Zeroizing::new(vec![7; 8])), &secrets);
        assert_eq!(exchange.give().unwrap().0[9], chosen, "{offered:?}");
    }
}

#[test]
fn values_that_give_a_key_that_everybody_knows_are_refused() {
    let secrets = both_secrets();
    for group in FfdheGroup::PREFERENCE {
        let (last, prime) = (group.bytes() - 1, group.prime());
        let small = |value| {
            let mut number = vec![0; group.bytes()];
            number[last] = value;
            number
        };
        let less = |by: u8| {
            let mut number = prime.clone();
            number[last] -= by;
            number
        };
        for (value, good) in [
            (small(0), false),
            (small(1), false),
            (small(2), true),
            (less(2), true),
            (less(1), false),
            (less(0), false),
            (vec![0xff; group.bytes()], false),
            (vec![0x10; group.bytes() + 1], false),
            (Vec::new(), false),
            // Without the zeros at its beginning.
            (vec![2], true),
        ] {
            assert_eq!(group.accepts(&value), good, "{group:?} {}", hex(&value));
            let mut exchange = Exchange::new(HOST, "nqn.s");
            exchange.take(&negotiate(&[1], &[group as u8]), &secrets, fill);
            exchange.computed(Some(Zeroizing::new(vec![7; 8])), &secrets);
            exchange.give().unwrap();
            let progress = exchange.take(&reply_with(1, &[0; 32], &value, None), &secrets, fill);
            assert_eq!(matches!(progress, AuthProgress::Computes(_)), good);
        }
        let short = Exponentiation { group, base: Some(vec![2]), exponent: Zeroizing::new(vec![10]) };
        assert_eq!(short.compute()[last - 1..], [4, 0], "2^10");
    }
}

#[test]
fn a_host_that_asks_for_a_proof_gets_one_or_is_refused() {
    let key = [7; 32];
    // What the reply of a host that has the secret leads to, and then its consent.
    let run = |text: &str, key: &[u8], asks: u32, fetches: bool| {
        let secrets = NvmeSecrets::parse(text).unwrap();
        let mut exchange = Exchange::new(HOST, "nqn.s");
        carry(&mut exchange, &secrets, &negotiate(&[1], &[0]));
        let challenge = exchange.give().unwrap().0;
        let response = reply(&challenge, key)[16..].to_vec();
        carry(&mut exchange, &secrets, &reply_with(1, &response, &[], Some(asks)));
        let given = if fetches { Some(exchange.give().unwrap()) } else { None };
        let agrees = [1, 4, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let proved = matches!(carry(&mut exchange, &secrets, &agrees), AuthProgress::Proved);
        (given.map_or((0, 0), |(message, _)| (message[1], message[7])), proved)
    };
    let one = format!("{HOST} {}", secret("00", &key));
    let two = format!("{one} {}", secret("01", &[9; 32]));
    assert_eq!(run(&two, &key, 5, true), ((3, 0), true));
    // It agrees to what it has not seen.
    assert_eq!(run(&two, &key, 5, false), ((0, 0), false));
    // There is no secret of the controller for it; which only a host with its own is told.
    assert_eq!(run(&one, &key, 5, true), ((0xf0, 2), false));
    assert_eq!(run(&one, &[8; 32], 5, true), ((0xf0, 1), false));
    assert_eq!(run(&two, &[8; 32], 5, true), ((0xf0, 1), false));
    // A challenge for a secure channel.
    assert_eq!(run(&two, &key, 0, true), ((0xf0, 6), false));
    // A host that does not like the proof goes.
    let secrets = NvmeSecrets::parse(&two).unwrap();
    let mut exchange = Exchange::new(HOST, "nqn.s");
    carry(&mut exchange, &secrets, &negotiate(&[1], &[0]));
    let response = reply(&exchange.give().unwrap().0, &key)[16..].to_vec();
    carry(&mut exchange, &secrets, &reply_with(1, &response, &[], Some(5)));
    exchange.give().unwrap();
    let fails = [0, 0xf1, 0, 0, 9, 0, 1, 1];
    assert!(matches!(carry(&mut exchange, &secrets, &fails), AuthProgress::Over));
}

#[test]
fn what_cannot_be_computed_fails() {
    let secrets = both_secrets();
    let mut exchange = Exchange::new(HOST, "nqn.s");
    assert!(matches!(exchange.take(&negotiate(&[1], &[1]), &secrets, fill), AuthProgress::Computes(_)));
    exchange.computed(None, &secrets);
    assert_eq!(exchange.give().unwrap().0[7], 1);
}
