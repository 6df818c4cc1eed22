//! PRE by SQL and a template: reads the row and its lists, renders the prompt.

use async_trait::async_trait;

use crate::definition::SqlPre;
use crate::prompt::Prompt;
use crate::reading::Reading;
use crate::step::{Prepare, PrepareError, RowRun};

/// A compiled [`SqlPre`].
#[derive(Debug)]
pub struct SqlPrepare {
    reading: Reading,
    prompt: Prompt,
}

impl SqlPrepare {
    /// Compiles the template. The SQL is the database's to understand.
    pub fn compile(pre: &SqlPre) -> Result<Self, String> {
        let prompt = Prompt::compile(&pre.template, &pre.template_name)
            .map_err(|error| format!("{}: {error}", pre.template_name))?;
        let reading = Reading { sql: pre.sql.clone(), lists: pre.lists.clone(), facts: Vec::new() };
        Ok(Self { reading, prompt })
    }
}

#[async_trait]
impl Prepare for SqlPrepare {
    async fn prepare(&self, run: &RowRun<'_>) -> Result<String, PrepareError> {
        let known = self.reading.read(run).await?;
        self.prompt.render(&known.row, &known.lists).map_err(PrepareError::hopeless)
    }
}
