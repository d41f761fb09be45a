//! What has to be known of a message before it is read: its version, and which one it is.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// The head of a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub schema_version: u32,
    /// What its tag says.
    pub kind: String,
}

impl Head {
    /// Reads a line until both are known: they stand at its front, and what follows may be
    /// megabytes.
    ///
    /// # Errors
    /// The line is no object, or lacks one of the two.
    pub fn of_line(line: &[u8], tag: &'static str) -> serde_json::Result<Self> {
        let mut found = Found { tag, version: None, kind: None };
        let read = found.deserialize(&mut serde_json::Deserializer::from_slice(line));
        match (found.version, found.kind, read) {
            (Some(schema_version), Some(kind), _) => Ok(Self { schema_version, kind }),
            (_, _, Err(error)) => Err(error),
            (None, _, Ok(())) => Err(Error::missing_field("schema_version")),
            (_, None, Ok(())) => Err(Error::missing_field(tag)),
        }
    }
}

struct Found {
    tag: &'static str,
    version: Option<u32>,
    kind: Option<String>,
}

impl<'de> DeserializeSeed<'de> for &mut Found {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Found {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while self.version.is_none() || self.kind.is_none() {
            match map.next_key::<Cow<'de, str>>()? {
                Some(key) if key == "schema_version" => self.version = Some(map.next_value()?),
                Some(key) if key == self.tag => self.kind = Some(map.next_value()?),
                Some(_) => _ = map.next_value::<IgnoredAny>()?,
                None => return Ok(()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(line: &str) -> Option<(u32, String)> {
        Head::of_line(line.as_bytes(), "result").ok().map(|head| (head.schema_version, head.kind))
    }

    #[test]
    fn it_is_found_wherever_it_stands_and_nothing_behind_it_is_read() {
        let status = Some((1, "status".to_owned()));
        assert_eq!(head(r#"{"schema_version":1,"result":"status","arrays":["#), status);
        assert_eq!(head(r#"{"arrays":[{"result":"why"}],"result":"status","schema_version":1}"#), status);
        assert_eq!(head(r#"{"schema_version":1,"res\u0075lt":"status"}"#), status, "an escape is a letter");
        for none in [
            "",
            "{",
            "[]",
            "[1,\"status\"]",
            r#"{"schema_version":1}"#,
            r#"{"result":"status"}"#,
            "{\"schema_version\":-1,",
        ] {
            assert_eq!(head(none), None, "{none}");
        }
    }
}
