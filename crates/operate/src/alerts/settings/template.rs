//! Text with places for what an alert says.
//!
//! `${name}` stands for a value, which is escaped for where it goes: nothing that a member or an
//! array is called can end a string of JSON, a header or a part of an address.

use std::fmt::Write as _;

use super::presets::NAMES;

/// What a value is escaped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escape {
    /// The inside of a string of JSON.
    Json,
    /// A part of an address, or of a form.
    Url,
    /// One line.
    Header,
    /// Text as it is.
    Plain,
}

impl Escape {
    /// What text of this type needs.
    #[must_use]
    pub fn of(content_type: &str) -> Self {
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "application/x-www-form-urlencoded" => Self::Url,
            kind if kind.ends_with("json") => Self::Json,
            _ => Self::Plain,
        }
    }

    /// The value, escaped.
    #[must_use]
    pub fn apply(self, value: &str) -> String {
        match self {
            Self::Plain => value.chars().filter(|c| !c.is_control() || *c == '\n').collect(),
            Self::Header => {
                let ascii = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
                value.chars().map(|c| if c.is_whitespace() { ' ' } else { ascii(c) }).collect()
            }
            Self::Json => {
                let quoted = serde_json::to_string(value).unwrap_or_default();
                quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned()
            }
            Self::Url => value.bytes().fold(String::new(), |mut text, byte| {
                match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                    true => text.push(char::from(byte)),
                    false => {
                        let _ = write!(text, "%{byte:02X}");
                    }
                }
                text
            }),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Name(String),
}

/// Text with places for values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
    escape: Escape,
}

impl Template {
    /// A template of this text.
    ///
    /// # Errors
    /// The name in it that stands for nothing.
    pub fn parse(text: &str, escape: Escape) -> Result<Self, String> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, behind)) = after.split_once('}') else { break };
            if !NAMES.contains(&name) {
                return Err(name.to_owned());
            }
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(Piece::Name(name.to_owned()));
            rest = behind;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Self { pieces, escape })
    }

    /// The text with the values in their places.
    #[must_use]
    pub fn fill(&self, value: impl Fn(&str) -> String) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            // It is JSON already.
            Piece::Name(name) if name.ends_with("_json") => value(name),
            // A token is part of an address as it is.
            Piece::Name(name) if name == "token" => value(name),
            Piece::Name(name) => self.escape.apply(&value(name)),
        };
        self.pieces.iter().map(piece).collect()
    }

    /// As it was written.
    #[must_use]
    pub fn shown(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Name(name) => format!("${{{name}}}"),
        };
        self.pieces.iter().map(piece).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_a_value_wherever_it_goes() {
        let hostile = "a\"},{\"b\\\r\nX: y é/?&";
        let filled =
            |escape: Escape| Template::parse("<${what}>", escape).unwrap().fill(|_| hostile.to_owned());
        let json = filled(Escape::Json);
        let back: String = serde_json::from_str(&format!("\"{json}\"")).unwrap();
        assert_eq!(back, format!("<{hostile}>"));
        assert_eq!(filled(Escape::Header), "<a\"},{\"b\\  X: y ?/?&>");
        assert_eq!(filled(Escape::Url), "<a%22%7D%2C%7B%22b%5C%0D%0AX%3A%20y%20%C3%A9%2F%3F%26>");
        assert_eq!(filled(Escape::Plain), "<a\"},{\"b\\\nX: y é/?&>");
    }

    #[test]
    fn names_that_stand_for_nothing_are_refused_and_dollars_are_text() {
        assert_eq!(Template::parse("a ${whta}", Escape::Plain), Err("whta".to_owned()));
        let template = Template::parse("$5 ${event", Escape::Plain).unwrap();
        assert_eq!(template.fill(|_| unreachable!("it has no names")), "$5 ${event");
    }
}
