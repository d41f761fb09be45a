//! Plain tables.

use wattle_rt::escaped_byte;

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

/// Breaks lines that are longer than a screen of `width` columns between words. What goes on is
/// behind the last column of a table that begins in the left half, or behind the line's own indent.
/// A word that is too long by itself stays whole.
pub fn fit(text: &str, width: usize) -> String {
    let mut fitted = String::new();
    for line in text.lines() {
        fit_line(line, width, &mut fitted);
        fitted.push('\n');
    }
    fitted
}

fn fit_line(line: &str, width: usize, into: &mut String) {
    if visible_len(line) <= width {
        return into.push_str(line);
    }
    let own = line.len() - line.trim_start().len();
    let columns = line.match_indices("  ").filter_map(|(at, _)| {
        let starts = !line[at + 2..].starts_with(' ');
        starts.then(|| visible_len(&line[..at + 2])).filter(|column| *column > own)
    });
    let indent = columns.filter(|column| *column <= width / 2).last().unwrap_or(own + 2).min(width / 2);
    // Spaces in front of a word belong to it as long as it stays on the line.
    let (mut len, mut rest, mut begun) = (own, &line[own..], false);
    into.push_str(&line[..own]);
    while !rest.is_empty() {
        let spaces = rest.len() - rest.trim_start_matches(' ').len();
        let end = rest[spaces..].find(' ').map_or(rest.len(), |end| spaces + end);
        let (word, word_len) = (&rest[spaces..end], visible_len(&rest[spaces..end]));
        if len + spaces + word_len > width && begun {
            into.push('\n');
            into.extend(std::iter::repeat_n(' ', indent));
            len = indent;
        } else {
            into.push_str(&rest[..spaces]);
            len += spaces;
        }
        into.push_str(word);
        len += word_len;
        begun = true;
        rest = &rest[end..];
    }
}

/// The end of a name that has to do with so many characters.
pub fn shortened(name: &str, len_max: usize) -> String {
    let len = name.chars().count();
    if len <= len_max {
        return name.to_owned();
    }
    ['…'].into_iter().chain(name.chars().skip(len + 1 - len_max.max(1))).collect()
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
/// terminal, become `?`, and bytes of a path that are not UTF-8 `\\xNN`.
pub fn printable(name: &str) -> String {
    let mut shown = String::with_capacity(name.len());
    for c in name.chars() {
        match escaped_byte(c) {
            Some(byte) => shown.push_str(&format!("\\x{byte:02x}")),
            None => shown.push(if c.is_control() { '?' } else { c }),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

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
    fn long_lines_go_on_below_their_last_column() {
        let text = "data  raid5, chunk 64 KiB\n  2     stale    19      b.img  (went on without it, 4 events behind)\n";
        let at_40 = "data  raid5, chunk 64 KiB\n  2     stale    19      b.img  (went on\n                 without it, 4 events\n                 behind)\n";
        assert_eq!(fit(text, 40), at_40);
        assert_eq!(fit(text, 100), text);
        assert_eq!(
            fit("  next: name all of its members\n", 16),
            "  next: name all\n    of its\n    members\n"
        );
    }

    proptest::proptest! {
        /// No word is broken, none is lost, and only a word that is too long is behind the edge.
        #[test]
        fn words_stay_whole(text in "( {0,4}[a-zé─]{1,12}( {1,3}[a-zé─]{1,12}){0,12}\n){1,4}", width in 8usize..60) {
            let fitted = fit(&text, width);
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&fitted), words(&text));
            for line in fitted.lines() {
                assert!(line.chars().count() <= width || words(line).len() == 1, "{width}: {line:?}");
            }
            assert_eq!(fit(&fitted, 1000), fitted);
        }
    }

    #[test]
    fn the_end_of_a_long_name_tells_most() {
        assert_eq!(shortened("/dev/disk/a.img", 6), "…a.img");
        assert_eq!(shortened("a.img", 5), "a.img");
    }

    #[test]
    fn a_name_from_a_drive_cannot_drive_the_terminal() {
        assert_eq!(printable("host:\x1b[2Jdata\n"), "host:?[2Jdata?");
        let name = wattle_rt::text_of_path(OsStr::from_bytes(b"d\xff.img"));
        assert_eq!(printable(&name), "d\\xff.img");
    }
}
