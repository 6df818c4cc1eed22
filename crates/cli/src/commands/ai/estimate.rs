//! `ai estimate`: an upper bound for the cost of a batch or a file of requests.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use longshore::{Clock, ProfileName, SystemClock, TenantId};
use longshore_ai::contract::{Prompt, Request};
use longshore_ai::{Cost, Inference, PriceMode, Profile};
use serde::Serialize;
use tokio::time::Instant;

use crate::args::ai::EstimateArgs;
use crate::commands::{batch, connect_with_ledger};
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::inference::open_inference;
use crate::output::Table;
use crate::settings::Settings;

/// Extensions of files of requests.
const REQUEST_FILE_EXTENSIONS: [&str; 3] = ["jsonl", "ndjson", "json"];

/// The most tokens of the text that asks for a correction.
const CORRECTION_TOKENS: u64 = 1_000;

/// Totals over all requests.
#[derive(Debug, Default, Serialize)]
struct RequestTotals {
    requests: u64,
    /// Requests that refer to a stored prompt: they are not counted.
    by_reference: u64,
    /// Further calls that correct an answer which breaks its schema, one for each.
    corrections_at_most: u64,
    tokens_in: u64,
    tokens_out_at_most: u64,
    cost_at_most_picos: i64,
    cost_at_most: String,
}

/// Runs the command.
pub async fn run(typed: &EstimateArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let ending = typed.file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    if !REQUEST_FILE_EXTENSIONS.contains(&ending) {
        return batch::estimate(&typed.file, settings).await;
    }
    let text = std::fs::read_to_string(&typed.file);
    let text = text.with_context(|| format!("cannot read {}", typed.file.display()))?;
    let connected = connect_with_ledger(settings).await?;
    let inference = open_inference(&connected.ledger, settings)?;
    let total = total(&inference, &typed.file, &text).await?;
    settings.output.record(&total, || record(&total))?;
    Ok(ExitCode::Good)
}

async fn total(inference: &Inference, file: &Path, text: &str) -> anyhow::Result<RequestTotals> {
    let mut profiles: BTreeMap<(TenantId, ProfileName), Profile> = BTreeMap::new();
    let mut total = RequestTotals::default();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    for (nth, line) in lines {
        let location = || format!("{}:{}", file.display(), nth + 1);
        let request = Request::parse(line.as_bytes()).with_context(location)?;
        let key = (request.customer.clone(), request.profile.clone());
        if !profiles.contains_key(&key) {
            let profile = inference.profile(&key.0, Some(&key.1)).await.with_context(location)?;
            profiles.insert(key.clone(), profile);
        }
        total.add(&request, &profiles[&key]);
    }
    if total.requests + total.by_reference == 0 {
        return Err(usage(format!("{} holds no requests", file.display())))
            .hint("one request as JSON per line: docs/ai-contract.md");
    }
    total.cost_at_most = Cost(total.cost_at_most_picos).to_string();
    Ok(total)
}

impl RequestTotals {
    fn add(&mut self, request: &Request, profile: &Profile) {
        let Prompt::Text(prompt) = &request.prompt else {
            self.by_reference += 1;
            return;
        };
        let question = request.question(prompt.clone(), profile, Instant::now());
        let (tokens_in, most) = (question.estimate(), u64::from(question.max_tokens));
        let model = question.model.as_deref().unwrap_or(&profile.model);
        let prices = profile.prices_of(model).unwrap_or(&profile.prices);
        let at_most = |tokens_in: u64| prices.at_most(tokens_in, most, SystemClock.now(), PriceMode::Direct);
        let bound = question.token_bound(0);
        self.requests += 1;
        self.tokens_in += tokens_in;
        self.tokens_out_at_most += most;
        self.cost_at_most_picos = self.cost_at_most_picos.saturating_add(at_most(bound).0);
        if question.schema.is_some() {
            // The correction's question has the first question and its answer.
            self.corrections_at_most += 1;
            self.tokens_out_at_most += most;
            let correction = at_most(bound + most + CORRECTION_TOKENS);
            self.cost_at_most_picos = self.cost_at_most_picos.saturating_add(correction.0);
        }
    }
}

fn record(total: &RequestTotals) -> Table {
    let mut table = Table::record();
    table.field("requests", total.requests);
    if total.by_reference > 0 {
        table.field("not counted", format!("{} that refer to a stored prompt", total.by_reference));
    }
    if total.corrections_at_most > 0 {
        let corrections = total.corrections_at_most;
        table.field("corrections", format!("at most {corrections}, of answers that break their schema"));
    }
    table.field("tokens in", format!("about {}", total.tokens_in));
    table.field("tokens out", format!("at most {}", total.tokens_out_at_most));
    table.field("cost", format!("at most {}", total.cost_at_most));
    table
}
