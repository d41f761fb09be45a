//! Names of members as they are typed: any bytes that a path may have.

use clap::builder::{OsStringValueParser, TypedValueParser};
use wattle_rt::text_of_path;

/// Takes a name as its text: what is not UTF-8 is escaped, reversibly.
pub fn name_text() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(text_of_path)
}
