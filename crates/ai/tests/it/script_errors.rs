//! Every error in a script has its line, and a suggestion.

use longshore_ai::SimulatorScript;

fn mistake(script: &str) -> String {
    SimulatorScript::parse(script).expect_err("a mistake").to_string()
}

#[test]
fn an_unknown_key_is_refused_with_the_one_that_was_meant() {
    let actual = mistake("[[answer]]\nreply = 'x'\ndelai = '5ms'");
    assert_eq!(actual, "line 3: unknown key `delai`, did you mean `delay`?");
    assert_eq!(mistake("\n[[answers]]"), "line 2: unknown key `answers`, did you mean `answer`?");
    assert_eq!(mistake("zebra = 1"), "line 1: unknown key `zebra`");
}

#[test]
fn text_that_is_no_toml_is_refused() {
    assert!(mistake("[[answer]]\nreply = ").starts_with("line 2: "));
    let actual = mistake("[[answer]]\nreply = 5");
    assert!(actual.starts_with("line 2: invalid type"), "{actual}");
}

#[test]
fn a_script_without_answers_is_refused() {
    assert_eq!(mistake(""), "line 1: the script has no [[answer]]");
}

#[test]
fn an_answer_does_one_thing() {
    let wanted = "an answer has either `reply`, or `error`, or `hang = true`";
    for body in ["", "reply = 'a'\nerror = 'TIMEOUT'", "reply = 'a'\nhang = true", "hang = false"] {
        let actual = mistake(&format!("[[answer]]\nreply = 'a'\n\n[[answer]]\n{body}"));
        assert_eq!(actual, format!("line 4: {wanted}"), "{body}");
    }
}

#[test]
fn a_key_that_would_do_nothing_is_refused() {
    for (body, actual) in [
        ("reply = 'a'\nmessage = 'b'", "line 3: `message` goes with `error`"),
        ("reply = 'a'\nretry_after = '1s'", "line 3: `retry_after` goes with `error`"),
        ("error = 'TIMEOUT'\ntokens_out = 5", "line 3: `tokens_out` goes with `reply`"),
        ("hang = true\ndelay = '1s'", "line 3: `hang = true` has no `delay`: it never answers"),
    ] {
        assert_eq!(mistake(&format!("[[answer]]\n{body}")), actual);
    }
}

#[test]
fn a_bad_regex_is_refused() {
    let actual = mistake("[[answer]]\nreply = 'x'\nmatch = 'a('");
    assert_eq!(actual, "line 3: bad regex: unclosed group");
    let actual = mistake("[[answer]]\nmatch = '(?<n>x)'\nreply = 'x'");
    assert_eq!(actual, "line 2: a group cannot be called `n`: that name is taken");
}

#[test]
fn a_bad_expression_is_refused() {
    let actual = mistake("[[answer]]\nreply = 'x'\nwhen = 'n >'");
    assert!(actual.starts_with("line 3: syntax error: "), "{actual}");
    let actual = mistake("[[answer]]\nwhen = 'promt == 1'\nreply = 'x'");
    assert_eq!(actual, "line 2: unknown name `promt`, did you mean `prompt`?");
    let actual = mistake("[[answer]]\nwhen = 'n|integer > 1'\nreply = 'x'");
    assert_eq!(actual, "line 2: unknown filter: filter integer is unknown");
}

#[test]
fn a_bad_template_is_refused_with_the_line_inside_it() {
    let actual = mistake("[[answer]]\nreply = '''\nfirst\n{{ oops\n'''");
    assert!(actual.starts_with("line 4: syntax error: "), "{actual}");
    let actual = mistake("[[answer]]\nmatch = '(?<quantity>.)'\nreply = '{{ quantiti }}'");
    assert_eq!(actual, "line 3: unknown name `quantiti`, did you mean `quantity`?");
    let actual = mistake("[[answer]]\nreply = '''first\n{{ prompt|shout }}'''");
    assert_eq!(actual, "line 3: unknown filter: filter shout is unknown");
    let actual = mistake("[[answer]]\nreply = '{% include \"other\" %}'");
    assert!(actual.starts_with("line 2: template not found"), "{actual}");
}

#[test]
fn a_name_of_another_answers_pattern_is_unknown() {
    let script = "[[answer]]\nmatch = '(?<a>.)'\nreply = 'x'\n[[answer]]\nreply = '{{ a }}'";
    assert_eq!(mistake(script), "line 5: unknown name `a`");
}

#[test]
fn names_made_in_a_template_and_builtin_functions_are_known() {
    let script =
        "[[answer]]\nreply = '{% set x = n %}{% for i in range(3) %}{{ i + x + loop.index }}{% endfor %}'";
    assert!(SimulatorScript::parse(script).is_ok());
}

#[test]
fn an_unknown_code_is_refused() {
    let actual = mistake("[[answer]]\nerror = 'RATE_LIMIT'");
    assert_eq!(actual, "line 2: unknown error code `RATE_LIMIT`, did you mean `RATE_LIMITED`?");
}

#[test]
fn a_bad_length_of_time_is_refused() {
    let wanted = "is not a length of time, as 500ms, 30s, 5m, 1h30m, 2d or 1:30:00";
    for bad in ["soon", "5", "-2s", "2s ago", ""] {
        let actual = mistake(&format!("[[answer]]\nreply = 'x'\ndelay = '{bad}'"));
        assert_eq!(actual, format!("line 3: `{bad}` {wanted}"));
        let actual = mistake(&format!("[[answer]]\nerror = 'TIMEOUT'\nretry_after = '{bad}'"));
        assert_eq!(actual, format!("line 3: `{bad}` {wanted}"));
    }
}

#[test]
fn nesting_without_end_is_refused_before_it_takes_the_stack() {
    for key in ["when", "reply"] {
        for (open, deeper) in [("{{ 1 ", "+1"), ("{{ n ", "|int"), ("{% if n %}", "{% elif n %}")] {
            let script = format!("[[answer]]\n{key} = '{open}{}'", deeper.repeat(100_000));
            let script = if key == "when" { script + "\nreply = 'x'" } else { script };
            let actual = mistake(&script);
            assert!(actual.starts_with("line 2: longer than 4000 bytes"), "{actual}");
        }
    }
    for (key, text) in [("match", "(".repeat(100_000)), ("when", "(".repeat(3_000))] {
        assert!(mistake(&format!("[[answer]]\nreply = 'x'\n{key} = '{text}'")).starts_with("line 3: "));
    }
}

#[test]
fn a_reply_that_is_only_text_may_be_long() {
    assert!(SimulatorScript::parse(&format!("[[answer]]\nreply = '{}'", "ahoy ".repeat(100_000))).is_ok());
}
