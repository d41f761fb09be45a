//! CBC (NIST SP 800-38A): every block is masked by the encrypted one before it.

use cipher::Array;

use super::iv::IvKind;
use super::{Block, BlockCipher, Mode, Run};

/// A cipher in this mode.
pub(crate) struct Cbc<C> {
    cipher: C,
    iv: IvKind,
}

impl<C: BlockCipher> Cbc<C> {
    pub fn new(cipher: C, iv: IvKind) -> Self {
        Self { cipher, iv }
    }
}

fn mask(block: &mut Block, with: &Block) {
    *block = Array((u128::from_ne_bytes(block.0) ^ u128::from_ne_bytes(with.0)).to_ne_bytes());
}

impl<C: BlockCipher> Mode for Cbc<C> {
    fn decrypt(&self, run: Run, bytes: &mut [u8]) {
        // What a block is masked with is gone once the block before it is decrypted.
        let mut before: Vec<Block> = Vec::with_capacity(run.sector_bytes / size_of::<Block>());
        for (ix, sector) in bytes.chunks_mut(run.sector_bytes).enumerate() {
            let (blocks, _) = Array::slice_as_chunks_mut(sector);
            before.clear();
            before.push(self.iv.of(run.number(ix)));
            before.extend_from_slice(&blocks[..blocks.len() - 1]);
            self.cipher.decrypt_blocks(blocks);
            blocks.iter_mut().zip(&before).for_each(|(block, with)| mask(block, with));
        }
    }

    fn encrypt(&self, run: Run, bytes: &mut [u8]) {
        for (ix, sector) in bytes.chunks_mut(run.sector_bytes).enumerate() {
            let mut before = self.iv.of(run.number(ix));
            let (blocks, _) = Array::slice_as_chunks_mut(sector);
            for block in blocks {
                mask(block, &before);
                self.cipher.encrypt_block(block);
                before = *block;
            }
        }
    }
}
