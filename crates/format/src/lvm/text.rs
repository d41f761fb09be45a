//! The grammar of LVM2's metadata: sections, `key = value`, lists, comments. docs/formats.md §11.3.
//!
//! Parsing keeps everything but white space and spelling: order, unknown keys, comments, bytes
//! of strings that are no UTF-8. Writing gives LVM2's own on-disk form, which differs from what was
//! parsed in white space at most, unless something else than LVM2 wrote it.

use std::fmt;

/// Longest text taken. Ten thousand volumes need about 5 MB.
pub const MAX_BYTES: usize = 16 << 20;
/// Deepest nesting taken; LVM2 uses five levels.
pub const MAX_DEPTH: usize = 16;

/// What stands between two braces, or a whole text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// In their order.
    pub items: Vec<Item>,
}

/// One thing in a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// `key = value`.
    Value(String, TextValue),
    /// `key { ... }`.
    Section(String, Section),
    /// From `#` to the end of the line.
    Comment {
        /// Without the `#`.
        text: Vec<u8>,
        /// On the line of the item before it.
        trailing: bool,
    },
}

/// What a key has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextValue {
    /// One.
    One(Scalar),
    /// `[a, b]`.
    List(Vec<Scalar>),
}

/// A single value.
#[derive(Clone, PartialEq, Eq)]
pub enum Scalar {
    /// An integer that fits.
    Int(i64),
    /// A string, escapes undone. Any bytes: descriptions are command lines.
    Text(Vec<u8>),
    /// Anything else, as it was spelled: a float, an integer past 63 bits, a bare word.
    Word(String),
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::Text(bytes) => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Scalar::Word(word) => f.write_str(word),
        }
    }
}

impl TextValue {
    /// An integer.
    #[must_use]
    pub fn int(value: i64) -> TextValue {
        TextValue::One(Scalar::Int(value))
    }

    /// A string.
    #[must_use]
    pub fn text(text: &str) -> TextValue {
        TextValue::One(Scalar::from(text))
    }

    /// The integer, if this is one.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            TextValue::One(Scalar::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// The string, if this is one and UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            TextValue::One(scalar) => scalar.as_str(),
            TextValue::List(_) => None,
        }
    }

    /// The values: a single one counts as a list of one, as LVM2 has it.
    #[must_use]
    pub fn scalars(&self) -> &[Scalar] {
        match self {
            TextValue::One(scalar) => std::slice::from_ref(scalar),
            TextValue::List(list) => list,
        }
    }
}

impl Scalar {
    /// The string, if this is one and UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Scalar::Text(bytes) => std::str::from_utf8(bytes).ok(),
            Scalar::Int(_) | Scalar::Word(_) => None,
        }
    }
}

impl From<&str> for Scalar {
    fn from(text: &str) -> Scalar {
        Scalar::Text(text.as_bytes().to_vec())
    }
}

/// Why a text cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Past [`MAX_BYTES`].
    #[error("metadata text of {bytes} bytes, at most {MAX_BYTES} are taken")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Past [`MAX_DEPTH`].
    #[error("line {line} of the metadata text nests deeper than {MAX_DEPTH} sections")]
    TooDeep {
        /// From 1.
        line: usize,
    },
    /// Something else stands here.
    #[error("line {line} of the metadata text: expected {expected}")]
    Expected {
        /// From 1.
        line: usize,
        /// What the grammar wants here.
        expected: &'static str,
    },
}

impl Section {
    /// Parses a text; a NUL ends it.
    pub fn parse(text: &[u8]) -> Result<Section, TextError> {
        if text.len() > MAX_BYTES {
            return Err(TextError::TooLong { bytes: text.len() });
        }
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Parser { text: &text[..end], at: 0 }.section(0)
    }

    /// The text in LVM2's on-disk form.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write_items(self, &mut out);
        out
    }

    /// The value of a key. Of several the first, as LVM2 has it.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&TextValue> {
        self.items.iter().find_map(|item| match item {
            Item::Value(found, value) if found == key => Some(value),
            _ => None,
        })
    }

    /// The section of a key. Of several the first.
    #[must_use]
    pub fn section(&self, key: &str) -> Option<&Section> {
        self.sections().find(|(found, _)| *found == key).map(|(_, section)| section)
    }

    /// All sections directly in this one.
    pub fn sections(&self) -> impl Iterator<Item = (&str, &Section)> {
        self.items.iter().filter_map(|item| match item {
            Item::Section(key, section) => Some((key.as_str(), section)),
            _ => None,
        })
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    /// Items up to the closing brace, or up to the end at depth 0.
    fn section(&mut self, depth: usize) -> Result<Section, TextError> {
        if depth > MAX_DEPTH {
            return Err(TextError::TooDeep { line: self.line() });
        }
        let mut items = Vec::new();
        loop {
            let same_line = !self.skip_white() && !items.is_empty();
            match self.peek() {
                None if depth == 0 => return Ok(Section { items }),
                None => return self.expected("a closing brace before the end of the text"),
                Some(b'}') if depth > 0 => {
                    self.at += 1;
                    return Ok(Section { items });
                }
                Some(b'#') => {
                    let text = self.comment().to_vec();
                    items.push(Item::Comment { text, trailing: same_line });
                }
                Some(_) => {
                    let key = self.key()?;
                    self.skip_comments();
                    match self.peek() {
                        Some(b'=') => {
                            self.at += 1;
                            items.push(Item::Value(key, self.value()?));
                        }
                        Some(b'{') => {
                            self.at += 1;
                            items.push(Item::Section(key, self.section(depth + 1)?));
                        }
                        _ => return self.expected("`=` or `{` after a key"),
                    }
                }
            }
        }
    }

    fn key(&mut self) -> Result<String, TextError> {
        if self.peek() == Some(b'"') {
            let bytes = self.quoted()?;
            return String::from_utf8(bytes).or_else(|_| self.expected("a key in UTF-8"));
        }
        let key = self.run(|byte| !byte.is_ascii_whitespace() && !b"#={}".contains(&byte));
        match std::str::from_utf8(key) {
            Ok("") => self.expected("a key"),
            Ok(key) => Ok(key.to_owned()),
            Err(_) => self.expected("a key in UTF-8"),
        }
    }

    fn value(&mut self) -> Result<TextValue, TextError> {
        self.skip_comments();
        if self.peek() != Some(b'[') {
            return Ok(TextValue::One(self.scalar()?));
        }
        self.at += 1;
        let mut list = Vec::new();
        loop {
            self.skip_comments();
            match self.peek() {
                Some(b']') => {
                    self.at += 1;
                    return Ok(TextValue::List(list));
                }
                Some(b',') => self.at += 1,
                _ => list.push(self.scalar()?),
            }
        }
    }

    fn scalar(&mut self) -> Result<Scalar, TextError> {
        match self.peek() {
            Some(b'"') => Ok(Scalar::Text(self.quoted()?)),
            Some(b'\'') => {
                self.at += 1;
                let text = self.run(|byte| byte != b'\'').to_vec();
                if self.peek().is_none() {
                    return self.expected("the end of a string");
                }
                self.at += 1;
                Ok(Scalar::Text(text))
            }
            _ => match std::str::from_utf8(self.run(is_word_byte)) {
                Ok("") => self.expected("a value"),
                Ok(word) => Ok(integer(word).map_or_else(|| Scalar::Word(word.to_owned()), Scalar::Int)),
                Err(_) => self.expected("a value in UTF-8"),
            },
        }
    }

    /// A string in double quotes: a backslash makes a quote or a backslash of what follows, and is
    /// itself before all else.
    fn quoted(&mut self) -> Result<Vec<u8>, TextError> {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            text.extend(self.run(|byte| byte != b'"' && byte != b'\\'));
            match (self.peek(), self.text.get(self.at + 1)) {
                (None, _) => return self.expected("the end of a string"),
                (Some(b'"'), _) => {
                    self.at += 1;
                    return Ok(text);
                }
                (_, Some(&escaped @ (b'"' | b'\\'))) => {
                    self.at += 2;
                    text.push(escaped);
                }
                _ => {
                    self.at += 1;
                    text.push(b'\\');
                }
            }
        }
    }

    fn comment(&mut self) -> &[u8] {
        self.at += 1;
        self.run(|byte| byte != b'\n')
    }

    fn run(&mut self, wanted: impl Fn(u8) -> bool) -> &[u8] {
        let rest = &self.text[self.at..];
        let run = &rest[..rest.iter().position(|&byte| !wanted(byte)).unwrap_or(rest.len())];
        self.at += run.len();
        run
    }

    /// Whether a line ended in what was skipped.
    fn skip_white(&mut self) -> bool {
        self.run(is_white).contains(&b'\n')
    }

    /// Comments inside an item (before a value, in a list) have no place in the tree; LVM2 writes
    /// none there.
    fn skip_comments(&mut self) {
        self.skip_white();
        while self.peek() == Some(b'#') {
            self.comment();
            self.skip_white();
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn line(&self) -> usize {
        1 + self.text[..self.at].iter().filter(|&&byte| byte == b'\n').count()
    }

    fn expected<T>(&self, expected: &'static str) -> Result<T, TextError> {
        Err(TextError::Expected { line: self.line(), expected })
    }
}

fn is_white(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn is_word_byte(byte: u8) -> bool {
    !is_white(byte) && !b",[]#={}\"'".contains(&byte)
}

/// An integer as C reads it: decimal, 0x, or octal after a 0.
fn integer(word: &str) -> Option<i64> {
    let (sign, digits) = match word.as_bytes().first()? {
        b'-' => ("-", &word[1..]),
        b'+' => ("", &word[1..]),
        _ => ("", word),
    };
    let (radix, digits) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => (16, hex),
        None if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        None => (10, digits),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

fn write_items(section: &Section, out: &mut Vec<u8>) {
    for item in &section.items {
        match item {
            Item::Value(key, value) => {
                write_key(key, out);
                out.extend(b" = ");
                write_value(value, out);
            }
            Item::Section(key, inner) => {
                if !out.is_empty() {
                    out.push(b'\n');
                }
                write_key(key, out);
                out.extend(b" {\n");
                write_items(inner, out);
                out.push(b'}');
            }
            Item::Comment { text, trailing } => {
                if *trailing && out.last() == Some(&b'\n') {
                    out.pop();
                    out.push(b'\t');
                }
                out.push(b'#');
                out.extend(text.iter().map(|&byte| if byte == b'\n' { b' ' } else { byte }));
            }
        }
        out.push(b'\n');
    }
}

fn write_key(key: &str, out: &mut Vec<u8>) {
    let bare = |byte: u8| !is_white(byte) && !b"#={}\"".contains(&byte);
    if !key.is_empty() && key.bytes().all(bare) {
        out.extend(key.as_bytes());
    } else {
        write_quoted(key.as_bytes(), out);
    }
}

fn write_value(value: &TextValue, out: &mut Vec<u8>) {
    let list = match value {
        TextValue::One(scalar) => return write_scalar(scalar, out),
        TextValue::List(list) => list,
    };
    out.push(b'[');
    for (i, scalar) in list.iter().enumerate() {
        if i > 0 {
            out.extend(b", ");
        }
        write_scalar(scalar, out);
    }
    out.push(b']');
}

fn write_scalar(scalar: &Scalar, out: &mut Vec<u8>) {
    match scalar {
        Scalar::Int(value) => out.extend(value.to_string().into_bytes()),
        Scalar::Text(text) => write_quoted(text, out),
        Scalar::Word(word) if !word.is_empty() && word.bytes().all(is_word_byte) => {
            out.extend(word.as_bytes());
        }
        Scalar::Word(word) => write_quoted(word.as_bytes(), out),
    }
}

fn write_quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        if byte == b'"' || byte == b'\\' {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Section, TextError> {
        Section::parse(text.as_bytes())
    }

    fn one(value: &str) -> TextValue {
        parse(&format!("k = {value}")).unwrap().value("k").unwrap().clone()
    }

    #[test]
    fn values() {
        let word = |word: &str| TextValue::One(Scalar::Word(word.to_owned()));
        let rows = [
            ("12", TextValue::int(12)),
            ("-5", TextValue::int(-5)),
            ("0x1F", TextValue::int(31)),
            ("010", TextValue::int(8)),
            ("0", TextValue::int(0)),
            ("9223372036854775807", TextValue::int(i64::MAX)),
            ("9223372036854775808", word("9223372036854775808")),
            ("0.5", word("0.5")),
            ("bare", word("bare")),
            ("-", word("-")),
            ("+-5", word("+-5")),
            (r#""a \"b\" \\ \n""#, TextValue::text(r#"a "b" \ \n"#)),
            (r#"'a "b" \'"#, TextValue::text(r#"a "b" \"#)),
            ("[]", TextValue::List(vec![])),
            ("[1 , 'a', # why\n 2,,3 ]", TextValue::List(vec![1.into(), "a".into(), 2.into(), 3.into()])),
        ];
        for (text, value) in rows {
            assert_eq!(one(text), value, "{text}");
        }
    }

    impl From<i64> for Scalar {
        fn from(value: i64) -> Scalar {
            Scalar::Int(value)
        }
    }

    #[test]
    fn structure() {
        let text = "# head\na=1#tail\n\"b c\" { d/e = 2 d/e = 3 } f{}\0 rubbish }";
        let section = parse(text).unwrap();
        assert_eq!(section.value("a").and_then(TextValue::as_int), Some(1));
        assert_eq!(
            section.section("b c").unwrap().value("d/e").and_then(TextValue::as_int),
            Some(2),
            "first wins"
        );
        assert_eq!(section.section("f"), Some(&Section::default()));
        let written = "# head\na = 1\t#tail\n\n\"b c\" {\nd/e = 2\nd/e = 3\n}\n\nf {\n}\n";
        assert_eq!(String::from_utf8(section.write()).unwrap(), written);
        assert_eq!(parse(written).unwrap(), section);
    }

    #[test]
    fn what_is_wrong() {
        let expected = |line, expected| Err(TextError::Expected { line, expected });
        assert_eq!(parse("a {\nb = 1\n"), expected(3, "a closing brace before the end of the text"));
        assert_eq!(parse("\n}"), expected(2, "a key"));
        assert_eq!(parse("a 1"), expected(1, "`=` or `{` after a key"));
        assert_eq!(parse("a = }"), expected(1, "a value"));
        assert_eq!(parse("a = [1, 2"), expected(1, "a value"));
        assert_eq!(parse("a = [[1]]"), expected(1, "a value"));
        assert_eq!(parse("a = \"b"), expected(1, "the end of a string"));
        assert_eq!(parse("a = 'b"), expected(1, "the end of a string"));
        assert_eq!(Section::parse(b"\xff = 1"), expected(1, "a key in UTF-8"));
        assert_eq!(parse(&"a{".repeat(MAX_DEPTH)), expected(1, "a closing brace before the end of the text"));
        assert_eq!(parse(&"a{".repeat(MAX_DEPTH + 1)), Err(TextError::TooDeep { line: 1 }));
        let bytes = MAX_BYTES + 1;
        assert_eq!(Section::parse(&vec![b' '; bytes]), Err(TextError::TooLong { bytes }));
    }

    /// A mebibyte of every byte that opens something: linear, or the test would not end.
    #[test]
    fn no_quadratic_loops() {
        for open in ["{", "[", "\"", "#", "a{", "a=[", "a=", "\\", "a=\"\\", "#\n", "a=1#\n", "'", "a={}"] {
            let _ = parse(&open.repeat((1 << 20) / open.len()));
        }
    }

    #[test]
    fn strings_of_any_bytes_survive() {
        let text = b"description = \"caf\xe9 \\\\ \n\"\n";
        let section = Section::parse(text).unwrap();
        assert_eq!(section.value("description").unwrap().as_str(), None);
        assert_eq!(section.write(), text);
    }

    fn scalar() -> impl Strategy<Value = Scalar> {
        let text = prop::collection::vec(1..=255_u8, 0..20);
        prop_oneof![
            any::<i64>().prop_map(Scalar::Int),
            text.prop_map(Scalar::Text),
            "[a-z][a-z.]{0,5}".prop_map(Scalar::Word)
        ]
    }

    fn items() -> impl Strategy<Value = Section> {
        let value = prop_oneof![
            scalar().prop_map(TextValue::One),
            prop::collection::vec(scalar(), 0..4).prop_map(TextValue::List)
        ];
        // White space cannot stand in front of a key and is not kept behind a comment's `#`-line,
        // so neither has any.
        let leaf = prop_oneof![
            4 => ("\\PC{1,8}", value).prop_map(|(key, value)| Item::Value(key, value)),
            1 => "[a-z# ]{0,8}".prop_map(|text| Item::Comment { text: text.into_bytes(), trailing: false }),
        ];
        let section = |items| Section { items };
        leaf.prop_recursive(4, 40, 5, move |inner| {
            ("\\PC{1,8}", prop::collection::vec(inner, 0..5))
                .prop_map(move |(key, items)| Item::Section(key, section(items)))
        })
        .prop_map(|item| Section { items: vec![item] })
    }

    proptest! {
        #[test]
        fn round_trip(section in items()) {
            prop_assert_eq!(Section::parse(&section.write()), Ok(section));
        }

        #[test]
        fn anything_that_parses_is_written_so_that_it_parses_the_same(text in "[a-c ={}\\[\\]\"'#\n\\\\0-2,]{0,60}") {
            if let Ok(section) = parse(&text) {
                prop_assert_eq!(Section::parse(&section.write()), Ok(section));
            }
        }
    }
}
