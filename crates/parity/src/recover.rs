//! Recovery of a whole row: say which blocks are known and which are lost, and the lost ones are
//! filled in.

use std::error::Error;
use std::fmt;

use crate::{DataBlock, Kernels};

/// A block of a row that is to be completed.
#[derive(Debug)]
pub enum Block<'a> {
    /// The bytes are good.
    Known(&'a [u8]),
    /// The bytes are to be computed; what the buffer holds does not matter.
    Lost(&'a mut [u8]),
}

/// Why a row cannot be completed. No buffer has been touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoverError {
    /// More data blocks are lost than parity blocks are known.
    TooManyLost {
        /// How many data blocks are lost.
        data: usize,
        /// How many of P and Q are known.
        parity: usize,
    },
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoverError::TooManyLost { data, parity } => {
                write!(f, "{data} data blocks are lost but only {parity} parity blocks are known")
            }
        }
    }
}

impl Error for RecoverError {}

/// Exponents stay below 255, so a row has at most this many data blocks.
const DATA_BLOCKS_MAX: usize = 255;

impl Kernels {
    /// Fills every [`Block::Lost`] of one row, in one pass over it.
    ///
    /// `data` ascends strictly by exponent (see [`DataBlock`]). `p` and `q` are `None` where the
    /// row has no such block, or where it is lost and not wanted back.
    ///
    /// # Errors
    /// [`RecoverError::TooManyLost`]; the row is then as it was.
    ///
    /// # Panics
    /// As [`Kernels`] says, and with more than 255 data blocks.
    pub fn recover(
        &self,
        data: &mut [(u8, Block<'_>)],
        p: Option<Block<'_>>,
        q: Option<Block<'_>>,
    ) -> Result<(), RecoverError> {
        let lost = data.iter().filter(|(_, block)| matches!(block, Block::Lost(_))).count();
        let known_parity =
            [&p, &q].into_iter().filter(|parity| matches!(parity, Some(Block::Known(_)))).count();
        if lost > known_parity {
            return Err(RecoverError::TooManyLost { data: lost, parity: known_parity });
        }

        // At most two data blocks are lost from here on.
        let mut known = [DataBlock::new(0, &[]); DATA_BLOCKS_MAX];
        let mut known_count = 0;
        let (mut x, mut y) = (None, None);
        for (exponent, block) in data {
            match block {
                Block::Known(block) => {
                    known[known_count] = DataBlock::new(*exponent, block);
                    known_count += 1;
                }
                Block::Lost(block) => {
                    let slot = if x.is_none() { &mut x } else { &mut y };
                    *slot = Some((*exponent, &mut **block));
                }
            }
        }
        let known = &known[..known_count];

        use Block::{Known, Lost};
        match (x, y, p, q) {
            (Some(x), Some(y), Some(Known(p)), Some(Known(q))) => self.recover_two_data(x, y, p, q, known),
            (Some((_, x)), None, Some(Known(p)), None | Some(Known(_))) => self.recover_from_p(x, p, known),
            (Some((exponent, x)), None, Some(Known(p)), Some(Lost(q))) => {
                self.recover_data_and_q(x, q, exponent, p, known);
            }
            (Some((exponent, x)), None, None, Some(Known(q))) => {
                self.recover_data_from_q(x, exponent, q, known);
            }
            (Some((exponent, x)), None, Some(Lost(p)), Some(Known(q))) => {
                self.recover_data_and_p(x, p, exponent, q, known);
            }
            (None, None, Some(Lost(p)), Some(Lost(q))) => self.pq_gen(p, q, known),
            (None, None, Some(Lost(p)), None | Some(Known(_))) => self.xor_blocks(p, None, known),
            (None, None, None | Some(Known(_)), Some(Lost(q))) => self.q_gen(q, known),
            (None, None, None | Some(Known(_)), None | Some(Known(_))) => {}
            _ => unreachable!("{lost} lost data blocks, {known_parity} known parity blocks"),
        }
        Ok(())
    }

    /// The lost data block (of whatever exponent) from P and the other data blocks.
    pub fn recover_from_p(&self, data: &mut [u8], p: &[u8], sources: &[DataBlock<'_>]) {
        self.xor_blocks(data, Some(p), sources);
    }

    /// XOR without regard to exponents.
    fn xor_blocks(&self, dst: &mut [u8], first: Option<&[u8]>, sources: &[DataBlock<'_>]) {
        let mut blocks: [&[u8]; DATA_BLOCKS_MAX + 1] = [&[]; DATA_BLOCKS_MAX + 1];
        let all = first.into_iter().chain(sources.iter().map(|source| source.block));
        let mut count = 0;
        for (slot, block) in blocks.iter_mut().zip(all) {
            *slot = block;
            count += 1;
        }
        self.xor_gen(dst, &blocks[..count]);
    }
}
