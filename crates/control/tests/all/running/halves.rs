//! Histories in which an array of copies runs on any of its members, also on two sets that know
//! nothing of each other, with new members in between.
//!
//! The oracle: all that a device was whole with when it was last stopped is one content. What a
//! start shows is a content of one of the devices that were given, whole, and so is what every
//! member in sync holds at the end: two histories are never mixed. Nor is one given up unasked:
//! what a member held before is a past of what it holds now.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const DEVICES: usize = 5;
/// Of array bytes, each written as one.
const REGION_BYTES: usize = 64 << 10;
const REGIONS: usize = 16;

/// What each region holds.
type Content = [u8; REGIONS];

/// What a device holds, and the writes that it came of.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    content: Content,
    past: Vec<usize>,
}

impl Held {
    fn write(&mut self, region: usize, byte: u8) {
        static WRITES: AtomicUsize = AtomicUsize::new(0);
        self.content[region] = byte;
        self.past.push(WRITES.fetch_add(1, Ordering::Relaxed));
    }
}

/// Which numbers devices get that join.
#[derive(Clone, Copy)]
enum Numbers {
    /// As they come.
    Drawn,
    /// What joins gets the number of what is away, in every half.
    Equal,
}

impl Numbers {
    /// The id of a device that joins, which its number is chosen by.
    fn device_uuid(self, random: &mut Random) -> Uuid {
        let mut uuid: [u8; 16] = std::array::from_fn(|_| random.below(256) as u8);
        if let Self::Equal = self {
            uuid[..8].fill(7);
        }
        Uuid(uuid)
    }
}

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
    /// It is lived again until its first device has as many events as this one.
    levels_with: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write {
        region: usize,
        byte: u8,
    },
    Add {
        device: usize,
        uuid: Uuid,
        forced: Forced,
    },
    Fail {
        slot: usize,
        removes: bool,
    },
    /// Long enough that bits are cleared.
    Rest,
}

impl Life {
    /// Each half of an array goes on alone, one with a new partner.
    fn alone(random: &mut Random, device: usize, partner: Option<(usize, Numbers)>, rests: bool) -> Self {
        let mut steps: Vec<_> = (0..1 + random.below(4)).map(|_| Step::write(random)).collect();
        if let Some((device, numbers)) = partner {
            steps.push(Step::Add { device, uuid: numbers.device_uuid(random), forced: Forced::default() });
            steps.extend((0..random.below(2)).map(|_| Step::write(random)));
        }
        steps.extend(rests.then_some(Step::Rest));
        Self { given: vec![device], forced: Forced::default(), steps, levels_with: None }
    }

    /// Another device takes the place of one.
    fn replace(random: &mut Random, given: Vec<usize>, device: usize, numbers: Numbers) -> Self {
        let forced = Forced::default();
        let uuid = numbers.device_uuid(random);
        let steps = vec![Step::Fail { slot: 1, removes: true }, Step::Add { device, uuid, forced }];
        Self { given, forced, steps, levels_with: None }
    }

    fn draw(random: &mut Random, used: &[usize], numbers: Numbers) -> Self {
        let mut given: Vec<_> = used.iter().copied().filter(|_| random.below(3) > 0).collect();
        if given.is_empty() {
            given.push(used[random.below(used.len())]);
        }
        let may = |random: &mut Random, check| {
            if random.below(4) == 0 { Forced::default().with(check) } else { Forced::default() }
        };
        let forced = may(random, Check::SplitBrain);
        let steps = (0..random.below(6)).map(|_| match random.below(5) {
            0 => Step::Add {
                device: random.below(DEVICES),
                uuid: numbers.device_uuid(random),
                forced: may(random, Check::SplitBrain),
            },
            1 => Step::Fail { slot: random.below(2), removes: random.below(2) == 0 },
            _ => Step::write(random),
        });
        Self { given, forced, steps: steps.collect(), levels_with: None }
    }
}

impl Step {
    fn write(random: &mut Random) -> Self {
        Self::Write { region: random.below(REGIONS), byte: 1 + random.below(255) as u8 }
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

/// How many events a member counts.
fn events(name: &str) -> u64 {
    let found = scan(MemberAccess::local().look_all(&[name.to_owned()]).unwrap(), Forced::default()).unwrap();
    found.find(None).unwrap().assembly.array.events
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
/// if it was refused. `known` is what devices hold at the start, and `keeps_pasts` whether what was
/// not given up must be a past of what there is now.
fn play(
    life: Life,
    names: &[String],
    known: BTreeMap<String, Option<Held>>,
    keeps_pasts: bool,
) -> Option<Vec<(String, Option<Held>)>> {
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
        let shown = content(&core, &array).await;
        let allowed = given.iter().filter_map(|name| known[name].as_ref());
        let base = allowed.filter(|held| held.content == shown).max_by_key(|held| held.past.len());
        let mut now = base.unwrap_or_else(|| panic!("{life:?}: nothing given holds {shown:?}")).clone();
        let mut pasts = known.clone();
        let mut given_up = BTreeSet::new();
        let mut holds = Vec::new();
        for step in [None].into_iter().chain(life.steps.iter().map(Some)) {
            match step {
                None => {}
                Some(&Step::Write { region, byte }) => {
                    let volume = array.handle().volume().open(&core).unwrap();
                    let bytes = Buf::copy_of(&vec![byte; REGION_BYTES]);
                    let at = (region * REGION_BYTES) as u64;
                    volume.write(at, bytes, Durability::Fua).await.unwrap();
                    now.write(region, byte);
                }
                // Whatever is refused changes nothing.
                Some(&Step::Add { device, uuid, forced }) => {
                    let _ = array.add(&names[device], uuid, forced).await;
                    if forced.has(Check::SplitBrain) {
                        given_up.insert(names[device].clone());
                    }
                }
                Some(&Step::Fail { slot, removes }) => {
                    let Some(failing) = array.names().get(slot).cloned().flatten() else { continue };
                    let is_whole =
                        array.handle().status(&core).await.members[slot].state == MemberState::InSync;
                    if array.fail(&failing).await.is_ok() {
                        holds.push((failing.clone(), is_whole.then(|| now.clone())));
                        pasts.insert(failing.clone(), None);
                        if removes {
                            // A spare may have its slot already: then it is forgotten.
                            let _ = array.remove(&failing).await;
                        }
                    }
                }
                Some(Step::Rest) => core.sleep(Duration::from_millis(3500)).await,
            }
            settled(&core, &array).await;
            assert_eq!(content(&core, &array).await, now.content, "{life:?} after {step:?}");
            for name in array.names().into_iter().flatten().filter(|name| !given_up.contains(name)) {
                let before = pasts.get(&name).cloned().flatten().filter(|_| keeps_pasts);
                let is_past = before.is_none_or(|before| now.past.starts_with(&before.past));
                assert!(is_past, "{life:?} after {step:?}: what {name} held is gone");
            }
        }
        let status = array.handle().status(&core).await;
        let seated = array.names();
        for (who, name) in status.members.iter().zip(seated) {
            let is_whole = who.state == MemberState::InSync;
            let writable = name.filter(|_| who.state.writable());
            holds.extend(writable.map(|name| (name, is_whole.then(|| now.clone()))));
        }
        array.stop().await.unwrap();
        Some(holds)
    })
}

/// Histories of an array of two or three copies: the lives, and what must not happen in them.
struct History {
    version: Version,
    consistency: Consistency,
    members: usize,
    numbers: Numbers,
    lives: Vec<Life>,
    /// How many are drawn behind them.
    drawn: usize,
}

impl History {
    fn draw(random: &mut Random, seed: u64) -> Self {
        let version = [Version::V12, Version::V12, Version::V090][random.below(3)];
        let consistency = match random.below(3) {
            0 => Consistency::Resync,
            _ => Consistency::Bitmap { chunk_bytes: Some(65536) },
        };
        let members = 2 + random.below(2);
        let numbers = if random.below(2) == 0 { Numbers::Equal } else { Numbers::Drawn };
        if seed % 2 == 1 {
            return Self { version, consistency, members, numbers, lives: Vec::new(), drawn: 6 };
        }
        // Two halves that go on alone, one with a new partner, the other so often that it is ahead.
        // In every other one of these a member was replaced before.
        let mut lives = Vec::new();
        let mut halves = [0, 1];
        if seed.is_multiple_of(4) {
            lives.push(Life::replace(random, (0..members).collect(), 3, numbers));
            halves[1] = 3;
        }
        // That takes seconds.
        let rests = seed.is_multiple_of(8) && consistency != Consistency::Resync;
        let [with, without] = if random.below(2) == 0 { halves } else { [halves[1], halves[0]] };
        lives.push(Life::alone(random, with, Some((4, numbers)), rests));
        let mut alone = (0..4).map(|_| Life::alone(random, without, None, false));
        if seed.is_multiple_of(3) {
            // Counts of events that differ by one at most tell less.
            lives.extend(alone.next().map(|life| Life { levels_with: Some(with), ..life }));
        } else {
            lives.extend(alone);
        }
        let given = vec![with, without];
        let mut last = Life { given, forced: Forced::default(), steps: Vec::new(), levels_with: None };
        if random.below(2) == 0 {
            last.given.remove(0);
            let uuid = numbers.device_uuid(random);
            last.steps.push(Step::Add { device: with, uuid, forced: Forced::default() });
        }
        lives.push(last);
        Self { version, consistency, members, numbers, lives, drawn: 0 }
    }

    /// Whether nothing is given up unasked. Metadata 0.90 does not tell which devices were in the
    /// slots; and where numbers are equal, only bits may tell.
    fn keeps_pasts(&self) -> bool {
        self.drawn == 0 && self.version.is_1x() && matches!(self.numbers, Numbers::Drawn)
    }
}

#[test]
fn two_histories_of_an_array_of_copies_are_never_mixed() {
    const SEEDS: u64 = 80;
    let (mut started, mut refused) = (0, 0);
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let history = History::draw(&mut random, seed);
        let (_dir, names) = files(DEVICES, SIZE);
        let looked = looked(&names[..history.members]);
        let request = CreateRequest {
            version: history.version,
            consistency: history.consistency,
            bitmap_sweep_secs: matches!(history.consistency, Consistency::Bitmap { .. }).then_some(1),
            ..request(Level::Raid1, looked)
        };
        real::create(&request).unwrap();
        let all = names[..history.members].to_vec();
        on_a_core(async move |core| {
            let array = run(&core, &all).await;
            whole(&core, &array).await;
            array.stop().await.unwrap();
        });
        let blank = Held { content: [0; REGIONS], past: Vec::new() };
        let mut holds: BTreeMap<usize, Option<Held>> =
            (0..history.members).map(|device| (device, Some(blank.clone()))).collect();
        let mut log = Vec::new();
        let mut lives: VecDeque<_> = history.lives.iter().cloned().collect();
        let mut drawn = history.drawn;
        while !lives.is_empty() || drawn > 0 {
            let used: Vec<_> = holds.keys().copied().collect();
            let life = lives.pop_front().unwrap_or_else(|| {
                drawn -= 1;
                Life::draw(&mut random, &used, history.numbers)
            });
            log.push(life.clone());
            if let Some(other) = life.levels_with {
                // This one and one more may bring it there.
                if events(&names[life.given[0]]) + 2 < events(&names[other]) {
                    lives.push_front(life.clone());
                }
            }
            let known = holds.iter().map(|(device, held)| (names[*device].clone(), held.clone())).collect();
            let Some(held) = play(life, &names, known, history.keeps_pasts()) else {
                refused += 1;
                continue;
            };
            started += 1;
            for (name, content) in held {
                let device = names.iter().position(|known| *known == name).unwrap();
                holds.insert(device, content);
            }
            for (device, held) in &holds {
                let Some(Held { content, .. }) = held else { continue };
                let on_it = copy_on(&names[*device], history.version);
                assert_eq!(on_it, *content, "seed {seed} {}: {log:#?}", history.version);
            }
        }
    }
    assert!(started > 2 * SEEDS && refused > SEEDS / 4, "{started} started, {refused} were refused");
}
