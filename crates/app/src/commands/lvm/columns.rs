//! Lists with columns that can be chosen and rows that can be selected, as LVM2's reports have
//! them.

use std::cmp::Ordering;
use wattle_control::members::MemberAccess;

use serde_json::{Map, Value as Json, json};
use wattle_control::stack::{Purpose, Stack};
use wattle_control::{Code, Problem};
use wattle_server::protocol::SCHEMA_VERSION;

use super::select::Select;
use crate::cli::ListArgs;
use crate::members;
use crate::output::text::{printable, table};
use crate::output::{self, Screen};
use crate::volumes;

/// A list that can be asked for.
pub struct List {
    /// What its rows are called in JSON.
    pub rows: &'static str,
    /// What LVM2's names of its fields start with; it may be left out.
    pub prefix: &'static str,
    /// Every column.
    pub columns: &'static [Column],
    /// What rows are sorted by unless it is said.
    pub sorted_by: &'static str,
}

/// A column.
pub struct Column {
    /// LVM2's name of the field.
    pub field: &'static str,
    /// What is above it.
    pub heading: &'static str,
    /// What its cells are.
    pub kind: CellKind,
    /// It is shown unless others are asked for.
    pub usual: bool,
}

/// What the cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind {
    /// [`CellValue::Text`].
    Text,
    /// [`CellValue::Words`].
    Words,
    /// [`CellValue::Bytes`].
    Bytes,
    /// [`CellValue::Count`].
    Count,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellValue {
    /// A name or attributes.
    Text(String),
    /// Tags, or devices: each of them can be selected by.
    Words(Vec<String>),
    /// A size.
    Bytes(u64),
    /// A number of things.
    Count(u64),
}

/// Shows a list; its rows have the cells of every column.
///
/// # Errors
/// A member cannot be opened or read, or there is no such field.
pub fn list(
    access: &MemberAccess,
    args: &ListArgs,
    screen: Screen,
    list: &List,
    rows: impl Fn(&Stack) -> Vec<Vec<CellValue>>,
) -> Result<(), Problem> {
    let chosen = choose(list, &args.options, args.json.json)?;
    let select = Select::parse(list, args.select.as_deref().unwrap_or_default())?;
    let keys = keys(list, args.sort.as_deref().unwrap_or(list.sorted_by))?;
    let scan = members::look(access, &args.members, &args.force)?;
    let (mut rows, notes) = members::run(&args.engine, 2, async |core| {
        let stack = volumes::open(&core, scan, access, &args.force, Purpose::Look).await?;
        let found = (rows(&stack), notes(&stack));
        // Nothing was written, so there is nothing to record and nothing that could fail.
        let _ = stack.close(&core).await;
        Ok(found)
    })?;
    notes.iter().for_each(|note| output::note(&printable(note)));
    let fits = |(cell, column): (&CellValue, &Column)| cell.kind() == column.kind;
    debug_assert!(
        rows.iter().all(|row| row.iter().zip(list.columns).all(fits)),
        "cells are not what their columns say"
    );
    rows.retain(|row| select.holds(row));
    rows.sort_by(|one, other| compare(&keys, one, other));
    let rows = rows.iter();
    if args.json.json {
        let object = |row: &Vec<CellValue>| {
            let cells =
                chosen.iter().map(|&column| (list.columns[column].field.to_owned(), row[column].json()));
            Json::Object(cells.collect::<Map<_, _>>())
        };
        let rows: Vec<_> = rows.map(object).collect();
        return output::print_json(&json!({ "schema_version": SCHEMA_VERSION, (list.rows): rows }));
    }
    let headings = chosen.iter().map(|&column| list.columns[column].heading.to_owned()).collect();
    let mut lines: Vec<Vec<String>> = if args.noheadings { Vec::new() } else { vec![headings] };
    let show = |value: &CellValue| value.show(screen, !args.nosuffix);
    lines.extend(rows.map(|row| chosen.iter().map(|&column| show(&row[column])).collect()));
    output::print(&table("  ", &lines))
}

/// What is wrong with groups, arrays and members.
fn notes(stack: &Stack) -> Vec<String> {
    let mut notes = Vec::new();
    let brief = |problem: &Problem| format!("{} ({})", problem.what, problem.code);
    for group in &stack.groups {
        notes.extend(group.problem.iter().map(brief));
        notes.extend(group.notes.iter().map(|note| format!("{}: {note}", group.vg.name)));
    }
    let of_array = |name: &str| stack.scan.arrays.iter().any(|array| array.assembly.name() == name);
    let volumes = stack.volumes().into_iter().filter(|volume| of_array(&volume.name));
    notes.extend(volumes.filter_map(|volume| volume.member.err().map(|problem| brief(&problem))));
    notes.extend(stack.scan.members.iter().filter_map(|seen| seen.problem.as_ref()).map(brief));
    notes
}

impl CellValue {
    fn kind(&self) -> CellKind {
        match self {
            Self::Text(_) => CellKind::Text,
            Self::Words(_) => CellKind::Words,
            Self::Bytes(_) => CellKind::Bytes,
            Self::Count(_) => CellKind::Count,
        }
    }

    fn show(&self, screen: Screen, with_suffix: bool) -> String {
        match self {
            Self::Text(text) => printable(text),
            Self::Words(words) => printable(&words.join(",")),
            Self::Bytes(bytes) => screen.units.show_in_list(*bytes, with_suffix),
            Self::Count(count) => count.to_string(),
        }
    }

    fn json(&self) -> Json {
        match self {
            Self::Text(text) => json!(text),
            Self::Words(words) => json!(words.join(",")),
            Self::Bytes(number) | Self::Count(number) => json!(number),
        }
    }
}

/// The column of this name. As in LVM2's reports, its prefix may be left out, and neither case nor
/// underscores matter.
///
/// # Errors
/// There is none.
pub fn find(list: &List, name: &str) -> Result<usize, Problem> {
    let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
    let same = |column: &Column| {
        let field = [Some(column.field), column.field.strip_prefix(list.prefix)];
        field.into_iter().flatten().any(|field| plain(field) == plain(name))
    };
    list.columns.iter().position(same).ok_or_else(|| {
        let all: Vec<_> = list.columns.iter().map(|column| column.field).collect();
        Problem::new(
            Code::Usage,
            format!("there is no field `{name}`"),
            format!("the fields are {}", all.join(", ")),
            "choose among them",
        )
    })
}

/// The columns asked for.
fn choose(list: &List, asked: &[String], json: bool) -> Result<Vec<usize>, Problem> {
    let usual = |column: &usize| list.columns[*column].usual || json;
    let mut chosen: Vec<_> = (0..list.columns.len()).filter(usual).collect();
    for asked in asked {
        let (more, fields) = asked.strip_prefix('+').map_or((false, asked.as_str()), |fields| (true, fields));
        if !more {
            chosen.clear();
        }
        for field in fields.split(',').filter(|field| !field.is_empty()) {
            let column = find(list, field)?;
            if !chosen.contains(&column) {
                chosen.push(column);
            }
        }
    }
    Ok(chosen)
}

/// A name without the brackets of one that operators do not see: it is sorted and selected as if it
/// had none.
pub fn bare(name: &str) -> &str {
    name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name)
}

/// What rows are sorted by: columns, and whether backwards.
fn keys(list: &List, asked: &str) -> Result<Vec<(usize, bool)>, Problem> {
    let parts = asked.split(',').map(str::trim).filter(|part| !part.is_empty());
    let key = |part: &str| {
        let backwards = part.starts_with('-');
        Ok((find(list, part.trim_start_matches(['+', '-']))?, backwards))
    };
    parts.map(key).collect()
}

fn compare(keys: &[(usize, bool)], one: &[CellValue], other: &[CellValue]) -> Ordering {
    let each = keys.iter().map(|&(column, backwards)| {
        let order = match (&one[column], &other[column]) {
            (CellValue::Text(one), CellValue::Text(other)) => bare(one).cmp(bare(other)),
            (
                CellValue::Bytes(one) | CellValue::Count(one),
                CellValue::Bytes(other) | CellValue::Count(other),
            ) => one.cmp(other),
            (CellValue::Words(one), CellValue::Words(other)) => one.cmp(other),
            _ => Ordering::Equal,
        };
        if backwards { order.reverse() } else { order }
    });
    each.fold(Ordering::Equal, Ordering::then)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: List = List {
        rows: "things",
        prefix: "pv_",
        sorted_by: "pv_name",
        columns: &[
            Column { field: "pv_name", heading: "PV", kind: CellKind::Text, usual: true },
            Column { field: "pv_size", heading: "PSize", kind: CellKind::Bytes, usual: true },
            Column { field: "pv_count", heading: "#", kind: CellKind::Count, usual: false },
        ],
    };

    #[test]
    fn columns_are_added_or_replaced() {
        let choose = |asked: &[&str]| {
            choose(&LIST, &asked.iter().map(|&text| text.to_owned()).collect::<Vec<_>>(), false)
        };
        assert_eq!(choose(&[]).unwrap(), [0, 1]);
        assert_eq!(choose(&["+count"]).unwrap(), [0, 1, 2]);
        assert_eq!(choose(&["pv_count,name"]).unwrap(), [2, 0]);
        assert_eq!(choose(&["PVName,pvsize"]).unwrap(), [0, 1]);
        assert_eq!(choose(&["pv_colour"]).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn rows_are_sorted_by_several_columns() {
        let row = |name: &str, size| {
            vec![CellValue::Text(name.to_owned()), CellValue::Bytes(size), CellValue::Count(1)]
        };
        let sorted = |by: &str| {
            let mut rows = [row("b", 1), row("[c]", 2), row("a", 1)];
            let keys = keys(&LIST, by).unwrap();
            rows.sort_by(|one, other| compare(&keys, one, other));
            let name = |row: &Vec<CellValue>| row[0].json().as_str().unwrap().to_owned();
            rows.iter().map(name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(sorted("pv_name"), "a b [c]");
        assert_eq!(sorted("-size,name"), "[c] a b");
        assert_eq!(sorted("+size,-name"), "b a [c]");
        assert_eq!(sorted(""), "b [c] a", "as they come");
        assert_eq!(keys(&LIST, "colour").unwrap_err().exit_code(), 2);
    }
}
