//! What a kernel can be asked to do.

use crate::source::DataBlock;

/// One pass over equally long blocks. `sources` ascend by exponent; factors are field elements.
///
/// P' and Q' stand for the parity of `sources` alone. Computing them in registers and finishing
/// there is what lets every recovery be a single pass without a scratch block.
pub(crate) enum Job<'a> {
    /// `dst = sum of sources`
    XorGen { dst: &'a mut [u8], sources: &'a [&'a [u8]] },
    /// `dst += sum of sources`
    XorAdd { dst: &'a mut [u8], sources: &'a [&'a [u8]] },
    /// `dst = factor * src`
    MulInto { dst: &'a mut [u8], factor: u8, src: &'a [u8] },
    /// `dst += factor * src`
    MulAdd { dst: &'a mut [u8], factor: u8, src: &'a [u8] },
    /// `q += factor * (old + new)`
    DeltaQ { q: &'a mut [u8], factor: u8, old: &'a [u8], new: &'a [u8] },
    /// `p += old + new; q += factor * (old + new)`
    DeltaPq { p: &'a mut [u8], q: &'a mut [u8], factor: u8, old: &'a [u8], new: &'a [u8] },
    /// `q = Q'`
    Q { q: &'a mut [u8], sources: &'a [DataBlock<'a>] },
    /// `p = P'; q = Q'`
    Pq { p: &'a mut [u8], q: &'a mut [u8], sources: &'a [DataBlock<'a>] },
    /// `data = factor * (q + Q')`
    DataFromQ { data: &'a mut [u8], factor: u8, q: &'a [u8], sources: &'a [DataBlock<'a>] },
    /// `data = factor * (q + Q'); p = P' + data`
    DataAndP { data: &'a mut [u8], p: &'a mut [u8], factor: u8, q: &'a [u8], sources: &'a [DataBlock<'a>] },
    /// `data = p + P'; q = Q' + factor * data`
    DataAndQ { data: &'a mut [u8], q: &'a mut [u8], factor: u8, p: &'a [u8], sources: &'a [DataBlock<'a>] },
    /// `x = factor_p * (p + P') + factor_q * (q + Q'); y = p + P' + x`
    TwoData {
        x: &'a mut [u8],
        y: &'a mut [u8],
        factor_p: u8,
        factor_q: u8,
        p: &'a [u8],
        q: &'a [u8],
        sources: &'a [DataBlock<'a>],
    },
}

impl Job<'_> {
    /// The common length of all blocks.
    ///
    /// # Panics
    /// If two blocks differ in length, or exponents do not ascend below 255. This check is what the
    /// pointer arithmetic of the kernels rests on.
    pub(crate) fn checked_len(&self) -> usize {
        match self {
            Job::XorGen { dst, sources } | Job::XorAdd { dst, sources } => {
                for source in *sources {
                    assert_same_len(dst.len(), [source.len()]);
                }
                dst.len()
            }
            Job::MulInto { dst, src, .. } | Job::MulAdd { dst, src, .. } => {
                assert_same_len(dst.len(), [src.len()])
            }
            Job::DeltaQ { q, old, new, .. } => assert_same_len(q.len(), [old.len(), new.len()]),
            Job::DeltaPq { p, q, old, new, .. } => assert_same_len(p.len(), [q.len(), old.len(), new.len()]),
            Job::Q { q, sources } => assert_fit(q.len(), sources),
            Job::Pq { p, q, sources } => assert_same_len(assert_fit(p.len(), sources), [q.len()]),
            Job::DataFromQ { data, q, sources, .. } => {
                assert_same_len(assert_fit(data.len(), sources), [q.len()])
            }
            Job::DataAndP { data, p, q, sources, .. } => {
                assert_same_len(assert_fit(data.len(), sources), [p.len(), q.len()])
            }
            Job::DataAndQ { data, p, q, sources, .. } => {
                assert_same_len(assert_fit(data.len(), sources), [p.len(), q.len()])
            }
            Job::TwoData { x, y, p, q, sources, .. } => {
                assert_same_len(assert_fit(x.len(), sources), [y.len(), p.len(), q.len()])
            }
        }
    }
}

fn assert_same_len<const N: usize>(len: usize, others: [usize; N]) -> usize {
    for other in others {
        assert_eq!(len, other, "blocks of one row have one length");
    }
    len
}

fn assert_fit(len: usize, sources: &[DataBlock<'_>]) -> usize {
    let mut lowest_allowed = 0;
    for source in sources {
        assert_eq!(len, source.block.len(), "blocks of one row have one length");
        assert!(
            (lowest_allowed..255).contains(&source.exponent),
            "exponents ascend and stay below 255, but {} follows {}",
            source.exponent,
            lowest_allowed.wrapping_sub(1),
        );
        lowest_allowed = source.exponent + 1;
    }
    len
}
