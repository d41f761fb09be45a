//! XOR and P+Q parity: encode, delta update and recovery of any one or two lost blocks.
//!
//! P is the XOR of a row's data blocks. Q is their sum weighted with powers of 2 in GF(2^8) modulo
//! 0x11d, the code of RAID 6 ("The mathematics of RAID-6", H. Peter Anvin, 2004-2011). The power is
//! a property of the block that the layout decides, so every operation on Q takes exponents: see
//! [`DataBlock`].
//!
//! ```
//! use wattle_parity::{Block, DataBlock, Kernels};
//!
//! let kernels = Kernels::best();
//! let (d0, d1, d2) = ([1; 512], [2; 512], [4; 512]);
//! let (mut p, mut q) = ([0; 512], [0; 512]);
//! let sources = [DataBlock::new(0, &d0), DataBlock::new(1, &d1), DataBlock::new(2, &d2)];
//! kernels.pq_gen(&mut p, &mut q, &sources);
//! assert_eq!((p, q), ([0x07; 512], [0x15; 512]));
//!
//! let (mut x, mut y) = ([0; 512], [0; 512]);
//! let mut data = [(0, Block::Lost(&mut x)), (1, Block::Known(&d1)), (2, Block::Lost(&mut y))];
//! kernels.recover(&mut data, Some(Block::Known(&p)), Some(Block::Known(&q)))?;
//! assert_eq!((x, y), (d0, d2));
//! # Ok::<(), wattle_parity::RecoverError>(())
//! ```
//!
//! # Invariants
//! - No I/O, no allocation, no dependency. What does not fit in registers is at most a table of 256
//!   slices on the stack.
//! - A row that does not fit together (lengths, exponents) panics before a byte is written.
//! - Outputs are the same for every instruction set, and the same as [`naive`]'s.
//! - `unsafe` is confined to the private module `simd` and the one call into it from [`Kernels`].

#![allow(unsafe_code)]

mod choice;
mod field;
mod job;
mod kernels;
mod locate;
pub mod naive;
mod recover;
mod simd;
mod source;

pub use field::{invert, log, mul, power};
pub use kernels::Kernels;
pub use locate::{Suspect, locate};
pub use recover::{Block, RecoverError};
#[cfg(target_arch = "aarch64")]
pub use simd::neon::Neon;
#[cfg(target_arch = "x86_64")]
pub use simd::x86::{Avx2, Avx512, Gfni};
pub use source::DataBlock;
