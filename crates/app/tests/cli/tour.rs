//! docs/tour.md: every command in it says what is written there.

use std::fs;

use crate::docs::missing;
use crate::harness::{Room, said, wattle};

/// Commands and what they say, from the indented blocks.
fn commands(text: &str) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let code = line.strip_prefix("    ");
        if let Some(command) = code.and_then(|code| code.strip_prefix("$ wattle ")) {
            all.push((command.to_owned(), Vec::new()));
            inside = true;
        } else if code.is_none() && !line.is_empty() {
            inside = false;
        } else if let Some((_, lines)) = all.last_mut().filter(|_| inside) {
            lines.push(code.unwrap_or_default().to_owned());
        }
    }
    for (_, lines) in &mut all {
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
    }
    all
}

#[test]
fn every_command_of_the_tour_says_what_is_written_there() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let text = fs::read_to_string(docs.join("tour.md")).unwrap();
    let commands = commands(&text);
    assert!(commands.len() >= 10, "{} commands", commands.len());
    let room = Room::new();
    let mut wrong = Vec::new();
    for (command, expected) in &commands {
        let output = wattle().args(command.split_whitespace()).current_dir(room.dir.path()).output().unwrap();
        let said = said(output).ok();
        let found: Vec<&str> = said.text().lines().collect();
        if let Some(line) = missing(expected, &found) {
            wrong.push(format!("$ wattle {command}\nnot said: {line}\n{}", said.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let drawn = fs::read_to_string(room.path("stack.svg")).unwrap();
    assert!(
        drawn == fs::read_to_string(docs.join("stack.svg")).unwrap(),
        "docs/stack.svg is another picture"
    );
}
