//! Checks the steps before the last one: prompts, conditions and SQL use only what comes before them.

use std::collections::BTreeMap;

use longshore_ai::ResponseSchema;

use crate::definition::{Pre, RowStepSpec, StepAction, StepPrompt};
use crate::file::FileError;
use crate::prompt::PromptTemplate;
use crate::sql_post::RESERVED;
use crate::step_condition::StepCondition;
use crate::verdict_rules::STEPS;

use super::post::{step_params, unbounded_change};
use super::pre::{PromptNames, check_prompt, row_query_columns, template_error};
use super::query::Query;
use super::{CheckContext, ai};

/// Checks the steps. Returns warnings about settings that are probably a mistake.
pub(super) async fn check(context: &CheckContext<'_>) -> Result<Vec<String>, FileError> {
    let (all, mut warnings) = (&context.definition.steps, Vec::new());
    for (index, step) in all.iter().enumerate() {
        let (key, earlier) = (format!("step[{index}]"), &all[..index]);
        condition(context, &key, step, earlier)?;
        match &step.action {
            StepAction::Ask(prompt) => ask(context, &key, prompt, earlier).await?,
            StepAction::Query(sql) => {
                let query = Query { context, key: &format!("{key}.query"), sql };
                query.columns().await?;
                query.allow_params(RESERVED.into_iter().chain(step_params(sql, earlier)))?;
            }
            StepAction::Sql(statements) => {
                for (at, statement) in statements.iter().enumerate() {
                    let key = format!("{key}.sql[{at}]");
                    let query = Query { context, key: &key, sql: &statement.sql };
                    query.require_write().await?;
                    warnings.extend(unbounded_change(context, &key, &statement.sql));
                    query.allow_params(RESERVED.into_iter().chain(step_params(&statement.sql, earlier)))?;
                }
            }
            StepAction::Command(_) => {}
        }
    }
    Ok(warnings)
}

fn condition(
    context: &CheckContext<'_>,
    key: &str,
    step: &RowStepSpec,
    earlier: &[RowStepSpec],
) -> Result<(), FileError> {
    let Some(when) = &step.when else { return Ok(()) };
    let key = format!("{key}.when");
    let condition = StepCondition::compile(when);
    let condition = condition.map_err(|error| context.error(&key, 0, format!("`when`: {error}")))?;
    let known = || earlier.iter().map(|step| step.name.as_str()).chain([STEPS]);
    for path in condition.names() {
        let name = path.split('.').next().unwrap_or_default();
        if !known().any(|known| known == name) {
            let error = context.error(&key, 0, format!("`when`: no earlier step is called `{name}`"));
            return Err(error.suggest(name, known()));
        }
    }
    Ok(())
}

async fn ask(
    context: &CheckContext<'_>,
    key: &str,
    step: &StepPrompt,
    earlier: &[RowStepSpec],
) -> Result<(), FileError> {
    let prompt_key = format!("{key}.prompt");
    let prompt = PromptTemplate::compile(&step.template, &step.template_name);
    let prompt = prompt.map_err(|error| template_error(context, &prompt_key, error))?;
    let (columns, lists) = row_names(context).await?;
    let steps: Vec<&str> = earlier.iter().map(|step| step.name.as_str()).collect();
    let names = PromptNames { columns: &columns, lists: &lists, steps: &steps };
    check_prompt(context, &prompt_key, &step.template, &prompt, &names)?;
    if let Some(schema) = &step.ai.schema {
        let schema = ResponseSchema::new(schema);
        schema.map_err(|error| context.error(&format!("{key}.schema"), 0, format!("the schema: {error}")))?;
    }
    ai::profile(context, &step.ai, key)
}

/// The columns and lists that PRE reads.
async fn row_names(
    context: &CheckContext<'_>,
) -> Result<(Vec<String>, BTreeMap<String, Vec<String>>), FileError> {
    let (sql, lists) = match &context.definition.pre {
        Pre::Sql(pre) => (Some(&pre.sql), &pre.lists),
        Pre::Command(pre) => (pre.sql.as_ref(), &pre.lists),
        Pre::Code(_) => return Ok((Vec::new(), BTreeMap::new())),
    };
    let Some(sql) = sql else { return Ok((Vec::new(), BTreeMap::new())) };
    let columns = row_query_columns(&Query { context, key: "pre.sql", sql }).await?;
    let mut named = BTreeMap::new();
    for (name, sql) in lists {
        let key = format!("pre.lists.{name}");
        named.insert(name.clone(), row_query_columns(&Query { context, key: &key, sql }).await?);
    }
    Ok((columns, named))
}
