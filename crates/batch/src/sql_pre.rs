//! PRE by SQL and a template: reads the row and its lists, renders the prompt.

use async_trait::async_trait;

use crate::definition::SqlPre;
use crate::pre_post::{Prepare, PrepareError, RowRun};
use crate::prompt::PromptTemplate;
use crate::row_loader::RowLoader;

/// A compiled [`SqlPre`].
#[derive(Debug)]
pub struct SqlPrepare {
    row_loader: RowLoader,
    prompt: PromptTemplate,
}

impl SqlPrepare {
    /// Compiles the template. The database checks the SQL.
    pub fn compile(pre: &SqlPre) -> Result<Self, String> {
        let prompt = PromptTemplate::compile(&pre.template, &pre.template_name)
            .map_err(|error| format!("{}: {error}", pre.template_name))?;
        let row_loader = RowLoader { sql: pre.sql.clone(), lists: pre.lists.clone(), facts: Vec::new() };
        Ok(Self { row_loader, prompt })
    }
}

#[async_trait]
impl Prepare for SqlPrepare {
    async fn prepare(&self, run: &RowRun<'_>) -> Result<String, PrepareError> {
        let loaded = self.row_loader.read(run).await?;
        self.prompt.render(&loaded.row, &loaded.lists).map_err(PrepareError::permanent)
    }
}
