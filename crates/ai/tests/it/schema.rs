//! Validation of answers by a schema, and invalid schemas.

use longshore_ai::ResponseSchema;
use serde_json::{Value, json};

fn verdict() -> ResponseSchema {
    ResponseSchema::new(&json!({
        "type": "object",
        "properties": {
            "verdict": { "enum": ["ok", "bad"] },
            "lines": { "type": "array", "items": { "type": "integer", "minimum": 1 } },
        },
        "required": ["verdict"],
        "additionalProperties": false,
    }))
    .unwrap()
}

fn refused(schema: &Value) -> String {
    ResponseSchema::new(schema).expect_err("no schema").to_string()
}

#[test]
fn json_is_read_with_or_without_a_fence() {
    let ok = json!({ "verdict": "ok" });
    for text in [
        r#"{"verdict": "ok"}"#,
        "\u{feff} \n {\"verdict\": \"ok\"}\n",
        "```json\n{\"verdict\": \"ok\"}\n```",
        "```JSON\r\n{\"verdict\": \"ok\"}\r\n```\n",
        "```\n{\"verdict\": \"ok\"}\n```",
        "```{\"verdict\": \"ok\"}```",
        "  ```json {\"verdict\": \"ok\"}",
    ] {
        assert_eq!(verdict().read(text), Ok(ok.clone()), "{text}");
    }
}

#[test]
fn a_fenced_word_is_not_taken_for_a_language() {
    let any = ResponseSchema::new(&json!({})).unwrap();
    assert_eq!(any.read("```true```"), Ok(json!(true)));
    assert_eq!(any.read("```\n12\n```"), Ok(json!(12)));
}

#[test]
fn fences_inside_a_text_stay() {
    let any = ResponseSchema::new(&json!({ "type": "string" })).unwrap();
    assert_eq!(any.read(r#""```x```""#), Ok(json!("```x```")));
}

#[test]
fn text_that_is_no_json_is_told_with_its_place() {
    let actual = verdict().read("I think that it is ok").unwrap_err();
    assert!(actual.starts_with("the answer is not JSON: expected value at line 1 column 1"), "{actual}");
    assert!(actual.contains("near `I think that it is ok`"), "{actual}");
    let long = format!("{{\n  \"why\": \"{}\" oops {}\n}}", "x".repeat(500), "y".repeat(500));
    let actual = verdict().read(&long).unwrap_err();
    assert!(actual.contains("at line 2 column 513") && actual.contains("oops"), "{actual}");
    assert!(actual.len() < 250, "{actual}");
    assert_eq!(verdict().read(" "), Err("the answer is empty, not JSON".into()));
}

#[test]
fn an_answer_cut_short_is_no_json() {
    let actual = verdict().read("```json\n{\"verdict\": ").unwrap_err();
    assert!(actual.contains("EOF while parsing"), "{actual}");
}

#[test]
fn mistakes_are_told_with_their_paths() {
    let actual = verdict().read(r#"{"verdict": "maybe", "lines": [1, 0, "x"]}"#).unwrap_err();
    for part in ["follow the schema", "at /verdict: ", "at /lines/1: ", "at /lines/2: "] {
        assert!(actual.contains(part), "{actual}");
    }
    let actual = verdict().read(r#"{"extra": 1}"#).unwrap_err();
    assert!(actual.contains("at the top: ") && actual.contains("extra"), "{actual}");
}

#[test]
fn many_and_long_mistakes_are_cut() {
    let many = json!({ "verdict": "ok", "lines": vec![0; 5000] }).to_string();
    let actual = verdict().read(&many).unwrap_err();
    assert!(actual.contains("/lines/2:") && !actual.contains("/lines/3:"), "{actual}");
    let long = json!({ "verdict": "é".repeat(5000), "lines": ["x".repeat(5000)] }).to_string();
    let actual = verdict().read(&long).unwrap_err();
    assert!(actual.contains("at /verdict: ") && actual.contains('…'), "{actual}");
    assert!(actual.len() <= 510, "{}", actual.len());
}

#[test]
fn properties_are_those_the_schema_names() {
    let names = |schema: Value| ResponseSchema::new(&schema).unwrap().properties();
    let some = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
    let mut of_verdict = verdict().properties().unwrap();
    of_verdict.sort();
    assert_eq!(of_verdict, ["lines", "verdict"]);
    assert_eq!(names(json!({ "properties": { "a": {} } })), some(&["a"]));
    assert_eq!(names(json!({ "additionalProperties": false })), some(&[]));
    assert_eq!(
        names(json!({ "$ref": "#/$defs/x", "$defs": { "x": { "properties": { "a": {} } } } })),
        some(&["a"])
    );
    assert_eq!(names(json!({ "type": "object" })), None);
    assert_eq!(names(json!(true)), None);
}

#[test]
fn a_mistake_in_a_schema_is_told_with_its_place() {
    let actual = refused(&json!({ "properties": { "a": { "type": "strin" } } }));
    assert!(actual.starts_with("at /properties/a/type: "), "{actual}");
    let actual = refused(&json!({ "properties": { "a": { "pattern": "(" } } }));
    assert!(actual.starts_with("at /properties/a/pattern: "), "{actual}");
    let actual = refused(&json!([1]));
    assert!(actual.starts_with("at the top: "), "{actual}");
}

#[test]
fn a_pattern_that_takes_much_time_or_memory_is_refused_with_its_place() {
    for pattern in ["^(a+)+(?=b)$", r"(a)\1", r"^\p{L}{300}$"] {
        let actual = refused(&json!({ "properties": { "a": { "pattern": pattern } } }));
        assert!(actual.starts_with("at /properties/a/pattern: "), "{actual}");
        assert!(actual.contains("look-around, back references and large repetitions"), "{actual}");
        let actual = refused(&json!({ "patternProperties": { pattern: {} } }));
        assert!(actual.starts_with("at /patternProperties"), "{actual}");
    }
    let dated = json!({ "pattern": r"^\d{4}-\d{2}-\d{2}$|^[\w.-]+@\w{2,40}$|^\p{Lu}\p{L}*$" });
    assert_eq!(ResponseSchema::new(&dated).unwrap().read("\"Ärger\""), Ok(json!("Ärger")));
}

#[test]
fn a_large_schema_is_refused() {
    let patterns = |count: usize| json!({ "anyOf": vec![json!({ "not": { "pattern": "^a$" } }); count] });
    assert!(ResponseSchema::new(&patterns(100)).is_ok());
    assert_eq!(refused(&patterns(101)), "it has 101 patterns; 100 are allowed");
    let by_name: serde_json::Map<_, _> = (0..101).map(|n| (format!("^{n}$"), json!({}))).collect();
    assert_eq!(refused(&json!({ "patternProperties": by_name })), "it has 101 patterns; 100 are allowed");
    assert_eq!(refused(&json!({ "const": "x".repeat(300_000) })), "it is longer than 256 KiB");
}

/// Definitions of which each refers `times` times to the one before it.
fn chain(length: usize, times: usize) -> Value {
    let mut definitions = json!({ "a0": { "type": "integer" } });
    for n in 1..=length {
        let before = json!({ "$ref": format!("#/$defs/a{}", n - 1) });
        definitions[format!("a{n}")] = json!({ "allOf": vec![before; times] });
    }
    json!({ "$ref": format!("#/$defs/a{length}"), "$defs": definitions })
}

#[test]
fn a_schema_that_expands_without_end_is_refused_before_it_takes_the_stack() {
    assert_eq!(ResponseSchema::new(&chain(15, 2)).unwrap().read("1"), Ok(json!(1)));
    for schema in [chain(1_000, 1), chain(3_000, 1), chain(40, 2), chain(25, 20)] {
        let actual = refused(&schema);
        assert!(actual.starts_with("its references expand to more than"), "{actual}");
    }
    let anchors: Vec<_> =
        (0..500).map(|n| json!({ "$anchor": format!("a{n}"), "$ref": format!("#a{}", n + 1) })).collect();
    let actual = refused(&json!({ "$defs": anchors }));
    assert!(actual.contains("references to anchors"), "{actual}");
    let actual = refused(&json!({ "$defs": { "x": { "$id": "https://x.example/", "$ref": "#/$defs/y" } } }));
    assert!(actual.contains("a subschema with `$id` is not supported"), "{actual}");
}

#[test]
fn other_documents_are_not_fetched() {
    let actual = refused(&json!({ "properties": { "a": { "$ref": "http://example.com/a.json" } } }));
    assert!(actual.starts_with("at /properties/a/$ref: `http://example.com/a.json` is another"), "{actual}");
    assert!(actual.contains("$defs"), "{actual}");
    for other in ["file:///a.json", "other.json", "http://json-schema.org/draft-07/schema#"] {
        let actual = refused(&json!({ "anyOf": [{}, { "$ref": other }] }));
        assert!(actual.starts_with(&format!("at /anyOf/1/$ref: `{other}` is another")), "{actual}");
    }
}

#[test]
fn a_reference_to_nothing_is_refused() {
    let actual = refused(&json!({ "prefixItems": [{}, { "$ref": "#/$defs/lost" }] }));
    assert_eq!(actual, "at /prefixItems/1/$ref: there is nothing at `#/$defs/lost` in the schema");
    let actual = refused(&json!({ "$ref": "#lost" }));
    assert_eq!(actual, "in a reference: Anchor 'lost' does not exist");
}

#[test]
fn a_schema_that_refers_to_itself_alone_ends() {
    for schema in [
        json!({ "$ref": "#" }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } }),
        json!({ "allOf": [{ "$ref": "#" }] }),
    ] {
        assert_eq!(ResponseSchema::new(&schema).unwrap().read("1"), Ok(json!(1)));
    }
}
