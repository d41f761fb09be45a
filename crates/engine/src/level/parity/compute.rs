//! Parity of a row, from the callers' buffers and what was fetched.

use wattle_parity::{Block, DataBlock, Kernels};
use wattle_rt::{Buf, BufMut};

use super::Work;
use crate::model::plan::WritePlan;

impl Work<'_> {
    /// Fills in the data blocks of `old` that are missing, from the others and as many parity
    /// blocks as are there.
    ///
    /// # Panics
    /// If too little was fetched: plans see to it.
    pub(super) fn recover(&self, old: &mut [Option<BufMut>], len: usize) {
        let (data, parity) = old.split_at_mut(self.data());
        let missing: Vec<bool> = data.iter().map(Option::is_none).collect();
        let mut blocks: Vec<(u8, Block<'_>)> = data
            .iter_mut()
            .enumerate()
            .map(|(k, cell)| {
                let block: &mut [u8] = cell.get_or_insert_with(|| BufMut::alloc(len));
                (self.exponent(k), if missing[k] { Block::Lost(block) } else { Block::Known(block) })
            })
            .collect();
        blocks.sort_unstable_by_key(|(exponent, _)| *exponent);
        let mut known = parity.iter().map(|cell| cell.as_deref().map(Block::Known));
        let (p, q) = (known.next().flatten(), known.next().flatten());
        Kernels::best()
            .recover(&mut blocks, p, q)
            .expect("a plan fetches a parity block for each data block it lacks");
    }

    /// Sets the parity blocks of `new` that `plan` stores, from new data where there is some and
    /// old data elsewhere.
    pub(super) fn encode_parity(
        &self,
        old: &mut [Option<BufMut>],
        new: &mut [Option<Buf>],
        plan: &WritePlan,
        len: usize,
    ) {
        let (p_block, q_block) = (self.data(), self.data() + 1);
        let mut buf =
            |block: usize| plan.store.contains(block).then(|| old_or_new_buffer(&mut old[block], len));
        let mut p = buf(p_block);
        let mut q = if self.parities() == 2 { buf(q_block) } else { None };
        let mut sources: Vec<DataBlock<'_>> = (0..self.data())
            .map(|k| {
                let block = new[k].as_deref().or(old[k].as_deref());
                DataBlock::new(self.exponent(k), block.expect("a plan fetches what is not written"))
            })
            .collect();
        sources.sort_unstable_by_key(|source| source.exponent);
        let kernels = Kernels::best();
        match (&mut p, &mut q) {
            (Some(p), Some(q)) => kernels.pq_gen(p, q, &sources),
            (Some(p), None) => {
                let blocks: Vec<&[u8]> = sources.iter().map(|source| source.block).collect();
                kernels.xor_gen(p, &blocks);
            }
            (None, Some(q)) => kernels.q_gen(q, &sources),
            (None, None) => {}
        }
        drop(sources);
        if let Some(p) = p {
            new[p_block] = Some(p.freeze());
        }
        if let Some(q) = q {
            new[q_block] = Some(q.freeze());
        }
    }

    /// Sets the parity blocks of `new` that `plan` stores: old parity, with each written block's
    /// old content taken out and its new content put in.
    pub(super) fn update_parity(
        &self,
        old: &mut [Option<BufMut>],
        new: &mut [Option<Buf>],
        plan: &WritePlan,
    ) {
        let (p_block, q_block) = (self.data(), self.data() + 1);
        let mut take =
            |block: usize| old.get_mut(block).filter(|_| plan.store.contains(block)).and_then(Option::take);
        let (mut p, mut q) = (take(p_block), take(q_block));
        let kernels = Kernels::best();
        for k in 0..self.data() {
            let (Some(new), Some(old)) = (new[k].as_deref(), old[k].as_deref()) else { continue };
            match (&mut p, &mut q) {
                (Some(p), Some(q)) => kernels.delta_pq(p, q, self.exponent(k), old, new),
                (Some(p), None) => kernels.delta_p(p, old, new),
                (None, Some(q)) => kernels.delta_q(q, self.exponent(k), old, new),
                (None, None) => {}
            }
        }
        if let Some(p) = p {
            new[p_block] = Some(p.freeze());
        }
        if let Some(q) = q {
            new[q_block] = Some(q.freeze());
        }
    }
}

/// A parity block's buffer: the one it was fetched into, if it was.
fn old_or_new_buffer(old: &mut Option<BufMut>, len: usize) -> BufMut {
    old.take().unwrap_or_else(|| BufMut::alloc(len))
}
