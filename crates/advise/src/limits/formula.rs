//! Numbers in formulas.

/// A number with as many digits as matter.
pub(super) fn number(value: f64) -> String {
    let digits = match value {
        value if value.fract() == 0.0 || value >= 1000.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    if digits == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

/// A formula and what it comes to.
pub(super) fn reckoned(formula: String, value: f64) -> String {
    formula + " = " + &number(value)
}

/// What parts at different rates come to.
pub(super) fn harmonic(parts: &[(f64, f64)]) -> f64 {
    1.0 / parts.iter().map(|(part, rate)| part / rate).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        for (value, text) in [
            (40_000.0, "40000"),
            (26_666.67, "26667"),
            (13.333, "13.3"),
            (2.5, "2.5"),
            (0.333, "0.33"),
            (6.0, "6"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn parts_take_their_part_of_the_time() {
        assert_eq!(harmonic(&[(0.5, 100.0), (0.5, 100.0)]), 100.0);
        assert!((harmonic(&[(0.5, 40_000.0), (0.5, 20_000.0)]) - 26_666.67).abs() < 0.01);
    }
}
