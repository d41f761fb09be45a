//! Sizes for people.

use std::str::FromStr;

use crate::size::Iec;

/// The units of `--units`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Units {
    /// Bytes, always.
    Bytes,
    /// Powers of 1024.
    Iec,
    /// Powers of 1000.
    Si,
    /// As LVM2 shows sizes with this letter: one unit for all sizes, or with h, H, r and R the
    /// largest that does; capitals are of 1000.
    Lvm(char),
}

/// Of powers of 1024, and as capitals of 1000.
const LETTERS: &str = "bkmgtpe";

impl FromStr for Units {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut letters = text.chars();
        match (text, letters.next(), letters.next()) {
            ("b", ..) => Ok(Self::Bytes),
            ("iec", ..) => Ok(Self::Iec),
            ("si", ..) => Ok(Self::Si),
            (_, Some(letter), None)
                if LETTERS.contains(letter.to_ascii_lowercase()) || "hHrRsS".contains(letter) =>
            {
                Ok(Self::Lvm(letter))
            }
            _ => Err("units are b, iec, si, or one of LVM2's letters: hHrRBsSkKmMgGtTpPeE".to_owned()),
        }
    }
}

impl Units {
    /// A size with its unit.
    pub fn show(self, bytes: u64) -> String {
        match self {
            Self::Bytes => format!("{bytes} B"),
            Self::Iec => Iec(bytes).to_string(),
            Self::Si => si(bytes),
            Self::Lvm(letter) => lvm(letter, bytes, true),
        }
    }

    /// A size in a list, as LVM2's lists have it where one of its letters was asked for.
    pub fn show_in_list(self, bytes: u64, with_suffix: bool) -> String {
        match self {
            Self::Bytes => lvm('b', bytes, with_suffix),
            Self::Lvm(letter) => lvm(letter, bytes, with_suffix),
            Self::Iec | Self::Si => self.show(bytes),
        }
    }

    /// A capacity: drives are sold in powers of 1000 and used in powers of 1024, so it shows both
    /// (from 1 GiB on).
    pub fn show_capacity(self, bytes: u64) -> String {
        match self {
            Self::Iec if bytes >= 1 << 30 => format!("{}, {}", Iec(bytes), si(bytes)),
            _ => self.show(bytes),
        }
    }
}

/// LVM2's two decimals. Where the unit differs from size to size it is always named.
fn lvm(letter: char, bytes: u64, with_suffix: bool) -> String {
    let chosen = "hHrR".contains(letter);
    let base: u64 = if letter.is_ascii_uppercase() { 1000 } else { 1024 };
    let power = match chosen {
        true => bytes.checked_ilog(base).unwrap_or(0),
        false => LETTERS.find(letter.to_ascii_lowercase()).unwrap_or(0) as u32,
    };
    let unit = match (power, letter.to_ascii_lowercase()) {
        (_, 's') => 'S',
        (0, 'b') => 'B',
        _ => LETTERS.chars().nth(power as usize).unwrap_or('b'),
    };
    let unit = if letter.is_ascii_uppercase() { unit.to_ascii_uppercase() } else { unit };
    let unit_bytes = if letter.eq_ignore_ascii_case(&'s') { 512 } else { base.saturating_pow(power) };
    let number = match (bytes, unit) {
        (0, _) => "0".to_owned(),
        (_, 'B' | 'S') => (bytes / unit_bytes).to_string(),
        _ => format!("{:.2}", bytes as f64 / unit_bytes as f64),
    };
    // A size that is a little less than it is shown as.
    let shown = number.parse::<f64>().unwrap_or(0.0) * unit_bytes as f64;
    let less = if letter.eq_ignore_ascii_case(&'r') && shown > bytes as f64 { "<" } else { "" };
    let named = if chosen { bytes > 0 } else { with_suffix };
    if named { format!("{less}{number}{unit}") } else { format!("{less}{number}") }
}

fn si(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    let power = bytes.checked_ilog10().unwrap_or(0) / 3;
    if power == 0 {
        return format!("{bytes} B");
    }
    // Integers, so that what is exact looks exact.
    let hundredths = u128::from(bytes) * 100 / 10u128.pow(3 * power);
    let (whole, part) = (hundredths / 100, hundredths % 100);
    let unit = UNITS[power as usize - 1];
    match part {
        0 => format!("{whole} {unit}"),
        _ => format!("{whole}.{part:02} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_and_no_false_precision() {
        for (units, bytes, text) in [
            (Units::Bytes, 65536, "65536 B"),
            (Units::Iec, 65536, "64 KiB"),
            (Units::Si, 65536, "65.53 kB"),
            (Units::Si, 0, "0 B"),
            (Units::Si, 999, "999 B"),
            (Units::Si, 1000, "1 kB"),
            (Units::Si, 6_000_000_000_000, "6 TB"),
            (Units::Si, u64::MAX, "18.44 EB"),
        ] {
            assert_eq!(units.show(bytes), text);
        }
        assert_eq!(Units::Iec.show_capacity(6_000_000_000_000), "5.45 TiB, 6 TB");
        assert_eq!(Units::Iec.show_capacity(21 << 20), "21 MiB");
    }

    /// What LVM2 2.03.16 shows (`lvs --units U`, with and without `--nosuffix`).
    #[test]
    fn letters_are_as_lvm_has_them() {
        const MIB: u64 = 1 << 20;
        for (letter, mib, with, without) in [
            ("h", 1, "1.00m", "1.00m"),
            ("H", 1, "1.05M", "1.05M"),
            ("R", 1, "<1.05M", "<1.05M"),
            ("h", 1023, "1023.00m", "1023.00m"),
            ("r", 2047, "<2.00g", "<2.00g"),
            ("r", 1500, "1.46g", "1.46g"),
            ("R", 999, "<1.05G", "<1.05G"),
            ("R", 1023, "1.07G", "1.07G"),
            ("b", 3, "3145728B", "3145728"),
            ("B", 3, "3145728B", "3145728"),
            ("s", 3, "6144S", "6144"),
            ("S", 3, "6144S", "6144"),
            ("k", 3, "3072.00k", "3072.00"),
            ("K", 255, "267386.88K", "267386.88"),
            ("m", 255, "255.00m", "255.00"),
            ("M", 999, "1047.53M", "1047.53"),
            ("g", 999, "0.98g", "0.98"),
            ("G", 2047, "2.15G", "2.15"),
            ("t", 2047, "0.00t", "0.00"),
            ("E", 1, "0.00E", "0.00"),
            ("h", 0, "0", "0"),
            ("b", 0, "0B", "0"),
            ("G", 0, "0G", "0"),
        ] {
            let units: Units = letter.parse().unwrap();
            assert_eq!(units.show_in_list(mib * MIB, true), with, "{letter} {mib}");
            assert_eq!(units.show_in_list(mib * MIB, false), without, "{letter} {mib}");
        }
        for wrong in ["", "x", "kb", "3m", "i"] {
            assert!(wrong.parse::<Units>().is_err(), "{wrong}");
        }
    }
}
