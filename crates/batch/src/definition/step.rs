//! Steps of a row before its last one.

use longshore::RetryPolicy;
use serde::{Deserialize, Serialize};

use super::{Ai, CommandSpec, SqlStatement};

/// A step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowStepSpec {
    /// Its name: later templates, SQL and rules refer to its answer by it.
    pub name: String,
    /// A minijinja expression over the answers of earlier steps. The step is left out unless it is
    /// true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Its own attempts and delays; otherwise those of the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// What it does.
    #[serde(flatten)]
    pub action: StepAction,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepAction {
    /// Asks a model.
    Ask(Box<StepPrompt>),
    /// Reads rows; its answer is the list of them.
    Query(String),
    /// Changes rows, with the step's checkpoint if they are in the store's database.
    Sql(Vec<SqlStatement>),
    /// Calls a persistent command; its answer is what the command returns.
    Command(CommandSpec),
}

/// A question of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepPrompt {
    /// The prompt, a minijinja template over the row, its lists and the answers of earlier steps.
    pub template: String,
    /// Where the template was written, for messages.
    pub template_name: String,
    /// The model, and how it is called.
    pub ai: Ai,
}

impl RowStepSpec {
    /// The model's settings, if the step asks one.
    pub fn ai(&self) -> Option<&Ai> {
        match &self.action {
            StepAction::Ask(prompt) => Some(&prompt.ai),
            StepAction::Query(_) | StepAction::Sql(_) | StepAction::Command(_) => None,
        }
    }

    /// What it does, for people.
    pub fn describe(&self) -> String {
        let Self { name, when, action, .. } = self;
        let action = match action {
            StepAction::Ask(prompt) => format!("asks {}", prompt.ai.profile.display_name()),
            StepAction::Query(_) => "reads".to_owned(),
            StepAction::Sql(statements) => format!("{} SQL statements", statements.len()),
            StepAction::Command(command) => format!("command `{}`", command.command_line()),
        };
        let when = when.as_ref().map_or(String::new(), |when| format!(", when {when}"));
        format!("{name}: {action}{when}")
    }
}
