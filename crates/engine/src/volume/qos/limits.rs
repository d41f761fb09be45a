//! What an operator sets for a volume: pure values.

use std::ops::RangeInclusive;
use std::time::Duration;

/// What is counted of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QosUnit {
    /// The request itself.
    Requests,
    /// Its bytes.
    Bytes,
}

/// Which requests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QosScope {
    /// All of them.
    All,
    /// Reads.
    Reads,
    /// Writes, with zeroes and discards.
    Writes,
}

/// One of the six rates that can be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QosRate {
    /// What is counted.
    pub unit: QosUnit,
    /// Of which requests.
    pub scope: QosScope,
}

/// How many there are.
pub const QOS_RATES: usize = 6;

impl QosRate {
    /// Its place among the six.
    #[must_use]
    pub const fn index(self) -> usize {
        self.unit as usize * 3 + self.scope as usize
    }

    /// What a limit of it may be, a second: below, one request of a client would be waited for for
    /// hours; above, no limit is meant.
    #[must_use]
    pub const fn allowed(self) -> RangeInclusive<u64> {
        match self.unit {
            QosUnit::Requests => 1..=100_000_000,
            QosUnit::Bytes => 64 << 10..=1 << 40,
        }
    }
}

/// Limits of rates, a second each, by [`QosRate::index`]; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QosRates(pub [Option<u64>; QOS_RATES]);

impl QosRates {
    /// Whether there is any.
    #[must_use]
    pub fn any(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }
}

/// What weights may be.
pub const QOS_WEIGHTS: RangeInclusive<u32> = 1..=10_000;

/// What bursts may be: above, a limit would limit nothing for minutes.
pub const QOS_BURSTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(300);

/// In what time requests may be wanted: below, no drive answers; above, no client waits.
pub const QOS_GOALS: RangeInclusive<Duration> = Duration::from_micros(50)..=Duration::from_secs(60);

/// The quality of service of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QosLimits {
    /// Of all its clients together.
    pub volume: QosRates,
    /// Of each of its clients.
    pub client: QosRates,
    /// What was not used of a limit can be used later, as much as this time would have brought.
    pub burst: Duration,
    /// Its share beside other volumes when there is too much to do for all.
    pub weight: u32,
    /// 99 of 100 of its requests are to be answered within this time, at the cost of volumes
    /// without a goal.
    pub goal: Option<Duration>,
}

impl Default for QosLimits {
    fn default() -> Self {
        Self {
            volume: QosRates::default(),
            client: QosRates::default(),
            burst: Duration::from_millis(100),
            weight: 100,
            goal: None,
        }
    }
}

impl QosLimits {
    /// Whether a volume of these is to get more or less than others.
    #[must_use]
    pub fn ask_for_shares(&self) -> bool {
        self.weight != Self::default().weight || self.goal.is_some()
    }
}

/// A request as limits and shares see it. A flush is none: it is neither held back nor counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QosCost {
    /// It changes the volume.
    pub is_write: bool,
    /// How many requests it counts as: none if it goes on with one that was counted.
    pub requests: u64,
    /// What it counts in limits of bandwidth.
    pub bytes: u64,
}

/// More zeroes than this cost members no more: they take a range as one command.
const ZEROES_BYTES_MAX: u64 = 64 << 20;

/// What a request costs besides its bytes, where shares are concerned.
const REQUEST_BYTES: u64 = 16 << 10;

impl QosCost {
    /// Of a read.
    #[must_use]
    pub const fn read(bytes: u64) -> Self {
        Self { is_write: false, requests: 1, bytes }
    }

    /// Of a write.
    #[must_use]
    pub const fn write(bytes: u64) -> Self {
        Self { is_write: true, requests: 1, bytes }
    }

    /// Of zeroes, which members write or are told of as a range.
    #[must_use]
    pub const fn zeroes(bytes: u64) -> Self {
        Self::write(if bytes < ZEROES_BYTES_MAX { bytes } else { ZEROES_BYTES_MAX })
    }

    /// Of a discard: no data moves.
    #[must_use]
    pub const fn discard() -> Self {
        Self::write(0)
    }

    /// Of the pieces of a long range behind the first one, which pays for the whole.
    #[must_use]
    pub const fn next_piece(self) -> Self {
        Self { requests: 0, bytes: 0, ..self }
    }

    /// Whether limits look at it.
    #[must_use]
    pub const fn counts(self) -> bool {
        self.requests > 0 || self.bytes > 0
    }

    /// How many units of a rate it takes.
    #[must_use]
    pub const fn of(self, rate: QosRate) -> u64 {
        match (rate.scope, self.is_write) {
            (QosScope::Reads, true) | (QosScope::Writes, false) => 0,
            _ => match rate.unit {
                QosUnit::Requests => self.requests,
                QosUnit::Bytes => self.bytes,
            },
        }
    }

    /// What it costs in shares.
    #[must_use]
    pub const fn share_bytes(self) -> u64 {
        self.bytes + REQUEST_BYTES
    }
}

/// The six, by their places.
pub(super) const RATES: [QosRate; QOS_RATES] = [
    QosRate { unit: QosUnit::Requests, scope: QosScope::All },
    QosRate { unit: QosUnit::Requests, scope: QosScope::Reads },
    QosRate { unit: QosUnit::Requests, scope: QosScope::Writes },
    QosRate { unit: QosUnit::Bytes, scope: QosScope::All },
    QosRate { unit: QosUnit::Bytes, scope: QosScope::Reads },
    QosRate { unit: QosUnit::Bytes, scope: QosScope::Writes },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_at_their_places() {
        for (at, rate) in RATES.into_iter().enumerate() {
            assert_eq!(rate.index(), at);
        }
    }

    #[test]
    fn requests_count_by_what_they_cost() {
        let costs = |cost: QosCost| RATES.map(|rate| cost.of(rate));
        assert_eq!(costs(QosCost::read(4096)), [1, 1, 0, 4096, 4096, 0]);
        assert_eq!(costs(QosCost::write(512)), [1, 0, 1, 512, 0, 512]);
        assert_eq!(costs(QosCost::discard()), [1, 0, 1, 0, 0, 0]);
        assert_eq!(QosCost::zeroes(1 << 40).bytes, 64 << 20);
    }

    #[test]
    fn the_first_piece_pays_for_the_whole() {
        let cost = QosCost::zeroes(1 << 40);
        assert!(cost.counts() && QosCost::discard().counts() && !cost.next_piece().counts());
        assert_eq!(RATES.map(|rate| cost.next_piece().of(rate)), [0; QOS_RATES]);
    }
}
