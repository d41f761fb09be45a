//! How fast sectors are decrypted: `cargo test -p wattle-crypt --release --test speed -- --ignored
//! --nocapture`, beside `openssl speed -evp aes-256-xts`.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::disallowed_methods, reason = "tests")]

use std::time::{Duration, Instant};

use wattle_crypt::SectorCipher;

/// Ciphers, bytes of the key, bytes of a sector.
const CASES: [(&str, usize, u32); 6] = [
    ("aes-xts-plain64", 64, 512),
    ("aes-xts-plain64", 64, 4096),
    ("aes-xts-plain64", 32, 4096),
    ("aes-cbc-essiv:sha256", 32, 512),
    ("serpent-xts-plain64", 64, 4096),
    ("twofish-xts-plain64", 64, 4096),
];

/// Time of the processor that this thread has had, in seconds.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<u64>().unwrap() as f64 / 1e9
}

/// Gigabytes a second of a whole core: the median of some runs.
fn speed(work: impl Fn(&mut [u8])) -> f64 {
    let mut bytes = vec![7; 1 << 20];
    let mut rates: Vec<f64> = (0..9)
        .map(|_| {
            let (began, used, mut done) = (Instant::now(), processor_seconds(), 0_u64);
            while began.elapsed() < Duration::from_millis(200) {
                work(&mut bytes);
                done += bytes.len() as u64;
            }
            done as f64 / (processor_seconds() - used) / 1e9
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[test]
#[ignore = "measures; its figures are in docs/performance.md"]
fn gigabytes_a_second() {
    for (name, key_bytes, sector_bytes) in CASES {
        let key: Vec<u8> = (0..key_bytes as u8).collect();
        let cipher = SectorCipher::new(name, &key, sector_bytes).unwrap();
        let (decrypts, encrypts) =
            (speed(|bytes| cipher.decrypt(0, bytes)), speed(|bytes| cipher.encrypt(0, bytes)));
        let bits = key_bytes * 8;
        eprintln!("{name} {bits} bits, {sector_bytes}: decrypts {decrypts:.2}, encrypts {encrypts:.2} GB/s");
    }
}
