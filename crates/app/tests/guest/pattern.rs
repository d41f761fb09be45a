//! The fixtures' pattern: sector s of seed S holds the little-endian u64 splitmix64(S ^ s) 64 times; later layers lie on top.

/// Seeds and the ranges they cover.
#[derive(Debug, Clone, Default)]
pub struct Pattern(Vec<Layer>);

#[derive(Debug, Clone)]
struct Layer {
    seed: u64,
    /// First sector and count; everything if absent.
    range: Option<(u64, u64)>,
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

impl Pattern {
    /// `SEED,SEED:START:COUNT,...`
    pub fn parse(text: &str) -> Self {
        let layer = |text: &str| {
            let numbers: Vec<u64> = text.split(':').map(|number| number.parse().expect("a number")).collect();
            Layer { seed: numbers[0], range: (numbers.len() == 3).then(|| (numbers[1], numbers[2])) }
        };
        Self(text.split(',').filter(|text| !text.is_empty()).map(layer).collect())
    }

    pub fn whole(seed: u64) -> Self {
        Self(vec![Layer { seed, range: None }])
    }

    /// Ranges all over an array that hit chunks' edges and middles: a sector, a few, a chunk and more, the very end.
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
            (count > 0).then_some(Layer { seed, range: Some((start, count)) })
        };
        Self(wanted.into_iter().filter_map(layer).collect())
    }

    pub fn extend(&mut self, above: &Self) {
        self.0.extend(above.0.iter().cloned());
    }

    /// Each layer's first sector and bytes, bottom to top.
    pub fn ranges(&self, sectors: u64) -> Vec<(u64, Vec<u8>)> {
        let bytes = |layer: &Layer| {
            let (start, count) = layer.range.unwrap_or((0, sectors));
            (start, (start..start + count).flat_map(|s| sector(layer.seed, s)).collect())
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
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, layer) in self.0.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            match layer.range {
                None => write!(f, "{comma}{}", layer.seed)?,
                Some((start, count)) => write!(f, "{comma}{}:{start}:{count}", layer.seed)?,
            }
        }
        Ok(())
    }
}
