//! `ai ask`: asks one question.

use std::io::Read;
use std::sync::Arc;

use anyhow::Context;
use longshore::{CallId, Client, SystemClock};
use longshore_ai::contract::{Prompt, ReplyBody, Request};
use longshore_ai::worker::RequestClient;
use longshore_ai::{
    Answer, AnswerPiece, AskError, BillingStatus, Code, FinishReason, Inference, InferenceRequest, Question,
    ResponseSchema, Retryability,
};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::args::ai::AskArgs;
use crate::commands::connect_with_ledger;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::inference::{caller_tenant, open_inference, run_background};
use crate::semaphore_backend;
use crate::settings::Settings;

/// Runs the command.
pub async fn run(typed: AskArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let connected = connect_with_ledger(settings).await?;
    let question = question(&typed)?;
    let inference_request = InferenceRequest::new(caller_tenant(settings), typed.profile.clone(), question);
    if typed.queue {
        return ask_via_queue(&inference_request, &typed, connected.client, settings).await;
    }
    let inference =
        open_inference(&connected.ledger, settings)?.with_pools(semaphore_backend::registry(settings).await?);
    let inference_request = with_profile_defaults(&inference, inference_request, &typed).await;
    let asking = ask(&inference, &inference_request, &typed, settings);
    tokio::select! {
        ended = asking => ended,
        () = run_background(&inference, &*connected.store) => Ok(ExitCode::Good),
    }
}

fn question(typed: &AskArgs) -> anyhow::Result<Question> {
    let prompt = match typed.prompt.as_str() {
        "-" => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text).context("cannot read stdin");
            read.hint("a question is text in UTF-8")?;
            text
        }
        text => text.to_owned(),
    };
    if prompt.trim().is_empty() {
        return Err(usage("there is no question")).hint("write it behind `ask`, or into stdin");
    }
    let schema = typed.schema.as_ref().map(|file| {
        let text = std::fs::read_to_string(file);
        let text = text.with_context(|| format!("cannot read {}", file.display()));
        let schema = serde_json::from_str(&text.hint("--schema names a file with a JSON Schema")?);
        let schema = schema.with_context(|| format!("{} is not JSON", file.display()));
        let schema: serde_json::Value = schema.hint("--schema names a file with a JSON Schema")?;
        let checked = longshore_ai::check_types(&schema);
        checked.map_err(|error| usage(format!("{}: {error}", file.display()))).hint("correct the type")?;
        // Before the question costs something.
        let valid =
            ResponseSchema::new(&schema).map_err(|error| usage(format!("{}: {error}", file.display())));
        valid.hint("--schema names a file with a JSON Schema")?;
        anyhow::Ok(Arc::new(schema))
    });
    if typed.temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
        return Err(usage("a temperature is from 0 to 2")).hint("0 is the most predictable");
    }
    let until = Instant::now() + typed.timeout.0;
    let plain = Question::new(CallId::new().to_string(), prompt, until);
    Ok(Question {
        system: typed.system.clone(),
        model: typed.model.clone(),
        max_tokens: typed.max_tokens.map_or(plain.max_tokens, |most| most.0),
        temperature: typed.temperature.unwrap_or_default(),
        schema: schema.transpose()?,
        ..plain
    })
}

/// The request with its profile's values for what was not typed.
async fn with_profile_defaults(
    inference: &Inference,
    request: InferenceRequest,
    typed: &AskArgs,
) -> InferenceRequest {
    // A profile that cannot be used is reported when it is asked.
    let Ok(profile) = inference.profile(&request.tenant, request.profile.as_ref()).await else {
        return request;
    };
    let question = Question {
        max_tokens: profile
            .max_tokens
            .filter(|_| typed.max_tokens.is_none())
            .unwrap_or(request.question.max_tokens),
        temperature: typed.temperature.or(profile.temperature).unwrap_or_default(),
        ..request.question
    };
    InferenceRequest { question, ..request }
}

async fn ask(
    inference: &Inference,
    inference_request: &InferenceRequest,
    typed: &AskArgs,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let streams =
        !typed.no_stream && !settings.output.is_json() && inference_request.question.schema.is_none();
    let (sender, pieces) = mpsc::channel(64);
    let asking = async {
        let outcome = inference.ask(inference_request, streams.then_some(&sender)).await;
        drop(sender);
        outcome
    };
    let (outcome, printed) = tokio::join!(asking, print(pieces, settings));
    let printed = printed?;
    let mut outcome = outcome;
    let (records, picos) = (std::mem::take(&mut outcome.records), outcome.cost_picos);
    let calls = records.len();
    inference.record_calls(records).await;
    inference.flush_journal().await;
    inference.flush_alerts().await;
    match outcome.into_valid().and_then(|answer| follows_schema(answer, &inference_request.question)) {
        Ok(answer) => {
            print_answer(&answer, picos, calls, streams, settings)?;
            Ok(ExitCode::Good)
        }
        Err(error) => {
            // Partial output ends without a newline.
            if printed == StreamOutput::Something {
                settings.output.line("")?;
            }
            Err(with_hint(error))
        }
    }
}

/// Whether any of the answer was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamOutput {
    Nothing,
    Something,
}

async fn print(mut pieces: mpsc::Receiver<AnswerPiece>, settings: &Settings) -> anyhow::Result<StreamOutput> {
    let mut printed = StreamOutput::Nothing;
    while let Some(piece) = pieces.recv().await {
        if let AnswerPiece::Text(text) = piece {
            settings.output.piece(&text)?;
            printed = StreamOutput::Something;
        }
    }
    Ok(printed)
}

/// Rejects an answer that does not follow the question's schema because it was truncated or withheld.
fn follows_schema(answer: Answer, question: &Question) -> Result<Answer, AskError> {
    let schema = question.schema.as_deref().and_then(|schema| ResponseSchema::new(schema).ok());
    let Some(why) = schema.and_then(|schema| schema.read(&answer.text).err()) else { return Ok(answer) };
    let why = match answer.finish_reason {
        FinishReason::Length => format!("{why} (it was truncated: --max-tokens is too small)"),
        _ => why,
    };
    Err(invalid_answer(why, answer))
}

/// The error of an answer that was billed and does not follow the schema.
fn invalid_answer(why: String, answer: Answer) -> AskError {
    let billing = BillingStatus::Partial(Box::new(answer));
    AskError { billing, ..AskError::new(Code::ProviderError, why) }
}

fn print_answer(
    answer: &Answer,
    picos: i64,
    calls: usize,
    streamed: bool,
    settings: &Settings,
) -> anyhow::Result<()> {
    let output = settings.output;
    if output.is_json() {
        let cost = longshore_ai::Cost(picos);
        return output.json(&json!({
            "text": answer.text, "model": answer.model, "finish_reason": answer.finish_reason,
            "tokens_in": answer.tokens_in, "tokens_out": answer.tokens_out,
            "tokens_cached": answer.tokens_cached, "latency_ms": answer.latency_ms,
            "cost_usd": cost.dollars(), "calls": calls, "estimated": answer.estimated,
            "simulated": answer.simulated,
        }));
    }
    // Streamed output ends without a newline.
    output.line(if streamed { "" } else { &answer.text })?;
    let Answer { model, tokens_in, tokens_out, latency_ms, .. } = answer;
    let cost = longshore_ai::Cost(picos);
    let calls = if calls > 1 { format!(", {calls} calls") } else { String::new() };
    output.note(format!("{model}, {tokens_in} tokens in, {tokens_out} out, {latency_ms} ms, {cost}{calls}"));
    Ok(())
}

async fn ask_via_queue(
    inference_request: &InferenceRequest,
    typed: &AskArgs,
    client: Client,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let Some(profile) = &inference_request.profile else {
        return Err(usage("a request through the queue must name its profile")).hint("add --profile NAME");
    };
    let question = &inference_request.question;
    let prompt = Prompt::Text(question.prompt.clone());
    let request = Request {
        system: question.system.clone(),
        model: question.model.clone(),
        max_tokens: typed.max_tokens.map(|most| most.0),
        temperature: typed.temperature,
        schema: question.schema.as_deref().cloned(),
        timeout: question.until.saturating_duration_since(Instant::now()),
        ..Request::new(question.request_id.clone(), inference_request.tenant.clone(), profile.clone(), prompt)
    };
    let reply = RequestClient::new(client, None)?.ask(&request, &SystemClock).await;
    if settings.output.is_json() {
        settings.output.line(String::from_utf8(reply.to_json()?)?)?;
        let good = matches!(&reply.body, ReplyBody::Success(success) if success.schema_error.is_none());
        return Ok(if good { ExitCode::Good } else { ExitCode::Error });
    }
    match reply.body {
        ReplyBody::Success(success) => match &success.schema_error {
            Some(why) => Err(with_hint(invalid_answer(why.clone(), Answer::default()))),
            None => {
                settings.output.line(&success.response)?;
                Ok(ExitCode::Good)
            }
        },
        ReplyBody::Error(failure) => Err(with_hint(failure.into())),
        ReplyBody::Partial(_) => {
            Err(anyhow::anyhow!("the reply was partial, but a complete one was requested"))
        }
    }
}

/// The error, with a hint.
fn with_hint(error: AskError) -> anyhow::Error {
    let hint = hint(&error);
    crate::error::hinted(error.into(), hint)
}

/// What the user can do about an error.
fn hint(error: &AskError) -> &'static str {
    match error.code {
        Code::ProfileNotFound => "`longshore profile list` shows the profiles; `profile add` makes one",
        Code::ProfileDisabled if error.retry == Retryability::AfterResume => {
            "`longshore tenant resume NAME` lets it ask again"
        }
        Code::ProfileDisabled => "`longshore profile resume NAME` lets it be used",
        Code::ProviderAuth => "`longshore key list` shows the keys; `ai health` tries them",
        Code::RateLimited => "wait, or raise the limits: `longshore profile set`",
        Code::OverBudget if error.retry == Retryability::AfterTopUp => {
            "the provider's account has no credit: top it up there, or use another key (`longshore key add`)"
        }
        Code::OverBudget => {
            "a lower --max-tokens reserves less; `longshore tenant show` shows the month, `tenant set` changes its budget"
        }
        Code::Timeout if error.billing == BillingStatus::Nothing => "--timeout gives it more time",
        Code::Timeout => "it may have been billed; --timeout gives it more time",
        Code::InvalidRequest if error.provider_status == Some(404) => {
            "is the profile's model or endpoint wrong? `longshore profile show NAME`; `ai health` looks at it"
        }
        Code::InvalidRequest if error.provider_status == Some(409) => {
            "the provider was busy with a conflicting request: try again"
        }
        Code::InvalidRequest => "the request is invalid: too long, or not supported by the model?",
        Code::ProviderError if matches!(error.billing, BillingStatus::Partial(_)) => {
            "it was billed; `longshore usage --calls` shows the calls"
        }
        Code::ProviderError => "`longshore ai health` looks at the providers of all profiles",
        _ => "--log-level debug says more",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_tells_the_providers_credit_from_the_tenants_budget() {
        let hint = |retry| hint(&AskError { retry, ..AskError::new(Code::OverBudget, "no credit") });
        // Our breaker answers without a status of the provider.
        assert!(hint(Retryability::AfterTopUp).contains("top it up there"));
        assert!(hint(Retryability::Never).contains("tenant set"));
    }
}
