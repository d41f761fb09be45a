//! What `--select` says: comparisons joined by `&&` and `||`, with `!` and parentheses, as
//! lvmreport(7) has them.

use std::cmp::Ordering;

use regex_lite::{Regex, RegexBuilder};
use wattle_control::size::unit_bytes;
use wattle_control::{Code, Problem};

use super::columns::{CellKind, CellValue, List, bare, find};

/// Parentheses and `!` inside one another: more than is ever written, and far less than the stack
/// holds.
const DEPTH: usize = 64;

/// What a regular expression may take.
const REGEX_BYTES: usize = 1 << 20;

/// Which rows are wanted.
pub enum Select {
    /// Those that all of these want; with none, every row.
    All(Vec<Select>),
    /// Those that one of these wants.
    Any(Vec<Select>),
    /// The others.
    Not(Box<Select>),
    /// Those whose cell of a column passes.
    Where(usize, Test),
}

/// What is asked of a cell.
pub enum Test {
    /// It is this text.
    Is(String),
    /// It, or one of its words, has a part that matches.
    Matches(Regex),
    /// It compares to this number so.
    Number(Ordering, Decimal),
    /// These are its words.
    Exactly(Vec<String>),
    /// These are among its words.
    Has(Vec<String>),
    /// One of these is among its words.
    HasAny(Vec<String>),
}

/// A number with a point in it, exactly: this many, divided by that.
pub struct Decimal(u128, u128);

impl Select {
    /// Reads a selection from the fields of a list.
    ///
    /// # Errors
    /// It is none, or there is no such field.
    pub fn parse(list: &List, text: &str) -> Result<Self, Problem> {
        if matches!(text.trim().to_ascii_lowercase().as_str(), "" | "all") {
            return Ok(Self::All(Vec::new()));
        }
        let mut parser = Parser { list, text, rest: text, depth: 0 };
        let select = parser.any()?;
        match parser.rest {
            "" => Ok(select),
            _ => Err(parser.expected("&& or || (, or #)")),
        }
    }

    /// Whether this row is wanted.
    pub fn holds(&self, row: &[CellValue]) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.holds(row)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(row)),
            Self::Not(part) => !part.holds(row),
            Self::Where(column, test) => test.holds(&row[*column]),
        }
    }
}

impl Test {
    fn holds(&self, value: &CellValue) -> bool {
        match (self, value) {
            (Self::Is(text), CellValue::Text(found)) => found == text || bare(found) == text,
            (Self::Matches(regex), CellValue::Text(found)) => regex.is_match(bare(found)),
            (Self::Matches(regex), CellValue::Words(found)) => found.iter().any(|word| regex.is_match(word)),
            (Self::Number(order, number), CellValue::Bytes(found) | CellValue::Count(found)) => {
                number.compared_to(*found) == *order
            }
            (Self::Has(words), CellValue::Words(found)) => words.iter().all(|word| found.contains(word)),
            (Self::HasAny(words), CellValue::Words(found)) => words.iter().any(|word| found.contains(word)),
            (Self::Exactly(words), CellValue::Words(found)) => {
                words.iter().all(|word| found.contains(word)) && found.iter().all(|word| words.contains(word))
            }
            // A column has one kind of cell, and tests of that kind were made for it.
            _ => false,
        }
    }
}

impl Decimal {
    /// A number of things, or a size in whichever unit. The digits behind the point are as many as
    /// can be compared exactly.
    fn parse(text: &str, kind: CellKind) -> Option<Self> {
        let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, unit) = text.split_at(digits);
        let unit_bytes = match kind {
            CellKind::Bytes => unit_bytes(unit)?,
            _ => unit.is_empty().then_some(1)?,
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let divisor = 10_u128.pow(u32::try_from(part.len()).ok().filter(|digits| *digits <= 18)?);
        let all = format!("{whole}{part}").parse::<u128>().ok()?;
        Some(Self(all.checked_mul(u128::from(unit_bytes))?, divisor))
    }

    /// How `found` compares to it.
    fn compared_to(&self, found: u64) -> Ordering {
        (u128::from(found) * self.1).cmp(&self.0)
    }
}

/// How a cell is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operator {
    Ordered(Ordering),
    Matching,
}

/// With whether the opposite is meant; the longer ones first.
const OPERATORS: [(&str, Operator, bool); 8] = [
    ("=~", Operator::Matching, false),
    ("!~", Operator::Matching, true),
    ("!=", Operator::Ordered(Ordering::Equal), true),
    ("<=", Operator::Ordered(Ordering::Greater), true),
    (">=", Operator::Ordered(Ordering::Less), true),
    ("=", Operator::Ordered(Ordering::Equal), false),
    ("<", Operator::Ordered(Ordering::Less), false),
    (">", Operator::Ordered(Ordering::Greater), false),
];

struct Parser<'a> {
    list: &'a List,
    text: &'a str,
    /// What was not read yet.
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    /// Terms joined by `||`, which binds less than `&&`.
    fn any(&mut self) -> Result<Select, Problem> {
        let mut parts = vec![self.all()?];
        while self.takes("||") || self.takes("#") {
            parts.push(self.all()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Select::Any(parts) })
    }

    fn all(&mut self) -> Result<Select, Problem> {
        let mut parts = vec![self.term()?];
        while self.takes("&&") || self.takes(",") {
            parts.push(self.term()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Select::All(parts) })
    }

    fn term(&mut self) -> Result<Select, Problem> {
        if self.depth > DEPTH {
            return Err(self.expected("no more than 64 parentheses inside one another"));
        }
        self.depth += 1;
        let term = if self.takes("!") {
            Select::Not(Box::new(self.term()?))
        } else if self.takes("(") {
            let inner = self.any()?;
            if !self.takes(")") {
                return Err(self.expected("&&, || or a closing parenthesis"));
            }
            inner
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(term)
    }

    fn comparison(&mut self) -> Result<Select, Problem> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        if end == 0 {
            return Err(self.expected("a field's name"));
        }
        let name = &self.rest[..end];
        let column = find(self.list, name)?;
        self.rest = &self.rest[end..];
        let (operator, negated) = self.operator()?;
        let kind = self.list.columns[column].kind;
        let test = match (kind, operator) {
            (CellKind::Text | CellKind::Words, Operator::Matching) => Test::Matches(self.regex()?),
            (CellKind::Text, Operator::Ordered(Ordering::Equal)) => Test::Is(self.value()?.to_owned()),
            (CellKind::Words, Operator::Ordered(Ordering::Equal)) => self.words()?,
            (CellKind::Text | CellKind::Words, _) => {
                return Err(wrong(
                    format!("{name} is text, which is not less or greater"),
                    "text is compared by =, !=, =~ and !~",
                    "choose among them",
                ));
            }
            (CellKind::Bytes | CellKind::Count, Operator::Ordered(order)) => {
                Test::Number(order, self.number(name, kind)?)
            }
            (CellKind::Bytes | CellKind::Count, Operator::Matching) => {
                return Err(wrong(
                    format!("{name} is a number, not text that could match"),
                    "numbers are compared by =, !=, <, >, <= and >=",
                    "choose among them",
                ));
            }
        };
        let test = Select::Where(column, test);
        Ok(if negated { Select::Not(Box::new(test)) } else { test })
    }

    fn operator(&mut self) -> Result<(Operator, bool), Problem> {
        for (text, operator, negated) in OPERATORS {
            if self.takes(text) {
                // A habit from elsewhere, and otherwise a text that nothing is.
                if text == "=" && self.rest.starts_with('=') {
                    return Err(self.expected("a value behind one ="));
                }
                return Ok((operator, negated));
            }
        }
        Err(self.expected("=, !=, =~, !~, <, >, <= or >="))
    }

    /// A text in quotes, or up to what cannot be a part of one without them.
    fn value(&mut self) -> Result<&'a str, Problem> {
        self.value_in(false)
    }

    /// The same, which a bracket ends too.
    fn value_in(&mut self, brackets: bool) -> Result<&'a str, Problem> {
        self.skip_space();
        let Some(quote) = self.rest.chars().next().filter(|c| ['"', '\''].contains(c)) else {
            let end = end_of_word(self.rest, brackets);
            let (value, rest) = self.rest.split_at(end);
            self.rest = rest;
            self.skip_space();
            return Ok(value);
        };
        let Some(end) = self.rest[1..].find(quote) else {
            return Err(self.expected("a closing quote behind the one"));
        };
        let value = &self.rest[1..=end];
        self.rest = &self.rest[end + 2..];
        self.skip_space();
        Ok(value)
    }

    /// One word, `[all,of,them]`, `{these,among,others}` or `{one#of#these}`.
    fn words(&mut self) -> Result<Test, Problem> {
        self.skip_space();
        let (close, exactly) = match self.rest.chars().next() {
            Some('[') => ("]", true),
            Some('{') => ("}", false),
            _ => {
                return Ok(match self.value()? {
                    "" => Test::Exactly(Vec::new()),
                    word => Test::Has(vec![word.to_owned()]),
                });
            }
        };
        self.rest = &self.rest[1..];
        let (mut words, mut all, mut any) = (Vec::new(), false, false);
        while !self.takes(close) {
            if !words.is_empty() {
                let (and, or) = (self.takes("&&") || self.takes(","), self.takes("||") || self.takes("#"));
                (all, any) = (all || and, any || or);
                if !and && !or || all && any {
                    return Err(
                        self.expected("words with , or # between them, not both, and a bracket behind them")
                    );
                }
            }
            words.push(self.value_in(true)?.to_owned());
        }
        Ok(match (exactly || words.is_empty(), any) {
            (true, _) => Test::Exactly(words),
            (false, false) => Test::Has(words),
            (false, true) => Test::HasAny(words),
        })
    }

    fn number(&mut self, field: &str, kind: CellKind) -> Result<Decimal, Problem> {
        let value = self.value()?;
        Decimal::parse(value, kind).ok_or_else(|| match kind {
            CellKind::Bytes => wrong(
                format!("{field} is a size, and `{value}` is none"),
                "expected a number, with K, M, G, T, P or E for powers of 1024, or `s` for sectors of 512 bytes",
                "write it like 64K, 1.5G, 2048s or 1048576",
            ),
            _ => wrong(
                format!("{field} is a number, and `{value}` is none"),
                "expected digits",
                "write it like 4",
            ),
        })
    }

    fn regex(&mut self) -> Result<Regex, Problem> {
        let value = self.value()?;
        RegexBuilder::new(value).size_limit(REGEX_BYTES).build().map_err(|error| {
            wrong(
                format!("`{value}` is no regular expression"),
                error.to_string(),
                "put it in quotes if it has spaces, parentheses, `,` or `#`",
            )
        })
    }

    /// Passes over this if it is next.
    fn takes(&mut self, token: &str) -> bool {
        self.skip_space();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        self.skip_space();
        rest.is_some()
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn expected(&self, what: &str) -> Problem {
        let place = match self.rest {
            "" => "at its end".to_owned(),
            rest => {
                let before = &self.text[..self.text.len() - rest.len()];
                let shown: String = rest.chars().take(20).collect();
                format!("at character {}, `{shown}`", before.chars().count() + 1)
            }
        };
        wrong(
            format!("the selection is wrong {place}: expected {what}"),
            "it is made of comparisons with && or || between them, ! and parentheses",
            "write it like 'vg_name=data && (lv_size>1.5G || !lv_tags=old)'",
        )
    }
}

/// Where a text without quotes ends: at space, at an operator, at a parenthesis that it did not
/// open, in a list at its bracket.
fn end_of_word(text: &str, brackets: bool) -> usize {
    let mut open = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => open += 1,
            ')' if open > 0 => open -= 1,
            ')' | ',' | '#' => return at,
            ']' | '}' if brackets => return at,
            '&' | '|' if text[at + 1..].starts_with(c) => return at,
            _ if c.is_whitespace() => return at,
            _ => {}
        }
    }
    text.len()
}

fn wrong(what: String, why: impl Into<String>, next: &str) -> Problem {
    Problem::new(Code::Usage, what, why, next)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::columns::Column;
    use super::*;

    const fn column(field: &'static str, kind: CellKind) -> Column {
        Column { field, heading: "", kind, usual: true }
    }

    const LIST: List = List {
        rows: "things",
        prefix: "pv_",
        sorted_by: "pv_name",
        columns: &[
            column("pv_name", CellKind::Text),
            column("pv_size", CellKind::Bytes),
            column("pv_count", CellKind::Count),
            column("pv_tags", CellKind::Words),
        ],
    };

    fn row() -> [CellValue; 4] {
        let tags = ["a", "b", "disk(0)"].map(str::to_owned).to_vec();
        [
            CellValue::Text("my-lv".to_owned()),
            CellValue::Bytes(12 << 20),
            CellValue::Count(7),
            CellValue::Words(tags),
        ]
    }

    fn holds(select: &str) -> bool {
        match Select::parse(&LIST, select) {
            Ok(select) => select.holds(&row()),
            Err(problem) => panic!("{select}: {problem:?}"),
        }
    }

    #[test]
    fn rows_are_selected() {
        for yes in [
            "",
            "all",
            " ALL ",
            "name=my-lv",
            "PV_Name = 'my-lv'",
            "name!=\"my-lw\"",
            "name=~^my",
            "name=~\"l(v|w)$\"",
            "name=~^(x|my)-",
            "name!~[0-9]",
            "size=12m",
            "size=12582912",
            "size = 0.01171875g",
            "size>11.999M && size<12.001M",
            "size=24576s && size=\"12MiB\"",
            "count>=7,count<=7.0,count!=6",
            "count>6.999999999999999999",
            "count=1 || name=my-lv",
            "count=1 # name=my-lv",
            "!(count=1)",
            "!count=1 && !!count=7",
            "name=my-lv || count=1 && size=1m",
            "count=1&&size=1m||name=my-lv",
            "((name=my-lv)&&(size=12m))",
            "tags=a",
            "tags!=c",
            "tags=disk(0)",
            "tags={b,a}",
            "tags={ b && a }",
            "tags={x#a}",
            "tags={x||\"a\"}",
            "tags=[b,a,disk(0)]",
            "tags!=[a,b]",
            "tags!=\"\"",
            "tags!={}",
            "tags=~^disk",
            "tags!~x",
        ] {
            assert!(holds(yes), "{yes}");
        }
        for no in [
            "name=my",
            "name=My-lv",
            "name=",
            "name=[my-lv]",
            "name=my&lv|x;",
            "size=12.000001m",
            "size<12m",
            "size>12m",
            "(name=my-lv || count=1) && size=1m",
            "count=7 && count=1",
            "!(count=7)",
            "tags=c",
            "tags={a,c}",
            "tags={c#d}",
            "tags=[a]",
            "tags=",
            "tags=~c",
        ] {
            assert!(!holds(no), "{no}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (wrong, said) in [
            ("name", "at its end: expected =, !="),
            ("name=a &&", "at its end: expected a field's name"),
            ("name=a name=b", "at character 8, `name=b`: expected &&"),
            ("name=a & name=b", "at character 8, `& name=b`: expected &&"),
            ("(name=a", "at its end: expected &&, || or a closing"),
            ("name=a)", "at character 7, `)`: expected &&"),
            ("name==a", "at character 6, `=a`: expected a value behind one ="),
            ("name='a", "at character 6, `'a`: expected a closing quote"),
            ("()", "at character 2, `)`: expected a field's name"),
            ("'name'=a", "at character 1, "),
            ("ünder=a", "at character 1, `ünder=a`"),
            ("name=ü)", "at character 7, `)`"),
            ("name>a", "name is text, which is not less or greater"),
            ("tags<=a", "tags is text"),
            ("size=~1", "size is a number"),
            ("size=x", "size is a size, and `x` is none"),
            ("size=", "`` is none"),
            ("size=1x", "`1x` is none"),
            ("size=1.2.3m", "`1.2.3m` is none"),
            ("size=1.0000000000000000001m", "is none"),
            ("size=340282366920938463463374607431768211455e", "is none"),
            ("count=7m", "count is a number, and `7m` is none"),
            ("count=-1", "`-1` is none"),
            ("colour=red", "there is no field `colour`"),
            ("name=~'('", "`(` is no regular expression"),
            ("name=~'(a{999}){999}'", "is no regular expression"),
            ("tags={a,b#c}", "at character 11, `c}`: expected words"),
            ("tags=[a b]", "at character 9, `b]`: expected words"),
            ("tags={a", "at its end: expected words"),
        ] {
            let problem = Select::parse(&LIST, wrong).err().unwrap_or_else(|| panic!("{wrong} is accepted"));
            assert!(problem.what.contains(said), "{wrong}: {}", problem.what);
            assert_eq!(problem.exit_code(), 2, "{wrong}");
        }
        for depth in [DEPTH, DEPTH + 1, 1_000_000] {
            let nested = format!("{}name=a{}", "(".repeat(depth), ")".repeat(depth));
            assert_eq!(Select::parse(&LIST, &nested).is_ok(), depth == DEPTH, "{depth} parentheses");
            assert_eq!(Select::parse(&LIST, &("!".repeat(depth) + "name=a")).is_ok(), depth == DEPTH);
        }
    }

    #[test]
    fn brackets_of_hidden_names_do_not_matter() {
        let row = [CellValue::Text("[pool_tmeta]".to_owned())];
        for yes in ["name=pool_tmeta", "name=[pool_tmeta]", "name=~^pool", "name!=pool", "name=~meta$"] {
            assert!(Select::parse(&LIST, yes).is_ok_and(|select| select.holds(&row)), "{yes}");
        }
    }

    /// A selection as text, and whether it holds for [`row`].
    fn selections() -> impl Strategy<Value = (String, bool)> {
        let comparisons =
            [("name=my-lv", true), ("size<12m", false), ("tags={b#x}", true), ("count!=7", false)];
        let comparison = proptest::sample::select(comparisons.to_vec());
        let leaf = comparison.prop_map(|(text, holds)| (text.to_owned(), holds));
        leaf.prop_recursive(6, 40, 4, |inner| {
            let joined = |joint: [&'static str; 4], all: bool| {
                let parts = proptest::collection::vec(inner.clone(), 2..4);
                (parts, proptest::sample::select(joint.to_vec())).prop_map(move |(parts, joint)| {
                    let texts: Vec<_> = parts.iter().map(|(text, _)| format!("({text})")).collect();
                    let mut holds = parts.iter().map(|(_, holds)| *holds);
                    (texts.join(joint), if all { holds.all(|it| it) } else { holds.any(|it| it) })
                })
            };
            prop_oneof![
                joined(["&&", ",", " && ", " ,"], true),
                joined(["||", "#", " || ", "# "], false),
                inner.clone().prop_map(|(text, holds)| (format!("!({text})"), !holds)),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_joined_holds_as_its_parts_do((text, expected) in selections()) {
            prop_assert_eq!(holds(&text), expected, "{}", text);
        }

        #[test]
        fn anything_is_read_or_refused(text in "\\PC{0,40}") {
            let _ = Select::parse(&LIST, &text).map(|select| select.holds(&row()));
        }

        #[test]
        fn what_looks_like_one_is_read_or_refused(
            parts in proptest::collection::vec(proptest::sample::select(vec![
                "name", "size", "tags", "count", "=", "!", "=~", "!~", ">", "<=", "&&", "||", "&", ",", "#", "(", ")", "[", "]",
                "{", "}", "'", "\"", " ", "1", ".5", "g", "a*", "\\", "ü", "9999999999999999999", "+",
            ]), 0..24)
        ) {
            let _ = Select::parse(&LIST, &parts.concat()).map(|select| select.holds(&row()));
        }
    }
}
