//! What became of each member, and its explanation.

use std::fmt;

/// What became of a member, with the facts behind it. Its text is a whole explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// In sync, in this slot.
    Fresh {
        /// Its slot.
        slot: u16,
        /// One event behind the freshest, which still says that it is in sync.
        one_behind: bool,
    },
    /// In this slot and only partly rebuilt.
    Rebuilding {
        /// Its slot.
        slot: u16,
        /// Valid below this sector of its data.
        valid_below_sectors: u64,
    },
    /// The second member of its slot, being made to replace the first one.
    Replacement {
        /// The slot.
        slot: u16,
        /// Valid below this sector of its data; the largest number if it is whole.
        valid_below_sectors: u64,
    },
    /// Waiting for something to do.
    Spare,
    /// It does not lie where the members in use do ([`crate::ArrayScan::apart`]), so that it is
    /// none of them, whatever it says.
    Apart {
        /// The slot that it says it is in; `None` of a spare.
        slot: Option<u16>,
        /// How many events it has more than the members in use.
        events_ahead: u64,
    },
    /// The journal.
    Journal,
    /// The freshest superblock says that it failed.
    Faulty {
        /// The member with the superblock that says so.
        according_to: String,
    },
    /// The array went on without it.
    Stale {
        /// The slot it says it is.
        slot: Option<u16>,
        /// How many events it lacks; 0 of a copy of an earlier state, whose count has come again.
        events_behind: u64,
        /// When its superblock was last written, seconds since the epoch.
        utime_secs: u64,
    },
    /// Another member is in the slot that it claims.
    Duplicate {
        /// The slot.
        slot: u16,
        /// The member in it (or, if both are equally fresh, the other claimant).
        other: String,
    },
    /// It was run without the freshest member.
    SplitBrain {
        /// The freshest member.
        freshest: String,
    },
    /// It describes the array differently.
    Foreign {
        /// What differs.
        field: &'static str,
        /// What the freshest member says.
        expected: i64,
        /// What this one says.
        found: i64,
    },
    /// It is shorter than its superblock says.
    Truncated {
        /// Sectors that its superblock needs.
        expected_sectors: u64,
        /// Sectors that there are.
        found_sectors: u64,
    },
    /// Its list of lost sectors cannot be read, so any of its data may be lost; the other members
    /// stand in for it.
    BadBlocks {
        /// Its slot.
        slot: u16,
    },
}

impl Verdict {
    /// One word, for tables.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Fresh { .. } => "fresh",
            Self::Rebuilding { .. } => "rebuilding",
            Self::Replacement { .. } => "replacement",
            Self::Spare => "spare",
            Self::Apart { .. } => "apart",
            Self::Journal => "journal",
            Self::Faulty { .. } => "faulty",
            Self::Stale { .. } => "stale",
            Self::Duplicate { .. } => "duplicate",
            Self::SplitBrain { .. } => "split-brain",
            Self::Foreign { .. } => "foreign",
            Self::Truncated { .. } => "truncated",
            Self::BadBlocks { .. } => "bad-blocks",
        }
    }

    /// The slot that the member is used in.
    #[must_use]
    pub fn slot(&self) -> Option<u16> {
        match self {
            Self::Fresh { slot, .. } | Self::Rebuilding { slot, .. } => Some(*slot),
            _ => None,
        }
    }
}

impl Verdict {
    /// What led to it, without the word; `None` where the word says it all. Whether what the array
    /// went on without comes back is said by [`Scan::explanation`](crate::Scan::explanation).
    #[must_use]
    pub fn explanation(&self) -> Option<String> {
        Some(match self {
            Self::Spare | Self::Journal => return None,
            Self::Fresh { slot, one_behind: false } => format!("in sync in slot {slot}"),
            Self::Fresh { slot, one_behind: true } => {
                format!(
                    "in sync in slot {slot}, one event behind, and the freshest superblock still counts it in"
                )
            }
            Self::Rebuilding { slot, valid_below_sectors } => {
                format!("in slot {slot}, valid below sector {valid_below_sectors} of its data")
            }
            Self::Replacement { slot, valid_below_sectors: u64::MAX } => {
                format!("made to replace the member of slot {slot}, and whole")
            }
            Self::Replacement { slot, valid_below_sectors } => format!(
                "being made to replace the member of slot {slot}, valid below sector {valid_below_sectors} of its data"
            ),
            Self::Apart { slot: None, .. } => "a spare by its superblock".to_owned(),
            Self::Apart { slot: Some(slot), events_ahead: 0 } => {
                format!("a member in slot {slot} by its superblock")
            }
            Self::Apart { slot: Some(slot), events_ahead } => format!(
                "a member in slot {slot} by its superblock, {events_ahead} events ahead of the members in use"
            ),
            Self::Faulty { according_to } => format!("according to {according_to} it has failed"),
            Self::Stale { slot, events_behind, utime_secs } => {
                let place = slot.map(|slot| format!(" in slot {slot}")).unwrap_or_default();
                // Intel's metadata does not say when it was written.
                let written = match *utime_secs {
                    0 => String::new(),
                    secs => format!(", last written {}", Utc(secs)),
                };
                match *events_behind {
                    0 => format!(
                        "an earlier state of the member{place}{written}, when the count of events was the same"
                    ),
                    behind => format!("the array went on without it{place}, {behind} events behind{written}"),
                }
            }
            Self::Duplicate { slot, other } => {
                format!("it claims slot {slot}, and so does {other}; not used")
            }
            Self::SplitBrain { freshest } => {
                format!("it was run without {freshest}, and has changes of its own; not used")
            }
            Self::Foreign { field, expected, found } => {
                format!("its {field} is {found}, the array's is {expected}; not used")
            }
            Self::Truncated { expected_sectors, found_sectors } => format!(
                "its superblock needs {expected_sectors} sectors and there are {found_sectors}; not used"
            ),
            Self::BadBlocks { slot } => format!(
                "sectors of it are recorded as lost and the list cannot be read; the other members stand in for slot {slot}; not used"
            ),
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        self.explanation().map_or(Ok(()), |explanation| write!(f, ": {explanation}"))
    }
}

/// A time as RFC 3339 shows it: `2026-11-21T08:08:26Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc(
    /// Seconds since the epoch.
    pub u64,
);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.0 / 86400, self.0 % 86400);
        // Years that start in March: the day that leap years add is their last. 400 years have
        // 146097 days.
        let day_of_eras = days + 719_468;
        let (era, day) = (day_of_eras / 146_097, day_of_eras % 146_097);
        let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day_of_month = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operator asks whether the array went on for a minute or for a year; a number of seconds
    /// does not tell.
    #[test]
    fn a_stale_member_says_when_it_was_last_written() {
        let stale = Verdict::Stale { slot: Some(2), events_behind: 7, utime_secs: 1_795_248_506 };
        let text = "stale: the array went on without it in slot 2, 7 events behind, last written 2026-11-21T08:08:26Z";
        assert_eq!(stale.to_string(), text);
    }

    #[test]
    fn times_are_told_as_date_does() {
        let rows = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_795_248_506, "2026-11-21T08:08:26Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            // The largest that 40 bits hold, as a hostile superblock may say.
            ((1 << 40) - 1, "36812-02-20T00:36:15Z"),
        ];
        for (secs, text) in rows {
            assert_eq!(Utc(secs).to_string(), text);
        }
    }
}
