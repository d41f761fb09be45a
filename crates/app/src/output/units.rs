//! Sizes for people.

use wattle_control::size::Iec;

use crate::cli::UnitsArg;

/// The units of `--units`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Units {
    /// Bytes, always.
    Bytes,
    /// Powers of 1024.
    Iec,
    /// Powers of 1000.
    Si,
}

impl From<UnitsArg> for Units {
    fn from(arg: UnitsArg) -> Self {
        match arg {
            UnitsArg::B => Self::Bytes,
            UnitsArg::Iec => Self::Iec,
            UnitsArg::Si => Self::Si,
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
        }
    }

    /// A capacity: drives are sold in powers of 1000 and used in powers of 1024, so it shows both (from 1 GiB on).
    pub fn show_capacity(self, bytes: u64) -> String {
        match self {
            Self::Iec if bytes >= 1 << 30 => format!("{}, {}", Iec(bytes), si(bytes)),
            _ => self.show(bytes),
        }
    }
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
}
