//! The fixtures' pattern: sector s of seed S holds the little-endian u64 splitmix64(S ^ s) 64
//! times; later layers lie on top. How layers are written: guest/README.md.

/// Seeds and the ranges they cover.
#[derive(Debug, Clone, Default)]
pub struct Pattern(Vec<Layer>);

#[derive(Debug, Clone)]
struct Layer {
    kind: Kind,
    /// First sector and count; everything if absent.
    range: Option<(u64, u64)>,
}

/// What a sector under a layer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// What this seed makes.
    Written(u64),
    /// That, or what lies below: the write had not ended.
    InFlight(u64),
    /// Anything, an error included.
    Any,
    /// An error.
    Lost,
}

pub fn sector(seed: u64, sector: u64) -> [u8; 512] {
    let mut z = (seed ^ sector).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    let mut bytes = [0; 512];
    bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&z.to_le_bytes()));
    bytes
}

/// The seed of which [`sector`] makes these bytes there; `None` if none does.
pub fn seed_of(bytes: &[u8], number: u64) -> Option<u64> {
    let word = *bytes.first_chunk()?;
    let mut z = u64::from_le_bytes(word);
    z ^= z >> 31 ^ z >> 62;
    z = z.wrapping_mul(0x3196_42b2_d24d_8ec3);
    z ^= z >> 27 ^ z >> 54;
    z = z.wrapping_mul(0x96de_1b17_3f11_9089);
    z ^= z >> 30 ^ z >> 60;
    let seed = z.wrapping_sub(0x9e37_79b9_7f4a_7c15) ^ number;
    (bytes == &sector(seed, number)[..]).then_some(seed)
}

impl Pattern {
    /// `SEED,SEED:START:COUNT,?SEED:START:COUNT,any:START:COUNT,lost:START:COUNT`
    pub fn parse(text: &str) -> Self {
        let layer = |text: &str| {
            let mut words = text.split(':');
            let kind = match words.next().expect("a layer says what it is") {
                "any" => Kind::Any,
                "lost" => Kind::Lost,
                seed => match seed.strip_prefix('?') {
                    Some(seed) => Kind::InFlight(seed.parse().expect("a seed")),
                    None => Kind::Written(seed.parse().expect("a seed")),
                },
            };
            let numbers: Vec<u64> = words.map(|number| number.parse().expect("a number")).collect();
            Layer { kind, range: (numbers.len() == 2).then(|| (numbers[0], numbers[1])) }
        };
        Self(text.split(',').filter(|text| !text.is_empty()).map(layer).collect())
    }

    pub fn whole(seed: u64) -> Self {
        Self(vec![Layer { kind: Kind::Written(seed), range: None }])
    }

    /// Ranges all over an array that hit chunks' edges and middles: a sector, a few, a chunk and
    /// more, the very end.
    pub fn scattered(seed: u64, sectors: u64, chunk: u64) -> Self {
        let wanted = [
            (3, 1),
            (chunk.saturating_sub(1), 2),
            (chunk * 2 + 5, 9),
            (sectors / 3, chunk + 3),
            (sectors / 2 / 8 * 8, chunk * 7),
            (sectors / 4 * 3 + 1, 200),
            (sectors - 5, 5),
        ];
        let layer = |(start, count): (u64, u64)| {
            let count = count.min(2000).min(sectors.saturating_sub(start));
            (count > 0).then_some(Layer { kind: Kind::Written(seed), range: Some((start, count)) })
        };
        Self(wanted.into_iter().filter_map(layer).collect())
    }

    /// The same ranges, as a client writes them.
    pub fn as_writes(&self) -> Vec<crate::client::Range> {
        let write = |layer: &Layer| match (layer.kind, layer.range) {
            (Kind::Written(seed), Some((start, count))) => crate::client::Range { seed, start, count },
            _ => panic!("{layer:?} is nothing to write"),
        };
        self.0.iter().map(write).collect()
    }

    pub fn extend(&mut self, above: &Self) {
        self.0.extend(above.0.iter().cloned());
    }

    /// A range that has been written and acknowledged.
    pub fn written(&mut self, seed: u64, start: u64, count: u64) {
        self.0.push(Layer { kind: Kind::Written(seed), range: Some((start, count)) });
    }

    /// A range whose write may have come to its end, or not.
    pub fn in_flight(&mut self, seed: u64, start: u64, count: u64) {
        self.0.push(Layer { kind: Kind::InFlight(seed), range: Some((start, count)) });
    }

    /// The same, but blocks of `unit` sectors that were being written hold anything: what a lost
    /// member's part of them is worth.
    pub fn without_blocks_in_flight(&self, unit: u64, sectors: u64) -> Self {
        let widened = |layer: &Layer| match (layer.kind, layer.range) {
            (Kind::InFlight(_), Some((start, count))) => {
                let (first, end) = (start / unit * unit, (start + count).next_multiple_of(unit).min(sectors));
                Layer { kind: Kind::Any, range: Some((first, end - first)) }
            }
            _ => layer.clone(),
        };
        Self(self.0.iter().map(widened).collect())
    }

    pub fn has_lost(&self) -> bool {
        self.0.iter().any(|layer| layer.kind == Kind::Lost)
    }

    /// Each layer's first sector and bytes, bottom to top: what a writer writes.
    pub fn ranges(&self, sectors: u64) -> Vec<(u64, Vec<u8>)> {
        let bytes = |layer: &Layer| {
            let Kind::Written(seed) = layer.kind else { panic!("{layer:?} is nothing to write") };
            let (start, count) = layer.range.unwrap_or((0, sectors));
            (start, (start..start + count).flat_map(|s| sector(seed, s)).collect())
        };
        self.0.iter().map(bytes).collect()
    }

    /// The whole array's bytes; what no layer covers is zeros.
    pub fn bytes(&self, sectors: u64) -> Vec<u8> {
        let mut all = vec![0; sectors as usize * 512];
        for (start, bytes) in self.ranges(sectors) {
            all[start as usize * 512..][..bytes.len()].copy_from_slice(&bytes);
        }
        all
    }

    /// Whether a sector may hold this; `None` for one that gives an error.
    fn allows(&self, at: u64, found: Option<&[u8]>) -> bool {
        let covers =
            |layer: &&Layer| layer.range.is_none_or(|(start, count)| (start..start + count).contains(&at));
        for layer in self.0.iter().rev().filter(covers) {
            match (layer.kind, found) {
                (Kind::Any, _) => return true,
                (Kind::Lost, found) => return found.is_none(),
                (_, None) => return false,
                (Kind::Written(seed), Some(found)) => return found == sector(seed, at),
                (Kind::InFlight(seed), Some(found)) if found == sector(seed, at) => return true,
                (Kind::InFlight(_), Some(_)) => {}
            }
        }
        found.is_some()
    }

    /// The array's sectors, as they were read, are what they may be.
    pub fn check(&self, what: &str, read: &[Option<Vec<u8>>]) {
        let bad: Vec<usize> =
            (0..read.len()).filter(|&at| !self.allows(at as u64, read[at].as_deref())).collect();
        assert!(
            bad.is_empty(),
            "{what}: {} sectors are wrong, the first {:?}, unreadable {}; expected {self}",
            bad.len(),
            &bad[..bad.len().min(12)],
            bad.iter().filter(|&&at| read[at].is_none()).count(),
        );
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, layer) in self.0.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            match layer.kind {
                Kind::Written(seed) => write!(f, "{comma}{seed}")?,
                Kind::InFlight(seed) => write!(f, "{comma}?{seed}")?,
                Kind::Any => write!(f, "{comma}any")?,
                Kind::Lost => write!(f, "{comma}lost")?,
            }
            if let Some((start, count)) = layer.range {
                write!(f, ":{start}:{count}")?;
            }
        }
        Ok(())
    }
}
