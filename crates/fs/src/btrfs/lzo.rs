//! LZO1X streams. Our own, because the crates there are trust what they unpack, or are GPL.
//!
//! An instruction copies bytes from what was unpacked before and tells how many bytes (0 to 3)
//! follow as they are. What the instructions below 16 mean depends on how many followed the one
//! before.

/// Bytes that followed the last instruction: 0 to 3, or a run of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Literals(usize),
    Run,
}

struct Stream<'a> {
    packed: &'a [u8],
    at: usize,
}

impl Stream<'_> {
    fn byte(&mut self) -> Option<usize> {
        let byte = *self.packed.get(self.at)?;
        self.at += 1;
        Some(usize::from(byte))
    }

    /// Two bytes: a distance, and in the lowest two bits the number of literals.
    fn word(&mut self) -> Option<usize> {
        Some(self.byte()? | self.byte()? << 8)
    }

    /// A length that does not fit into its field, which is 0 then: each zero byte is 255 more.
    fn length(&mut self, field: usize, largest: usize) -> Option<usize> {
        if field != 0 {
            return Some(field);
        }
        let mut length = largest;
        loop {
            match self.byte()? {
                0 => length += 255,
                last => return Some(length + last),
            }
        }
    }

    /// Bytes as they are.
    fn literals(&mut self, len: usize, into: &mut Vec<u8>, end: usize) -> Option<()> {
        let bytes = self.packed.get(self.at..)?.get(..len).filter(|_| into.len() + len <= end)?;
        into.extend_from_slice(bytes);
        self.at += len;
        Some(())
    }
}

/// Unpacks behind what is in `into`, up to `end` bytes of it. `None` if it is not a stream, or more
/// comes out.
pub fn unpack(packed: &[u8], into: &mut Vec<u8>, end: usize) -> Option<()> {
    let mut stream = Stream { packed, at: 0 };
    let start = into.len();
    let mut before = Before::Literals(0);
    // The first byte may say how many bytes follow as they are.
    if let first @ 18.. = usize::from(*packed.first()?) {
        stream.at = 1;
        stream.literals(first - 17, into, end)?;
        before = if first - 17 > 3 { Before::Run } else { Before::Literals(first - 17) };
    }
    loop {
        let instruction = stream.byte()?;
        let (len, distance, literals) = match (instruction, before) {
            (0..=15, Before::Literals(0)) => {
                let len = stream.length(instruction, 15)? + 3;
                stream.literals(len, into, end)?;
                before = Before::Run;
                continue;
            }
            (0..=15, Before::Literals(_)) => {
                (2, (stream.byte()? << 2) + (instruction >> 2) + 1, instruction & 3)
            }
            (0..=15, Before::Run) => (3, (stream.byte()? << 2) + (instruction >> 2) + 2049, instruction & 3),
            (16..=31, _) => {
                let len = stream.length(instruction & 7, 7)? + 2;
                let word = stream.word()?;
                let distance = 16384 + ((instruction & 8) << 11) + (word >> 2);
                if distance == 16384 {
                    return (len == 3).then_some(());
                }
                (len, distance, word & 3)
            }
            (32..=63, _) => {
                let len = stream.length(instruction & 31, 31)? + 2;
                let word = stream.word()?;
                (len, (word >> 2) + 1, word & 3)
            }
            _ => {
                let len = (instruction >> 5) + 1;
                (len, (stream.byte()? << 3) + (instruction >> 2 & 7) + 1, instruction & 3)
            }
        };
        let from =
            into.len().checked_sub(distance).filter(|from| *from >= start && into.len() + len <= end)?;
        // What is copied may be what this very copy made.
        for at in from..from + len {
            into.push(into[at]);
        }
        stream.literals(literals, into, end)?;
        before = Before::Literals(literals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
        let mut into = b"before".to_vec();
        unpack(packed, &mut into, 6 + 100)?;
        Some(into.split_off(6))
    }

    #[test]
    fn copies_may_overlap_and_reach_back_to_the_start_only() {
        // Four literals, then 8 bytes from a distance of 2, then the end.
        assert_eq!(unpacked(&[21, b'a', b'b', b'c', b'd', 0xe4, 0, 17, 0, 0]).unwrap(), b"abcdcdcdcdcd");
        // From a distance of 5, where only 4 bytes are.
        assert_eq!(unpacked(&[21, b'a', b'b', b'c', b'd', 0xf0, 0, 17, 0, 0]), None);
    }

    #[test]
    fn what_ends_early_or_is_too_long_is_none() {
        let long = [&[255][..], &[7; 238], &[17, 0, 0]].concat();
        assert_eq!(unpacked(&long), None);
        let whole = [21, b'a', b'b', b'c', b'd', 0xe4, 0, 17, 0, 0];
        for len in 0..whole.len() {
            assert_eq!(unpacked(&whole[..len]), None, "{len}");
        }
    }
}
