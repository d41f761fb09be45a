//! Text that was found on a device, made fit to be shown.

/// Text without padding at its end, if there is any. Control characters are replaced: they could
/// move a terminal's cursor.
pub(crate) fn printable(text: &str) -> Option<String> {
    let shown: String = text
        .trim_end()
        .chars()
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    (!shown.is_empty()).then_some(shown)
}
