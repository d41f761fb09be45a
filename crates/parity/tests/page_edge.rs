//! Kernels neither read nor write beyond their blocks: every block ends where an inaccessible page
//! begins, or starts where one ends, so that one byte too many is a crash and not a lucky pass.

#![cfg(unix)]
#![allow(unsafe_code)]

mod common;

use common::every_kernel;
use wattle_parity::{Block, DataBlock};

const PAGE: usize = 16 << 10;

/// One accessible page between two inaccessible ones.
struct Island {
    base: *mut u8,
}

impl Island {
    fn new() -> Self {
        // SAFETY: a fresh anonymous mapping, of which the middle is opened; nothing else points
        // into it.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let base = libc::mmap(std::ptr::null_mut(), 3 * PAGE, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            let middle = base.byte_add(PAGE);
            assert_eq!(libc::mprotect(middle, PAGE, libc::PROT_READ | libc::PROT_WRITE), 0);
            Island { base: middle.cast() }
        }
    }

    /// The page's first or last `len` bytes.
    fn shore(&mut self, len: usize, last: bool) -> &mut [u8] {
        assert!(len <= PAGE);
        let start = if last { PAGE - len } else { 0 };
        // SAFETY: within the accessible page, borrowed exclusively through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(start), len) }
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; borrows of it have ended with `self`'s.
        unsafe { libc::munmap(self.base.sub(PAGE).cast(), 3 * PAGE) };
    }
}

#[test]
#[cfg_attr(miri, ignore = "protected pages")]
fn no_access_beyond_a_block() {
    let mut islands: Vec<_> = (0..7).map(|_| Island::new()).collect();
    for len in (0..=330).chain([1023, 4096]) {
        for last in [false, true] {
            let mut blocks: Vec<_> = islands.iter_mut().map(|island| island.shore(len, last)).collect();
            let Ok([a, b, c, p, q, x, y]) = <&mut [&mut [u8]; 7]>::try_from(&mut blocks[..]) else {
                unreachable!("seven islands")
            };
            a.fill(1);
            b.fill(2);
            c.fill(4);
            every_kernel(|kernels| {
                kernels.pq_gen(p, q, &[DataBlock::new(0, a), DataBlock::new(1, b), DataBlock::new(2, c)]);
                let mut two = [(0, Block::Lost(x)), (1, Block::Known(b)), (2, Block::Lost(y))];
                kernels.recover(&mut two, Some(Block::Known(p)), Some(Block::Known(q))).unwrap();
                assert_eq!((&**x, &**y), (&**a, &**c));
                let mut with_p = [(0, Block::Known(a)), (1, Block::Lost(x)), (2, Block::Known(c))];
                kernels.recover(&mut with_p, Some(Block::Lost(y)), Some(Block::Known(q))).unwrap();
                assert_eq!((&**x, &**y), (&**b, &**p));
                let mut with_q = [(0, Block::Known(a)), (1, Block::Lost(x)), (2, Block::Known(c))];
                kernels.recover(&mut with_q, Some(Block::Known(p)), Some(Block::Lost(y))).unwrap();
                assert_eq!((&**x, &**y), (&**b, &**q));
                let mut from_q = [(0, Block::Known(a)), (1, Block::Known(b)), (2, Block::Lost(x))];
                kernels.recover(&mut from_q, None, Some(Block::Known(q))).unwrap();
                assert_eq!(x, c);
                kernels.xor_gen(x, &[a, b, c]);
                assert_eq!(x, p);
                kernels.delta_pq(p, q, 1, b, c);
                kernels.delta_pq(p, q, 1, c, b);
                kernels.delta_q(q, 2, a, b);
                kernels.delta_q(q, 2, b, a);
                kernels.mul_into(x, 3, a);
                kernels.mul_add(x, 3, a);
                assert!(x.iter().all(|byte| *byte == 0));
                kernels.q_gen(y, &[DataBlock::new(0, a), DataBlock::new(1, b), DataBlock::new(2, c)]);
                assert_eq!(y, q);
            });
        }
    }
}
