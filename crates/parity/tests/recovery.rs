//! Every kernel gets back every single and double loss, and refuses what cannot be had.

mod common;

use common::{Place, Row, ddf_rows, dense, every_kernel, few};
use proptest::prelude::*;
use wattle_parity::{RecoverError, Suspect, locate, mul, power};

/// Every single loss, every pair, P and Q included; for wide rows, every seventeenth pair.
fn check_losses(exponents: &[u8], len: usize) {
    let row = Row::new(exponents, len, Some(len));
    let places = row.places();
    let stride = if places.len() > 20 { 17 } else { 1 };
    let pairs = (0..places.len()).flat_map(|i| (i + 1..places.len()).map(move |j| (i, j)));
    let mut losses: Vec<_> = pairs.step_by(stride).map(|(i, j)| vec![places[i], places[j]]).collect();
    losses.extend(places.iter().map(|place| vec![*place]));
    losses.push(vec![]);
    losses.push(vec![Place::P, Place::Q]);
    every_kernel(|kernels| {
        let mut damaged = row.clone();
        for lost in &losses {
            damaged.lose_and_recover(kernels, lost, &[]).expect("two losses are within redundancy");
            for place in lost {
                let expected = row.clone().at(*place).bytes().to_vec();
                damaged.at(*place).assert_is(&expected, &format!("{} {lost:?} {place:?}", kernels.name()));
            }
        }
        damaged.assert_same(&row, kernels.name());
    });
}

#[test]
fn all_losses_of_narrow_rows() {
    let (widest, len) = if cfg!(miri) { (3, 7) } else { (12, 61) };
    for count in 1..=widest {
        check_losses(&dense(count), len + count * 37);
    }
}

#[test]
fn all_losses_of_ddf_rows() {
    let (counts, len) = if cfg!(miri) { (&[3][..], 37) } else { (&[2, 3, 6][..], 197) };
    for &count in counts {
        for exponents in few(ddf_rows(count)) {
            check_losses(&exponents, len);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of losses")]
fn losses_of_wide_rows() {
    for count in [33, 64] {
        check_losses(&dense(count), 65);
    }
    let row = Row::new(&dense(255), 33, None);
    let places = row.places();
    every_kernel(|kernels| {
        let mut damaged = row.clone();
        for (n, place) in places.iter().enumerate() {
            let other = places[(n * 31 + 100) % places.len()];
            damaged.lose_and_recover(kernels, &[*place, other], &[]).unwrap();
        }
        damaged.assert_same(&row, kernels.name());
    });
}

#[test]
fn one_loss_with_the_other_parity_absent() {
    let row = Row::new(&ddf_rows(4)[2], 150, Some(1));
    every_kernel(|kernels| {
        for n in 0..4 {
            for (absent, what) in [(Place::P, "from Q"), (Place::Q, "from P")] {
                let mut damaged = row.clone();
                damaged.lose_and_recover(kernels, &[Place::Data(n)], &[absent]).unwrap();
                damaged.assert_same(&row, &format!("{} {what}", kernels.name()));
            }
        }
        for (lost, absent) in [(Place::P, Place::Q), (Place::Q, Place::P)] {
            let mut damaged = row.clone();
            damaged.lose_and_recover(kernels, &[lost], &[absent]).unwrap();
            damaged.assert_same(&row, kernels.name());
        }
    });
}

#[test]
fn too_many_losses_are_refused_and_touch_nothing() {
    use Place::{Data, P, Q};
    let row = Row::new(&dense(5), 80, Some(0));
    let refused: [(&[Place], &[Place], usize, usize); 6] = [
        (&[Data(0), Data(1), Data(2)], &[], 3, 2),
        (&[Data(0), Data(1), P], &[], 2, 1),
        (&[Data(0), Data(1), Q], &[], 2, 1),
        (&[Data(0), Data(1)], &[Q], 2, 1),
        (&[Data(3), P], &[Q], 1, 0),
        (&[Data(3)], &[P, Q], 1, 0),
    ];
    every_kernel(|kernels| {
        for (lost, absent, data, parity) in refused {
            let mut damaged = row.clone();
            let result = damaged.lose_and_recover(kernels, lost, absent);
            assert_eq!(result, Err(RecoverError::TooManyLost { data, parity }));
            for place in lost {
                assert!(damaged.at(*place).bytes().iter().all(|byte| *byte == 0xee), "{place:?} was written");
            }
        }
    });
}

/// Damages one block in some columns and judges the row from the differences, as a scrub would.
#[test]
fn one_silently_bad_block_is_located() {
    let exponents = [0, 1, 4, 200, 254];
    let has = |e: u8| exponents.contains(&e);
    let zero = [0; 4];
    assert_eq!(locate(&zero, &zero, has), Suspect::Nobody);
    assert_eq!(locate(&[], &[], has), Suspect::Nobody);
    assert_eq!(locate(&[0, 3, 0, 0], &zero, has), Suspect::P);
    assert_eq!(locate(&zero, &[0, 0, 9, 0], has), Suspect::Q);
    for exponent in exponents {
        for error in few(1..=255) {
            let (p, q) = ([0, error, 1, 0], [0, mul(error, power(exponent)), power(exponent), 0]);
            assert_eq!(locate(&p, &q, has), Suspect::Data { exponent }, "error {error:#x}");
        }
    }
}

#[test]
fn differences_that_no_single_block_explains() {
    let has = |e: u8| e < 4;
    assert_eq!(locate(&[1], &[power(4)], has), Suspect::Several, "no block has this exponent");
    assert_eq!(locate(&[1, 1], &[power(1), power(2)], has), Suspect::Several, "two data blocks");
    assert_eq!(locate(&[1, 0], &[0, 1], has), Suspect::Several, "P and Q");
    assert_eq!(locate(&[1, 1], &[0, power(3)], has), Suspect::Several, "P and data");
    assert_eq!(locate(&[1, 0], &[1, 5], has), Suspect::Several, "data and Q");
}

/// Miri is slow.
const WIDTHS: usize = if cfg!(miri) { 6 } else { 40 };
const LENGTHS: usize = if cfg!(miri) { 100 } else { 700 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 }))]

    /// Any set of exponents, length, alignment and pair of losses.
    #[test]
    fn any_two_losses_of_any_row(
        exponents in prop::collection::btree_set(0u8..255, 1..WIDTHS),
        len in 0..LENGTHS,
        misalignment in prop::option::of(0usize..64),
        first: prop::sample::Index,
        second: prop::sample::Index,
    ) {
        let exponents: Vec<_> = exponents.into_iter().collect();
        let row = Row::new(&exponents, len, misalignment);
        let places = row.places();
        let lost = [places[first.index(places.len())], places[second.index(places.len())]];
        every_kernel(|kernels| {
            let mut damaged = row.clone();
            damaged.lose_and_recover(kernels, &lost, &[]).unwrap();
            damaged.assert_same(&row, &format!("{} {lost:?}", kernels.name()));
        });
    }
}
