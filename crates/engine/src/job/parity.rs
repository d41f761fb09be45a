//! A step on levels with parity. All members are read at the same place, as one operation each, and
//! parted into stripes in memory.

use std::ops::Range;

use wattle_parity::{Block, Kernels, Suspect, locate};
use wattle_rt::{Buf, BufMut};

use super::RepairSource;
use super::findings::{Mismatch, MismatchKind, SumVerdict};
use super::reads::Missed;
use super::unit::{Attempt, Step, Task, Trouble, Writes, bytes, differences, in_sync};
use crate::model::geometry::StripeMap;
use crate::model::health::Health;
use crate::model::units::{MemberIx, MemberSet, SECTOR_BYTES, Sector, StripeNo};

/// The part of a range that lies in one stripe.
pub(super) struct Part {
    pub map: StripeMap,
    /// Member sectors.
    pub sectors: Range<Sector>,
    /// The same in the range's buffers.
    pub bytes: Range<usize>,
}

impl Part {
    /// What of it lies in some sectors of the step's range.
    pub fn within(&self, cell: &Range<Sector>, range: &Range<Sector>) -> Option<Self> {
        let sectors = self.sectors.start.max(cell.start)..self.sectors.end.min(cell.end);
        let at = |sector: Sector| bytes(sector - range.start);
        (!sectors.is_empty()).then(|| Self {
            map: self.map,
            bytes: at(sectors.start)..at(sectors.end),
            sectors,
        })
    }

    pub fn data(&self) -> impl Iterator<Item = MemberIx> + '_ {
        (0..self.map.data_blocks()).map(|block| self.map.data_member(block))
    }

    fn parity(&self) -> impl Iterator<Item = MemberIx> + '_ {
        std::iter::once(self.map.p()).chain(self.map.q())
    }

    /// Exponent of a data block in Q; where there is no Q any order will do.
    fn exponent(&self, block: usize) -> u8 {
        if self.map.q().is_some() { self.map.exponent(block) } else { block as u8 }
    }

    pub fn missing(&self, have: &MemberSet) -> usize {
        self.data().filter(|slot| !have.contains(*slot)).count()
    }

    pub fn parity_at_hand(&self, have: &MemberSet) -> usize {
        self.parity().filter(|slot| have.contains(*slot)).count()
    }

    /// Fills in what is not in `have`: all data, and the parity blocks for which there is a buffer.
    /// `row` has the buffers by slot; those of `parity` go before.
    pub fn complete(&self, row: &mut [Option<BufMut>], have: &MemberSet, parity: [Option<&mut BufMut>; 2]) {
        let at = &self.bytes;
        let mut cells: Vec<Option<&mut [u8]>> =
            row.iter_mut().map(|buf| buf.as_mut().map(|buf| &mut buf[at.clone()])).collect();
        let mut known = |slot: MemberIx| {
            let cell = cells[slot.index()].take()?;
            Some(if have.contains(slot) { Block::Known(cell) } else { Block::Lost(cell) })
        };
        let mut data: Vec<(u8, Block<'_>)> = (0..self.map.data_blocks())
            .map(|block| {
                let cell = known(self.map.data_member(block));
                (self.exponent(block), cell.expect("every data block has a buffer"))
            })
            .collect();
        data.sort_unstable_by_key(|(exponent, _)| *exponent);
        let [fresh_p, fresh_q] = parity;
        let p = match fresh_p {
            Some(buf) => Some(Block::Lost(&mut buf[at.clone()])),
            None => known(self.map.p()),
        };
        let q = match (fresh_q, self.map.q()) {
            (Some(buf), Some(_)) => Some(Block::Lost(&mut buf[at.clone()])),
            (_, Some(q)) => known(q),
            (_, None) => None,
        };
        Kernels::best().recover(&mut data, p, q).expect("it was counted before");
    }
}

/// What came of reading the same range of several seats.
struct Rows {
    /// By seat.
    row: Vec<Option<BufMut>>,
    /// The seats with bad sectors.
    bad: MemberSet,
    /// The seats that did not answer in time.
    late: MemberSet,
}

impl Step<'_> {
    pub(super) async fn stripes(&mut self, range: &Range<Sector>, last: bool) -> Result<Attempt, Trouble> {
        match self.task {
            Task::Recover(targets) => self.recover_stripes(targets, range, last).await,
            Task::Resync => self.resync_stripes(range, last).await,
            Task::Check => self.check_stripes(None, range, last).await,
            Task::Repair(source) => self.check_stripes(Some(*source), range, last).await,
        }
    }

    fn parts(&self, range: &Range<Sector>) -> Vec<Part> {
        let geometry = &self.shard.fixed.geometry;
        let chunk = geometry.chunk();
        let mut parts = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let stripe = at.0 / chunk.0;
            let end = Sector((stripe + 1) * chunk.0).min(range.end);
            let from = bytes(at - range.start);
            parts.push(Part {
                map: geometry.stripe(StripeNo(stripe)),
                sectors: at..end,
                bytes: from..from + bytes(end - at),
            });
            at = end;
        }
        parts
    }

    /// The slots with a member that can be read in the whole range.
    fn at_hand(&self, health: &Health, range: &Range<Sector>, unreadable: &MemberSet) -> MemberSet {
        let slots = (0..self.slots() as u16).map(MemberIx);
        slots.filter(|slot| !unreadable.contains(*slot) && health.readable(*slot, range.clone())).collect()
    }

    /// Whether some member can be read in some blocks of a range and not in others.
    fn partly_readable(&self, health: &Health, range: &Range<Sector>) -> bool {
        let mut seats = (0..2 * self.slots() as u16).map(MemberIx);
        seats.any(|seat| health.partly_readable(seat, range, range, self.block()))
    }

    fn trusted(&self, health: &Health, part: &Part) -> bool {
        let (start, chunk) = (part.map.member_sector, self.shard.fixed.geometry.chunk());
        health.trust.covers(start..start + chunk)
    }

    /// Reads a range of several seats.
    async fn read_seats(
        &mut self,
        seats: &MemberSet,
        range: &Range<Sector>,
        last: bool,
        patient: &MemberSet,
    ) -> Result<Rows, Trouble> {
        let len = bytes(range.end - range.start);
        let runs = seats.iter().map(|seat| (seat, range.start, vec![BufMut::alloc(len)])).collect();
        let mut row: Vec<Option<BufMut>> = (0..2 * self.slots()).map(|_| None).collect();
        let (mut errors, mut late) = (Vec::new(), MemberSet::default());
        for (seat, result) in self.read(runs, patient).await? {
            match result {
                Ok(mut bufs) => row[seat.index()] = bufs.pop(),
                Err(Missed::Failed(error)) => errors.push((seat, error)),
                Err(Missed::Late) => late.insert(seat),
            }
        }
        let bad = errors.iter().map(|(seat, _)| *seat).collect();
        self.judge(errors, last).await?;
        Ok(Rows { row, bad, late })
    }

    async fn recover_stripes(
        &mut self,
        targets: &[MemberIx],
        range: &Range<Sector>,
        last: bool,
    ) -> Result<Attempt, Trouble> {
        let (mut unreadable, mut late) = (MemberSet::default(), MemberSet::default());
        loop {
            let health = self.health()?;
            // What a member has is not made from others, and what one has that is being filled is
            // not written again.
            if !last && self.partly_readable(&health, range) {
                return Ok(Attempt::Split);
            }
            let wants = |seat: &MemberIx| {
                health.state(*seat).writable()
                    && !in_sync(&health, *seat)
                    && !health.readable(*seat, range.clone())
            };
            let mut needed: Vec<MemberIx> = targets.iter().copied().filter(wants).collect();
            let all = self.at_hand(&health, range, &unreadable);
            let parts = self.parts(range);
            let slots = self.slots() as u16;
            // A member that does not answer in time is asked only if the others do not suffice; a
            // member that was slow lately is asked before it.
            let does = |have: &MemberSet| {
                let serves = |part: &Part| match part.missing(have) {
                    0 => true,
                    missing => missing <= part.parity_at_hand(have) && self.trusted(&health, part),
                };
                needed.iter().all(|seat| have.contains(self.slot_of(*seat))) || parts.iter().all(serves)
            };
            let others = [late.union(&self.shard.members.slow()), late].map(|avoided| all.without(&avoided));
            let have = others.into_iter().find(does).unwrap_or(all);
            let solvable = |part: &Part| part.missing(&have) <= part.parity_at_hand(&have);
            let copied = |seat: &MemberIx| have.contains(MemberIx(seat.0 % slots));
            if !needed.iter().all(copied) && !parts.iter().all(solvable) {
                if !last {
                    return Ok(Attempt::Split);
                }
                // No member has this block. What can be copied is.
                for seat in needed.iter().copied().filter(|seat| !copied(seat)) {
                    self.pass_on(seat, range.clone()).await?;
                }
                needed.retain(copied);
            }
            if needed.is_empty() {
                return Ok(Attempt::Done);
            }
            let copy_all = needed.iter().all(copied);
            let sources: MemberSet =
                if copy_all { needed.iter().map(|seat| self.slot_of(*seat)).collect() } else { have };
            // Parity that may be wrong makes up for nothing; it is made from data all the same.
            let guess = |part: &Part| part.missing(&have) > 0 && !self.trusted(&health, part);
            if !copy_all && parts.iter().any(guess) {
                return Err(Trouble::Untrusted);
            }
            // A member that cannot be done without is waited for at once.
            let tight = |part: &Part| part.missing(&all) >= part.parity_at_hand(&all);
            let patient = if !copy_all && parts.iter().any(tight) { &all } else { &late };
            let Rows { mut row, bad, late: missing } =
                self.read_seats(&sources, range, last, patient).await?;
            if !bad.is_empty() && !last {
                return Ok(Attempt::Split);
            }
            if !bad.is_empty() || !missing.is_empty() {
                unreadable = unreadable.union(&bad);
                late = late.union(&missing);
                continue;
            }
            // Blocks that could not be read just now get their content back.
            let rewritten: Vec<MemberIx> =
                unreadable.iter().filter(|slot| !copy_all && in_sync(&health, *slot)).collect();
            if !copy_all {
                let fill = |slot: MemberIx| {
                    parts.iter().any(|part| part.data().any(|data| data == slot))
                        || rewritten.contains(&slot)
                        || needed.iter().any(|seat| self.slot_of(*seat) == slot)
                };
                let len = bytes(range.end - range.start);
                for slot in (0..self.slots() as u16).map(MemberIx).filter(|slot| !have.contains(*slot)) {
                    if fill(slot) {
                        row[slot.index()] = Some(BufMut::alloc(len));
                    }
                }
                parts.iter().for_each(|part| part.complete(&mut row[..], &have, [None, None]));
            }
            let row: Vec<Option<Buf>> = row.into_iter().map(|buf| buf.map(BufMut::freeze)).collect();
            let mut writes = Writes::default();
            let to = |seat: MemberIx| row[self.slot_of(seat).index()].clone();
            for seat in needed.iter().chain(&rewritten) {
                writes.add(*seat, range.start, to(*seat).expect("what is needed was read or made"));
            }
            self.note_repaired(rewritten.len());
            if !rewritten.is_empty() {
                self.note(range.clone()).await?;
            }
            self.store(writes).await?;
            return Ok(Attempt::Done);
        }
    }

    async fn resync_stripes(&mut self, range: &Range<Sector>, last: bool) -> Result<Attempt, Trouble> {
        let mut unreadable = MemberSet::default();
        loop {
            let health = self.health()?;
            // No step comes again for what is current on a member that is being filled.
            if !last && self.partly_readable(&health, range) {
                return Ok(Attempt::Split);
            }
            let have = self.at_hand(&health, range, &unreadable);
            let parts = self.parts(range);
            if parts.iter().any(|part| part.missing(&have) > 0) {
                return if last {
                    self.give_up(&health, &parts[0], &have, &unreadable).await
                } else {
                    Ok(Attempt::Split)
                };
            }
            let mut seats = have;
            let compared = |slot: MemberIx| {
                health.state(slot).writable() || health.state(health.replacement_of(slot)).writable()
            };
            let replaced = (0..self.slots() as u16).map(|slot| health.replacement_of(MemberIx(slot)));
            let replaced = replaced.into_iter().any(|seat| health.state(seat).writable());
            if !replaced && !parts.iter().any(|part| part.parity().any(compared)) {
                // Degraded: there is no parity that could disagree.
                return Ok(Attempt::Done);
            }
            for slot in (0..self.slots() as u16).map(MemberIx) {
                let seat = health.replacement_of(slot);
                if !unreadable.contains(seat) && health.readable(seat, range.clone()) {
                    seats.insert(seat);
                }
            }
            // All data is needed, and parity is no substitute.
            let Rows { mut row, bad, .. } = self.read_seats(&seats, range, last, &seats).await?;
            if !bad.is_empty() {
                if !last {
                    return Ok(Attempt::Split);
                }
                unreadable = unreadable.union(&bad);
                continue;
            }
            let fresh = self.encode(&parts, &mut row, &have, range);
            let row: Vec<Option<Buf>> = row.into_iter().map(|buf| buf.map(BufMut::freeze)).collect();
            let mut writes = Writes::default();
            for part in &parts {
                let [p, q] = [&fresh[0], &fresh[1]];
                let parity = part.parity().zip([p, q]);
                let data = part.data().map(|slot| (slot, &row[slot.index()]));
                for (slot, right, is_parity) in data
                    .map(|(slot, right)| (slot, right, false))
                    .chain(parity.map(|(slot, right)| (slot, right, true)))
                {
                    let right = right.as_ref().expect("it was read or made").slice(part.bytes.clone());
                    for seat in [slot, health.replacement_of(slot)] {
                        if (seat == slot && !is_parity) || !health.state(seat).writable() {
                            continue;
                        }
                        match &row[seat.index()] {
                            Some(found) => {
                                self.correct(&mut writes, seat, part, &right, &found[part.bytes.clone()]);
                            }
                            // It could not be read, so it is not known to agree; a member that is
                            // being filled here gets it later.
                            None if in_sync(&health, seat) || unreadable.contains(seat) => {
                                writes.add(seat, part.sectors.start, right.clone());
                            }
                            None => {}
                        }
                    }
                }
            }
            self.store(writes).await?;
            return Ok(Attempt::Done);
        }
    }

    /// Writes what differs.
    fn correct(&self, writes: &mut Writes, seat: MemberIx, part: &Part, right: &Buf, found: &[u8]) {
        for run in differences(right, found, bytes(self.block())) {
            let at = part.sectors.start + Sector(run.start as u64 / SECTOR_BYTES);
            writes.add(seat, at, right.slice(run));
        }
    }

    /// A block whose parity cannot be made, because not all data can be read. Parity may be wrong,
    /// so it is no source either: the row's data that cannot be read is lost, and its parity is not
    /// to be believed until the row is written anew.
    async fn give_up(
        &mut self,
        health: &Health,
        part: &Part,
        have: &MemberSet,
        unreadable: &MemberSet,
    ) -> Result<Attempt, Trouble> {
        // What is being made to replace a member has the same parity, and may take the slot before
        // a check looks again.
        let copies = part.parity().map(|slot| health.replacement_of(slot));
        let copies: Vec<MemberIx> = copies.filter(|seat| health.state(*seat).writable()).collect();
        if part.parity_at_hand(have) == 0 && copies.is_empty() {
            // There is nothing that could disagree.
            return Ok(Attempt::Done);
        }
        if part.data().any(|slot| !have.contains(slot) && !in_sync(health, slot)) {
            return Err(Trouble::Untrusted);
        }
        self.found.unreadable_sectors += (part.sectors.end - part.sectors.start).0;
        let parity = part.parity().filter(|slot| have.contains(*slot));
        let seats: Vec<MemberIx> = parity.chain(unreadable.iter()).chain(copies).collect();
        for seat in seats {
            self.mark_bad(seat, part.sectors.clone()).await?;
        }
        Ok(Attempt::Done)
    }

    /// Parity as it should be: P and Q of every part, each in a buffer of the range's length. All
    /// data is in `row`, or is made on the way from P.
    fn encode(
        &self,
        parts: &[Part],
        row: &mut [Option<BufMut>],
        have: &MemberSet,
        range: &Range<Sector>,
    ) -> [Option<Buf>; 2] {
        let len = bytes(range.end - range.start);
        let mut p = BufMut::alloc(len);
        let mut q = parts[0].map.q().map(|_| BufMut::alloc(len));
        for part in parts {
            part.complete(row, have, [Some(&mut p), q.as_mut()]);
        }
        [Some(p.freeze()), q.map(BufMut::freeze)]
    }

    fn note_repaired(&mut self, blocks: usize) {
        self.found.repaired += blocks as u64;
        self.shard.state.counters.repaired.add(blocks as u64);
    }

    async fn check_stripes(
        &mut self,
        source: Option<RepairSource>,
        range: &Range<Sector>,
        last: bool,
    ) -> Result<Attempt, Trouble> {
        let mut unreadable = MemberSet::default();
        loop {
            let health = self.health()?;
            let have = self.at_hand(&health, range, &unreadable);
            let slots = (0..self.slots() as u16).map(MemberIx);
            let defects: Vec<MemberIx> =
                slots.filter(|slot| in_sync(&health, *slot) && !have.contains(*slot)).collect();
            if !defects.is_empty() && !last {
                return Ok(Attempt::Split);
            }
            let parts = self.parts(range);
            if source.is_some() && parts.iter().any(|part| !self.trusted(&health, part)) {
                return Err(Trouble::Untrusted);
            }
            let Rows { mut row, bad, late } = self.read_seats(&have, range, last, &MemberSet::EMPTY).await?;
            if !late.is_empty() {
                self.found.late_sectors += (range.end - range.start).0;
                return Ok(Attempt::Done);
            }
            if !bad.is_empty() {
                if !last {
                    return Ok(Attempt::Split);
                }
                unreadable = unreadable.union(&bad);
                continue;
            }
            let mut writes = Writes::default();
            let mut proven = Writes::default();
            let mut judged = Vec::new();
            // Block by block: what is summed is in the processor's caches when parity is made.
            for cell in self.cells(range) {
                judged.extend(self.judge_rows(&health, &parts, &mut row, &have, (range, &cell), &mut proven));
                for part in parts.iter().filter_map(|part| part.within(&cell, range)) {
                    self.check_part(&health, source, &part, &mut row, &have, &mut writes);
                }
            }
            self.take_sums(judged);
            if let [part] = &parts[..]
                && last
                && !defects.is_empty()
            {
                let agreed = self.found.mismatches.last().is_none_or(|last| last.member.end != range.end);
                // Known bad sectors stay what they are unless a repair was asked for.
                let rewrite = |slot: &MemberIx| unreadable.contains(*slot) || source.is_some();
                let rewrite: Vec<MemberIx> = defects.into_iter().filter(rewrite).collect();
                let (missing, parity) = (part.missing(&have), part.parity_at_hand(&have));
                let can = missing <= parity && self.trusted(&health, part);
                if can && agreed && !rewrite.is_empty() {
                    let len = bytes(range.end - range.start);
                    for slot in part.data().chain(rewrite.iter().copied()) {
                        row[slot.index()].get_or_insert_with(|| BufMut::alloc(len));
                    }
                    part.complete(&mut row, &have, [None, None]);
                    for slot in rewrite.iter().copied() {
                        let buf = row[slot.index()].take().expect("it was made").freeze();
                        health.writable_for(slot).for_each(|seat| writes.add(seat, range.start, buf.clone()));
                    }
                    self.note_repaired(rewrite.len());
                } else if !can {
                    self.found.unreadable_sectors += (range.end - range.start).0;
                } else if missing >= parity {
                    self.found.alone_sectors += (range.end - range.start).0;
                }
            }
            self.store_proven(proven).await?;
            self.store(writes).await?;
            return Ok(Attempt::Done);
        }
    }

    /// Compares the parity of a part with what it should be, and adds what a repair writes.
    fn check_part(
        &mut self,
        health: &Health,
        source: Option<RepairSource>,
        part: &Part,
        row: &mut [Option<BufMut>],
        have: &MemberSet,
        writes: &mut Writes,
    ) {
        let (missing, parity) = (part.missing(have), part.parity_at_hand(have));
        if missing >= parity {
            // The blocks that are there are needed to make up for those that are not: nothing is
            // left to compare.
            return;
        }
        let len = row.iter().flatten().next().map_or(0, |buf| buf.len());
        let (p, q) = (part.map.p(), part.map.q());
        let has_q = q.is_some_and(|q| have.contains(q));
        // Missing data is made from P; Q is compared then.
        let mut fresh_p = (missing == 0).then(|| BufMut::alloc(len));
        let mut fresh_q = q.map(|_| BufMut::alloc(len));
        let mut made: Vec<MemberIx> = Vec::new();
        for slot in part.data().filter(|slot| !have.contains(*slot)) {
            row[slot.index()] = Some(BufMut::alloc(len));
            made.push(slot);
        }
        part.complete(row, have, [fresh_p.as_mut(), fresh_q.as_mut()]);
        for slot in made {
            row[slot.index()] = None;
        }
        let at = part.bytes.clone();
        let compared = |slot: Option<MemberIx>, fresh: &Option<BufMut>| {
            let slot = slot.filter(|slot| have.contains(*slot))?;
            let (fresh, found) = (fresh.as_ref()?, row[slot.index()].as_ref()?);
            let runs = differences(&fresh[at.clone()], &found[at.clone()], bytes(self.block()));
            (!runs.is_empty()).then_some(runs)
        };
        let (p_runs, q_runs) = (compared(Some(p), &fresh_p), compared(q, &fresh_q));
        if p_runs.is_none() && q_runs.is_none() {
            return;
        }
        let block = bytes(self.block());
        let within = |runs: &Option<Vec<Range<usize>>>, at: usize| {
            runs.as_ref().is_some_and(|runs| runs.iter().any(|run| run.contains(&at)))
        };
        let both = missing == 0 && has_q && have.contains(p);
        for from in (0..at.len()).step_by(block) {
            if !within(&p_runs, from) && !within(&q_runs, from) {
                continue;
            }
            let to = (from + block).min(at.len());
            let here = at.start + from..at.start + to;
            let difference = |slot: MemberIx, fresh: &Option<BufMut>| -> Vec<u8> {
                let (fresh, found) = (fresh.as_ref(), row[slot.index()].as_ref());
                let pairs = fresh.zip(found).map(|(a, b)| a[here.clone()].iter().zip(b[here.clone()].iter()));
                pairs.map(|pairs| pairs.map(|(a, b)| a ^ b).collect()).unwrap_or_default()
            };
            let p_difference = difference(p, &fresh_p);
            let suspect = match q.filter(|_| both) {
                None => Suspect::Several,
                Some(q) => locate(&p_difference, &difference(q, &fresh_q), |exponent| {
                    (0..part.map.data_blocks()).any(|block| part.exponent(block) == exponent)
                }),
            };
            let sectors = part.sectors.start + Sector(from as u64 / SECTOR_BYTES)
                ..part.sectors.start + Sector(to as u64 / SECTOR_BYTES);
            let block_of = |wanted: u8| {
                (0..part.map.data_blocks()).find(|block| part.exponent(*block) == wanted).unwrap_or(0)
            };
            let culprit_block = match suspect {
                Suspect::Data { exponent } => Some(block_of(exponent)),
                _ => None,
            };
            let culprit = match suspect {
                Suspect::P => Some(p),
                Suspect::Q => q,
                _ => culprit_block.map(|block| part.map.data_member(block)),
            };
            let verdict = self.disagrees(&sectors);
            self.found
                .add(Mismatch { sums: verdict, ..self.mismatch(part, &sectors, culprit, culprit_block) });
            let mut agreed = false;
            let mut rewrite = |slot: MemberIx, bytes: &[u8]| {
                let buf = Buf::copy_of(bytes);
                health.writable_for(slot).for_each(|seat| writes.add(seat, sectors.start, buf.clone()));
                agreed = true;
            };
            let fresh = |slot: MemberIx| if slot == p { &fresh_p } else { &fresh_q };
            match source {
                Some(RepairSource::ParityFromData) if missing == 0 => {
                    for slot in part.parity().filter(|slot| have.contains(*slot)) {
                        if let Some(fresh) = fresh(slot) {
                            rewrite(slot, &fresh[here.clone()]);
                        }
                    }
                }
                Some(RepairSource::Raid6Culprit) => match (suspect, culprit) {
                    (Suspect::Data { .. }, Some(slot)) => {
                        if let Some(found) = &row[slot.index()] {
                            let found = found[here.clone()].iter().zip(&p_difference);
                            rewrite(slot, &found.map(|(a, b)| a ^ b).collect::<Vec<u8>>());
                        }
                    }
                    (Suspect::P | Suspect::Q, Some(slot)) => {
                        if let Some(fresh) = fresh(slot) {
                            rewrite(slot, &fresh[here.clone()]);
                        }
                    }
                    _ => {}
                },
                _ => {}
            }
            if agreed {
                self.found.agreed_sectors += (sectors.end - sectors.start).0;
            }
        }
    }

    pub(super) fn mismatch(
        &self,
        part: &Part,
        sectors: &Range<Sector>,
        culprit: Option<MemberIx>,
        block: Option<usize>,
    ) -> Mismatch {
        let geometry = &self.shard.fixed.geometry;
        let offset = sectors.start - part.map.member_sector;
        let at = |block: usize| geometry.array_sector_of(part.map.stripe, block, offset);
        let len = sectors.end - sectors.start;
        let array = match block {
            Some(block) => at(block)..at(block) + len,
            None => at(0)..at(part.map.data_blocks() - 1) + len,
        };
        let sums = SumVerdict::Nothing;
        Mismatch { kind: MismatchKind::Parity, array, member: sectors.clone(), culprit, sums }
    }
}
