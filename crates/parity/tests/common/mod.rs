//! Rows of blocks whose parity the naive oracle has computed, at chosen alignments and between
//! guard bytes.

#![allow(dead_code, reason = "each test binary uses its part")]

use wattle_parity::{Block, DataBlock, Kernels, RecoverError, naive};

/// Bytes before and after a block that no kernel may touch.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa5;

/// A block at a chosen distance from a 64-byte boundary, with guards around it.
#[derive(Clone)]
pub struct Buf {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buf {
    pub fn new(len: usize, misalignment: usize) -> Self {
        let memory = vec![GUARD_BYTE; GUARD + 64 + misalignment + len + GUARD];
        let start = GUARD + memory[GUARD..].as_ptr().align_offset(64) + misalignment;
        Buf { memory, start, len }
    }

    pub fn random(len: usize, misalignment: usize, random: &mut Random) -> Self {
        let mut buf = Buf::new(len, misalignment);
        buf.bytes_mut().fill_with(|| random.byte());
        buf
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }

    pub fn assert_is(&self, expected: &[u8], what: &str) {
        let wrong = self.bytes().iter().zip(expected).position(|(have, want)| have != want);
        assert_eq!(wrong, None, "{what}: first wrong byte, of {}", self.len);
        let (before, after) = (&self.memory[..self.start], &self.memory[self.start + self.len..]);
        assert!(
            before.iter().chain(after).all(|byte| *byte == GUARD_BYTE),
            "{what}: wrote outside its block"
        );
    }
}

/// All of them, or under Miri, which is slow, every thirteenth of the first hundred.
pub fn few<T>(all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    let (step, most) = if cfg!(miri) { (13, 8) } else { (1, usize::MAX) };
    all.into_iter().step_by(step).take(most)
}

/// A small deterministic generator (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn byte(&mut self) -> u8 {
        (self.next() >> 56) as u8
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }
}

/// A member of a row, for saying which is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Data(usize),
    P,
    Q,
}

/// Data blocks and the oracle's parity.
#[derive(Clone)]
pub struct Row {
    pub exponents: Vec<u8>,
    pub data: Vec<Buf>,
    pub p: Buf,
    pub q: Buf,
}

impl Row {
    /// Random data; every block sits `(its number * 13 + misalignment) % 64` from a boundary, or
    /// all sit on one if `misalignment` is `None`.
    pub fn new(exponents: &[u8], len: usize, misalignment: Option<usize>) -> Self {
        let mut random = Random::new(len as u64 * 257 + exponents.len() as u64);
        let place = |n: usize| misalignment.map_or(0, |misalignment| (n * 13 + misalignment) % 64);
        let data: Vec<_> = (0..exponents.len()).map(|n| Buf::random(len, place(n), &mut random)).collect();
        let (mut p, mut q) =
            (Buf::new(len, place(exponents.len())), Buf::new(len, place(exponents.len() + 1)));
        let sources: Vec<_> = exponents.iter().copied().zip(data.iter().map(Buf::bytes)).collect();
        naive::p(p.bytes_mut(), &sources);
        naive::q(q.bytes_mut(), &sources);
        drop(sources);
        Row { exponents: exponents.to_vec(), data, p, q }
    }

    pub fn len(&self) -> usize {
        self.p.len
    }

    pub fn sources(&self) -> Vec<DataBlock<'_>> {
        self.exponents.iter().zip(&self.data).map(|(e, block)| DataBlock::new(*e, block.bytes())).collect()
    }

    pub fn places(&self) -> Vec<Place> {
        (0..self.data.len()).map(Place::Data).chain([Place::P, Place::Q]).collect()
    }

    pub fn at(&mut self, place: Place) -> &mut Buf {
        match place {
            Place::Data(n) => &mut self.data[n],
            Place::P => &mut self.p,
            Place::Q => &mut self.q,
        }
    }

    /// Scribbles over the lost blocks and has them recovered. `absent` parity is not shown to the
    /// kernels at all.
    pub fn lose_and_recover(
        &mut self,
        kernels: &Kernels,
        lost: &[Place],
        absent: &[Place],
    ) -> Result<(), RecoverError> {
        for place in lost {
            self.at(*place).bytes_mut().fill(0xee);
        }
        fn block<'a>(buf: &'a mut Buf, lost: bool) -> Block<'a> {
            if lost { Block::Lost(buf.bytes_mut()) } else { Block::Known(buf.bytes()) }
        }
        let mut data: Vec<_> = self
            .exponents
            .iter()
            .zip(&mut self.data)
            .enumerate()
            .map(|(n, (e, buf))| (*e, block(buf, lost.contains(&Place::Data(n)))))
            .collect();
        let p = (!absent.contains(&Place::P)).then(|| block(&mut self.p, lost.contains(&Place::P)));
        let q = (!absent.contains(&Place::Q)).then(|| block(&mut self.q, lost.contains(&Place::Q)));
        kernels.recover(&mut data, p, q)
    }

    pub fn assert_same(&self, original: &Row, what: &str) {
        for (n, (have, want)) in self.data.iter().zip(&original.data).enumerate() {
            have.assert_is(want.bytes(), &format!("{what}: data {n}"));
        }
        self.p.assert_is(original.p.bytes(), &format!("{what}: P"));
        self.q.assert_is(original.q.bytes(), &format!("{what}: Q"));
    }
}

/// The exponents of md's layouts: no holes.
pub fn dense(count: usize) -> Vec<u8> {
    (0..255).take(count).collect()
}

/// The exponents of DDF rows of `count` data blocks: slot numbers without those of P and Q, for
/// every place of P.
pub fn ddf_rows(count: usize) -> Vec<Vec<u8>> {
    let slots = count + 2;
    let row = |p: usize| (0..slots).filter(|s| *s != p && *s != (p + 1) % slots).map(|s| s as u8).collect();
    (0..slots).map(row).collect()
}

/// Runs a check on every kernel this machine has.
pub fn every_kernel(mut check: impl FnMut(&'static Kernels)) {
    for kernels in Kernels::all_available() {
        check(kernels);
    }
}
