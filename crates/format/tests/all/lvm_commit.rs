//! Every way in which a commit to three areas can be cut short: whatever subset of the sectors that
//! were not flushed survives, the areas together say the old text or the new one.

use wattle_format::lvm::area::Header;
use wattle_format::lvm::label::Area;
use wattle_format::lvm::{AreaState, Id, Stamp, Vg, choose};

const AREAS: [Area; 3] = [area(4096), area(1 << 20), area(2 << 20)];
const SECTOR: usize = 512;

const fn area(offset_bytes: u64) -> Area {
    Area { offset_bytes, size_bytes: 16 * 512 }
}

/// One sector of a write.
type Write = (u64, Vec<u8>);

#[derive(Clone)]
struct Device(Vec<u8>);

impl Device {
    fn write(&mut self, (at, bytes): &Write) {
        self.0[*at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, at: u64, len: u64) -> &[u8] {
        &self.0[at as usize..][..len as usize]
    }

    fn header(&self, area: Area) -> Header {
        Header::decode(self.read(area.offset_bytes, 512), area).unwrap()
    }

    fn state(&self, area: Area) -> AreaState {
        let text = |header: &Header| {
            let location = header.committed().unwrap();
            let ranges = header.ranges(&location)?;
            let pieces: Vec<_> = ranges.iter().map(|r| self.read(r.offset_bytes, r.size_bytes)).collect();
            Ok((header.text(&location, &pieces)?, location.crc))
        };
        match Header::decode(self.read(area.offset_bytes, 512), area).and_then(|header| text(&header)) {
            Err(error) => AreaState::Damaged(error),
            Ok((text, crc)) => {
                let vg = Vg::parse(&text).unwrap();
                AreaState::Text { vg: vg.id, seqno: vg.seqno, crc }
            }
        }
    }

    /// The sequence number that counts.
    fn seqno(&self) -> u64 {
        let states = AREAS.map(|area| self.state(area));
        let (chosen, _) = choose(&states).unwrap();
        match states[chosen] {
            AreaState::Text { seqno, .. } => seqno,
            _ => unreachable!("what was chosen is a text"),
        }
    }

    /// The three steps of a commit, each as the sectors that it writes.
    fn steps(&self, vg: &Vg) -> [Vec<Write>; 3] {
        let stamp = Stamp { description: "x".repeat(500), host: "here".to_owned(), time: 1 };
        let commits = AREAS.map(|area| self.header(area).commit(&vg.to_text(&stamp)).unwrap());
        let sectors = |(at, bytes): &Write| {
            let sectors = (0..).map(|i| at + i * SECTOR as u64).zip(bytes.chunks(SECTOR).map(<[u8]>::to_vec));
            sectors.collect::<Vec<_>>()
        };
        let header = |header: &Header| (header.start(), header.bytes().to_vec());
        [
            commits.iter().flat_map(|commit| &commit.texts).flat_map(sectors).collect(),
            commits.iter().map(|commit| header(&commit.precommit)).collect(),
            commits.iter().map(|commit| header(&commit.commit)).collect(),
        ]
    }
}

/// Calls `check` with the device after every subset of `writes`.
fn subsets(device: &Device, writes: &[Write], mut check: impl FnMut(&Device, usize)) {
    assert!(writes.len() <= 12, "{} sectors are too many subsets", writes.len());
    for subset in 0..1_usize << writes.len() {
        let mut crashed = device.clone();
        let survivors = writes.iter().enumerate().filter(|(i, _)| subset >> i & 1 == 1);
        survivors.for_each(|(_, write)| crashed.write(write));
        check(&crashed, subset);
    }
}

#[test]
fn a_crash_leaves_the_old_text_or_the_new_one() {
    let mut device = Device(vec![0; 3 << 20]);
    AREAS
        .iter()
        .for_each(|&area| device.write(&(area.offset_bytes, Header::new(area).unwrap().bytes().to_vec())));
    let mut vg = Vg::new("vg", Id::from_random([1; 32]), 8192);
    device.steps(&vg).iter().flatten().for_each(|write| device.write(write));
    let (mut cases, mut wrapped) = (0, 0);
    // Around the ring, so that the texts lie at every place and in two pieces.
    for _ in 0..9 {
        let old = vg.seqno;
        vg = vg.next().unwrap();
        let [texts, precommit, commit] = device.steps(&vg);
        for step in [&texts, &precommit] {
            subsets(&device, step, |crashed, _| {
                cases += 1;
                assert_eq!(crashed.seqno(), old, "nothing counts yet");
            });
            step.iter().for_each(|write| device.write(write));
        }
        subsets(&device, &commit, |crashed, subset| {
            cases += 1;
            assert_eq!(crashed.seqno(), if subset == 0 { old } else { vg.seqno });
            // A writer that finds it so commits again, on top of what counts.
            let mut again = vg.clone();
            again.seqno = 100;
            let mut after = crashed.clone();
            crashed.steps(&again).iter().flatten().for_each(|write| after.write(write));
            assert_eq!(after.seqno(), 100);
        });
        // A header that was being written when the power went may be unreadable, too.
        for torn in AREAS {
            let mut crashed = device.clone();
            commit.iter().filter(|(at, _)| *at != torn.offset_bytes).for_each(|write| crashed.write(write));
            crashed.write(&(torn.offset_bytes, vec![0xa5; SECTOR]));
            assert_eq!(crashed.seqno(), vg.seqno);
            let mut crashed = device.clone();
            crashed.write(&(torn.offset_bytes, vec![0xa5; SECTOR]));
            assert_eq!(crashed.seqno(), old);
        }
        commit.iter().for_each(|write| device.write(write));
        let header = device.header(AREAS[0]);
        assert_eq!(header.precommitted(), None);
        wrapped += header.ranges(&header.committed().unwrap()).unwrap().len() - 1;
    }
    assert!(cases > 9 * 64 && wrapped > 0, "{cases}, {wrapped}");
}
