//! Every kernel against the naive oracle: generation, updates, products.

mod common;

use common::{Buf, Random, Row, ddf_rows, dense, every_kernel, few};
use wattle_parity::{DataBlock, Kernels, naive};

/// Generates all parities of the row with every kernel, into buffers full of rubbish.
fn check_generation(row: &Row) {
    every_kernel(|kernels| {
        let what = format!("{}, {} x {} bytes", kernels.name(), row.data.len(), row.len());
        let blocks: Vec<_> = row.data.iter().map(Buf::bytes).collect();
        let sources = row.sources();
        let (mut p, mut q) = (row.q.clone(), row.p.clone());

        kernels.xor_gen(p.bytes_mut(), &blocks);
        p.assert_is(row.p.bytes(), &format!("xor_gen {what}"));
        kernels.q_gen(q.bytes_mut(), &sources);
        q.assert_is(row.q.bytes(), &format!("q_gen {what}"));

        p.bytes_mut().fill(0xee);
        q.bytes_mut().fill(0xee);
        kernels.pq_gen(p.bytes_mut(), q.bytes_mut(), &sources);
        p.assert_is(row.p.bytes(), &format!("pq_gen P {what}"));
        q.assert_is(row.q.bytes(), &format!("pq_gen Q {what}"));
    });
}

#[test]
fn the_published_vector() {
    every_kernel(|kernels| {
        let (mut p, mut q) = ([0], [0]);
        kernels.pq_gen(
            &mut p,
            &mut q,
            &[DataBlock::new(0, &[0x01]), DataBlock::new(1, &[0x02]), DataBlock::new(2, &[0x04])],
        );
        assert_eq!((p, q), ([0x07], [0x15]), "{}", kernels.name());
    });
}

#[test]
fn generation_at_every_short_length() {
    for len in few(0..=300) {
        check_generation(&Row::new(&dense(1 + len % 6), len, Some(len)));
    }
}

#[test]
#[cfg_attr(miri, ignore = "blocks of 64 KiB")]
fn generation_at_long_lengths() {
    for len in [511, 512, 4095, 4096, 4097, 16 << 10, (64 << 10) + 13] {
        check_generation(&Row::new(&dense(3), len, None));
        check_generation(&Row::new(&dense(4), len, Some(1)));
    }
}

/// From 2 MiB up, aligned outputs take the path past the caches, which has its own stores and tail.
#[test]
#[cfg_attr(miri, ignore = "blocks of 2 MiB")]
fn generation_past_the_caches() {
    for len in [2 << 20, (2 << 20) + 8 * 64 + 31] {
        check_generation(&Row::new(&dense(2), len, None));
        check_generation(&Row::new(&dense(2), len, Some(1)));
    }
}

#[test]
fn generation_at_every_width() {
    for count in 0..=if cfg!(miri) { 5 } else { 255 } {
        check_generation(&Row::new(&dense(count), 67, Some(count)));
    }
}

#[test]
fn generation_with_holes_in_the_exponents() {
    let widest = if cfg!(miri) { 7 } else { 253 - 2 };
    for count in [2, 3, 4, 7, 12, widest] {
        for exponents in few(ddf_rows(count)).take(20) {
            check_generation(&Row::new(&exponents, 131, Some(3)));
        }
    }
    for exponents in [vec![254], vec![7], vec![0, 254], vec![1, 100, 101, 102, 254], vec![253, 254]] {
        check_generation(&Row::new(&exponents, 300, Some(0)));
    }
}

#[test]
fn deltas_agree_with_encoding_anew() {
    // Miri is slow.
    let shortest = if cfg!(miri) { 3 } else { 7 };
    let blocks = [(0, 2), (1, 2), (63, 3), (64, 4), (300, 5), (4096, 3), (5003, 2)];
    for (len, count) in blocks.into_iter().take(shortest) {
        let exponents = ddf_rows(count).remove(1);
        let before = Row::new(&exponents, len, Some(5));
        let mut after = before.clone();
        for (n, exponent) in exponents.iter().copied().enumerate() {
            let old = after.data[n].clone();
            after.data[n] = Buf::random(len, 9, &mut Random::new(n as u64));
            let sources: Vec<_> =
                after.sources().iter().map(|source| (source.exponent, source.block)).collect();
            let (mut p, mut q) = (vec![0; len], vec![0; len]);
            naive::p(&mut p, &sources);
            naive::q(&mut q, &sources);
            every_kernel(|kernels| {
                let what = format!("{}, exponent {exponent}, {len} bytes", kernels.name());
                let (old, new) = (old.bytes(), after.data[n].bytes());

                let (mut both_p, mut both_q) = (after.p.clone(), after.q.clone());
                kernels.delta_pq(both_p.bytes_mut(), both_q.bytes_mut(), exponent, old, new);
                both_p.assert_is(&p, &format!("delta_pq P {what}"));
                both_q.assert_is(&q, &format!("delta_pq Q {what}"));

                let (mut only_p, mut only_q) = (after.p.clone(), after.q.clone());
                kernels.delta_p(only_p.bytes_mut(), old, new);
                kernels.delta_q(only_q.bytes_mut(), exponent, old, new);
                only_p.assert_is(&p, &format!("delta_p {what}"));
                only_q.assert_is(&q, &format!("delta_q {what}"));
            });
            after.p.bytes_mut().copy_from_slice(&p);
            after.q.bytes_mut().copy_from_slice(&q);
        }
    }
}

#[test]
fn products_of_every_factor_with_every_byte() {
    let bytes: Vec<u8> = (0..=255).chain(0..77).collect();
    for factor in few(0..=255) {
        let product: Vec<_> = bytes.iter().map(|byte| naive::mul(factor, *byte)).collect();
        let sum: Vec<_> = product.iter().zip(&bytes).map(|(product, byte)| product ^ byte ^ 0x5c).collect();
        every_kernel(|kernels| {
            let mut dst = Buf::new(bytes.len(), 11);
            kernels.mul_into(dst.bytes_mut(), factor, &bytes);
            dst.assert_is(&product, &format!("{} mul_into {factor:#x}", kernels.name()));

            for (dst, byte) in dst.bytes_mut().iter_mut().zip(&bytes) {
                *dst = byte ^ 0x5c;
            }
            kernels.mul_add(dst.bytes_mut(), factor, &bytes);
            dst.assert_is(&sum, &format!("{} mul_add {factor:#x}", kernels.name()));
        });
    }
}

#[test]
fn xor_onto_a_block() {
    for len in few((0..200).chain([4096, 4099])) {
        let row = Row::new(&dense(4), len, Some(2));
        let blocks: Vec<_> = row.data.iter().map(Buf::bytes).collect();
        every_kernel(|kernels| {
            let mut dst = row.p.clone();
            kernels.xor_add(dst.bytes_mut(), &blocks);
            dst.assert_is(&vec![0; len], &format!("{} xor_add {len}", kernels.name()));

            kernels.xor_into(dst.bytes_mut(), blocks[0]);
            dst.assert_is(blocks[0], &format!("{} xor_into {len}", kernels.name()));
        });
    }
}

#[test]
fn the_best_kernels_are_the_first_available() {
    let names: Vec<_> = Kernels::all_available().map(Kernels::name).collect();
    assert_eq!(Kernels::best().name(), names[0]);
    assert_eq!(names.last(), Some(&"scalar"));
    #[cfg(target_arch = "x86_64")]
    assert_eq!(names.contains(&"avx2"), is_x86_feature_detected!("avx2"));
}

/// A row that does not fit together must stop before a byte is written: whatever it produced would
/// destroy data.
#[test]
fn mixed_up_rows_panic_and_touch_nothing() {
    let (a, b, short) = ([1; 100], [2; 100], [3; 99]);
    let rows: [&[DataBlock<'_>]; 5] = [
        &[DataBlock::new(0, &a), DataBlock::new(1, &short)],
        &[DataBlock::new(0, &short), DataBlock::new(1, &short)],
        &[DataBlock::new(1, &a), DataBlock::new(0, &b)],
        &[DataBlock::new(1, &a), DataBlock::new(1, &b)],
        &[DataBlock::new(0, &a), DataBlock::new(255, &b)],
    ];
    every_kernel(|kernels| {
        for sources in rows {
            let (mut p, mut q) = ([7; 100], [8; 100]);
            let call = std::panic::AssertUnwindSafe(|| kernels.pq_gen(&mut p, &mut q, sources));
            assert!(std::panic::catch_unwind(call).is_err(), "{}: {sources:?}", kernels.name());
            assert_eq!((p, q), ([7; 100], [8; 100]));
        }
        let mut p = [7; 100];
        let call = std::panic::AssertUnwindSafe(|| kernels.delta_p(&mut p, &a, &short));
        assert!(std::panic::catch_unwind(call).is_err());
        let call = std::panic::AssertUnwindSafe(|| kernels.xor_gen(&mut p, &[&a, &short]));
        assert!(std::panic::catch_unwind(call).is_err());
        let call = std::panic::AssertUnwindSafe(|| kernels.delta_q(&mut p, 255, &a, &b));
        assert!(std::panic::catch_unwind(call).is_err());
        let call = std::panic::AssertUnwindSafe(|| {
            kernels.recover_data_from_q(&mut p, 1, &a, &[DataBlock::new(1, &b)]);
        });
        assert!(std::panic::catch_unwind(call).is_err());
        assert_eq!(p, [7; 100]);
    });
}
