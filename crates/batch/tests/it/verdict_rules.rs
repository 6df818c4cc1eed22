//! Decisions of POST's rules.

use std::time::Duration;

use longshore_ai::{Answer, Cost};
use longshore_batch::definition::{PostVerdict, Rule};
use longshore_batch::pre_post::{ReplyError, RowReply};
use longshore_batch::verdict_rules::{RuleDecision, RuleInput, RuleSet};
use serde_json::{Value, json};

fn answered(json: Value) -> RowReply {
    let answer = Answer {
        text: json.to_string(),
        model: "m".into(),
        tokens_in: 1,
        tokens_out: 1,
        latency_ms: 1,
        simulated: true,
        ..Answer::default()
    };
    RowReply { answer: Some(answer), json: Some(json), error: None, cost: Cost::default() }
}

fn failed(code: &str, retryable: bool) -> RowReply {
    let error = ReplyError {
        code: code.into(),
        message: "it went wrong".into(),
        retryable,
        retry_after: retryable.then_some(Duration::from_secs(7)),
    };
    RowReply { answer: None, json: None, error: Some(error), cost: Cost::default() }
}

fn rule(when: &str, then: PostVerdict) -> Rule {
    Rule { when: when.into(), then, reason: None, after: None }
}

fn decide(rules: &[Rule], reply: &RowReply, attempt: u32, of: u32) -> Result<RuleDecision, String> {
    let rules = RuleSet::compile(rules).map_err(|error| error.to_string())?;
    rules.decide(&RuleInput {
        reply,
        attempt,
        is_last_attempt: attempt == of,
        answers: &std::collections::BTreeMap::new(),
    })
}

fn verdict(rules: &[Rule], reply: &RowReply) -> PostVerdict {
    decide(rules, reply, 1, 3).unwrap().verdict
}

#[test]
fn without_a_rule_the_reply_decides() {
    let plain = decide(&[], &answered(json!({})), 1, 3).unwrap();
    assert_eq!(plain, RuleDecision { verdict: PostVerdict::Success, reason: None, after: None, rule: None });
    let passing = decide(&[], &failed("RATE_LIMITED", true), 1, 3).unwrap();
    assert_eq!((passing.verdict, passing.after), (PostVerdict::Retry, Some(Duration::from_secs(7))));
    let lasting = decide(&[], &failed("BAD_ANSWER", false), 1, 3).unwrap();
    assert_eq!((lasting.verdict, lasting.after), (PostVerdict::Fail, None));
    assert_eq!(lasting.reason.as_deref(), Some("BAD_ANSWER: it went wrong"));
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = [
        rule("answer.confidence < 0.5", PostVerdict::Retry),
        rule("answer.verdict == 'bad'", PostVerdict::Fail),
        rule("true", PostVerdict::Success),
    ];
    for (reply, meant, index) in [
        (json!({"confidence": 0.1, "verdict": "bad"}), PostVerdict::Retry, 0),
        (json!({"confidence": 0.9, "verdict": "bad"}), PostVerdict::Fail, 1),
        (json!({"confidence": 0.9, "verdict": "good"}), PostVerdict::Success, 2),
    ] {
        let decision = decide(&rules, &answered(reply), 1, 3).unwrap();
        assert_eq!((decision.verdict, decision.rule), (meant, Some(index)));
    }
}

#[test]
fn a_rule_about_what_is_not_there_does_not_match() {
    for when in [
        "answer.confidence < 0.5",
        "answer.a.b.c == 1",
        "answer.confidence + 1 > 0",
        "not answer.ok",
        "answer.confidence is defined and answer.confidence < 0.5",
        "answer.list | length > 2",
    ] {
        let rules = [rule(when, PostVerdict::Retry)];
        assert_eq!(verdict(&rules, &failed("TIMEOUT", false)), PostVerdict::Fail, "{when}");
        assert_eq!(verdict(&rules, &answered(json!({"x": 1}))), PostVerdict::Success, "{when}");
    }
}

#[test]
fn rules_see_everything_about_a_reply() {
    for (when, reply) in [
        ("error_code == 'TIMEOUT' and status == 'error'", failed("TIMEOUT", false)),
        ("error_code in ['A', 'TIMEOUT'] and 'wrong' in error_message", failed("TIMEOUT", false)),
        ("answer is undefined and text is none", failed("TIMEOUT", false)),
        ("status == 'success' and error_code is none", answered(json!(1))),
        ("finish_reason == 'stop' and attempt == 1", answered(json!(1))),
        ("text == '{\"a\":[1,2]}' and answer.a[1] == 2", answered(json!({"a": [1, 2]}))),
        ("answer > 3", answered(json!(4))),
        ("answer == '%} x'", answered(json!("%} x"))),
    ] {
        assert_eq!(verdict(&[rule(when, PostVerdict::Retry)], &reply), PostVerdict::Retry, "{when}");
    }
}

#[test]
fn a_reason_is_rendered_and_has_a_stand_in() {
    let reason = |written: Option<&str>| {
        let rule =
            Rule { reason: written.map(str::to_owned), ..rule("answer.sure < 0.5", PostVerdict::Fail) };
        decide(&[rule], &answered(json!({"sure": 0.2})), 1, 3).unwrap().reason.unwrap()
    };
    assert_eq!(reason(Some("not sure: {{ answer.sure }}")), "not sure: 0.2");
    assert_eq!(reason(None), "by rule: answer.sure < 0.5");
    assert_eq!(reason(Some("{{ answer.nothing }}")), "by rule: answer.sure < 0.5");
}

#[test]
fn the_last_retry_is_a_failure_with_the_same_reason() {
    let retry = Rule {
        reason: Some("again".into()),
        after: Some(Duration::from_secs(10)),
        ..rule("true", PostVerdict::Retry)
    };
    let first = decide(std::slice::from_ref(&retry), &answered(json!(1)), 1, 3).unwrap();
    assert_eq!((first.verdict, first.after), (PostVerdict::Retry, Some(Duration::from_secs(10))));
    let last = decide(std::slice::from_ref(&retry), &answered(json!(1)), 3, 3).unwrap();
    assert_eq!((last.verdict, last.after), (PostVerdict::Fail, None));
    assert_eq!(last.reason.as_deref(), Some("again (after 3 attempts)"));
    let only = decide(&[retry], &answered(json!(1)), 1, 1).unwrap();
    assert_eq!(only.reason.as_deref(), Some("again (after 1 attempt)"));
    let by_reply = decide(&[], &failed("RATE_LIMITED", true), 2, 2).unwrap();
    assert_eq!(by_reply.reason.as_deref(), Some("RATE_LIMITED: it went wrong (after 2 attempts)"));
}

#[test]
fn a_providers_wish_to_wait_holds_unless_the_rule_has_its_own() {
    let own = Rule { after: Some(Duration::from_secs(1)), ..rule("true", PostVerdict::Retry) };
    let after = |rule: Rule| decide(&[rule], &failed("RATE_LIMITED", true), 1, 3).unwrap().after;
    assert_eq!(after(rule("true", PostVerdict::Retry)), Some(Duration::from_secs(7)));
    assert_eq!(after(own), Some(Duration::from_secs(1)));
}

#[test]
fn a_rule_that_cannot_be_worked_out_says_which() {
    let rules = [rule("false", PostVerdict::Fail), rule("answer.a + 1 > 2", PostVerdict::Fail)];
    let error = decide(&rules, &answered(json!({"a": "text"})), 1, 3).unwrap_err();
    assert!(error.starts_with("rule 2: `when`: "), "{error}");
}

#[test]
fn a_rule_that_does_not_compile_says_which_part() {
    for wrong in ["", "a = 1", "x }} y", "status == 'a' %}{% if true", "a b"] {
        let error = RuleSet::compile(&[rule(wrong, PostVerdict::Fail)]).unwrap_err();
        assert_eq!((error.index, error.part), (0, "when"), "{wrong}");
    }
    let reason = Rule { reason: Some("{{ x".into()), ..rule("true", PostVerdict::Fail) };
    let error = RuleSet::compile(&[rule("true", PostVerdict::Fail), reason]).unwrap_err();
    assert_eq!((error.index, error.part), (1, "reason"));
}

proptest::proptest! {
    #[test]
    fn any_rule_is_worked_out_or_refused(when in r#"(answer|status|\.x|\[0\]| |==|<|'|%\}|\}\}|\(|\)|\||and|not|1|\PC){0,12}"#) {
        let rules = [rule(&when, PostVerdict::Retry)];
        let _ = decide(&rules, &answered(json!({"x": [1]})), 1, 2);
        let _ = decide(&rules, &failed("TIMEOUT", false), 2, 2);
    }
}
