//! RAID 4, 5 and 6: where the data and the parity blocks of each stripe are (docs/formats.md §6).
//!
//! One rule covers all twenty layouts. P moves over a *ring* of slots (all of them, or all but the
//! last if Q always sits there); Q stands beside P or on the last slot; data blocks follow one
//! another from a first slot upward, wrapping at the end and stepping over P and Q. A layout is a
//! row of a table that names these choices.

use super::chunk::Chunk;
use super::{BlockRole, Level};
use crate::model::units::{MemberIx, Sector, StripeNo};

/// A layout of a level with parity.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParityLayout {
    /// md's number.
    pub word: u32,
    /// mdadm's name.
    pub name: &'static str,
    /// mdadm's short name, or the name again.
    pub alias: &'static str,
    p: P,
    q: Q,
    data: Data,
    exponents: Exponents,
}

/// The slot of P in stripe `s`, on a ring of `m` slots.
#[derive(Debug, PartialEq, Eq)]
enum P {
    /// 0.
    First,
    /// m - 1.
    Last,
    /// m - 1 - (s mod m).
    Left,
    /// Like `Left` one stripe ahead: m - 1 - ((s + 1) mod m).
    LeftAhead,
    /// s mod m.
    Right,
}

/// The slot of Q.
#[derive(Debug, PartialEq, Eq)]
enum Q {
    /// There is none.
    None,
    /// The slot after P, wrapping.
    AfterP,
    /// The slot before P, wrapping.
    BeforeP,
    /// The last slot, outside the ring on which P moves.
    Last,
}

/// The slot at which data block 0 is looked for.
#[derive(Debug, PartialEq, Eq)]
enum Data {
    /// Slot 0 in every stripe ("asymmetric").
    FromSlot0,
    /// After P, and after Q if that follows P ("symmetric": consecutive chunks visit all members in
    /// turn).
    AfterParity,
}

/// How the data blocks are numbered in Q.
#[derive(Debug, PartialEq, Eq)]
enum Exponents {
    /// 0, 1, 2, … over the data blocks met from the slot after Q upward.
    Md,
    /// The slot number.
    Ddf,
}

#[rustfmt::skip]
const fn raid5(word: u32, name: &'static str, alias: &'static str, p: P, data: Data) -> ParityLayout {
    ParityLayout { word, name, alias, p, q: Q::None, data, exponents: Exponents::Md }
}

#[rustfmt::skip]
const fn raid6(word: u32, name: &'static str, alias: &'static str, p: P, q: Q, data: Data, exponents: Exponents) -> ParityLayout {
    ParityLayout { word, name, alias, p, q, data, exponents }
}

static RAID4: ParityLayout = raid5(0, "parity-last", "parity-last", P::Last, Data::FromSlot0);

#[rustfmt::skip]
static RAID5: [ParityLayout; 6] = [
    raid5(0, "left-asymmetric",  "la",           P::Left,  Data::FromSlot0),
    raid5(1, "right-asymmetric", "ra",           P::Right, Data::FromSlot0),
    raid5(2, "left-symmetric",   "ls",           P::Left,  Data::AfterParity),
    raid5(3, "right-symmetric",  "rs",           P::Right, Data::AfterParity),
    raid5(4, "parity-first",     "parity-first", P::First, Data::FromSlot0),
    raid5(5, "parity-last",      "parity-last",  P::Last,  Data::FromSlot0),
];

#[rustfmt::skip]
static RAID6: [ParityLayout; 14] = [
    raid6(0,  "left-asymmetric",    "la",                 P::Left,      Q::AfterP,  Data::FromSlot0,   Exponents::Md),
    raid6(1,  "right-asymmetric",   "ra",                 P::Right,     Q::AfterP,  Data::FromSlot0,   Exponents::Md),
    raid6(2,  "left-symmetric",     "ls",                 P::Left,      Q::AfterP,  Data::AfterParity, Exponents::Md),
    raid6(3,  "right-symmetric",    "rs",                 P::Right,     Q::AfterP,  Data::AfterParity, Exponents::Md),
    raid6(4,  "parity-first",       "parity-first",       P::First,     Q::AfterP,  Data::FromSlot0,   Exponents::Md),
    raid6(5,  "parity-last",        "parity-last",        P::Last,      Q::Last,    Data::FromSlot0,   Exponents::Md),
    raid6(8,  "ddf-zero-restart",   "ddf-zero-restart",   P::Right,     Q::AfterP,  Data::FromSlot0,   Exponents::Ddf),
    raid6(9,  "ddf-N-restart",      "ddf-N-restart",      P::LeftAhead, Q::AfterP,  Data::FromSlot0,   Exponents::Ddf),
    raid6(10, "ddf-N-continue",     "ddf-N-continue",     P::Left,      Q::BeforeP, Data::AfterParity, Exponents::Ddf),
    raid6(16, "left-asymmetric-6",  "left-asymmetric-6",  P::Left,      Q::Last,    Data::FromSlot0,   Exponents::Md),
    raid6(17, "right-asymmetric-6", "right-asymmetric-6", P::Right,     Q::Last,    Data::FromSlot0,   Exponents::Md),
    raid6(18, "left-symmetric-6",   "left-symmetric-6",   P::Left,      Q::Last,    Data::AfterParity, Exponents::Md),
    raid6(19, "right-symmetric-6",  "right-symmetric-6",  P::Right,     Q::Last,    Data::AfterParity, Exponents::Md),
    raid6(20, "parity-first-6",     "parity-first-6",     P::First,     Q::Last,    Data::FromSlot0,   Exponents::Md),
];

/// The layouts of RAID 5 and RAID 6 by number; other levels have none to choose from.
pub(super) fn layouts(level: Level) -> &'static [ParityLayout] {
    match level {
        Level::Raid5 => &RAID5,
        Level::Raid6 => &RAID6,
        _ => &[],
    }
}

/// The layout numbered `word`. RAID 4 has one and ignores the number.
pub(super) fn layout(level: Level, word: u32) -> Option<&'static ParityLayout> {
    if level == Level::Raid4 {
        Some(&RAID4)
    } else {
        layouts(level).iter().find(|layout| layout.word == word)
    }
}

/// The mapping of an array with parity.
#[derive(Debug, Clone)]
pub(super) struct Parity {
    pub chunk: Chunk,
    pub members: u16,
    pub layout: &'static ParityLayout,
    pub stripes: u64,
}

impl Parity {
    pub fn parity_blocks(&self) -> u16 {
        if self.layout.q == Q::None { 1 } else { 2 }
    }

    pub fn data_blocks(&self) -> u16 {
        self.members - self.parity_blocks()
    }

    #[inline]
    pub fn locate(&self, lba: Sector) -> (StripeNo, usize, Sector) {
        let (chunk, offset) = self.chunk.split(lba.0);
        let width = u64::from(self.data_blocks());
        (StripeNo(chunk / width), (chunk % width) as usize, Sector(offset))
    }

    pub fn stripe(&self, stripe: StripeNo) -> StripeMap {
        let n = self.members;
        let ring = if self.layout.q == Q::Last { n - 1 } else { n };
        let turn = |stripe: u64| (stripe % u64::from(ring)) as u16;
        let p = match self.layout.p {
            P::First => 0,
            P::Last => ring - 1,
            P::Left => ring - 1 - turn(stripe.0),
            P::LeftAhead => ring - 1 - turn(stripe.0 + 1),
            P::Right => turn(stripe.0),
        };
        let q = match self.layout.q {
            Q::None => None,
            Q::AfterP => Some((p + 1) % n),
            Q::BeforeP => Some((p + n - 1) % n),
            Q::Last => Some(n - 1),
        };
        let first = match (&self.layout.data, &self.layout.q) {
            (Data::FromSlot0, _) => 0,
            (Data::AfterParity, Q::AfterP) => (p + 2) % n,
            (Data::AfterParity, _) => (p + 1) % ring,
        };
        let steps = |slot: u16| (slot + n - first) % n;
        let (p_steps, q_steps) = (steps(p), q.map_or(n, steps));
        StripeMap {
            stripe,
            member_sector: Sector(stripe.0 * self.chunk.sectors()),
            members: n,
            first,
            skips: [p_steps.min(q_steps), p_steps.max(q_steps)],
            p: MemberIx(p),
            q: q.map(MemberIx),
            exponent_is_slot: self.layout.exponents == Exponents::Ddf,
        }
    }
}

/// Where the blocks of one stripe are. Small, and computed: nothing is looked up.
///
/// Data blocks are numbered `0..data_blocks()` in array order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StripeMap {
    /// Which stripe.
    pub stripe: StripeNo,
    /// Where every block of the stripe starts on its member, in data sectors.
    pub member_sector: Sector,
    members: u16,
    /// The slot from which data blocks are counted upward, wrapping.
    first: u16,
    /// How many steps from `first` the parity blocks are, ascending; `members` for a Q that is not
    /// there.
    skips: [u16; 2],
    p: MemberIx,
    q: Option<MemberIx>,
    exponent_is_slot: bool,
}

impl StripeMap {
    /// Number of data blocks.
    #[must_use]
    pub fn data_blocks(&self) -> usize {
        usize::from(self.members) - 1 - usize::from(self.q.is_some())
    }

    /// The member that holds P.
    #[must_use]
    pub fn p(&self) -> MemberIx {
        self.p
    }

    /// The member that holds Q, on RAID 6.
    #[must_use]
    pub fn q(&self) -> Option<MemberIx> {
        self.q
    }

    /// The member that holds data block `block`.
    ///
    /// # Panics
    /// If there is no such block.
    #[inline]
    #[must_use]
    pub fn data_member(&self, block: usize) -> MemberIx {
        assert!(block < self.data_blocks(), "data block {block} of {}", self.data_blocks());
        let mut steps = block as u16;
        for skip in self.skips {
            steps += u16::from(steps >= skip);
        }
        let slot = self.first + steps;
        MemberIx(if slot < self.members { slot } else { slot - self.members })
    }

    /// What `member` holds.
    ///
    /// # Panics
    /// If there is no such member.
    #[must_use]
    pub fn role(&self, member: MemberIx) -> BlockRole {
        assert!(member.0 < self.members, "member {member} of {}", self.members);
        if member == self.p {
            return BlockRole::P;
        }
        if Some(member) == self.q {
            return BlockRole::Q;
        }
        let steps = (member.0 + self.members - self.first) % self.members;
        let skipped = self.skips.into_iter().filter(|&skip| skip < steps).count();
        BlockRole::Data(usize::from(steps) - skipped)
    }

    /// The exponent of data block `block` in Q: Q is the sum of `g^exponent * data`. It is not the
    /// block's number: md counts from the slot after Q, DDF takes the slot.
    ///
    /// # Panics
    /// If there is no such block, or no Q.
    #[inline]
    #[must_use]
    pub fn exponent(&self, block: usize) -> u8 {
        let q = self.q.expect("exponents belong to Q, which only RAID 6 has");
        let slot = self.data_member(block).0;
        let exponent = if self.exponent_is_slot {
            slot
        } else {
            let from_q = |slot: u16| (slot + self.members - 1 - q.0) % self.members;
            from_q(slot) - u16::from(from_q(self.p.0) < from_q(slot))
        };
        exponent as u8
    }
}
