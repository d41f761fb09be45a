//! LZVN, with which macOS compresses files: literal bytes, and matches in what was unpacked.
//!
//! The opcodes are those that Apple published with LZFSE (BSD licence).

/// Unpacks into at most `len` bytes. `None` if it is no such stream, or would come to more.
pub fn unpack(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut stream = Stream { packed, at: 0 };
    let mut plain: Vec<u8> = Vec::with_capacity(len.min(1 << 20));
    let mut distance = 0;
    loop {
        let step = stream.step()?;
        let (literals, matched) = match step {
            Step::End => return Some(plain),
            Step::Skip => continue,
            Step::Copy { literals, matched, distance: new } => {
                distance = new.unwrap_or(distance);
                (literals, matched)
            }
        };
        if plain.len() + literals + matched > len {
            return None;
        }
        plain.extend_from_slice(stream.take(literals)?);
        if matched > 0 && (distance == 0 || distance > plain.len()) {
            return None;
        }
        // What is matched may be what this very match makes.
        for _ in 0..matched {
            plain.push(plain[plain.len() - distance]);
        }
    }
}

enum Step {
    End,
    Skip,
    /// So many literal bytes, then so many of what lies that far back, or as far as the last time.
    Copy {
        literals: usize,
        matched: usize,
        distance: Option<usize>,
    },
}

struct Stream<'a> {
    packed: &'a [u8],
    at: usize,
}

impl<'a> Stream<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.packed.get(self.at..)?.get(..count)?;
        self.at += count;
        Some(taken)
    }

    fn byte(&mut self) -> Option<usize> {
        self.take(1).map(|taken| taken[0].into())
    }

    fn half(&mut self) -> Option<usize> {
        self.take(2).map(|taken| usize::from(taken[0]) | usize::from(taken[1]) << 8)
    }

    fn step(&mut self) -> Option<Step> {
        let opcode = self.byte()?;
        let copy = |literals, matched, distance| Step::Copy { literals, matched, distance };
        // Most have two bits of literals, three of the match, and three that say of the distance.
        let (literals, matched) = (opcode >> 6, (opcode >> 3 & 7) + 3);
        Some(match opcode {
            0x06 => Step::End,
            0x0e | 0x16 => Step::Skip,
            0x1e | 0x26 | 0x2e | 0x36 | 0x3e | 0x70..=0x7f | 0xd0..=0xdf => return None,
            0xa0..=0xbf => {
                let rest = self.half()?;
                copy(opcode >> 3 & 3, ((opcode & 7) << 2 | rest & 3) + 3, Some(rest >> 2))
            }
            0xe0 => copy(self.byte()? + 16, 0, None),
            0xe1..=0xef => copy(opcode & 0xf, 0, None),
            0xf0 => copy(0, self.byte()? + 16, None),
            0xf1..=0xff => copy(0, opcode & 0xf, None),
            _ => match opcode & 7 {
                6 => copy(literals, matched, None),
                7 => copy(literals, matched, Some(self.half()?)),
                high => copy(literals, matched, Some(high << 8 | self.byte()?)),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_step() {
        // Three literals, then a match of three at a distance of three.
        let mut packed = vec![0xc0, 3, b'a', b'b', b'c'];
        let mut plain = b"abcabc".to_vec();
        // The same distance again, with a literal.
        packed.extend([0x46, b'x']);
        plain.extend(b"xbcx");
        // Literals alone: few, and many.
        packed.extend([0xe2, b'1', b'2']);
        plain.extend(b"12");
        packed.extend([0xe0, 1]);
        packed.extend([b'm'; 17]);
        plain.extend([b'm'; 17]);
        // Matches alone: few, and many; a distance of 16 bits; one of 14.
        packed.extend([0xf2, 0xf0, 0]);
        plain.extend([b'm'; 0]);
        let mut expected = plain.clone();
        for count in [2, 16] {
            for _ in 0..count {
                expected.push(expected[expected.len() - 3]);
            }
        }
        packed.extend([0x07, 1, 0]);
        expected.extend([expected[expected.len() - 1]; 3]);
        packed.extend([0xa8, 2 << 2 | 1, 0, b'q']);
        expected.push(b'q');
        for _ in 0..4 {
            expected.push(expected[expected.len() - 2]);
        }
        packed.extend([0x0e, 0x06]);
        assert_eq!(unpack(&packed, expected.len()).unwrap(), expected);
        assert_eq!(unpack(&packed, expected.len() - 1), None, "it comes to more");
        for len in 0..packed.len() {
            assert_eq!(unpack(&packed[..len], 1000), None, "cut off after {len}");
        }
    }

    /// As Apple's encoder writes it.
    #[test]
    fn a_stream_of_the_encoder() {
        let packed = [
            0xef, 0x74, 0x68, 0x65, 0x20, 0x76, 0x6f, 0x6c, 0x75, 0x6d, 0x65, 0x20, 0x61, 0x6e, 0x64, 0x20,
            0x08, 0x0f, 0xeb, 0x63, 0x61, 0x74, 0x61, 0x6c, 0x6f, 0x67, 0x20, 0x6f, 0x66, 0x20, 0x38, 0x1e,
            0x68, 0x1b, 0x2c, 0xfc, 0xe8, 0x6a, 0x6f, 0x75, 0x72, 0x6e, 0x61, 0x6c, 0x2c, 0x30, 0x3b, 0x20,
            0x11, 0x38, 0x3b, 0xf4, 0x56, 0x3b, 0xe7, 0x65, 0x78, 0x74, 0x65, 0x6e, 0x74, 0x73, 0xf8, 0x28,
            0x4a, 0x08, 0x3a, 0x38, 0x2e, 0xf2, 0xe1, 0x65, 0x06, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        ];
        let plain =
            b"the volume and the catalog of the volume, the catalog of the journal, and the journal of the \
                      volume; the extents of the catalog and of the volume";
        assert_eq!(unpack(&packed, plain.len()).unwrap(), plain);
    }

    #[test]
    fn what_is_no_stream_is_refused() {
        assert_eq!(unpack(&[0x00, 1, 0x06], 10), None, "a match before all data");
        assert_eq!(unpack(&[0x70, 0x06], 10), None, "an opcode that is none");
        assert_eq!(unpack(&[0x06], 10), Some(Vec::new()));
    }
}
