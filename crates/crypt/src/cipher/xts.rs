//! XTS (IEEE 1619): every block of a sector is masked by a tweak, before and after the cipher. All
//! tweaks of some sectors are made first, so that the cipher gets many blocks at once, which is
//! what the processor's instructions are fast at.

use cipher::Array;

use super::iv::IvKind;
use super::{BLOCK_BYTES, Block, BlockCipher, Mode, Run};

/// Sectors whose first tweaks are made at once.
const SECTORS: usize = 8;
/// Blocks that go through the cipher at once: 4 KiB, which stays in the first-level cache.
const BLOCKS: usize = 256;
/// What a bit that leaves a tweak at its end comes back as.
const FEEDBACK: u128 = 0x87;

/// A cipher in this mode.
pub(crate) struct Xts<C> {
    data: C,
    tweak: C,
    iv: IvKind,
}

impl<C: BlockCipher> Xts<C> {
    pub fn new(data: C, tweak: C, iv: IvKind) -> Self {
        Self { data, tweak, iv }
    }

    /// Carries out `cipher` on the masked blocks of all sectors.
    fn each(&self, run: Run, bytes: &mut [u8], cipher: impl Fn(&C, &mut [Block])) {
        let mut tweaks = [0_u128; BLOCKS];
        for (group, sectors) in bytes.chunks_mut(run.sector_bytes * SECTORS).enumerate() {
            let mut firsts: [Block; SECTORS] =
                std::array::from_fn(|ix| self.iv.of(run.number(group * SECTORS + ix)));
            self.tweak.encrypt_blocks(&mut firsts);
            for (first, sector) in firsts.iter().zip(sectors.chunks_mut(run.sector_bytes)) {
                let mut tweak = u128::from_le_bytes(first.0);
                for piece in sector.chunks_mut(BLOCKS * BLOCK_BYTES) {
                    let (blocks, _) = Array::slice_as_chunks_mut(piece);
                    for (block, kept) in blocks.iter_mut().zip(&mut tweaks) {
                        *kept = tweak;
                        mask(block, tweak);
                        tweak = (tweak << 1) ^ ((tweak >> 127) * FEEDBACK);
                    }
                    cipher(&self.data, blocks);
                    blocks.iter_mut().zip(&tweaks).for_each(|(block, tweak)| mask(block, *tweak));
                }
            }
        }
    }
}

fn mask(block: &mut Block, tweak: u128) {
    *block = Array((u128::from_le_bytes(block.0) ^ tweak).to_le_bytes());
}

impl<C: BlockCipher> Mode for Xts<C> {
    fn decrypt(&self, run: Run, bytes: &mut [u8]) {
        self.each(run, bytes, C::decrypt_blocks);
    }

    fn encrypt(&self, run: Run, bytes: &mut [u8]) {
        self.each(run, bytes, C::encrypt_blocks);
    }
}
