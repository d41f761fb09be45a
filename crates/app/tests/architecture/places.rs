//! CONTRIBUTING.md says where behaviours are: the files are there.

use crate::source::root;

#[test]
fn behaviours_are_where_the_document_says() {
    let document = include_str!("../../../../CONTRIBUTING.md");
    let table = document.split("<!-- places").nth(1).and_then(|rest| rest.split("<!-- /places").next());
    let rows = table.expect("CONTRIBUTING.md says where behaviours are").lines();
    let files: Vec<&str> =
        rows.filter_map(|row| row.split('`').rfind(|part| part.ends_with(".rs"))).collect();
    assert!(files.len() >= 20, "the table was not understood: {files:?}");
    let missing: Vec<&&str> = files.iter().filter(|file| !root().join(file).is_file()).collect();
    assert!(missing.is_empty(), "not there: {missing:?}");
}
