//! Plain tables.

/// Lines up the columns of rows, two spaces apart, each line behind `indent`. The last column is
/// not padded.
pub fn table(indent: &str, rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| visible_len(cell)).max();
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        text.push_str(indent);
        let last = row.len().saturating_sub(1);
        for (column, cell) in row.iter().enumerate() {
            text.push_str(cell);
            if column < last {
                text.extend(std::iter::repeat_n(' ', widths[column] + 2 - visible_len(cell)));
            }
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// Characters that take a place on the screen: colours do not.
fn visible_len(cell: &str) -> usize {
    let mut len = 0;
    let mut chars = cell.chars();
    while let Some(c) = chars.next() {
        if c == '\x1b' {
            chars.by_ref().find(|c| *c == 'm');
        } else {
            len += 1;
        }
    }
    len
}

/// Makes a name from a drive or a client safe to show: control characters, which could drive the
/// terminal, become `?`.
pub fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_also_with_colours() {
        let rows = [
            vec!["a".to_owned(), "\x1b[1mbb\x1b[0m".to_owned(), "c".to_owned()],
            vec!["aaa".to_owned(), "b".to_owned(), "c".to_owned()],
        ];
        assert_eq!(table("  ", &rows), "  a    \x1b[1mbb\x1b[0m  c\n  aaa  b   c\n");
    }

    #[test]
    fn a_name_from_a_drive_cannot_drive_the_terminal() {
        assert_eq!(printable("host:\x1b[2Jdata\n"), "host:?[2Jdata?");
    }
}
