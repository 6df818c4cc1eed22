//! `batch run --dry-run`: shows the prompts and the estimated cost. Calls no provider and changes
//! nothing.

use std::collections::BTreeMap;

use anyhow::anyhow;
use longshore::{BatchId, SqlValue, UnitId};
use longshore_ai::{Answer, Cost, PriceMode, PriceTable, Profile, estimate_tokens};
use longshore_batch::batch_id::batch_id;
use longshore_batch::command::CommandPrepare;
use longshore_batch::definition::{Ai, Database, Pre, RowStep, RowStepSpec, StepAction, StepPrompt};
use longshore_batch::mail::{MailPrepare, OutgoingMail};
use longshore_batch::pre_post::{Prepare, PrepareError, RowRun};
use longshore_batch::prompt::prompt_too_long;
use longshore_batch::sql_json::{show_key, to_json};
use longshore_batch::sql_pre::SqlPrepare;
use serde::Serialize;
use serde_json::Value;

use super::context::CheckedBatch;
use crate::commands::now;
use crate::exit::ExitCode;
use crate::mail::{self, DigestBuilder};
use crate::settings::Settings;

/// How many prompts are shown.
const MAX_PROMPTS: u32 = 3;

/// The dry run as JSON.
#[derive(Serialize)]
struct DryRun<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    tenant: String,
    store: String,
    effects: &'static str,
    candidates_sql: &'a str,
    params: &'a std::collections::BTreeMap<String, Value>,
    count: u64,
    prompts: Vec<PromptSample>,
    /// The steps before the last one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<String>,
    /// `None` if the rows get a message.
    profile: Option<String>,
    simulated: bool,
    /// `None` if the rows get a message, or the store of the profile cannot be read as it is.
    cost_estimate: Option<f64>,
    cost_at_most: Option<f64>,
}

/// A row's prompt, or why there is none.
#[derive(Serialize)]
struct PromptSample {
    key: Value,
    prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
    error: Option<String>,
}

impl PromptSample {
    fn of(key: Value, prepared: Result<String, PrepareError>) -> Self {
        let empty = Self { key, prompt: None, skipped: None, error: None };
        match prepared {
            Ok(prompt) => Self { prompt: Some(prompt), ..empty },
            Err(PrepareError::Skip(reason)) => Self { skipped: Some(reason), ..empty },
            Err(error) => Self { error: Some(error.to_string()), ..empty },
        }
    }
}

/// Prints the dry run.
pub async fn show(checked: &CheckedBatch, settings: &Settings) -> anyhow::Result<ExitCode> {
    let CheckedBatch { definition, source, url, .. } = checked;
    let candidates = &definition.candidates;
    let all = source.count(candidates).await?;
    let count = candidates.limit.map_or(all, |limit| limit.min(all));
    // The last prompt needs the answers of the steps before it.
    let prompts = match definition.steps.is_empty() {
        true => prompts(checked, settings).await?,
        false => first_prompts(checked).await?,
    };
    let ai = definition.ai();
    let profile = ai.and_then(|ai| priced_profile(checked, ai));
    let profile = profile.as_ref();
    let last = ai.zip(profile).map(|(ai, profile)| CostEstimate::of(ai, profile, &prompts, count));
    let estimate = definition.steps.iter().try_fold(last, |sum, step| match &step.action {
        StepAction::Ask(prompt) => {
            let profile = priced_profile(checked, &prompt.ai)?;
            Some(sum.map(|sum| sum.plus(&CostEstimate::of_step(prompt, &profile, count))))
        }
        _ => Some(sum),
    });
    let estimate = estimate.flatten();
    let shown = DryRun {
        kind: &definition.kind,
        tenant: definition.tenant.to_string(),
        store: url.to_string(),
        effects: effects(&definition.database),
        candidates_sql: &candidates.sql,
        params: &candidates.params,
        count,
        steps: definition.steps.iter().map(RowStepSpec::describe).collect(),
        profile: ai.map(|ai| ai.profile.display_name()),
        simulated: profile.is_some_and(|profile| profile.provider.is_simulated()),
        cost_estimate: estimate.as_ref().map(|estimate| estimate.likely.dollars()),
        cost_at_most: estimate.as_ref().map(|estimate| estimate.most.dollars()),
        prompts,
    };
    if settings.output.is_json() {
        settings.output.json(&shown)?;
    } else {
        settings.output.line(render(&shown, estimate.as_ref()))?;
    }
    let broken = shown.prompts.iter().any(|sample| sample.error.is_some());
    Ok(if broken { ExitCode::Failures } else { ExitCode::Good })
}

/// The profile of a question with its prices, if its store can be read.
fn priced_profile(checked: &CheckedBatch, ai: &Ai) -> Option<Profile> {
    let own = || checked.profiles.get(ai.profile.name()?);
    let mut profile = ai.profile.inline().or_else(own)?.clone();
    PriceTable::shipped().complete(&mut profile);
    Some(profile)
}

fn effects(database: &Database) -> &'static str {
    match database {
        Database::Store => "exactly once: POST commits in the transaction that finishes the row",
        Database::Url(_) => "at least once: the rows are in another database than the batch",
    }
}

/// PRE of the batch's step.
enum SamplePre {
    /// With the longest prompt that may be sent.
    Prompt(Box<dyn Prepare>, u64),
    Message(Box<MailPrepare>, DigestBuilder),
}

impl SamplePre {
    /// `None` if PRE is code of another program.
    async fn of(checked: &CheckedBatch, settings: &Settings) -> anyhow::Result<Option<Self>> {
        let definition = &checked.definition;
        let max_prompt = definition.ai().map_or(u64::MAX, |ai| ai.max_prompt);
        Ok(Some(match (&definition.step, &definition.pre) {
            (RowStep::Mail(mail), Pre::Sql(pre)) => {
                let prepare = MailPrepare::compile(&definition.tenant, &definition.kind, pre, mail);
                let prepare = prepare.map_err(|why| anyhow!(why))?;
                Self::Message(Box::new(prepare), mail::sealer(settings).await?)
            }
            (_, Pre::Sql(pre)) => {
                Self::Prompt(Box::new(SqlPrepare::compile(pre).map_err(|why| anyhow!(why))?), max_prompt)
            }
            (_, Pre::Command(pre)) => {
                Self::Prompt(Box::new(CommandPrepare::open(pre, &checked.commands).await?), max_prompt)
            }
            (_, Pre::Code(_)) => return Ok(None),
        }))
    }

    /// The prompt or message of a row, as text.
    async fn sample(&self, row: &RowRun<'_>) -> Result<String, PrepareError> {
        match self {
            Self::Prompt(prepare, max) => {
                let prompt = prepare.prepare(row).await?;
                prompt_too_long(&prompt, *max).map_or(Ok(prompt), |why| Err(PrepareError::permanent(why)))
            }
            Self::Message(prepare, sealer) => check_message(sealer, prepare.message(row).await?).await,
        }
    }
}

async fn prompts(checked: &CheckedBatch, settings: &Settings) -> anyhow::Result<Vec<PromptSample>> {
    let batch = batch_id(now(), 1)?;
    let rows = checked.source.candidates(&checked.definition.candidates, None, MAX_PROMPTS).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let Some(pre) = SamplePre::of(checked, settings).await? else { return Ok(Vec::new()) };
    let mut prompts = Vec::new();
    for candidate in rows {
        let row = sample_row(checked, &batch, &candidate.key);
        prompts.push(PromptSample::of(to_json(&candidate.key), pre.sample(&row).await));
    }
    Ok(prompts)
}

/// The prompts of the first step, if that is a question.
async fn first_prompts(checked: &CheckedBatch) -> anyhow::Result<Vec<PromptSample>> {
    let definition = &checked.definition;
    let Some(StepAction::Ask(step)) = definition.steps.first().map(|step| &step.action) else {
        return Ok(Vec::new());
    };
    let prepare = SqlPrepare::compile_step(step, &definition.pre).map_err(|why| anyhow!(why))?;
    let batch = batch_id(now(), 1)?;
    let mut prompts = Vec::new();
    for candidate in checked.source.candidates(&definition.candidates, None, MAX_PROMPTS).await? {
        let prompt = prepare.prepare(&sample_row(checked, &batch, &candidate.key)).await;
        prompts.push(PromptSample::of(to_json(&candidate.key), prompt));
    }
    Ok(prompts)
}

/// A row that no unit runs.
fn sample_row<'r>(checked: &'r CheckedBatch, batch: &'r BatchId, key: &'r SqlValue) -> RowRun<'r> {
    RowRun {
        batch,
        unit: UnitId::new(),
        key,
        attempt: 1,
        generation: 1,
        run_key: String::new(),
        is_last_attempt: false,
        has_ended: false,
        answers: BTreeMap::new(),
        worker: "dry-run",
        source: &*checked.source,
        read_until: None,
    }
}

/// A message as text, after it was compiled and encoded as in a real run: an error in the page or
/// an address shows up here, and not in the first thousand rows.
async fn check_message(sealer: &DigestBuilder, mail: OutgoingMail) -> Result<String, PrepareError> {
    let OutgoingMail { key, from, to, subject, metadata, mjml, .. } = &mail;
    let items = metadata.items;
    let shown = format!("key: {key}\nfrom: {from}\nto: {to}\nsubject: {subject}\nitems: {items}\n\n{mjml}");
    match sealer.seal(mail).await {
        Ok(_) => Ok(shown),
        Err(error) => Err(PrepareError::permanent(format!("{}: {error}", error.code))),
    }
}

/// The cost of a batch, estimated from its first prompts.
struct CostEstimate {
    likely: Cost,
    most: Cost,
}

impl CostEstimate {
    /// The cost of a step before the last one, from its template: its prompts depend on answers. A
    /// step with a condition may cost nothing.
    fn of_step(step: &StepPrompt, profile: &Profile, count: u64) -> Self {
        let prompt = PromptSample::of(Value::Null, Ok(step.template.clone()));
        Self::of(&step.ai, profile, &[prompt], count)
    }

    fn plus(self, other: &Self) -> Self {
        Self { likely: self.likely + other.likely, most: self.most + other.most }
    }

    /// Likely: an answer has a quarter of its maximum tokens. Most: all of them, and each is corrected.
    fn of(ai: &Ai, profile: &Profile, prompts: &[PromptSample], count: u64) -> Self {
        let prices = profile.prices_of(&profile.model).unwrap_or(&profile.prices);
        let system = ai.system.as_ref().or(profile.system.as_ref()).map_or(0, |text| estimate_tokens(text));
        let tokens = prompts.iter().filter_map(|sample| sample.prompt.as_deref());
        let tokens: Vec<u64> = tokens.map(|prompt| system + estimate_tokens(prompt)).collect();
        let mean = tokens.iter().sum::<u64>() / (tokens.len() as u64).max(1);
        let mode = ai.provider_batch.map_or(PriceMode::Direct, |_| PriceMode::Batch);
        let cost = |tokens_in: u64, tokens_out: u64| {
            let answer = Answer { tokens_in, tokens_out, ..Answer::default() };
            prices.cost(&answer, now(), mode).times(count)
        };
        let most = u64::from(ai.max_tokens);
        // An answer that breaks its schema is corrected once, by a question that repeats both.
        let is_corrected = ai.schema.is_some() && mode == PriceMode::Direct;
        let correction = if is_corrected { cost(mean + most, most) } else { Cost::default() };
        Self { likely: cost(mean, most / 4), most: cost(mean, most) + correction }
    }
}

fn render(shown: &DryRun<'_>, estimate: Option<&CostEstimate>) -> String {
    let simulated = if shown.simulated { " (simulated: no provider is called)" } else { "" };
    let mut text = format!("candidates\n  {}\n", shown.candidates_sql.trim().replace('\n', "\n  "));
    for (name, value) in shown.params {
        text.push_str(&format!("  :{name} = {value}\n"));
    }
    text.push_str(&format!("rows       {}\n", shown.count));
    text.push_str(&format!("store      {}\n", shown.store));
    text.push_str(&format!("effects    {}\n", shown.effects));
    for step in &shown.steps {
        text.push_str(&format!("step       {step}\n"));
    }
    if let Some(profile) = &shown.profile {
        text.push_str(&format!("profile    {profile}{simulated}\n"));
        let cost = match estimate {
            Some(CostEstimate { likely, most }) => format!("about {likely}, at most {most}"),
            None => "unknown: the profile's store cannot be read".to_owned(),
        };
        text.push_str(&format!("cost       {cost}\n"));
    }
    for sample in &shown.prompts {
        let key = show_key(&longshore_batch::sql_json::from_json(&sample.key));
        text.push_str(&format!("\n--- prompt for row {key}\n"));
        match sample {
            PromptSample { prompt: Some(prompt), .. } => text.push_str(prompt.trim_end()),
            PromptSample { skipped: Some(reason), .. } => {
                text.push_str(&format!("skipped: {reason}"));
            }
            PromptSample { error, .. } => {
                text.push_str(&format!("PRE_ERROR: {}", error.as_deref().unwrap_or("")));
            }
        }
        text.push('\n');
    }
    escape_control(text.trim_end())
}

/// Escapes control characters, so that data can neither hide text nor move the cursor.
fn escape_control(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars().fold(String::with_capacity(text.len()), |mut text, c| {
        match is_plain(c) {
            true => text.push(c),
            false => text.extend(c.escape_default()),
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(escape_control("a\tb\nc"), "a\tb\nc");
        assert_eq!(escape_control("\x1b[2Jno\r\u{9b}é"), "\\u{1b}[2Jno\\r\\u{9b}é");
    }
}
