//! One function per kind of input that the command itself decodes and that must return: the targets
//! in `fuzz/` and the smoke test call the same code.

use std::collections::BTreeMap;

use wattle_advise::audit::{self, AuditFacts};
use wattle_control::members::MemberAddress;
use wattle_control::size::parse_size;
use wattle_control::units::Units;
use wattle_control::{Check, Code};
use wattle_drives::ModelDrive;
use wattle_engine::geometry::{Level, parse_layout};
use wattle_format::lvm::Id;
use wattle_format::md::{Uuid, Version};
use wattle_modelled::Rw;
use wattle_rt::fuse::mounts_in;
use wattle_server::exports::parse_uri;
use wattle_server::groups::amount;
use wattle_server::protocol::change::Extents;
use wattle_server::protocol::{Response, ServerRequest, decode, encode};
use wattle_server::serving::threads;
use wattle_server::{history, settings};

use crate::cli::{PartArg, Size, TimeArg, parse_seconds};
use crate::commands::audit::baseline::Known;
use crate::commands::audit::system::SystemRoot;
use crate::commands::explain::Any;
use crate::commands::lvm::columns::{CellKind, CellValue};
use crate::commands::lvm::fields;
use crate::commands::lvm::select::Select;
use crate::commands::simulate::sweep;
use crate::commands::{audit as audit_command, plan};

/// A line of the control socket, from either side.
pub fn fuzz_control(data: &[u8]) {
    if let Ok(request) = decode::<ServerRequest>(data) {
        assert_eq!(decode(&encode(&request)), Ok(request), "what is sent is what is heard");
    }
    if let Ok(response) = decode::<Response>(data) {
        assert_eq!(decode(&encode(&response)), Ok(response), "what is sent is what is heard");
    }
}

/// What the command keeps in files: the history of checks, findings that are known.
pub fn fuzz_state(data: &[u8]) {
    let (runs, _) = history::runs_in(data);
    assert!(runs.iter().all(|run| run.outcome != "running"), "nothing that a file tells of runs");
    let _ = Known::parse(&String::from_utf8_lossy(data));
}

/// What a system says of itself, and what is found in that. A line `> PATH` starts a file.
pub fn fuzz_system(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let mut path = String::new();
    for line in text.lines() {
        match line.strip_prefix("> ") {
            Some(name) => name.clone_into(&mut path),
            None => files.entry(path.clone()).or_default().extend([line, "\n"]),
        }
    }
    let mut facts = AuditFacts::default();
    SystemRoot::of(files).describe(&mut facts);
    let _ = audit::audit(&facts);
    let _ = mounts_in(data);
    let _ = threads::parse(&text);
}

/// The small languages of the command line: sizes, drives, layouts, selections and the like.
pub fn fuzz_words(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    let _ = (parse_size(text), text.parse::<Size>(), text.parse::<TimeArg>(), parse_seconds(text));
    let _ = (text.parse::<PartArg>(), text.parse::<Units>(), text.parse::<Rw>(), text.parse::<Check>());
    let _ = (text.parse::<MemberAddress>(), text.parse::<ModelDrive>(), parse_uri(text));
    let _ = (text.parse::<Version>(), Any::parse(text), Code::parse(text));
    if let Ok(uuid) = text.parse::<Uuid>() {
        assert_eq!(uuid.to_string().parse(), Ok(uuid), "what is shown reads back");
    }
    if let Ok(id) = text.parse::<Id>() {
        assert_eq!(id.to_string().parse(), Ok(id), "what is shown reads back");
    }
    if let Ok(level) = text.parse::<Level>() {
        assert_eq!(level.to_string().parse(), Ok(level), "what is shown reads back");
    }
    for level in [Level::Raid0, Level::Raid5, Level::Raid6, Level::Raid10] {
        let _ = parse_layout(level, 4, text);
    }
    let pairs: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
    let _ = settings::parse_all(&pairs);
    let _ = (sweep::parse(text), plan::wish::parse_line(text), audit_command::workload(text));
    for (size, extents) in [(Some(text), None), (None, Some(text))] {
        let asked = Extents { size: size.map(str::to_owned), extents: extents.map(str::to_owned) };
        let group =
            amount::GroupExtents { extent_sectors: 8192, all: 300, free: 101, physical: 77, volume: Some(8) };
        let _ = amount::parse(&asked, group);
    }
    for list in [fields::PV, fields::VG, fields::LV] {
        let cell = |kind| match kind {
            CellKind::Text => CellValue::Text("[home]".to_owned()),
            CellKind::Words => CellValue::Words(vec!["a".to_owned(), "sda(0)".to_owned()]),
            CellKind::Bytes => CellValue::Bytes(u64::MAX),
            CellKind::Count => CellValue::Count(4),
        };
        let row: Vec<_> = list.columns.iter().map(|column| cell(column.kind)).collect();
        let _ = Select::parse(&list, text).map(|select| select.holds(&row));
    }
}

/// Takes any bytes and returns, or the decoder has a bug.
pub type FuzzTarget = fn(&[u8]);

/// All of them, by the name of their file in `fuzz/`.
pub const ALL: [(&str, FuzzTarget); 4] =
    [("control", fuzz_control), ("state", fuzz_state), ("system", fuzz_system), ("words", fuzz_words)];
