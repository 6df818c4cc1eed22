//! What scripts can make a provider do.

use std::time::Duration;

use longshore_ai::{Code, FinishReason, Provider, Question, Scripted, SimulatorScript};
use tokio::time::Instant;

use crate::questions::{ask, question, scripted, text};

#[tokio::test]
async fn the_first_answer_that_matches_is_given() {
    let script = "
        [[answer]]
        match = 'red'
        reply = 'stop'
        [[answer]]
        match = 'green|red'
        reply = 'go'
        [[answer]]
        reply = 'look'
    ";
    assert_eq!(text(script, "it is red").await, "stop");
    assert_eq!(text(script, "it is green").await, "go");
    assert_eq!(text(script, "it is blue").await, "look");
}

#[tokio::test]
async fn named_groups_can_be_reckoned_with() {
    let script = r#"
        [[answer]]
        match = '(?<a>\d+) \+ (?<b>\d+)'
        reply = '{"sum": {{ a|int + b|int }}, "of": "{{ a }}{{ b }}"}'
    "#;
    assert_eq!(text(script, "What is 17 + 25?").await, r#"{"sum": 42, "of": "1725"}"#);
}

#[tokio::test]
async fn a_group_that_took_no_part_is_empty() {
    let script = r"
        [[answer]]
        match = 'order(?<no> \d+)?'
        reply = '[{{ no }}]{% if not no %} none{% endif %}'
    ";
    assert_eq!(text(script, "order").await, "[] none");
    assert_eq!(text(script, "order 7").await, "[ 7]");
}

#[tokio::test]
async fn an_expression_decides_among_what_matches() {
    let script = "
        [[answer]]
        match = 'qty=(?<qty>\\d+) price=(?<price>[\\d.]+)'
        when = 'qty|int * price|float > 1000'
        reply = 'too much'
        [[answer]]
        when = \"'urgent' in prompt\"
        reply = 'at once'
        [[answer]]
        reply = 'fine'
    ";
    assert_eq!(text(script, "qty=100 price=10.5").await, "too much");
    assert_eq!(text(script, "qty=100 price=9.5").await, "fine");
    assert_eq!(text(script, "urgent: qty=1 price=1").await, "at once");
}

#[tokio::test]
async fn an_error_is_given_with_its_message_and_wait() {
    let script = "
        [[answer]]
        error = 'RATE_LIMITED'
        message = 'slow down'
        retry_after = '2s'
    ";
    let error = ask(script, "x").await.unwrap_err();
    assert_eq!(error.to_string(), "RATE_LIMITED: slow down");
    assert_eq!(error.retry_after, Some(Duration::from_secs(2)));
}

#[tokio::test]
async fn every_code_of_the_contract_can_be_given() {
    for code in [
        "INVALID_REQUEST",
        "PROFILE_NOT_FOUND",
        "PROFILE_DISABLED",
        "RATE_LIMITED",
        "OVER_BUDGET",
        "PROVIDER_AUTH",
        "PROVIDER_ERROR",
        "TIMEOUT",
        "INTERNAL",
    ] {
        let error = ask(&format!("[[answer]]\nerror = '{code}'"), "x").await.unwrap_err();
        assert_eq!(error.code.as_str(), code);
    }
}

#[tokio::test]
async fn a_prompt_can_fail_first_and_succeed_later() {
    let provider = scripted(
        "
        [[answer]]
        when = 'n < 2'
        error = 'PROVIDER_ERROR'
        [[answer]]
        reply = 'at last, after {{ n }}'
    ",
    );
    for _ in 0..2 {
        let error = provider.ask(&question("again")).await.unwrap_err();
        assert_eq!(error.code, Code::ProviderError);
    }
    assert_eq!(provider.ask(&question("other")).await.unwrap_err().code, Code::ProviderError);
    assert_eq!(provider.ask(&question("again")).await.unwrap().text, "at last, after 2");
}

#[tokio::test]
async fn the_same_text_gives_the_same_script() {
    let script = "[[answer]]\nreply = '{{ prompt|length }} {{ n }}'";
    let (one, other) = (scripted(script), scripted(script));
    for _ in 0..3 {
        let asked = question("hello");
        let texts = (one.ask(&asked).await.unwrap().text, other.ask(&asked).await.unwrap().text);
        assert_eq!(texts.0, texts.1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_takes_its_own_time_or_the_providers() {
    let script = "
        [[answer]]
        match = 'slow'
        reply = 'yawn'
        delay = '1m30s'
        [[answer]]
        match = 'limit'
        error = 'RATE_LIMITED'
        [[answer]]
        reply = 'ok'
    ";
    let provider = Scripted::new(SimulatorScript::parse(script).unwrap(), "m", Duration::from_millis(50));
    let until = Instant::now() + Duration::from_secs(1000);
    for (prompt, millis) in [("slow", 90_000), ("limit", 50), ("x", 50)] {
        let started = Instant::now();
        let reply = provider.ask(&Question { until, ..question(prompt) }).await;
        assert_eq!(started.elapsed().as_millis(), millis, "{prompt}");
        if let Ok(answer) = reply {
            assert_eq!(u128::from(answer.latency_ms), millis);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_hangs_is_ended_by_the_deadline_alone() {
    let started = Instant::now();
    let error = ask("[[answer]]\nhang = true", "x").await.unwrap_err();
    assert_eq!(error.code, Code::Timeout);
    assert_eq!(started.elapsed().as_secs(), 60);
}

#[tokio::test]
async fn tokens_are_estimated_unless_the_script_says_how_many() {
    let answer = ask("[[answer]]\nreply = '12345'", "12345678").await.unwrap();
    assert_eq!((answer.tokens_in, answer.tokens_out), (2, 2));
    let answer = ask("[[answer]]\nreply = '12345'\ntokens_out = 700", "x").await.unwrap();
    assert_eq!(answer.tokens_out, 700);
    assert!(answer.simulated);
    assert_eq!(answer.model, "scripted");
}

#[tokio::test]
async fn a_scripted_answer_is_cut_at_max_tokens() {
    let provider = scripted("[[answer]]\nreply = 'a long answer'");
    let answer = provider.ask(&Question { max_tokens: 1, ..question("x") }).await.unwrap();
    assert_eq!(answer.text, "a lo");
    assert_eq!(answer.finish_reason, FinishReason::Length);
}

#[tokio::test]
async fn a_prompt_without_an_answer_is_refused() {
    let error = ask("[[answer]]\nmatch = 'red'\nreply = 'stop'", "blue").await.unwrap_err();
    assert_eq!(error.to_string(), "INVALID_REQUEST: the script has no answer for this prompt");
}

#[tokio::test]
async fn a_template_that_fails_for_a_prompt_says_where() {
    let script = "\n[[answer]]\nmatch = '(?<what>.+)'\nreply = '{{ what|int }}'";
    assert_eq!(text(script, "7").await, "7");
    let error = ask(script, "seven").await.unwrap_err();
    assert_eq!(error.code, Code::InvalidRequest);
    assert!(error.message.contains("line 2"), "{error}");
}

#[tokio::test]
async fn a_template_that_never_ends_is_stopped() {
    let all = "range(10000)";
    let script = format!(
        "[[answer]]\nreply = '{{% for a in {all} %}}{{% for b in {all} %}}{{% endfor %}}{{% endfor %}}'"
    );
    let error = ask(&script, "x").await.unwrap_err();
    assert!(error.message.contains("fuel"), "{error}");
}
