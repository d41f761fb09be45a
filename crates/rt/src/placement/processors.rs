//! A set of processors, as the system numbers and writes them.

use std::fmt;
use std::io;
use std::str::FromStr;

/// More than any Linux is built for (8192).
const NUMBERS: usize = 8192;
const WORDS: usize = NUMBERS / 64;

/// A set of processors of this machine.
#[derive(Clone, PartialEq, Eq)]
pub struct Processors(Box<[u64; WORDS]>);

impl Default for Processors {
    fn default() -> Self {
        Self(Box::new([0; WORDS]))
    }
}

impl Processors {
    /// Those that this thread may run on.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn allowed() -> io::Result<Self> {
        let mut set = Self::default();
        // SAFETY: the kernel writes at most as many bytes as it is told there are, all of them the
        // set's own; any bits are a set.
        let written =
            unsafe { libc::sched_getaffinity(0, size_of::<[u64; WORDS]>(), set.0.as_mut_ptr().cast()) };
        if written < 0 { Err(io::Error::last_os_error()) } else { Ok(set) }
    }

    /// Keeps this thread to these, and with it the threads and processes that it starts. It is safe
    /// between fork and exec.
    ///
    /// # Errors
    /// None of them exists, or this process may use none of them.
    pub fn keep_thread(&self) -> io::Result<()> {
        // SAFETY: the kernel reads as many bytes as it is told, all of them the set's own.
        let changed =
            unsafe { libc::sched_setaffinity(0, size_of::<[u64; WORDS]>(), self.0.as_ptr().cast()) };
        if changed < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// One of them.
    #[must_use]
    pub fn one(number: usize) -> Self {
        Self::from_iter([number])
    }

    /// Their numbers, ascending.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + Clone {
        (0..NUMBERS).filter(|&number| self.contains(number))
    }

    /// Whether it is one of them.
    #[must_use]
    pub fn contains(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// How many they are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// What is in both.
    #[must_use]
    pub fn of_both(&self, other: &Self) -> Self {
        self.numbers().filter(|&number| other.contains(number)).collect()
    }
}

impl FromIterator<usize> for Processors {
    /// Numbers that no processor has are left out.
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        let mut set = Self::default();
        for number in numbers {
            if let Some(word) = set.0.get_mut(number / 64) {
                *word |= 1 << (number % 64);
            }
        }
        set
    }
}

/// The form of `taskset -c` and of files in `/sys`: `0-3,8`.
impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        let mut numbers = self.numbers().peekable();
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if_eq(&(last + 1)) {
                last = next;
            }
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Processors({self})")
    }
}

/// A text that is no list of processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no list of processors like 2-5,8")]
pub struct NoProcessors;

impl FromStr for Processors {
    type Err = NoProcessors;

    fn from_str(text: &str) -> Result<Self, NoProcessors> {
        let mut set = Self::default();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
                true => text.parse::<usize>().ok().filter(|&number| number < NUMBERS).ok_or(NoProcessors),
                false => Err(NoProcessors),
            };
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(NoProcessors);
            }
            for number in first..=last {
                set.0[number / 64] |= 1 << (number % 64);
            }
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for (text, numbers, written) in [
            ("0", vec![0], "0"),
            ("2-5,8", vec![2, 3, 4, 5, 8], "2-5,8"),
            ("8,5,4,2-3,4", vec![2, 3, 4, 5, 8], "2-5,8"),
            ("63-64,8191\n", vec![63, 64, 8191], "63-64,8191"),
        ] {
            let set: Processors = text.parse().unwrap();
            assert_eq!(set.numbers().collect::<Vec<_>>(), numbers);
            assert_eq!((set.to_string().as_str(), set.count()), (written, numbers.len()));
        }
        for text in ["", "a", "-", "1-", "-1", "3-2", "1,,2", "1, 2", "+1", "8192", "0-99999999999999999999"]
        {
            assert_eq!(text.parse::<Processors>(), Err(NoProcessors), "{text:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no processors")]
    fn a_thread_is_kept_to_what_it_is_told() {
        let before = Processors::allowed().unwrap();
        let last = before.numbers().last().expect("it runs on one");
        let thread = crate::helper::helper_thread("wattle-test", move || {
            Processors::one(last).keep_thread().unwrap();
            assert_eq!(Processors::allowed().unwrap(), Processors::one(last));
            assert!(Processors::default().keep_thread().is_err(), "no processor at all");
        });
        thread.unwrap().join().unwrap();
        assert_eq!(Processors::allowed().unwrap(), before, "other threads are left alone");
    }
}
