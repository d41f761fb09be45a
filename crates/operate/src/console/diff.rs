//! What changed between two JSON values, for viewers that have the first.
//!
//! A change is `{"v": VALUE}`, which replaces; `{"o": {KEY: CHANGE}}` of an object with the same
//! keys; or `{"a": {INDEX: CHANGE}}` of a list of the same length.

use serde_json::{Map, Value, json};

/// The change from `before` to `now`; `None` if there is none.
#[must_use]
pub fn change(before: &Value, now: &Value) -> Option<Value> {
    match (before, now) {
        (before, now) if before == now => None,
        (Value::Object(before), Value::Object(now)) if before.keys().eq(now.keys()) => {
            let changes = now.iter().filter_map(|(key, now)| Some((key.clone(), change(&before[key], now)?)));
            Some(json!({ "o": changes.collect::<Map<_, _>>() }))
        }
        (Value::Array(before), Value::Array(now)) if before.len() == now.len() => {
            let pairs = before.iter().zip(now).enumerate();
            let changes =
                pairs.filter_map(|(ix, (before, now))| Some((ix.to_string(), change(before, now)?)));
            Some(json!({ "a": changes.collect::<Map<_, _>>() }))
        }
        (_, now) => Some(json!({ "v": now })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the page does it.
    fn applied(value: &Value, change: &Value) -> Value {
        if let Some(value) = change.get("v") {
            return value.clone();
        }
        let mut value = value.clone();
        for (key, change) in change.get("o").and_then(Value::as_object).into_iter().flatten() {
            value[key] = applied(&value[key], change);
        }
        for (ix, change) in change.get("a").and_then(Value::as_object).into_iter().flatten() {
            let ix: usize = ix.parse().unwrap();
            value[ix] = applied(&value[ix], change);
        }
        value
    }

    #[test]
    fn a_change_makes_the_second_of_the_first() {
        let values = [
            json!({"a": [1, {"b": 2, "c": [3]}], "d": null}),
            json!({"a": [1, {"b": 5, "c": [3]}], "d": null}),
            json!({"a": [1, {"b": 5, "c": [3, 4]}], "d": "v"}),
            json!({"a": [], "d": {"v": 1}}),
            json!({"a": [], "d": {"v": 2}}),
            json!({"a": [], "d": {"o": 2}, "e": 1}),
            json!(7),
        ];
        for before in &values {
            for now in &values {
                match change(before, now) {
                    None => assert_eq!(before, now),
                    Some(change) => assert_eq!(&applied(before, &change), now),
                }
            }
        }
    }

    #[test]
    fn only_what_changed_is_told() {
        let (before, now) =
            (json!({"a": [1, {"b": 2, "c": "long"}]}), json!({"a": [1, {"b": 3, "c": "long"}]}));
        assert_eq!(change(&before, &now), Some(json!({"o": {"a": {"a": {"1": {"o": {"b": {"v": 3}}}}}}})));
    }
}
