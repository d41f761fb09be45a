//! How likely data is lost.
//!
//! Drives fail independently, `a` of them per drive and year; a failed drive is whole again after
//! `T` hours: until an operator (or a spare) replaces it, and then until it is filled at its share
//! of what the drives move. An array that survives `m` failures loses data when one more comes
//! before the first is whole again, or when, with nothing left to spare, a sector cannot be read
//! that is needed. Per year
//!
//!   parity:   n a  x  prod[i=1..m-1] (n-i) a t  x  ( (n-m) a t + U((n-m) B) )
//!   copies:   n a  x  prod[i=1..k-2] p_i a t    x  ( p_{k-1} a t + U(B) )
//!   none:     n a
//!
//! where t is T in years, B the bytes of a member, p_i the members that hold what the first i did
//! (k-i in a set of near copies that come out even; else those on both sides, 2(k-i), at most n-i),
//! and U(b) = 1 - (1-u)^(8b) for an unreadable bit in 1/u. Arrays add up, and a rate of r per year
//! is a probability of 1 - e^-r. Failures that come together (a batch, a power supply, heat) are
//! not in it: they make it worse.

use super::stack::ArrayPlan;
use super::{PlanLevel, PlanShape};

const HOURS_PER_YEAR: f64 = 8766.0;

/// What is assumed of drives and people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reliability {
    /// The part of drives that fail in a year.
    pub failures_per_year: f64,
    /// Unreadable bits for each bit that is read.
    pub unreadable_per_bit: f64,
    /// Hours until a failed drive is replaced, where no spare does that.
    pub replace_hours: f64,
}

/// How likely data is lost, and where that comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// Within a year.
    pub per_year: f64,
    /// Hours from a failure until everything is redundant again, of the array where that takes
    /// longest.
    pub exposed_hours: f64,
    /// That a rebuild of that array, with nothing left to spare, meets a sector that cannot be
    /// read.
    pub unreadable_in_rebuild: f64,
    /// The formula with numbers put in, for the first array.
    pub formula: String,
}

impl Loss {
    /// Of arrays whose members are filled at so many bytes per second.
    #[must_use]
    pub fn of(arrays: &[ArrayPlan], rebuild_bytes_per_second: f64, assumed: &Reliability) -> Loss {
        let mut loss =
            Loss { per_year: 0.0, exposed_hours: 0.0, unreadable_in_rebuild: 0.0, formula: String::new() };
        let mut rate = 0.0;
        for (ix, array) in arrays.iter().enumerate() {
            let one = Rate::of(array, rebuild_bytes_per_second, assumed);
            rate += one.per_year;
            loss.exposed_hours = loss.exposed_hours.max(one.hours);
            loss.unreadable_in_rebuild = loss.unreadable_in_rebuild.max(one.unreadable);
            if ix == 0 {
                loss.formula = one.formula;
            }
        }
        loss.per_year = -(-rate).exp_m1();
        loss
    }
}

struct Rate {
    per_year: f64,
    hours: f64,
    unreadable: f64,
    formula: String,
}

impl Rate {
    fn of(array: &ArrayPlan, rebuild_bytes_per_second: f64, assumed: &Reliability) -> Rate {
        let (n, a) = (array.drives.len() as u32, assumed.failures_per_year);
        let bytes = array.place.data_bytes as f64;
        let survives = array.shape.survives(n);
        if survives == 0 {
            let per_year = f64::from(n) * a;
            let formula = format!("n a = {n} x {a:.4} = {per_year:.2e}");
            return Rate { per_year, hours: 0.0, unreadable: 0.0, formula };
        }
        let replaced = if array.spares.is_empty() { assumed.replace_hours } else { 0.0 };
        let hours = replaced + bytes / rebuild_bytes_per_second / 3600.0;
        let t = hours / HOURS_PER_YEAR;
        let partners: Vec<u32> = (1..=survives).map(|gone| partners(array.shape, n, gone)).collect();
        // With copies, what one member held is read from one other.
        let (last, read) = match array.shape.level() {
            PlanLevel::Raid1 | PlanLevel::Raid10 => (partners[survives as usize - 1], bytes),
            _ => (n - survives, f64::from(n - survives) * bytes),
        };
        let unreadable = -(8.0 * read * (-assumed.unreadable_per_bit).ln_1p()).exp_m1();
        let middle: f64 =
            partners[..survives as usize - 1].iter().map(|&more| f64::from(more) * a * t).product();
        let per_year = f64::from(n) * a * middle * (f64::from(last) * a * t + unreadable);
        let factors: String =
            partners[..survives as usize - 1].iter().map(|more| format!(" x {more} a t")).collect();
        let formula = format!(
            "{n} a{factors} x ({last} a t + U) with a = {a:.4}, t = {hours:.1} h / {HOURS_PER_YEAR}, \
             U = 1-(1-{:.0e})^(8 x {read:.3e}) = {unreadable:.2e}: {per_year:.2e}",
            assumed.unreadable_per_bit
        );
        Rate { per_year, hours, unreadable, formula }
    }
}

/// Members whose failure hurts what `gone` others held.
fn partners(shape: PlanShape, members: u32, gone: u32) -> u32 {
    match shape {
        PlanShape::Near(copies) if members.is_multiple_of(copies) => copies - gone,
        PlanShape::Near(copies) | PlanShape::Far(copies) | PlanShape::Offset(copies) => {
            (2 * (copies - gone)).min(members - gone)
        }
        _ => members - gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::DataPlacement;

    fn array(shape: PlanShape, members: usize) -> ArrayPlan {
        ArrayPlan {
            drives: (0..members).collect(),
            spares: Vec::new(),
            part: None,
            shape,
            chunk_bytes: 512 << 10,
            cover: crate::plan::PowerCutCover::Bitmap,
            member_bytes: 4_000_000_000_000,
            place: DataPlacement { data_offset_bytes: 0, data_bytes: 4_000_000_000_000 },
            array_bytes: 0,
        }
    }

    const ASSUMED: Reliability =
        Reliability { failures_per_year: 0.015, unreadable_per_bit: 1e-15, replace_hours: 24.0 };

    fn loss(shape: PlanShape, members: usize) -> Loss {
        Loss::of(&[array(shape, members)], 100e6, &ASSUMED)
    }

    #[test]
    fn it_is_the_formula() {
        let found = loss(PlanShape::Raid5, 5);
        let (t, u) =
            ((24.0 + 4e12 / 100e6 / 3600.0) / 8766.0, 1.0 - (1.0 - 1e-15_f64).powf(8.0 * 4.0 * 4e12));
        let rate = 5.0 * 0.015 * (4.0 * 0.015 * t + u);
        // (1 - 1e-15) has two digits only.
        assert!((found.per_year / (1.0 - (-rate).exp()) - 1.0).abs() < 0.2, "{} {rate}", found.per_year);
        assert!((found.exposed_hours - 35.11).abs() < 0.01);
        assert!((0.11..0.13).contains(&found.unreadable_in_rebuild), "{}", found.unreadable_in_rebuild);
    }

    #[test]
    fn more_redundancy_loses_less() {
        let none = loss(PlanShape::Raid0, 8).per_year;
        let raid5 = loss(PlanShape::Raid5, 8).per_year;
        let near = loss(PlanShape::Near(2), 8).per_year;
        let far = loss(PlanShape::Far(2), 8).per_year;
        let raid6 = loss(PlanShape::Raid6, 8).per_year;
        assert!(
            none > raid5 && raid5 > far && far > near && near > raid6,
            "{none} {raid5} {far} {near} {raid6}"
        );
        assert!((none - 0.113).abs() < 0.001);
    }

    #[test]
    fn a_spare_shortens_the_time_without_redundancy() {
        let mut spared = array(PlanShape::Raid5, 5);
        spared.spares = vec![5];
        let found = Loss::of(&[spared], 100e6, &ASSUMED);
        assert!((found.exposed_hours - 11.11).abs() < 0.01);
        assert!(found.per_year < loss(PlanShape::Raid5, 5).per_year);
    }
}
