//! Tables of figures that are wider than a screen.

use super::{terminal_size, text::table};

/// Columns of the terminal that stdout is, if it is one.
pub fn width() -> Option<usize> {
    terminal_size().map(|(columns, _)| columns)
}

/// A table whose columns go on below if they do not fit a screen of `width` columns: each block
/// begins with the first `keys` columns. Without a width it is one block.
pub fn blocks(indent: &str, rows: &[Vec<String>], keys: usize, width: Option<usize>) -> String {
    let Some(width) = width else { return table(indent, rows) };
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let len = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0) + 2
    };
    let keys = keys.min(columns);
    let fixed = indent.len() + (0..keys).map(len).sum::<usize>();
    let mut text = String::new();
    let mut from = keys;
    loop {
        let (mut to, mut used) = (from, fixed);
        // The last column has no space behind it. One column is there, however narrow the screen.
        while to < columns && (to == from || used + len(to) - 2 <= width) {
            used += len(to);
            to += 1;
        }
        let cut = |row: &Vec<String>| {
            let cell = |column: usize| row.get(column).cloned().unwrap_or_default();
            (0..keys).chain(from..to).map(cell).collect::<Vec<_>>()
        };
        text.push_str(&table(indent, &rows.iter().map(cut).collect::<Vec<_>>()));
        if to >= columns {
            return text;
        }
        text.push('\n');
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        vec![row(["", "IOPS", "limit", "held back by"]), row(["raid5", "1000", "2000", "drives"])]
    }

    #[test]
    fn what_fits_is_one_table() {
        assert_eq!(blocks("", &rows(), 1, None), table("", &rows()));
        assert_eq!(blocks("", &rows(), 1, Some(33)), table("", &rows()));
    }

    #[test]
    fn what_does_not_fit_goes_on_below_behind_its_key() {
        let text = blocks("", &rows(), 1, Some(20));
        assert_eq!(text, "       IOPS  limit\nraid5  1000  2000\n\n       held back by\nraid5  drives\n");
        assert!(text.lines().all(|line| line.len() <= 20));
        assert_eq!(blocks("", &rows(), 1, Some(3)).lines().count(), 8, "a column at a time");
    }
}
