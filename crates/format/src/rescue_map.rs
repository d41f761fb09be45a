//! The map of a copy, in the format of GNU ddrescue's mapfiles: which parts of a source were
//! copied, and how far the others were tried. Either program goes on where the other stopped.
//!
//! A line of text for the state as a whole, then one for each area, in order and without gaps:
//! position, size, status. Numbers are hexadecimal. A map may begin late or end early: what it does
//! not mention was not tried.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

/// How far an area was tried. The order is that of the attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Not yet.
    NonTried,
    /// A large read failed somewhere in it.
    NonTrimmed,
    /// Its first and last sectors cannot be read; those between were not tried one by one.
    NonScraped,
    /// Its sectors were tried one by one and cannot be read.
    Bad,
    /// Copied.
    Finished,
}

impl Status {
    const ALL: [(Status, char); 5] = [
        (Status::NonTried, '?'),
        (Status::NonTrimmed, '*'),
        (Status::NonScraped, '/'),
        (Status::Bad, '-'),
        (Status::Finished, '+'),
    ];

    /// The character of the format.
    #[must_use]
    pub fn symbol(self) -> char {
        Self::ALL[self as usize].1
    }
}

/// What is being done, for the map's first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Large reads.
    Copying,
    /// The edges of what failed.
    Trimming,
    /// Sector by sector.
    Scraping,
    /// Bad sectors once more.
    Retrying,
    /// Nothing.
    Finished,
}

impl Phase {
    fn symbol(self) -> char {
        match self {
            Phase::Copying => '?',
            Phase::Trimming => '*',
            Phase::Scraping => '/',
            Phase::Retrying => '-',
            Phase::Finished => '+',
        }
    }
}

/// Why a text is no map of the source at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RescueMapError {
    /// A line that is not what belongs there.
    #[error("line {line} is not one of a map")]
    Line {
        /// Counted from 1.
        line: usize,
    },
    /// An area does not start where the last one ended.
    #[error("line {line} does not go on where the line before ended")]
    Gap {
        /// Counted from 1.
        line: usize,
    },
    /// It is about something larger.
    #[error("it is about {found} bytes, the source has {size_bytes}")]
    Beyond {
        /// Where its last area ends.
        found: u64,
        /// Size of the source.
        size_bytes: u64,
    },
    /// No line at all but comments.
    #[error("there is nothing in it")]
    Empty,
    /// A line for the state, and none for any area.
    #[error("it has no areas")]
    NoAreas,
    /// The first area is not at the start of the source.
    #[error("it begins at byte {found}")]
    LateStart {
        /// Where its first area starts.
        found: u64,
    },
}

/// A map that says how large its source is: every byte of it has a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompleteMap {
    /// The statuses.
    pub map: RescueMap,
    /// Whether the copy was finished, as far as it could be: what is missing will not come.
    pub finished: bool,
    /// The lines before the first area, with the comments of the program that wrote it.
    head: String,
}

impl CompleteMap {
    /// Reads a map by itself: the areas say how large the source is.
    ///
    /// # Errors
    /// It is none, or does not begin with the source's first byte.
    pub fn parse(text: &str) -> Result<Self, RescueMapError> {
        let is_line = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
        let mut areas = text.lines().zip(1..).filter(|(line, _)| is_line(line)).skip(1).peekable();
        let first = areas.peek().map(|(line, number)| (area(line.trim()), *number));
        let end = |(line, _): (&str, usize)| {
            let (start, len, _) = area(line.trim())?;
            start.checked_add(len)
        };
        let map = RescueMap::parse(text, areas.filter_map(end).max().unwrap_or(u64::MAX))?;
        let (first, number) = first.ok_or(RescueMapError::NoAreas)?;
        match first {
            Some((0, ..)) => {}
            Some((found, ..)) => return Err(RescueMapError::LateStart { found }),
            None => return Err(RescueMapError::Line { line: number }),
        }
        let head: String = text.lines().take(number - 1).flat_map(|line| [line, "\n"]).collect();
        let state = text.lines().find(is_line).and_then(|line| line.split_whitespace().nth(1));
        Ok(Self { map, finished: state == Some("+"), head })
    }

    /// As text: the lines before the first area as they were, and the areas.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = self.head.clone();
        self.map.render_areas(&mut text);
        text
    }
}

/// The status of every byte of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RescueMap {
    size_bytes: u64,
    /// Where areas start; neighbours differ. Empty only if the source is.
    starts: BTreeMap<u64, Status>,
}

impl RescueMap {
    /// Of a source of which nothing was tried.
    #[must_use]
    pub fn new(size_bytes: u64) -> Self {
        let starts = (size_bytes > 0).then_some((0, Status::NonTried)).into_iter().collect();
        Self { size_bytes, starts }
    }

    /// Reads a map of a source of `size_bytes`.
    ///
    /// # Errors
    /// It is none, or not of this source.
    pub fn parse(text: &str, size_bytes: u64) -> Result<Self, RescueMapError> {
        let mut lines = text
            .lines()
            .zip(1..)
            .map(|(text, line)| (text.trim(), line))
            .filter(|(text, _)| !text.is_empty() && !text.starts_with('#'));
        let (state, line) = lines.next().ok_or(RescueMapError::Empty)?;
        let mut words = state.split_whitespace();
        let position = words.next().and_then(number);
        let phase = words.next().is_some_and(|word| matches!(word, "?" | "*" | "/" | "-" | "F" | "G" | "+"));
        if position.is_none() || !phase {
            return Err(RescueMapError::Line { line });
        }
        let mut map = Self::new(size_bytes);
        let mut end = None;
        for (text, line) in lines {
            let (start, len, status) = area(text).ok_or(RescueMapError::Line { line })?;
            if end.is_some_and(|end| end != start) {
                return Err(RescueMapError::Gap { line });
            }
            let area_end = start.checked_add(len).ok_or(RescueMapError::Line { line })?;
            if area_end > size_bytes {
                return Err(RescueMapError::Beyond { found: area_end, size_bytes });
            }
            map.set(start..area_end, status);
            end = Some(area_end);
        }
        Ok(map)
    }

    /// As text, with what is being done just now and where.
    #[must_use]
    pub fn render(&self, phase: Phase, position_bytes: u64) -> String {
        let mut text = "# Mapfile of wattle, in the format of GNU ddrescue\n".to_owned();
        text.push_str("# current_pos  current_status  current_pass\n");
        let mut line = |args: std::fmt::Arguments<'_>| text.write_fmt(args).expect("a String takes all");
        line(format_args!("0x{position_bytes:08X}     {}               1\n", phase.symbol()));
        line(format_args!("#      pos        size  status\n"));
        self.render_areas(&mut text);
        text
    }

    fn render_areas(&self, text: &mut String) {
        for (area, status) in self.areas() {
            let (start, len) = (area.start, area.end - area.start);
            writeln!(text, "0x{start:08X}  0x{len:08X}  {}", status.symbol()).expect("a String takes all");
        }
    }

    /// Size of the source.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Says how far a range was tried.
    pub fn set(&mut self, range: Range<u64>, status: Status) {
        let range = range.start..range.end.min(self.size_bytes);
        if range.is_empty() {
            return;
        }
        if let Some(after) = self.status_at(range.end) {
            self.starts.insert(range.end, after);
        }
        let inside: Vec<u64> = self.starts.range(range.clone()).map(|(start, _)| *start).collect();
        for start in inside {
            self.starts.remove(&start);
        }
        let before = self.starts.range(..range.start).next_back().map(|(_, status)| *status);
        if before != Some(status) {
            self.starts.insert(range.start, status);
        }
        if self.starts.get(&range.end) == Some(&status) {
            self.starts.remove(&range.end);
        }
    }

    /// `None` behind the end.
    fn status_at(&self, at: u64) -> Option<Status> {
        let inside = at < self.size_bytes;
        self.starts.range(..=at).next_back().map(|(_, status)| *status).filter(|_| inside)
    }

    /// Whether every byte of a range that is not empty was copied.
    #[must_use]
    pub fn is_finished(&self, range: Range<u64>) -> bool {
        let mut inside = self.starts.range(range.clone());
        range.end <= self.size_bytes
            && self.status_at(range.start) == Some(Status::Finished)
            && inside.all(|(_, status)| *status == Status::Finished)
    }

    /// Runs of what was not copied, in order.
    pub fn missing(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (area, _) in self.areas().filter(|(_, status)| *status != Status::Finished) {
            match runs.last_mut() {
                Some(run) if run.end == area.start => run.end = area.end,
                _ => runs.push(area),
            }
        }
        runs
    }

    /// Every area with its status, in order.
    pub fn areas(&self) -> impl Iterator<Item = (Range<u64>, Status)> + '_ {
        let ends = self.starts.keys().skip(1).copied().chain([self.size_bytes]);
        self.starts.iter().zip(ends).map(|((start, status), end)| (*start..end, *status))
    }

    /// The first part of an area of that status from a place on.
    #[must_use]
    pub fn first(&self, status: Status, from: u64) -> Option<Range<u64>> {
        let covering = self.starts.range(..=from).next_back().map_or(from, |(start, _)| *start);
        let start = *self.starts.range(covering..).find(|(_, found)| **found == status)?.0;
        let end = self.starts.range(start + 1..).next().map_or(self.size_bytes, |(start, _)| *start);
        let part = start.max(from)..end;
        (!part.is_empty()).then_some(part)
    }

    /// How many bytes have that status.
    #[must_use]
    pub fn bytes(&self, status: Status) -> u64 {
        self.areas().filter(|(_, found)| *found == status).map(|(area, _)| area.end - area.start).sum()
    }
}

/// Position, size and status.
fn area(text: &str) -> Option<(u64, u64, Status)> {
    let mut words = text.split_whitespace();
    let (start, len, symbol) = (number(words.next()?)?, number(words.next()?)?, words.next()?);
    let status = Status::ALL.iter().find(|(_, known)| symbol.len() == 1 && symbol.starts_with(*known))?.0;
    (len > 0).then_some((start, len, status))
}

/// Hexadecimal with its mark, else decimal.
fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_map_of_ddrescue() {
        let text = "# Mapfile. Created by GNU ddrescue version 1.27\n# Finished\n\
            0x000F0000     +               1\n#      pos        size  status\n\
            0x00000000  0x000E0000  +\n0x000E0000  0x00000200  -\n0x000E0200  0x00014040  +\n";
        let map = RescueMap::parse(text, 0xF_4240).unwrap();
        assert_eq!((map.bytes(Status::Finished), map.bytes(Status::Bad)), (0xF_4040, 512));
        assert_eq!(map.first(Status::Bad, 0), Some(0xE_0000..0xE_0200));
        assert_eq!(RescueMap::parse(text, 1 << 30).unwrap().bytes(Status::NonTried), (1 << 30) - 0xF_4240);
        let size_bytes = 0xF_0000;
        assert_eq!(
            RescueMap::parse(text, size_bytes),
            Err(RescueMapError::Beyond { found: 0xF_4240, size_bytes })
        );
        let again = map.render(Phase::Finished, 0);
        assert!(again.ends_with("0x000E0000  0x00000200  -\n0x000E0200  0x00014040  +\n"), "{again}");
    }

    #[test]
    fn a_map_by_itself_says_how_large_its_source_is() {
        let head =
            "# Mapfile. Created by GNU ddrescue version 1.27\n0x000F0000     +               1\n# pos\n";
        let text = format!("{head}0x00000000  0x000E0000  +\n0x000E0000  0x00000200  -\n");
        let mut complete = CompleteMap::parse(&text).unwrap();
        assert_eq!((complete.map.size_bytes(), complete.finished), (0xE_0200, true));
        assert_eq!(complete.render(), text);
        complete.map.set(0xE_0000..0xE_0100, Status::Finished);
        assert_eq!(
            complete.render(),
            format!("{head}0x00000000  0x000E0100  +\n0x000E0100  0x00000100  -\n")
        );
        assert!(!CompleteMap::parse("0 ? 1\n0 512 +\n").unwrap().finished);
        for (text, error) in [
            ("", RescueMapError::Empty),
            ("0 + 1\n", RescueMapError::NoAreas),
            ("0 + 1\n512 512 +\n", RescueMapError::LateStart { found: 512 }),
            ("0 + 1\n0 512 +\n256 512 +\n", RescueMapError::Gap { line: 3 }),
            ("0 + 1\n0 512 +\n1024 512 -\n", RescueMapError::Gap { line: 3 }),
            ("0 + 1\n0 1024 +\n0 512 -\n", RescueMapError::Gap { line: 3 }),
            ("0 + 1\n0 512 +\n512 512 -\nx\n", RescueMapError::Line { line: 4 }),
            ("0 + 1\n0 512 x\n", RescueMapError::Line { line: 2 }),
            ("0 + 1\n0 512 +\n512 0xFFFFFFFFFFFFFFFF -\n", RescueMapError::Line { line: 3 }),
        ] {
            assert_eq!(CompleteMap::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn texts_that_are_no_maps() {
        let parse = |text: &str| RescueMap::parse(text, 8192);
        assert_eq!(parse(""), Err(RescueMapError::Empty));
        assert_eq!(parse("# only words\n"), Err(RescueMapError::Empty));
        assert_eq!(parse("hello\n"), Err(RescueMapError::Line { line: 1 }));
        for area in
            ["0 4096", "0 0 +", "0 4096 x", "0 4096 ++", "x 4096 +", "0xFFFFFFFFFFFFFFFF 2 +", "-1 4096 +"]
        {
            assert_eq!(parse(&format!("0x0 ? 1\n{area}\n")), Err(RescueMapError::Line { line: 2 }), "{area}");
        }
        assert_eq!(parse("0 ?\n0 512 +\n1024 512 +\n"), Err(RescueMapError::Gap { line: 3 }));
        assert_eq!(parse("0 ?\n512 512 +\n").unwrap().first(Status::NonTried, 0), Some(0..512));
    }

    #[test]
    fn the_first_of_a_kind() {
        let mut map = RescueMap::new(100);
        map.set(10..20, Status::Bad);
        map.set(30..40, Status::Bad);
        assert_eq!(map.first(Status::Bad, 0), Some(10..20));
        assert_eq!(map.first(Status::Bad, 15), Some(15..20));
        assert_eq!(map.first(Status::Bad, 20), Some(30..40));
        assert_eq!(map.first(Status::Bad, 40), None);
        assert_eq!(map.first(Status::NonTried, 95), Some(95..100));
        assert_eq!(map.first(Status::NonTried, 100), None);
        assert_eq!(RescueMap::new(0).first(Status::NonTried, 0), None);
    }

    proptest! {
        /// Against an array of bytes; and what was written reads back.
        #[test]
        fn every_byte_has_what_was_said_last(
            steps in proptest::collection::vec((0_u64..64, 0_u64..64, 0_usize..5), 0..20),
        ) {
            let mut map = RescueMap::new(64);
            let mut bytes = [Status::NonTried; 64];
            for (one, other, status) in steps {
                let (range, status) = (one.min(other)..one.max(other), Status::ALL[status].0);
                bytes[range.start as usize..range.end as usize].fill(status);
                map.set(range, status);
            }
            for (area, status) in map.areas() {
                prop_assert!(!area.is_empty());
                prop_assert!(bytes[area.start as usize..area.end as usize].iter().all(|byte| *byte == status));
            }
            let all: Vec<_> = map.areas().collect();
            prop_assert!(all.windows(2).all(|pair| pair[0].1 != pair[1].1 && pair[0].0.end == pair[1].0.start));
            prop_assert_eq!(RescueMap::parse(&map.render(Phase::Copying, 7), 64), Ok(map.clone()));
            let missing: Vec<u64> = map.missing().into_iter().flatten().collect();
            let expected: Vec<u64> =
                (0..64).filter(|at| bytes[*at as usize] != Status::Finished).collect();
            prop_assert_eq!(missing, expected);
            for from in 0..64 {
                for to in from + 1..=64 {
                    let all = bytes[from as usize..to as usize].iter().all(|byte| *byte == Status::Finished);
                    prop_assert_eq!(map.is_finished(from..to), all);
                }
                for (status, _) in Status::ALL {
                    let start = (from..64).find(|at| bytes[*at as usize] == status);
                    let found = map.first(status, from);
                    prop_assert_eq!(found.as_ref().map(|range| range.start), start);
                }
            }
        }
    }
}
