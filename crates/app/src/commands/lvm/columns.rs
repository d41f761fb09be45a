//! Lists with columns that can be chosen and rows that can be selected, as LVM2's reports have them.

use std::cmp::Ordering;

use serde_json::{Map, Value as Json, json};
use wattle_control::size::parse_size;
use wattle_control::stack::{Purpose, Stack};
use wattle_control::{Code, Problem};

use crate::cli::ListArgs;
use crate::members;
use crate::output::text::{printable, table};
use crate::output::{self, SCHEMA_VERSION, Screen};
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
    /// It is shown unless others are asked for.
    pub usual: bool,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A name or attributes.
    Text(String),
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
    args: &ListArgs,
    screen: Screen,
    list: &List,
    rows: impl Fn(&Stack) -> Vec<Vec<Value>>,
) -> Result<(), Problem> {
    let chosen = choose(list, &args.options, args.json.json)?;
    let conditions = conditions(list, args.select.as_deref())?;
    let keys = keys(list, args.sort.as_deref().unwrap_or(list.sorted_by))?;
    let scan = members::look(&args.members, &args.force)?;
    let (mut rows, notes) = members::run(&args.engine, 2, async |core| {
        let stack = volumes::open(&core, scan, &args.force, Purpose::Look).await?;
        let found = (rows(&stack), notes(&stack));
        // Nothing was written, so there is nothing to record and nothing that could fail.
        let _ = stack.close(&core).await;
        Ok(found)
    })?;
    notes.iter().for_each(|note| output::note(&printable(note)));
    rows.retain(|row| conditions.iter().all(|condition| condition.holds(row)));
    rows.sort_by(|one, other| compare(&keys, one, other));
    let rows = rows.iter();
    if args.json.json {
        let object = |row: &Vec<Value>| {
            let cells =
                chosen.iter().map(|&column| (list.columns[column].field.to_owned(), row[column].json()));
            Json::Object(cells.collect::<Map<_, _>>())
        };
        let rows: Vec<_> = rows.map(object).collect();
        return output::print_json(&json!({ "schema_version": SCHEMA_VERSION, (list.rows): rows }));
    }
    let headings = chosen.iter().map(|&column| list.columns[column].heading.to_owned()).collect();
    let mut lines: Vec<Vec<String>> = if args.noheadings { Vec::new() } else { vec![headings] };
    let show = |value: &Value| value.show(screen, !args.nosuffix);
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

impl Value {
    fn show(&self, screen: Screen, with_suffix: bool) -> String {
        match self {
            Self::Text(text) => printable(text),
            Self::Bytes(bytes) => screen.units.show_in_list(*bytes, with_suffix),
            Self::Count(count) => count.to_string(),
        }
    }

    fn json(&self) -> Json {
        match self {
            Self::Text(text) => json!(text),
            Self::Bytes(number) | Self::Count(number) => json!(number),
        }
    }
}

fn find(list: &List, name: &str) -> Result<usize, Problem> {
    let same = |column: &Column| column.field == name || column.field.strip_prefix(list.prefix) == Some(name);
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

/// What rows are sorted by: columns, and whether backwards.
fn keys(list: &List, asked: &str) -> Result<Vec<(usize, bool)>, Problem> {
    let parts = asked.split(',').map(str::trim).filter(|part| !part.is_empty());
    let key = |part: &str| {
        let backwards = part.starts_with('-');
        Ok((find(list, part.trim_start_matches(['+', '-']))?, backwards))
    };
    parts.map(key).collect()
}

fn compare(keys: &[(usize, bool)], one: &[Value], other: &[Value]) -> Ordering {
    let each = keys.iter().map(|&(column, backwards)| {
        let order = match (&one[column], &other[column]) {
            // A name that is hidden is sorted as if it were not.
            (Value::Text(one), Value::Text(other)) => one
                .trim_start_matches('[')
                .trim_end_matches(']')
                .cmp(other.trim_start_matches('[').trim_end_matches(']')),
            (Value::Bytes(one) | Value::Count(one), Value::Bytes(other) | Value::Count(other)) => {
                one.cmp(other)
            }
            _ => Ordering::Equal,
        };
        if backwards { order.reverse() } else { order }
    });
    each.fold(Ordering::Equal, Ordering::then)
}

/// A comparison that a row has to pass.
struct Condition {
    column: usize,
    operator: &'static str,
    value: String,
}

/// The longer ones first.
const OPERATORS: [&str; 6] = ["!=", "<=", ">=", "=", "<", ">"];

fn conditions(list: &List, select: Option<&str>) -> Result<Vec<Condition>, Problem> {
    let parts = select.into_iter().flat_map(|select| select.split("&&"));
    parts.map(|part| condition(list, part.trim())).collect()
}

fn condition(list: &List, text: &str) -> Result<Condition, Problem> {
    let places = OPERATORS.iter().filter_map(|operator| Some((text.find(operator)?, *operator)));
    // At one place the longer one.
    let first = places.min_by_key(|(at, operator)| (*at, std::cmp::Reverse(operator.len())));
    let Some((at, operator)) = first else {
        return Err(Problem::new(
            Code::Usage,
            format!("`{text}` is no comparison"),
            "a comparison has one of =, !=, <, >, <= and >=",
            "write it like vg_name=data or 'lv_size>10G'",
        ));
    };
    let column = find(list, text[..at].trim())?;
    Ok(Condition {
        column,
        operator,
        value: text[at + operator.len()..].trim().trim_matches(['"', '\'']).to_owned(),
    })
}

impl Condition {
    fn holds(&self, row: &[Value]) -> bool {
        let order = match &row[self.column] {
            Value::Text(text) => Some(text.as_str().cmp(self.value.as_str())),
            Value::Bytes(bytes) => parse_size(&self.value).ok().map(|value| bytes.cmp(&value)),
            Value::Count(count) => self.value.parse().ok().map(|value| count.cmp(&value)),
        };
        let Some(order) = order else { return self.operator == "!=" };
        match self.operator {
            "=" => order == Ordering::Equal,
            "!=" => order != Ordering::Equal,
            "<" => order == Ordering::Less,
            ">" => order == Ordering::Greater,
            "<=" => order != Ordering::Greater,
            _ => order != Ordering::Less,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: List = List {
        rows: "things",
        prefix: "pv_",
        sorted_by: "pv_name",
        columns: &[
            Column { field: "pv_name", heading: "PV", usual: true },
            Column { field: "pv_size", heading: "PSize", usual: true },
            Column { field: "pv_count", heading: "#", usual: false },
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
        assert_eq!(choose(&["pv_colour"]).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn rows_are_sorted_by_several_columns() {
        let row = |name: &str, size| vec![Value::Text(name.to_owned()), Value::Bytes(size), Value::Count(1)];
        let sorted = |by: &str| {
            let mut rows = [row("b", 1), row("[c]", 2), row("a", 1)];
            let keys = keys(&LIST, by).unwrap();
            rows.sort_by(|one, other| compare(&keys, one, other));
            let name = |row: &Vec<Value>| row[0].json().as_str().unwrap().to_owned();
            rows.iter().map(name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(sorted("pv_name"), "a b [c]");
        assert_eq!(sorted("-size,name"), "[c] a b");
        assert_eq!(sorted("+size,-name"), "b a [c]");
        assert_eq!(sorted(""), "b [c] a", "as they come");
        assert_eq!(keys(&LIST, "colour").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn rows_are_selected_by_comparisons() {
        let row = [Value::Text("a".to_owned()), Value::Bytes(10 << 20), Value::Count(7)];
        let holds = |select: &str| conditions(&LIST, Some(select)).unwrap().iter().all(|one| one.holds(&row));
        for yes in ["name=a", "size=10M", "size > 9M && count<=7", "pv_name!=\"b\"", "count>=7"] {
            assert!(holds(yes), "{yes}");
        }
        for no in ["name=b", "size<10M", "size>9M && count<7", "count=x", "name!=a"] {
            assert!(!holds(no), "{no}");
        }
        assert!(conditions(&LIST, Some("name")).is_err());
    }
}
