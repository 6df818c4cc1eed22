//! Prompts from templates.

use std::collections::BTreeMap;

use longshore::SqlValue;
use longshore_batch::prompt::PromptTemplate;
use longshore_batch::rows::Row;

fn row(columns: &[(&str, SqlValue)]) -> Row {
    Row { columns: columns.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect() }
}

fn text(value: &str) -> SqlValue {
    SqlValue::Text(value.to_owned())
}

fn render(template: &str) -> Result<String, String> {
    let order = row(&[
        ("vendor", text("Acme <& Co>")),
        ("qty", SqlValue::Int(12)),
        ("price", SqlValue::Real(2.5)),
        ("note", SqlValue::Null),
        ("unit price", SqlValue::Int(3)),
        ("paid", SqlValue::Bool(true)),
        ("hash", SqlValue::Blob(vec![0xab, 0x01])),
    ]);
    let history = vec![row(&[("qty", SqlValue::Int(1))]), row(&[("qty", SqlValue::Int(2))])];
    let lists = BTreeMap::from([("history".to_owned(), history), ("empty".to_owned(), vec![])]);
    PromptTemplate::compile(template, "prompt.md").map_err(|error| error.to_string())?.render(&order, &lists)
}

#[test]
fn columns_lists_and_the_whole_row_are_there() {
    for (template, prompt) in [
        ("{{ vendor }}: {{ qty }} at {{ price }}", "Acme <& Co>: 12 at 2.5"),
        ("{{ qty * price }} {{ paid }} {{ note is none }} {{ note or '-' }}", "30.0 True True -"),
        ("{{ row.qty }} {{ row['unit price'] }} {{ row|length }}", "12 3 7"),
        ("{{ history|length }} {{ history[1].qty }} {{ empty|length }}", "2 2 0"),
        ("{{ hash.base16 }} {{ hash.size }} {{ hash }}", "ab01 2 (2 bytes)"),
        ("Note: {{ note }}.", "Note: NULL."),
        ("Before:\n{% for past in history %}\n- {{ past.qty }}\n{% endfor %}\nSo?", "Before:\n- 1\n- 2\nSo?"),
    ] {
        assert_eq!(render(template).as_deref(), Ok(prompt), "{template}");
    }
}

#[test]
fn a_name_that_is_not_there_is_an_error_that_lists_those_that_are() {
    let error = render("Hello\n{{ vendr }}").unwrap_err();
    assert!(
        error.starts_with("prompt.md, line 2: `vendr` is undefined; the row has: vendor, qty"),
        "{error}"
    );
    for wrong in ["{{ row.vendr }}", "{{ vendr + 1 }}", "{% if vendr %}x{% endif %}", "{{ history[9].qty }}"]
    {
        assert!(render(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_template_that_does_not_compile_names_its_line() {
    let error = PromptTemplate::compile("a\nb {% for %}", "prompt.md").unwrap_err();
    assert_eq!(error.line, Some(2));
    assert!(error.message.contains("syntax error"), "{error}");
}

#[test]
fn a_template_has_no_files_and_bounded_work() {
    assert!(render("{% include '/etc/passwd' %}").unwrap_err().contains("template not found"));
    let endless = "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}x";
    assert!(render(endless).unwrap_err().contains("too many steps"));
}

#[test]
fn an_empty_prompt_is_not_asked() {
    assert_eq!(render("{% if qty > 100 %}x{% endif %}\n "), Err("prompt.md: the prompt is empty".to_owned()));
}

#[test]
fn a_value_cannot_become_a_template() {
    let hostile = row(&[("vendor", text("{{ qty }}{% for x in y %}"))]);
    let prompt = PromptTemplate::compile("{{ vendor }}", "p").unwrap();
    assert_eq!(prompt.render(&hostile, &BTreeMap::new()).as_deref(), Ok("{{ qty }}{% for x in y %}"));
}

#[test]
fn the_names_that_a_template_asks_for_are_known() {
    let prompt = PromptTemplate::compile(
        "{% for h in history %}{{ h.qty }}{{ vendor }}{{ row.x }}{{ range(3) }}{% endfor %}",
        "p",
    );
    assert_eq!(prompt.unwrap().names(), ["history", "row.x", "vendor"]);
}

proptest::proptest! {
    #[test]
    fn any_template_is_rendered_or_refused(template in r"(\{\{|\}\}|\{%|%\}|qty|row\.|\|| |for|in|if|end|\PC){0,20}") {
        let _ = render(&template);
    }
}
