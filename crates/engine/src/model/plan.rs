//! What to do with one row of a stripe: a pure function, total over every health vector and every
//! set of written blocks.
//!
//! A *row* is a range of sectors at the same place in every chunk of a stripe. Its blocks are
//! numbered `0..data` for the data blocks in array order, then P, then Q. [`decide_write`] picks
//! the method with the fewest member reads (the writes are the same for each), which is part of an
//! array's limit: at three members reconstruct-write reads one block where read-modify-write reads
//! two.
//!
//! | method | fetches | possible when |
//! |---|---|---|
//! | data only | nothing | no parity block can be written any more |
//! | reconstruct | the data blocks not written | all of them are readable |
//! | read-modify | the written blocks and the parity, old | all are readable, parity is trusted |
//! | recover | everything readable | enough parity blocks for what is unreadable, parity trusted |
//!
//! A full-stripe write is the reconstruct whose fetch is empty. Whatever is chosen, afterwards
//! every data block can be had from the blocks that were readable or were stored: the exhaustive
//! test below executes each plan and checks just that.

use crate::model::bit_set::BitSet;
use crate::model::invariant::invariant;

/// Most blocks in a stripe: 255 data blocks and two parities.
pub const BLOCKS_MAX: usize = 257;

/// A set of block numbers of one stripe.
pub type BlockSet = BitSet<usize, { BLOCKS_MAX.div_ceil(64) }>;

/// The facts of a stripe when a plan is made.
#[derive(Debug, Clone, Copy)]
pub struct StripeView {
    /// Number of data blocks.
    pub data: usize,
    /// Number of parity blocks: 1 or 2.
    pub parities: usize,
    /// Blocks whose content on the member is current and can be read.
    pub readable: BlockSet,
    /// Blocks whose member takes writes. A block may be writable and not readable: a member that is
    /// being rebuilt, or a sector that could not be read just now.
    pub writable: BlockSet,
    /// Blocks that need not be read from their member, because they are in memory.
    pub cached: BlockSet,
    /// P's member has more to do than Q's: where one of the two will do, Q is read.
    pub q_first: bool,
    /// Parity is known to agree with the data. It does not after a crash, until a resync has
    /// passed.
    pub trusted: bool,
}

impl StripeView {
    fn all_data(&self) -> BlockSet {
        BlockSet::range(0, self.data)
    }

    fn all_parity(&self) -> BlockSet {
        BlockSet::range(self.data, self.data + self.parities)
    }
}

/// How new parity comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// There is no parity to write.
    DataOnly,
    /// Parity from all data blocks, those not written as fetched.
    Reconstruct,
    /// Parity ^= old data ^ new data.
    ReadModify,
    /// Lost data blocks from parity first, then as `Reconstruct`.
    Recover,
}

/// A way to write some data blocks of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritePlan {
    /// How parity is made.
    pub method: Method,
    /// Blocks to read first.
    pub fetch: BlockSet,
    /// Blocks to write: the written data blocks and the parity blocks whose member takes writes.
    pub store: BlockSet,
}

/// A way to read some data blocks of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPlan {
    /// Blocks to read.
    pub fetch: BlockSet,
    /// Data blocks to recover from what was fetched; empty for a plain read.
    pub recover: BlockSet,
}

/// Why there is no plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlan {
    /// More members take no writes than there are parity blocks: what would be written could not be
    /// read back.
    BeyondRedundancy,
    /// Blocks that are needed can neither be read nor recovered.
    Unreadable,
    /// Only parity could supply the blocks, and it is not known to be right.
    Untrusted,
}

/// Decides how to write the data blocks `written` of a row. `written` is not empty and holds data
/// blocks only.
///
/// # Errors
/// A [`NoPlan`] when the row cannot be written so that it can be read back.
pub fn decide_write(view: &StripeView, written: &BlockSet) -> Result<WritePlan, NoPlan> {
    let data = view.all_data();
    debug_assert!(!written.is_empty() && written.is_subset(&data));
    let lost = data.union(&view.all_parity()).without(&view.writable);
    if lost.len() > view.parities {
        return Err(NoPlan::BeyondRedundancy);
    }
    if !view.trusted && !written.is_subset(&view.writable) {
        return Err(NoPlan::Untrusted);
    }
    let parity = view.all_parity().intersection(&view.writable);
    let store = written.union(&parity).intersection(&view.writable);
    if parity.is_empty() {
        return Ok(WritePlan { method: Method::DataOnly, fetch: BlockSet::EMPTY, store });
    }
    let reconstruct = Some(data.without(written)).filter(|fetch| fetch.is_subset(&view.readable));
    let read_modify =
        Some(written.union(&parity)).filter(|fetch| view.trusted && fetch.is_subset(&view.readable));
    let reads = |fetch: &BlockSet| (fetch.without(&view.cached).len(), fetch.len());
    // At equal cost reconstruct wins: it does not build on old parity.
    let (method, fetch) = match (reconstruct, read_modify) {
        (Some(rcw), Some(rmw)) if reads(&rmw) < reads(&rcw) => (Method::ReadModify, rmw),
        (Some(rcw), _) => (Method::Reconstruct, rcw),
        (None, Some(rmw)) => (Method::ReadModify, rmw),
        (None, None) => (Method::Recover, recovery_fetch(view)?),
    };
    Ok(WritePlan { method, fetch, store })
}

/// Decides how to read the data blocks `wanted` of a row.
///
/// # Errors
/// A [`NoPlan`] when they can neither be read nor recovered.
pub fn decide_read(view: &StripeView, wanted: &BlockSet) -> Result<ReadPlan, NoPlan> {
    debug_assert!(wanted.is_subset(&view.all_data()));
    let recover = wanted.without(&view.readable);
    let fetch = if recover.is_empty() { *wanted } else { recovery_fetch(view)? };
    invariant!(5, recover.is_empty() || view.trusted && fetch.is_subset(&view.readable));
    Ok(ReadPlan { fetch, recover })
}

/// Everything that has to be read to recover all unreadable data blocks: they are unknowns of the
/// parity equations together, so all readable data and one parity block for each of them. Where
/// there is a choice, the members take turns: always to prefer the same one would leave others
/// idle.
fn recovery_fetch(view: &StripeView) -> Result<BlockSet, NoPlan> {
    let readable = view.all_data().intersection(&view.readable);
    let unknowns = view.data - readable.len();
    let parity = view.all_parity().intersection(&view.readable);
    if parity.len() < unknowns {
        return Err(NoPlan::Unreadable);
    }
    if !view.trusted {
        return Err(NoPlan::Untrusted);
    }
    let spare = (unknowns < parity.len()).then_some(view.data + usize::from(!view.q_first));
    Ok(readable.union(&parity).without(&spare.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle_parity::naive;

    /// A row of one-byte blocks: data, P, Q, as the members hold them.
    #[derive(Clone)]
    struct Stripe {
        blocks: Vec<u8>,
    }

    impl Stripe {
        fn new(data: usize, parities: usize, seed: u8) -> Self {
            let mut blocks: Vec<u8> = (0..data as u8)
                .map(|k| seed.wrapping_mul(31).wrapping_add(k.wrapping_mul(77)) ^ 0x5a)
                .collect();
            let parity = encode(&blocks, parities);
            blocks.extend(parity);
            Self { blocks }
        }
    }

    /// P and Q of one-byte data blocks.
    fn encode(data: &[u8], parities: usize) -> Vec<u8> {
        let sources: Vec<[u8; 1]> = data.iter().map(|&byte| [byte]).collect();
        let sources: Vec<(u8, &[u8])> = (0..).zip(sources.iter().map(|block| &block[..])).collect();
        let (mut p, mut q) = ([0], [0]);
        naive::p(&mut p, &sources);
        naive::q(&mut q, &sources);
        [p[0], q[0]][..parities].to_vec()
    }

    /// Every data content that fits what is known of a stripe, found by trying the unknown bytes;
    /// `None` if not exactly one.
    fn solve(known: &[Option<u8>], data: usize) -> Option<Vec<u8>> {
        let unknown: Vec<usize> = (0..data).filter(|&k| known[k].is_none()).collect();
        let mut base: Vec<u8> = known[..data].iter().map(|byte| byte.unwrap_or(0)).collect();
        let fits = |base: &[u8]| {
            encode(base, known.len() - data)
                .iter()
                .zip(&known[data..])
                .all(|(&is, want)| want.is_none_or(|w| w == is))
        };
        match unknown[..] {
            [] => fits(&base).then_some(base),
            [x] => {
                let mut found = (0..=255u8).filter_map(|byte| {
                    base[x] = byte;
                    fits(&base).then(|| base.clone())
                });
                found.next().filter(|_| found.next().is_none())
            }
            [x, y] => {
                // P ties the two together, so one loop is enough.
                let p = known[data]?;
                known[data + 1]?;
                let rest = base.iter().fold(0, |sum, byte| sum ^ byte);
                let mut found = (0..=255u8).filter_map(|byte| {
                    (base[x], base[y]) = (byte, byte ^ p ^ rest);
                    fits(&base).then(|| base.clone())
                });
                found.next().filter(|_| found.next().is_none())
            }
            _ => None,
        }
    }

    /// Every health of every block: good, writable only, gone.
    fn healths(blocks: usize) -> impl Iterator<Item = (BlockSet, BlockSet)> {
        (0..3usize.pow(blocks as u32)).map(move |code| {
            let of = |block: usize| code / 3usize.pow(block as u32) % 3;
            let readable = (0..blocks).filter(|&block| of(block) == 0).collect();
            let writable = (0..blocks).filter(|&block| of(block) < 2).collect();
            (readable, writable)
        })
    }

    /// With nothing in memory, and parity that is right.
    fn view(data: usize, parities: usize, readable: BlockSet, writable: BlockSet) -> StripeView {
        let cached = BlockSet::EMPTY;
        StripeView { data, parities, readable, writable, cached, q_first: false, trusted: true }
    }

    fn masks(data: usize) -> impl Iterator<Item = BlockSet> {
        (1..1usize << data).map(move |mask| (0..data).filter(|&k| mask >> k & 1 == 1).collect())
    }

    fn widths() -> impl Iterator<Item = (usize, usize)> {
        (2..=8).flat_map(|members| [(members - 1, 1), (members.max(4) - 2, 2)])
    }

    /// Carries out a plan the way the stripe path does, on single bytes.
    fn execute(
        stripe: &Stripe,
        view: &StripeView,
        written: &BlockSet,
        new: &[u8],
        plan: &WritePlan,
    ) -> Stripe {
        let fetched: Vec<Option<u8>> =
            (0..stripe.blocks.len()).map(|b| plan.fetch.contains(b).then(|| stripe.blocks[b])).collect();
        let value = |k: usize| if written.contains(k) { new[k] } else { fetched[k].expect("fetched") };
        let parity = match plan.method {
            Method::DataOnly => vec![0; view.parities],
            Method::Reconstruct => encode(&(0..view.data).map(value).collect::<Vec<_>>(), view.parities),
            Method::ReadModify => {
                let change: Vec<u8> = (0..view.data)
                    .map(|k| if written.contains(k) { fetched[k].expect("old") ^ new[k] } else { 0 })
                    .collect();
                let delta = encode(&change, view.parities);
                (0..view.parities).map(|j| fetched[view.data + j].unwrap_or(0) ^ delta[j]).collect()
            }
            Method::Recover => {
                let old = solve(&fetched, view.data).expect("a recovery fetch determines the data");
                encode(
                    &(0..view.data)
                        .map(|k| if written.contains(k) { new[k] } else { old[k] })
                        .collect::<Vec<_>>(),
                    view.parities,
                )
            }
        };
        let mut after = stripe.clone();
        for block in plan.store.iter() {
            after.blocks[block] = if block < view.data { new[block] } else { parity[block - view.data] };
        }
        after
    }

    /// Every plan for up to 8 members, every health, every mask: it reads only what is readable,
    /// writes only where writes go, and afterwards every data block can be had, new where written
    /// and old where not, from the blocks that are good.
    #[test]
    fn every_write_plan_leaves_every_block_recoverable() {
        let mut plans = 0u32;
        for (data, parities) in widths() {
            let stripe = Stripe::new(data, parities, 3);
            let new: Vec<u8> = (0..data as u8).map(|k| 0xc3 ^ k.wrapping_mul(29)).collect();
            for (readable, writable) in healths(data + parities) {
                let view = view(data, parities, readable, writable);
                // More than redundancy has gone already: nothing to be shown but that the plan says
                // so.
                let unreadable = data + parities - readable.len();
                let views = [view, StripeView { q_first: true, ..view }];
                for (written, view) in masks(data).flat_map(|written| views.map(|view| (written, view))) {
                    let Ok(plan) = decide_write(&view, &written) else { continue };
                    plans += 1;
                    assert!(plan.fetch.is_subset(&readable), "{view:?} {written:?} {plan:?}");
                    assert!(plan.store.is_subset(&writable), "{view:?} {written:?} {plan:?}");
                    if unreadable > parities {
                        continue;
                    }
                    let after = execute(&stripe, &view, &written, &new, &plan);
                    let good = readable.union(&plan.store);
                    let known: Vec<Option<u8>> =
                        (0..data + parities).map(|b| good.contains(b).then(|| after.blocks[b])).collect();
                    // Blocks stored on a member that was readable before are good; so is what was
                    // not touched.
                    let expected: Vec<u8> = (0..data)
                        .map(|k| if written.contains(k) { new[k] } else { stripe.blocks[k] })
                        .collect();
                    assert_eq!(solve(&known, data), Some(expected), "{view:?} {written:?} {plan:?}");
                }
            }
        }
        assert!(plans > 100_000, "{plans}");
    }

    /// Within redundancy nothing is refused, and the number of reads is the least of the three
    /// methods, counted naively.
    #[test]
    fn within_redundancy_there_is_always_a_plan_and_it_is_the_cheapest() {
        for (data, parities) in widths() {
            for (readable, writable) in healths(data + parities) {
                if data + parities - readable.len() > parities {
                    continue;
                }
                let view = view(data, parities, readable, writable);
                for written in masks(data) {
                    let plan = decide_write(&view, &written).expect("within redundancy");
                    let good = |block: &usize| readable.contains(*block);
                    let parity: Vec<usize> =
                        (data..data + parities).filter(|b| writable.contains(*b)).collect();
                    let mut costs = vec![];
                    if parity.is_empty() {
                        costs.push(0);
                    }
                    let others: Vec<usize> = (0..data).filter(|k| !written.contains(*k)).collect();
                    if others.iter().all(good) {
                        costs.push(others.len());
                    }
                    if written.iter().all(|b| good(&b)) && parity.iter().all(good) {
                        costs.push(written.len() + parity.len());
                    }
                    let cheapest = costs.into_iter().min();
                    match cheapest {
                        Some(cost) => assert_eq!(plan.fetch.len(), cost, "{view:?} {written:?} {plan:?}"),
                        None => assert_eq!(plan.method, Method::Recover),
                    }
                }
            }
        }
    }

    /// Within redundancy every block can be read, and what a plan fetches determines what it
    /// recovers.
    #[test]
    fn within_redundancy_every_read_has_a_plan_that_determines_it() {
        for (data, parities) in widths().filter(|&(data, _)| data <= 5) {
            let stripe = Stripe::new(data, parities, 9);
            for (readable, writable) in healths(data + parities) {
                if data + parities - readable.len() > parities {
                    continue;
                }
                let view = view(data, parities, readable, writable);
                let views = [view, StripeView { q_first: true, ..view }];
                for (wanted, view) in masks(data).flat_map(|wanted| views.map(|view| (wanted, view))) {
                    let plan = decide_read(&view, &wanted).expect("within redundancy");
                    assert!(plan.fetch.is_subset(&readable));
                    assert!(wanted.is_subset(&plan.fetch.union(&plan.recover)));
                    if plan.recover.is_empty() {
                        assert_eq!(plan.fetch, wanted);
                        continue;
                    }
                    let known: Vec<Option<u8>> = (0..data + parities)
                        .map(|b| plan.fetch.contains(b).then(|| stripe.blocks[b]))
                        .collect();
                    assert_eq!(solve(&known, data).as_deref(), Some(&stripe.blocks[..data]));
                }
            }
        }
    }

    /// Where one parity block will do, it is that of the member with less to do, if that can be
    /// read.
    #[test]
    fn one_lost_block_is_recovered_from_the_parity_that_is_preferred() {
        let (data, p, q) = (4, 4, 5);
        let lost = BlockSet::range(0, 1);
        let all = BlockSet::range(0, 6);
        let parity = |without: &[usize], q_first| {
            let readable = all.without(&lost).without(&without.iter().copied().collect());
            let view = StripeView { q_first, ..view(data, 2, readable, all) };
            let plan = decide_read(&view, &lost).expect("within redundancy");
            plan.fetch.without(&BlockSet::range(0, data)).iter().collect::<Vec<_>>()
        };
        assert_eq!([parity(&[], false), parity(&[], true)], [[p], [q]]);
        assert_eq!([parity(&[p], false), parity(&[q], true)], [[q], [p]]);
        assert_eq!([parity(&[1], false), parity(&[1], true)], [[p, q], [p, q]]);
    }

    /// After a crash parity is not known to be right: it is never built on and never used to
    /// recover.
    #[test]
    fn untrusted_parity_is_rewritten_but_never_read() {
        for (data, parities) in widths() {
            for (readable, writable) in healths(data + parities) {
                let view = StripeView { trusted: false, ..view(data, parities, readable, writable) };
                let parity = BlockSet::range(data, data + parities);
                for written in masks(data) {
                    if let Ok(plan) = decide_write(&view, &written) {
                        assert!(plan.fetch.intersection(&parity).is_empty());
                        assert_ne!(plan.method, Method::ReadModify);
                    }
                    if let Ok(plan) = decide_read(&view, &written) {
                        assert!(plan.recover.is_empty());
                    }
                }
            }
        }
    }

    /// The choice that the limits of a small array rest on: one read at three members, two from
    /// four on.
    #[test]
    fn three_members_reconstruct_and_four_modify() {
        let view = |data| view(data, 1, BlockSet::range(0, data + 1), BlockSet::range(0, data + 1));
        let one = BlockSet::range(0, 1);
        let small = decide_write(&view(2), &one).expect("healthy");
        assert_eq!((small.method, small.fetch.len()), (Method::Reconstruct, 1));
        let wide = decide_write(&view(5), &one).expect("healthy");
        assert_eq!((wide.method, wide.fetch.len()), (Method::ReadModify, 2));
        let full = decide_write(&view(5), &BlockSet::range(0, 5)).expect("healthy");
        assert_eq!((full.method, full.fetch.len()), (Method::Reconstruct, 0));
    }

    /// What is in memory costs nothing: the method with the fewest reads of members is chosen,
    /// counted naively.
    #[test]
    fn blocks_in_memory_are_not_counted() {
        for (data, parities) in widths().filter(|&(data, _)| data <= 5) {
            let all = BlockSet::range(0, data + parities);
            let parity = BlockSet::range(data, data + parities);
            for cached in masks(data + parities) {
                let view = StripeView { cached, ..view(data, parities, all, all) };
                for written in masks(data) {
                    let plan = decide_write(&view, &written).expect("healthy");
                    let reads = |fetch: BlockSet| fetch.without(&cached).len();
                    let least =
                        reads(BlockSet::range(0, data).without(&written)).min(reads(written.union(&parity)));
                    assert_eq!(reads(plan.fetch), least, "{view:?} {written:?} {plan:?}");
                }
            }
        }
    }

    #[test]
    fn block_sets_hold_the_widest_stripe() {
        let set: BlockSet = [0, 63, 64, 255, 256].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 255, 256]);
        assert_eq!(set.len(), 5);
        assert!(BlockSet::range(250, 257).contains(256));
        assert_eq!(BlockSet::range(0, 257).without(&set).len(), 252);
    }
}
