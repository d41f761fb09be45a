//! Random and mutated inputs to whatever the command itself decodes, the same each run; `fuzz/`
//! runs the same functions under a coverage-guided fuzzer.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use wattle_app::fuzzing::{ALL, FuzzTarget};

const ROUNDS: usize = 4000;

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ z >> 31) % limit as u64) as usize
    }
}

/// Lines of the control socket: orders of every kind, and answers.
const CONTROL: [&str; 14] = [
    r#"{"schema_version":1,"command":"status"}"#,
    r#"{"schema_version":1,"command":"fail","array":"data","member":"2"}"#,
    r#"{"schema_version":1,"command":"add","array":"data","member":"/dev/sdb","force":["signature"],"undo":{"command":"wattle add","dir":"/var/tmp","no_undo":false}}"#,
    r#"{"schema_version":1,"command":"replace","array":"data","member":"2","with":"/dev/sdb","force":[]}"#,
    r#"{"schema_version":1,"command":"repair","array":"data","source":"proof"}"#,
    r#"{"schema_version":1,"command":"repair","array":"data","source":{"member":"0"}}"#,
    r#"{"schema_version":1,"command":"pause","array":"data","paused":true}"#,
    r#"{"schema_version":1,"command":"set","array":"data","key":"goal","value":"5ms"}"#,
    r#"{"schema_version":1,"command":"lvm","order":{"what":{"extend":{"volume":"tank/home","extents":{"size":"+5G","extents":null}}},"on":["sda"]}}"#,
    r#"{"schema_version":1,"result":"status","server":"data","pid":4711,"arrays":[],"volumes":[{"name":"tank/home","size_bytes":1,"read_only":false,"exports":["nbd://h/x"]}],"groups":[{"name":"tank","uuid":"x"}],"threads":[{"name":"wattle","cpu_ms":7}]}"#,
    r#"{"schema_version":1,"result":"why","array":"data","uuid":null,"decisions":[{"member":null,"what":"a","why":"b","next":null}]}"#,
    r#"{"schema_version":1,"result":"done","message":"stopped","undo_log":"/var/lib/wattle/undo/x"}"#,
    r#"{"schema_version":1,"result":"error","code":"WTL-0101","what":"a","why":"b","next":"c","member":null,"force":null}"#,
    r#"{"schema_version":9,"command":"status"}"#,
];

/// A history with a run that was cut off and half a line, and a baseline.
const STATE: [&str; 2] = [
    "{\"schema_version\":1,\"run\":99,\"action\":\"check\",\"started\":\"2026-11-21T12:00:00Z\",\"outcome\":\"running\"}\n\
     {\"schema_version\":1,\"run\":100,\"action\":\"repair\",\"source\":\"data\",\"started\":\"2026-11-21T12:00:00Z\",\"outcome\":\"done\",\
     \"duration_secs\":3,\"mismatch_sectors\":8,\"mismatches\":[]}\n{\"schema_version\":1,\"run\":101,\"act",
    r#"{"schema_version":1,"findings":[{"code":"AUD-104","subject":"data"},{"code":"AUD-201","subject":"sda"}]}"#,
];

/// A system with a RAID 6 of six members, a volume group, mounts, and a drive that smartctl was
/// asked about; a thread.
const SYSTEM: [&str; 2] = [
    "> sys/block/sda/size\n131072\n> sys/block/sda/queue/physical_block_size\n4096\n> sys/block/sda/queue/rotational\n1\n\
     > sys/block/sda/queue/read_ahead_kb\n128\n> sys/block/sda/queue/discard_max_bytes\n2147450880\n> sys/block/sda/queue/zoned\nnone\n\
     > sys/block/sda/device/model\nINTEL SSDSA2M080\n> sys/block/sda/device/timeout\n30\n\
     > sys/block/sda/stat\n  2000 0 64000 400 2000 0 64000 440 0 900 840\n> sys/block/sda/sda1/start\n2048\n> sys/block/sda/sda1/size\n129024\n\
     > smart/sda.json\n{\"ata_sct_capabilities\":{\"error_recovery_control_supported\":true},\"ata_sct_erc\":{\"read\":{\"enabled\":true,\"deciseconds\":70}}}\n\
     > sys/block/sdb/size\n131072\n> sys/block/sdb/stat\n1 2 3 4 5 6 7 8\n> sys/block/sdc/size\n131072\n> sys/block/sdd/size\n131072\n\
     > sys/block/sde/size\n131072\n> sys/block/sdf/size\n131072\n> sys/block/sdf/queue/physical_block_size\n512\n\
     > sys/block/md0/md/level\nraid6\n> sys/block/md0/md/raid_disks\n6\n> sys/block/md0/md/chunk_size\n65536\n> sys/block/md0/md/layout\n2\n\
     > sys/block/md0/md/metadata_version\n1.2\n> sys/block/md0/md/component_size\n60416\n> sys/block/md0/md/degraded\n1\n\
     > sys/block/md0/md/sync_action\nresync\n> sys/block/md0/md/last_sync_action\ncheck\n> sys/block/md0/md/mismatch_cnt\n8\n\
     > sys/block/md0/md/resync_start\n99\n> sys/block/md0/md/consistency_policy\nbitmap\n> sys/block/md0/md/bitmap/location\n+8\n\
     > sys/block/md0/md/stripe_cache_size\n4096\n> sys/block/md0/md/stripe_cache_active\n4000\n> sys/block/md0/md/group_thread_cnt\n0\n\
     > sys/block/md0/queue/read_ahead_kb\n512\n> sys/block/md0/size\n362496\n> sys/block/md0/md/dev-sda1/state\nin_sync\n\
     > sys/block/md0/md/dev-sda1/offset\n2048\n> sys/block/md0/md/dev-sdb/state\nin_sync,write_mostly\n> sys/block/md0/md/dev-sdc/state\nfaulty\n\
     > sys/block/md0/md/dev-sdd/state\nspare\n> sys/block/md0/md/dev-sde/state\njournal\n> sys/block/md0/md/dev-sdf/offset\n7\n\
     > sys/block/dm-0/dm/name\ntank-my--home\n> sys/block/dm-0/dm/uuid\nLVM-of-the-group\n> sys/block/dm-0/queue/read_ahead_kb\n512\n\
     > proc/meminfo\nMemTotal:       16316412 kB\nMemFree:         1 kB\n> proc/cpuinfo\nprocessor\t: 0\nprocessor\t: 1\n\
     > proc/mounts\n/dev/mapper/tank-my--home /home\\040a xfs rw,noatime,attr2,logbufs=8,logbsize=32k 0 0\n/dev/md0 /srv ext4 rw,stripe=64 0 0\n\
     > etc/fstab\n# options\n/dev/tank/my-home /home xfs noatime,sunit=128,swidth=512 0 0\n\
     > etc/mdadm/mdadm.conf\n# MAILADDR nobody\nMAILADDR root\n> sys/module/raid456/parameters/devices_handle_discard_safely\nY\n",
    "77 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 18446744073709551615 50 0 0 20 0 1 0 5",
];

const WORDS: [&str; 30] = [
    "64K",
    "20ms",
    "0.5s",
    "1:1M+4G",
    "randwrite",
    "dirty-degraded",
    "mem:1G",
    "null:2048s",
    "model:hdd7200,size=4T,seek=9ms",
    "model:nvme,read=2G,share=10%",
    "nbd+unix:///a%20b?socket=/run/x%41",
    "nbd://[::1]:10809/x",
    "1.2",
    "left-symmetric",
    "near=2, far=2",
    "o3",
    "raid10",
    "c7d9e2a1:00112233:44556677:8899aabb",
    "AmwMod-AY5L-lg0X-rZAK-rs2V-jG86-meMu6z",
    "WTL-0049",
    "sync_speed_max=50M goal=5ms stripe_cache_size=16G read_deadline=500ms sync_action=check",
    "members=3..24,30",
    "rw=randrw,bs=8k,iodepth=32",
    "rw=randwrite bs=4k",
    "+100%FREE",
    "-33%LV",
    "vg_name=data && (lv_size>1.5g || !lv_tags={a#b})",
    "name=~\"^(home|srv)[0-9]+$\",size<=18446744073709551615e",
    "tags=[a,\"b c\"]#pv_pe_count!=4",
    "all",
];

fn seeds() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("control", CONTROL.to_vec()),
        ("state", STATE.to_vec()),
        ("system", SYSTEM.to_vec()),
        ("words", WORDS.to_vec()),
    ]
}

fn target(name: &str) -> FuzzTarget {
    ALL.iter().find(|(known, _)| *known == name).unwrap().1
}

#[test]
fn every_target_has_seeds() {
    let names: Vec<_> = seeds().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ALL.map(|(name, _)| name));
}

#[test]
fn random_bytes() {
    let mut random = Random(1);
    for _ in 0..ROUNDS {
        let bytes: Vec<u8> = (0..random.below(300)).map(|_| random.below(256) as u8).collect();
        ALL.iter().for_each(|(_, target)| target(&bytes));
    }
}

#[test]
fn mutated_text() {
    let mut random = Random(2);
    for (name, seeds) in seeds() {
        let target = target(name);
        for seed in &seeds {
            target(seed.as_bytes());
            for _ in 0..(2 * ROUNDS).div_ceil(seeds.len()) {
                let mut bytes = seed.as_bytes().to_vec();
                for _ in 0..1 + random.below(4) {
                    mutate(&mut bytes, &seeds, &mut random);
                }
                target(&bytes);
            }
        }
    }
}

/// Where the fuzzer's first inputs go, if that is what the tests run for.
#[test]
fn seeds_for_the_fuzzer() {
    let Some(corpus) = std::env::var_os("WATTLE_FUZZ_CORPUS") else { return };
    for (name, seeds) in seeds() {
        let dir = std::path::Path::new(&corpus).join(name);
        std::fs::create_dir_all(&dir).unwrap();
        for (ix, seed) in seeds.iter().enumerate() {
            std::fs::write(dir.join(format!("made-{ix}")), seed).unwrap();
        }
    }
}

/// Another byte, a word that matters instead of what stood there, a part twice or not at all, a
/// part of another seed.
fn mutate(bytes: &mut Vec<u8>, seeds: &[&str], random: &mut Random) {
    const WORDS: [&str; 16] = [
        "0",
        "-1",
        "1",
        "18446744073709551615",
        "18446744073709551616",
        "9223372036854775807",
        "4294967295",
        "1e400",
        ".",
        "\n",
        "\"",
        "ü",
        "(((",
        "\u{0}",
        "null",
        "{",
    ];
    let at = random.below(bytes.len() + 1);
    let end = (at + random.below(12)).min(bytes.len());
    match random.below(5) {
        0 if at < bytes.len() => bytes[at] = random.below(256) as u8,
        1 => drop(bytes.splice(at..end, WORDS[random.below(WORDS.len())].bytes())),
        2 => drop(bytes.drain(at..end)),
        3 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
        // A whole number at once: the ones that overflow are not found digit by digit.
        _ => {
            let numbers: Vec<_> = numbers(bytes);
            match numbers.get(random.below(numbers.len() + 1)) {
                Some(&(from, to)) => drop(bytes.splice(from..to, WORDS[random.below(8)].bytes())),
                None => {
                    let other = seeds[random.below(seeds.len())].as_bytes();
                    let from = random.below(other.len());
                    let to = (from + random.below(60)).min(other.len());
                    drop(bytes.splice(at..end, other[from..to].to_vec()));
                }
            }
        }
    }
}

/// Where they are.
fn numbers(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let len = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if len > 0 {
            found.push((at, at + len));
        }
        at += len.max(1);
    }
    found
}
