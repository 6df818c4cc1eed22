//! Property tests: any text gives a result or an error, never a panic.

use std::time::Duration;

use longshore_ai::{Echo, Provider, ResponseSchema, Scripted, SimulatorScript};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::questions::{question, question_by};

/// Runs an instant future to its end.
fn run<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

/// Fragments of scripts, in any order, some of them invalid.
fn scripts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("[[answer]]\n".to_owned()),
        Just("reply = '{{ prompt }}'\n".to_owned()),
        Just("hang = true\n".to_owned()),
        "(reply|when) = '''\n?[{}%|n()a\\-z \n+*]{0,12}'''\n",
        "match = '[()?<>a\\[\\]|*+]{0,10}'\n",
        "(delay|retry_after) = '[0-9a-z. -]{0,6}'\n",
        "error = '[A-Z_]{0,8}'\n",
        "[a-z_]{1,8} = ([0-9]{1,20}|true|'é*')\n",
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

/// Some JSON, valid as a schema or not.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(true)),
        Just(json!("#")),
        Just(json!("#/properties/a")),
        (-3..30i64).prop_map(Value::from),
        "(string|object|integer|number|array|null|[a-z]{0,3})".prop_map(Value::from),
    ];
    let key = prop_oneof![
        "(type|properties|items|required|enum|const|\\$ref|anyOf|allOf|a)",
        "(minimum|maximum|exclusiveMinimum|multipleOf|minLength|maxLength|minItems|prefixItems)",
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_is_a_script_or_a_mistake_in_one_of_its_lines(
        text in prop_oneof!["\\PC*", "(?s).{0,80}", scripts()],
        prompt in "(?s).{0,20}",
    ) {
        match SimulatorScript::parse(&text) {
            Ok(script) => {
                let provider = Scripted::new(script, "m", Duration::ZERO);
                let _ = run(provider.ask(&question(&prompt)));
            }
            Err(error) => {
                prop_assert!((1..=text.lines().count().max(1) + 1).contains(&error.line));
                prop_assert!(!error.message.is_empty());
            }
        }
    }

    #[test]
    fn any_text_is_an_answer_or_is_told_what_is_wrong_in_few_words(
        text in prop_oneof![
            "(?s).*",
            "```[a-z]{0,5}\n?[\\[\\]{}\",:a0é\n ]{0,200}(```)?",
            "\\{\"a\": \"(?s).{0,900}\"\\}",
        ],
    ) {
        let schema = json!({ "properties": { "a": { "type": "integer" } }, "required": ["a"] });
        if let Err(actual) = ResponseSchema::new(&schema).unwrap().read(&text) {
            prop_assert!(!actual.is_empty() && actual.len() < 520, "{}", actual);
        }
    }

    #[test]
    fn any_json_is_a_schema_or_refused_and_echo_answers_by_it(schema in schemas()) {
        let answer = run(Echo::default().ask(&question_by(&schema, "hello"))).unwrap();
        match ResponseSchema::new(&schema) {
            Ok(schema) => drop(schema.read(&answer.text)),
            Err(error) => prop_assert!(error.to_string().contains(": "), "{}", error),
        }
    }
}
