//! Sizes as mdadm rounds them.

const KI: u64 = 1 << 10;
/// What is smaller is not put in other words.
const SMALL_BYTES: u64 = 5000 * KI;

/// From how many bytes on, the binary unit, the decimal unit, their names.
const UNITS: [(u64, u64, u64, &str, &str); 3] = [
    (SMALL_BYTES, 1 << 20, 1_000_000, "MiB", "MB"),
    (2 << 30, 1 << 30, 1_000_000_000, "GiB", "GB"),
    (2 << 40, 1 << 40, 1_000_000_000_000, "TiB", "TB"),
];

/// ` (21.00 MiB 22.02 MB)`; nothing for what is small.
pub fn in_other_words(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|unit| bytes >= unit.0);
    unit.map_or_else(String::new, |(_, binary, decimal, binary_name, decimal_name)| {
        format!(
            " ({} {binary_name} {} {decimal_name})",
            hundredths(bytes, *binary),
            hundredths(bytes, *decimal)
        )
    })
}

/// `22.02MB`; nothing for what is small.
pub fn brief(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|unit| bytes >= unit.0);
    unit.map_or_else(String::new, |(_, _, decimal, _, name)| format!("{}{name}", hundredths(bytes, *decimal)))
}

/// Rounded to two digits behind the point.
fn hundredths(bytes: u64, unit: u64) -> String {
    let hundredths = (u128::from(bytes) * 200 / u128::from(unit)).div_ceil(2);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As mdadm 4.2 printed them.
    #[test]
    fn sizes_are_rounded_as_mdadm_does() {
        let rows = [
            (4999 * KI, ""),
            (5000 * KI, " (4.88 MiB 5.12 MB)"),
            (7168 * KI, " (7.00 MiB 7.34 MB)"),
            (2_097_151 * KI, " (2048.00 MiB 2147.48 MB)"),
            (2_097_152 * KI, " (2.00 GiB 2.15 GB)"),
            (2_147_483_647 * KI, " (2048.00 GiB 2199.02 GB)"),
            (2_147_483_648 * KI, " (2.00 TiB 2.20 TB)"),
            (64_772 * 512, " (31.63 MiB 33.16 MB)"),
            (130_067_434 * KI, " (124.04 GiB 133.19 GB)"),
        ];
        for (bytes, text) in rows {
            assert_eq!(in_other_words(bytes), text, "{bytes}");
        }
        assert_eq!(brief(21_504 * KI), "22.02MB");
        assert_eq!(brief(100 * KI), "");
        assert_eq!(brief(1_500_000_000 * KI), "1536.00GB");
    }
}
