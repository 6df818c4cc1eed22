//! `ai ask`: one question from the command line.

use std::io::Read;
use std::sync::Arc;

use anyhow::Context;
use longshore::{CallId, Client, SystemClock};
use longshore_ai::contract::{Prompt, Request, Said};
use longshore_ai::worker::Caller;
use longshore_ai::{Answer, AskError, Bill, Desk, Errand, Piece, Question};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::args::ai::Ask;
use crate::commands::connect_both;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::inference::{asking, beside, desk};
use crate::permits;
use crate::settings::Settings;

/// Runs the command.
pub async fn run(typed: Ask, settings: &Settings) -> anyhow::Result<ExitCode> {
    let connected = connect_both(settings).await?;
    let question = question(&typed)?;
    let errand = Errand::new(asking(settings), typed.profile.clone(), question);
    if typed.queue {
        return through_the_queue(&errand, connected.client, settings).await;
    }
    let desk = desk(&connected.ledger, settings)?.with_pools(permits::book(settings).await?);
    let asking = ask(&desk, &errand, &typed, settings);
    tokio::select! {
        ended = asking => ended,
        () = beside(&desk, &*connected.store) => Ok(ExitCode::Good),
    }
}

fn question(typed: &Ask) -> anyhow::Result<Question> {
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
        schema.hint("--schema names a file with a JSON Schema").map(Arc::new)
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

async fn ask(
    desk: &Desk,
    errand: &Errand,
    typed: &Ask,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let streams =
        !typed.no_stream && !settings.output.is_json() && errand.question.schema.is_none();
    let (sender, pieces) = mpsc::channel(64);
    let asking = async {
        let settled = desk.ask(errand, streams.then_some(&sender)).await;
        drop(sender);
        settled
    };
    let (settled, printed) = tokio::join!(asking, print(pieces, settings));
    let printed = printed?;
    desk.note(settled.records).await;
    desk.books_kept().await;
    match settled.result {
        Ok(answer) => {
            tell(&answer, settled.cost_picos, streams, settings)?;
            Ok(ExitCode::Good)
        }
        Err(error) => {
            // What came of it ends without a line's end.
            if printed == Printed::Something {
                settings.output.line("")?;
            }
            Err(failed(error))
        }
    }
}

/// Whether any of an answer was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Printed {
    Nothing,
    Something,
}

async fn print(mut pieces: mpsc::Receiver<Piece>, settings: &Settings) -> anyhow::Result<Printed> {
    let mut printed = Printed::Nothing;
    while let Some(piece) = pieces.recv().await {
        if let Piece::Text(text) = piece {
            settings.output.piece(&text)?;
            printed = Printed::Something;
        }
    }
    Ok(printed)
}

fn tell(answer: &Answer, picos: i64, streamed: bool, settings: &Settings) -> anyhow::Result<()> {
    let output = settings.output;
    if output.is_json() {
        let cost = longshore_ai::Cost(picos);
        return output.json(&json!({
            "text": answer.text, "model": answer.model, "finish_reason": answer.finish_reason,
            "tokens_in": answer.tokens_in, "tokens_out": answer.tokens_out,
            "tokens_cached": answer.tokens_cached, "latency_ms": answer.latency_ms,
            "cost_usd": cost.dollars(), "simulated": answer.simulated,
        }));
    }
    // What was streamed ends without a line's end.
    output.line(if streamed { "" } else { &answer.text })?;
    let Answer { model, tokens_in, tokens_out, latency_ms, .. } = answer;
    let cost = longshore_ai::Cost(picos);
    output
        .note(format!("{model}, {tokens_in} tokens in, {tokens_out} out, {latency_ms} ms, {cost}"));
    Ok(())
}

async fn through_the_queue(
    errand: &Errand,
    client: Client,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let Some(profile) = &errand.profile else {
        return Err(usage("a request through the queue names its profile"))
            .hint("add --profile NAME");
    };
    let asked = &errand.question;
    let prompt = Prompt::Text(asked.prompt.clone());
    let request = Request {
        system: asked.system.clone(),
        model: asked.model.clone(),
        max_tokens: Some(asked.max_tokens),
        temperature: Some(asked.temperature),
        schema: asked.schema.as_deref().cloned(),
        timeout: asked.until.saturating_duration_since(Instant::now()),
        ..Request::new(asked.request_id.clone(), errand.tenant.clone(), profile.clone(), prompt)
    };
    let reply = Caller::new(client, None)?.ask(&request, &SystemClock).await;
    if settings.output.is_json() {
        settings.output.line(String::from_utf8(reply.to_json()?)?)?;
        let good = matches!(reply.said, Said::Success(_));
        return Ok(if good { ExitCode::Good } else { ExitCode::Error });
    }
    match reply.said {
        Said::Success(success) => {
            settings.output.line(&success.response)?;
            Ok(ExitCode::Good)
        }
        Said::Error(failure) => Err(failed(failure.into())),
        Said::Partial(_) => Err(anyhow::anyhow!("a part came for a whole")),
    }
}

/// The error, and what can be done about it.
fn failed(error: AskError) -> anyhow::Error {
    use longshore_ai::{Again, Code};
    let hint = match error.code {
        Code::ProfileNotFound => {
            "`longshore profile list` shows the profiles; `profile add` makes one"
        }
        Code::ProfileDisabled if error.again == Again::Resumed => {
            "`longshore tenant resume NAME` lets it ask again"
        }
        Code::ProfileDisabled => "`longshore profile resume NAME` lets it be used",
        Code::ProviderAuth => "`longshore key list` shows the keys; `ai health` tries them",
        Code::RateLimited => "wait, or raise the limits: `longshore profile set`",
        Code::OverBudget => {
            "`longshore tenant show` shows the month; `tenant set --budget-usd` changes it"
        }
        Code::Timeout if error.bill == Bill::Nothing => "--timeout gives it more time",
        Code::Timeout => "it may have been billed; --timeout gives it more time",
        Code::InvalidRequest => "it will not do as it is: too long, or not what the model takes?",
        Code::ProviderError => "`longshore ai health` looks at the providers of all profiles",
        _ => "--log-level debug says more",
    };
    crate::error::hinted(error.into(), hint)
}
