//! `[[step]]`: what a row does before its last step.

use longshore::RetryPolicy;

use crate::definition::{RowStepSpec, StepAction, StepPrompt};
use crate::prompt::WHOLE_ROW;
use crate::sql_post::RESERVED;
use crate::verdict_rules::STEPS;

use super::error::FileError;
use super::section::{Field, Section};
use super::source_map::SourceMap;
use super::{SourceText, ai, command, policy, statements};

const KEYS: [&str; 23] = [
    "name",
    "when",
    "retry",
    "query",
    "sql",
    "command",
    "min",
    "max",
    "start_timeout",
    "prompt",
    "prompt_file",
    "profile",
    "through",
    "system",
    "max_tokens",
    "max_prompt",
    "temperature",
    "timeout",
    "schema",
    "schema_file",
    "pool",
    "mode",
    "provider_batch",
];
const ACTIONS: [&str; 5] = ["query", "sql", "command", "prompt", "prompt_file"];
/// Keys of questions.
const ASK_KEYS: [&str; 9] = [
    "profile",
    "through",
    "system",
    "max_tokens",
    "max_prompt",
    "temperature",
    "schema",
    "schema_file",
    "pool",
];

/// The steps, in order. `retry` is that of the batch.
pub(super) fn read(
    root: &Section<'_>,
    retry: &RetryPolicy,
    source_map: &mut SourceMap,
) -> Result<Vec<RowStepSpec>, FileError> {
    let Some(field) = root.field("step") else { return Ok(Vec::new()) };
    let items = field.items().ok_or_else(|| field.type_error("a list of sections, each [[step]]"))?;
    if root.field("mail").is_some() {
        return Err(field.error("steps are for rows that ask a model, not for [mail]"));
    }
    if ai::uses_provider_batch(root) {
        let error = field.error("steps do not wait for a provider's batch");
        return Err(error.hint("leave out mode = \"provider-batch\" in [ai]"));
    }
    let mut steps: Vec<RowStepSpec> = Vec::new();
    for item in &items {
        let step = step(root, item, retry, source_map)?;
        if steps.iter().any(|earlier| earlier.name == step.name) {
            return Err(item.error(format!("there are two steps `{}`", step.name)));
        }
        steps.push(step);
    }
    Ok(steps)
}

fn step(
    root: &Section<'_>,
    item: &Field<'_>,
    retry: &RetryPolicy,
    source_map: &mut SourceMap,
) -> Result<RowStepSpec, FileError> {
    let section = item.section(&KEYS)?;
    let name = name(&section.require("name")?)?;
    let when = section.field("when").map(|field| {
        source_map.put(&field.name, field.text_location());
        field.text().map(str::to_owned)
    });
    Ok(RowStepSpec {
        name,
        when: when.transpose()?,
        retry: policy::retry_section(&section, retry.clone())?,
        action: action(root, &section, source_map)?,
    })
}

/// A name that templates, SQL and rules can use.
fn name(field: &Field<'_>) -> Result<String, FileError> {
    let name = field.text()?;
    let is_letter = |c: char| c.is_ascii_lowercase() || c == '_';
    let is_name = name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit());
    if !is_name {
        let error = field.error(format!("`{name}` is not a name of a step"));
        return Err(error.hint("lower-case letters, digits and _, as in `first_look`"));
    }
    if RESERVED.contains(&name) || [WHOLE_ROW, STEPS].contains(&name) {
        return Err(field.error(format!("a step cannot be called `{name}`, which has a meaning already")));
    }
    Ok(name.to_owned())
}

fn action(
    root: &Section<'_>,
    section: &Section<'_>,
    source_map: &mut SourceMap,
) -> Result<StepAction, FileError> {
    let missing = || section.error("the step does nothing").hint("give it a prompt, query, sql or command");
    let (index, field) = section.exclusive(&ACTIONS)?.ok_or_else(missing)?;
    for key in ["mode", "provider_batch"] {
        if let Some(field) = section.field(key) {
            return Err(field.error("steps do not wait for a provider's batch"));
        }
    }
    if index < 3
        && let Some(field) = ASK_KEYS.iter().find_map(|key| section.field(key))
    {
        return Err(field.error(format!("`{}` is for a step with a prompt", field.name)));
    }
    Ok(match index {
        0 => StepAction::Query(statements::query(&SourceText::inline(&field)?, &field.name, source_map)?),
        1 => StepAction::Sql(statements::list(&field, source_map)?),
        2 => match command::read(section, &[], source_map)? {
            Some(command) => StepAction::Command(command),
            None => return Err(missing()),
        },
        _ => {
            let prompt = SourceText::inline_or_file(section, "prompt", "prompt_file")?;
            let prompt = prompt.ok_or_else(missing)?;
            source_map.put(format!("{}.prompt", section.name()), prompt.location.clone());
            let file = &prompt.location.file;
            let template_name = if prompt.is_file {
                file.clone()
            } else {
                format!("{file}, the prompt of {}", section.name())
            };
            let ai = ai::read_section(root, section, source_map)?;
            StepAction::Ask(Box::new(StepPrompt { template: prompt.text, template_name, ai }))
        }
    })
}
