//! Histories in which an array of copies runs on any of its members, also on two sets that know
//! nothing of each other, with new members in between.
//!
//! The oracle: all that a device was whole with when it was last stopped is one content. What a
//! start shows is a content of one of the devices that were given, whole, and so is what every
//! member in sync holds at the end: two histories are never mixed.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use super::*;

const DEVICES: usize = 5;
/// Of array bytes, each written as one.
const REGION_BYTES: usize = 64 << 10;
const REGIONS: usize = 16;

/// What each region holds.
type Content = [u8; REGIONS];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

/// One life of an array: which devices are given, what happens. Drawn before, since it runs on a
/// core.
#[derive(Clone, Debug)]
struct Life {
    given: Vec<usize>,
    forced: Forced,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write { region: usize, byte: u8 },
    Add { device: usize, forced: Forced },
    Fail { slot: usize, removes: bool },
}

impl Life {
    /// How half of all histories begin: each half goes on alone, one with a new partner.
    fn alone(random: &mut Random, device: usize, partner: Option<usize>) -> Self {
        let writes = (0..1 + random.below(4))
            .map(|_| Step::Write { region: random.below(REGIONS), byte: 1 + random.below(255) as u8 });
        let add = partner.map(|device| Step::Add { device, forced: Forced::default() });
        Self { given: vec![device], forced: Forced::default(), steps: writes.chain(add).collect() }
    }

    fn draw(random: &mut Random, used: &[usize]) -> Self {
        let mut given: Vec<_> = used.iter().copied().filter(|_| random.below(3) > 0).collect();
        if given.is_empty() {
            given.push(used[random.below(used.len())]);
        }
        let may = |random: &mut Random, check| {
            if random.below(4) == 0 { Forced::default().with(check) } else { Forced::default() }
        };
        let forced = may(random, Check::SplitBrain);
        let steps = (0..random.below(6)).map(|_| match random.below(5) {
            0 => Step::Add { device: random.below(DEVICES), forced: may(random, Check::SplitBrain) },
            1 => Step::Fail { slot: random.below(2), removes: random.below(2) == 0 },
            _ => Step::Write { region: random.below(REGIONS), byte: 1 + random.below(255) as u8 },
        });
        Self { given, forced, steps: steps.collect() }
    }
}

async fn content(core: &Core, array: &RunningArray) -> Content {
    let bytes = read(core, array).await;
    std::array::from_fn(|region| {
        let bytes = &bytes[region * REGION_BYTES..][..REGION_BYTES];
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "region {region} is torn");
        bytes[0]
    })
}

/// What a member's own copy holds.
fn copy_on(name: &str, version: Version) -> Content {
    let file = std::fs::File::open(name).unwrap();
    let mut offset = [0; 8];
    if version == Version::V12 {
        file.read_exact_at(&mut offset, 4096 + 128).unwrap();
    }
    std::array::from_fn(|region| {
        let mut bytes = vec![0; REGION_BYTES];
        file.read_exact_at(&mut bytes, u64::from_le_bytes(offset) * 512 + (region * REGION_BYTES) as u64)
            .unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "region {region} of {name} is torn");
        bytes[0]
    })
}

/// Waits until nothing more comes back or is filled.
async fn settled(core: &Core, array: &RunningArray) {
    let mut quiet = 0;
    for _ in 0..3000 {
        let status = array.handle().status(core).await;
        let filling = |who: &wattle_engine::MemberStatus| matches!(who.state, MemberState::Rebuilding { .. });
        let is_filled = status.members.iter().chain(&status.replacements).any(filling);
        quiet = if is_filled { 0 } else { quiet + 1 };
        if quiet > 5 {
            return;
        }
        core.sleep(Duration::from_millis(5)).await;
    }
    panic!("it does not settle: {:?}", array.handle().status(core).await);
}

/// Plays a life; what devices hold in the end, by name: those that failed what there was then, and
/// behind them the members that are in sync; nothing in particular if they were not whole. `None`
/// if it was refused.
fn play(life: Life, names: &[String], allowed: Vec<Content>) -> Option<Vec<(String, Option<Content>)>> {
    let names = names.to_vec();
    on_a_core(async move |core| {
        let given: Vec<_> = life.given.iter().map(|at| names[*at].clone()).collect();
        let forced = life.forced.with(Check::MissingMember);
        let found = scan(MemberAccess::local().look_all(&given).unwrap(), forced).unwrap();
        let claimed = start::claim(&found, found.find(None).ok()?, false).ok()?;
        drop(found);
        let started = claimed.launch(&core).await.unwrap();
        let array = RunningArray::new(&core, &MemberAccess::local(), "t", started);
        core.spawn(keep(array.clone()));
        settled(&core, &array).await;
        let mut now = content(&core, &array).await;
        assert!(allowed.contains(&now), "{life:?}: nothing that was given holds {now:?}");
        let mut holds = Vec::new();
        for step in &life.steps {
            match *step {
                Step::Write { region, byte } => {
                    let volume = array.handle().volume().open(&core).unwrap();
                    let bytes = Buf::copy_of(&vec![byte; REGION_BYTES]);
                    let at = (region * REGION_BYTES) as u64;
                    volume.write(at, bytes, Durability::Fua).await.unwrap();
                    now[region] = byte;
                }
                // Whatever is refused changes nothing.
                Step::Add { device, forced } => {
                    let _ = array.add(&names[device], UUID, forced).await;
                    settled(&core, &array).await;
                }
                Step::Fail { slot, removes } => {
                    let Some(failing) = array.names().get(slot).cloned().flatten() else { continue };
                    let is_whole =
                        array.handle().status(&core).await.members[slot].state == MemberState::InSync;
                    if array.fail(&failing).await.is_ok() {
                        holds.push((failing.clone(), is_whole.then_some(now)));
                        if removes {
                            // A spare may have its slot already: then it is forgotten.
                            let _ = array.remove(&failing).await;
                        }
                    }
                }
            }
            settled(&core, &array).await;
            assert_eq!(content(&core, &array).await, now, "{life:?} after {step:?}");
        }
        let status = array.handle().status(&core).await;
        let seated = array.names();
        for (who, name) in status.members.iter().zip(seated) {
            let is_whole = who.state == MemberState::InSync;
            holds.extend(name.filter(|_| who.state.writable()).map(|name| (name, is_whole.then_some(now))));
        }
        array.stop().await.unwrap();
        Some(holds)
    })
}

#[test]
fn two_histories_of_an_array_of_copies_are_never_mixed() {
    const SEEDS: u64 = 60;
    let (mut started, mut refused) = (0, 0);
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let version = [Version::V12, Version::V12, Version::V090][random.below(3)];
        let consistency = match random.below(3) {
            0 => Consistency::Resync,
            _ => Consistency::Bitmap { chunk_bytes: Some(65536) },
        };
        let (_dir, names) = files(DEVICES, SIZE);
        let members = 2 + random.below(2);
        create(Level::Raid1, version, consistency, &names[..members], &[]);
        let all = names[..members].to_vec();
        on_a_core(async move |core| {
            let array = run(&core, &all).await;
            whole(&core, &array).await;
            array.stop().await.unwrap();
        });
        let mut holds: BTreeMap<usize, Option<Content>> =
            (0..members).map(|device| (device, Some([0; REGIONS]))).collect();
        let mut log = Vec::new();
        for nth in 0..6 {
            let used: Vec<_> = holds.keys().copied().collect();
            let life = match nth {
                0 if seed % 2 == 0 => Life::alone(&mut random, 1, Some(4)),
                // So often that this one is ahead of the other.
                1..=4 if seed % 2 == 0 => Life::alone(&mut random, 0, None),
                5 if seed % 2 == 0 => {
                    Life { given: vec![0, 1], forced: Forced::default(), steps: Vec::new() }
                }
                _ => Life::draw(&mut random, &used),
            };
            let allowed = life.given.iter().filter_map(|device| holds[device]).collect();
            log.push(life.clone());
            let Some(held) = play(life, &names, allowed) else {
                refused += 1;
                continue;
            };
            started += 1;
            for (name, content) in held {
                let device = names.iter().position(|known| *known == name).unwrap();
                holds.insert(device, content);
            }
            for (device, content) in &holds {
                let Some(content) = content else { continue };
                assert_eq!(copy_on(&names[*device], version), *content, "seed {seed} {version}: {log:#?}");
            }
        }
    }
    assert!(started > 2 * SEEDS && refused > SEEDS / 4, "{started} started, {refused} were refused");
}
