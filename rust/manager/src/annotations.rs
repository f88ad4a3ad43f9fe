//! Merging of a scheduler's updates into job annotations (RFC 27, Alloc Annotate).

use penstock_flux::alloc::Annotations;
use serde_json::{Map, Value};

/// The annotations of a scheduler in this process, as an update.
pub(crate) fn of(annotations: &Annotations<'_>) -> Map<String, Value> {
    match serde_json::to_value(annotations) {
        Ok(Value::Object(update)) => update,
        // A structure of strings and numbers is an object.
        _ => Map::new(),
    }
}

/// Applies `update` to `current` by the recursive rules of RFC 27: dictionaries merge,
/// `null` removes a key, anything else replaces or adds it.
pub fn merge(current: &mut Map<String, Value>, update: &Map<String, Value>) {
    for (key, new) in update {
        match (current.get_mut(key), new) {
            (_, Value::Null) => {
                current.shift_remove(key);
            }
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, Value::Object(new)) => {
                // Nulls in a new dictionary remove nothing, and are not stored.
                let mut added = Map::new();
                merge(&mut added, new);
                current.insert(key.clone(), Value::Object(added));
            }
            (_, new) => {
                current.insert(key.clone(), new.clone());
            }
        }
    }
}

/// Whether an update has a `null`: if not, it is what merging it into nothing yields.
pub(crate) fn has_null(update: &Map<String, Value>) -> bool {
    update.values().any(|value| match value {
        Value::Null => true,
        Value::Object(inner) => has_null(inner),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::{has_null, merge};
    use serde_json::{Value, json};

    fn merged(current: Value, update: Value) -> Value {
        let (Value::Object(mut current), Value::Object(update)) = (current, update) else {
            unreachable!("the cases are objects")
        };
        merge(&mut current, &update);
        Value::Object(current)
    }

    #[test]
    fn dictionaries_merge_null_removes_and_others_replace() {
        let cases = [
            (json!({}), json!({"a": 1}), json!({"a": 1})),
            (json!({"a": 1}), json!({"a": null}), json!({})),
            (json!({"a": 1}), json!({"b": null}), json!({"a": 1})),
            (json!({"a": 1}), json!({"a": [2]}), json!({"a": [2]})),
            (
                json!({"sched": {"t_estimate": 1.5, "reason_pending": "x"}}),
                json!({"sched": {"t_estimate": null, "resource_summary": "rank0"}}),
                json!({"sched": {"reason_pending": "x", "resource_summary": "rank0"}}),
            ),
            (
                json!({"a": 1}),
                json!({"a": {"b": 2}}),
                json!({"a": {"b": 2}}),
            ),
            (json!({"a": {"b": 2}}), json!({"a": 1}), json!({"a": 1})),
            (
                json!({}),
                json!({"sched": {"x": null}}),
                json!({"sched": {}}),
            ),
            (
                json!({"a": {"b": 2}}),
                json!({"a": {"b": null}}),
                json!({"a": {}}),
            ),
        ];
        for (current, update, expected) in cases {
            let shown = format!("{current} <- {update}");
            if let Value::Object(update) = &update
                && !has_null(update)
            {
                let alone = Value::Object(update.clone());
                assert_eq!(merged(json!({}), alone.clone()), alone, "{shown}");
            }
            assert_eq!(merged(current, update), expected, "{shown}");
        }
    }
}
