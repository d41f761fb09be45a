//! A data block of a row, as operations on Q take it.

/// One data block of a row, with its exponent in Q.
///
/// Operations take the sources of a row as a slice that ascends strictly by exponent. In md layouts
/// a row's exponents are 0, 1, 2, ..; in DDF layouts the slots of P and Q leave holes, and during
/// recovery a lost block does. A block that is left out counts as zeros. Order and holes cost
/// nothing but a doubling per hole.
#[derive(Clone, Copy, Debug)]
pub struct DataBlock<'a> {
    /// The block's weight in Q is 2 to this power; below 255.
    pub exponent: u8,
    /// The block's bytes, as many as in every other block of the row.
    pub block: &'a [u8],
}

impl<'a> DataBlock<'a> {
    /// A data block and its exponent.
    #[must_use]
    pub const fn new(exponent: u8, block: &'a [u8]) -> Self {
        DataBlock { exponent, block }
    }
}
