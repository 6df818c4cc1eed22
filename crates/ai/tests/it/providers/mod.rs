//! The real providers, against a fake of their APIs: one suite for all, and tests for each. Real
//! sockets, so real time; no test depends on how long anything takes.

mod anthropic;
pub(crate) mod fixture;
mod gemini;
mod ollama;
mod openai;
mod passthrough;
mod stalls;
mod suite;
mod translation;

macro_rules! run_for {
    ($provider:ident as $module:ident: $($case:ident,)*) => {
        mod $module {
            $(#[tokio::test]
            async fn $case() {
                let fixture = super::fixture::ProviderFixture::of(longshore_ai::ProviderName::$provider).await;
                super::suite::$case(fixture).await;
            })*
        }
    };
}

/// Every provider passes every case.
macro_rules! run_all {
    ($($case:ident,)*) => {
        run_for!(Anthropic as anthropic_suite: $($case,)*);
        run_for!(Openai as openai_suite: $($case,)*);
        run_for!(Ollama as ollama_suite: $($case,)*);
        run_for!(Gemini as gemini_suite: $($case,)*);
    };
}

run_all!(
    an_answer_has_text_model_tokens_and_an_end,
    a_stream_is_the_same_answer_in_pieces,
    a_stream_may_come_byte_by_byte,
    a_tool_call_is_read_whole_and_from_a_stream,
    tokens_that_nobody_counted_are_estimated,
    counts_that_cannot_be_read_are_estimated,
    an_answer_that_ends_early_says_so,
    questions_share_a_connection,
    another_model_may_be_asked,
    a_question_without_a_model_is_not_sent,
    a_page_instead_of_json_is_the_providers_failure,
    a_body_that_ends_early_may_have_been_billed,
    a_slow_drip_ends_at_the_deadline,
    no_answer_ends_at_the_deadline,
    a_question_that_is_too_late_is_not_sent,
    retry_after_is_handed_on_in_all_its_forms,
    an_overloaded_provider_may_be_asked_later,
    a_reset_may_have_been_billed,
    a_question_that_found_nobody_was_not_sent,
    a_question_that_waits_for_its_connection_was_not_sent,
    a_redirect_is_not_followed,
    a_huge_answer_is_refused,
    a_stream_without_its_end_is_a_failure,
    an_error_in_a_stream_is_a_failure,
    a_page_instead_of_a_stream_is_the_providers_failure,
    a_wrong_key_is_not_tried_again,
    a_key_that_is_quoted_back_is_not_handed_on,
    who_stops_listening_has_what_came,
    health_is_asked_for_nothing,
);
