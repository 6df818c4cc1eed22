//! PRE by SQL and a template: reads the row and its lists, renders the prompt.

use async_trait::async_trait;

use crate::definition::{Pre, SqlPre, StepPrompt};
use crate::pre_post::{Prepare, PrepareError, RowRun};
use crate::prompt::{PromptTemplate, TemplateContext};
use crate::row_loader::{LoadedRow, RowLoader};

/// A compiled [`SqlPre`].
#[derive(Debug)]
pub struct SqlPrepare {
    /// `None` if PRE reads no row: for a step's prompt.
    row_loader: Option<RowLoader>,
    prompt: PromptTemplate,
}

impl SqlPrepare {
    /// Compiles the template. The database checks the SQL.
    pub fn compile(pre: &SqlPre) -> Result<Self, String> {
        let prompt = PromptTemplate::compile(&pre.template, &pre.template_name)
            .map_err(|error| format!("{}: {error}", pre.template_name))?;
        let row_loader = RowLoader { sql: pre.sql.clone(), lists: pre.lists.clone(), facts: Vec::new() };
        Ok(Self { row_loader: Some(row_loader), prompt })
    }

    /// Compiles a step's prompt, over the row that PRE reads.
    pub fn compile_step(step: &StepPrompt, pre: &Pre) -> Result<Self, String> {
        let prompt = PromptTemplate::compile(&step.template, &step.template_name)
            .map_err(|error| format!("{}: {error}", step.template_name))?;
        Ok(Self { row_loader: RowLoader::of(pre), prompt })
    }
}

#[async_trait]
impl Prepare for SqlPrepare {
    async fn prepare(&self, run: &RowRun<'_>) -> Result<String, PrepareError> {
        let loaded = match &self.row_loader {
            Some(row_loader) => row_loader.read(run).await?,
            None => LoadedRow::default(),
        };
        let context = TemplateContext::with_answers(&loaded.row, &loaded.lists, &run.answers);
        self.prompt.render_with(&context).map_err(PrepareError::permanent)
    }
}
