//! Validates JSON against a JSON schema with the keywords that the schemas in `tests/schemas` use.

use serde_json::Value;

/// Fails unless the value matches the schema; also if the schema contains unknown keywords.
pub fn assert_valid(schema: &Value, value: &Value) {
    if let Err(what) = check(schema, schema, value, "$") {
        panic!("{what}");
    }
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let object = schema.as_object().ok_or_else(|| format!("{at}: no schema"))?;
    for (word, says) in object {
        let holds = match word.as_str() {
            "$schema" | "definitions" | "title" => true,
            "$ref" => {
                let name = says.as_str().and_then(|path| path.strip_prefix("#/definitions/"));
                let target = &root["definitions"][name.unwrap_or_default()];
                check(root, target, value, at)?;
                true
            }
            "type" => match says.as_str() {
                Some("object") => value.is_object(),
                Some("array") => value.is_array(),
                Some("string") => value.is_string(),
                Some("number") => value.is_number(),
                _ => return Err(format!("unknown type {says}")),
            },
            "const" => value == says,
            "enum" => items(says).contains(value),
            "required" => items(says).iter().all(|key| value.get(key.as_str().unwrap()).is_some()),
            "anyOf" => items(says).iter().any(|one| check(root, one, value, at).is_ok()),
            "properties" => {
                for (key, one) in says.as_object().into_iter().flatten() {
                    let child = value.get(key).map(|child| (child, format!("{at}.{key}")));
                    child.map_or(Ok(()), |(child, at)| check(root, one, child, &at))?;
                }
                true
            }
            "items" => {
                for (index, child) in items(value).iter().enumerate() {
                    check(root, says, child, &format!("{at}[{index}]"))?;
                }
                true
            }
            _ => return Err(format!("the schema says `{word}`, which is unknown here")),
        };
        if !holds {
            return Err(format!("{at}: not {word} {says}"));
        }
    }
    Ok(())
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn a_schema_says_what_is_wrong() {
    let schema = serde_json::json!({
        "$ref": "#/definitions/a",
        "definitions": {"a": {"type": "object", "required": ["x"],
            "properties": {"x": {"items": {"type": "number"}}}}},
    });
    let errs = |value| check(&schema, &schema, &value, "$").is_err();
    assert!(!errs(serde_json::json!({"x": [1, 2]})));
    assert!(errs(serde_json::json!({"x": [1, "2"]})));
    assert!(errs(serde_json::json!({"y": []})));
    assert!(check(&schema, &serde_json::json!({"pattern": "a"}), &schema, "$").is_err());
}
