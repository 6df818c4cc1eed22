//! `mail check`: compares the embedded renderer with npm's mjml.

use std::path::{Path, PathBuf};

use longshore_mail::mjml::{Difference, MjmlTemplate, Renderer, differences};
use serde::Serialize;

use super::{folder_of, templates};
use crate::args::mail::MailCheckArgs;
use crate::config::RendererName;
use crate::exit::ExitCode;
use crate::mail;
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Differences per template that are printed without `--all`.
const MAX_LISTED: usize = 5;
/// Maximum length of a printed tag or text.
const MAX_TEXT: usize = 160;

#[derive(Serialize)]
struct CheckRow {
    template: PathBuf,
    /// Why one of the renderers failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    differences: usize,
    /// What one output has more often than the other.
    listed: Vec<String>,
}

/// Runs the command.
pub async fn run(typed: &MailCheckArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let here = mail::renderer(&RendererName::Embedded, &settings.mail).await?;
    let there = mail::renderer(&RendererName::Reference, &settings.mail).await?;
    let (folder, paths) = match typed.path.is_dir() {
        true => (typed.path.as_path(), templates(&typed.path)?),
        false => (folder_of(&typed.path), vec![typed.path.clone()]),
    };
    let roots = mail::include_roots(folder, &typed.includes, &settings.mail)?;
    let mut lines = Vec::new();
    for path in paths {
        let template = MjmlTemplate::read(&path, &roots).map_err(|fault| fault.to_string());
        lines.push(match template {
            Ok(template) => compare(path, &template, &*here, &*there, typed.all).await,
            Err(error) => failed(path, error),
        });
    }
    settings.output.list(&lines, || table(&lines, folder))?;
    if !settings.output.is_json() {
        print_differences(&lines, settings)?;
    }
    let same = lines.iter().all(|row| row.error.is_none());
    Ok(if same { ExitCode::Good } else { ExitCode::Failures })
}

fn failed(template: PathBuf, error: String) -> CheckRow {
    CheckRow { template, error: Some(error), differences: 0, listed: Vec::new() }
}

async fn compare(
    path: PathBuf,
    template: &MjmlTemplate,
    here: &dyn Renderer,
    there: &dyn Renderer,
    all: bool,
) -> CheckRow {
    let (here, there) = match (here.render(template).await, there.render(template).await) {
        (Ok(here), Ok(there)) => (here, there),
        (Err(error), _) => return failed(path, format!("embedded: {error}")),
        (_, Err(error)) => return failed(path, format!("reference: {error}")),
    };
    let found = differences(&there.html, &here.html);
    let most = if all { found.len() } else { MAX_LISTED };
    let listed = found.iter().take(most).map(format_difference).collect();
    CheckRow { template: path, error: None, differences: found.len(), listed }
}

fn format_difference(one: &Difference) -> String {
    let renderer = if one.excess > 0 { "embedded" } else { "reference" };
    let what: String = one.text.chars().take(MAX_TEXT).collect();
    format!("{} more in {renderer}: {what}", one.excess.abs())
}

fn table(lines: &[CheckRow], folder: &Path) -> Table {
    let heading = [cell("TEMPLATE"), right("DIFFERENCES"), cell("")];
    let mut table = Table::new(heading, "no templates");
    for row in lines {
        let name = row.template.strip_prefix(folder).unwrap_or(&row.template);
        let (count, words) = match &row.error {
            Some(error) => ("-".to_owned(), error.as_str()),
            None => (row.differences.to_string(), ""),
        };
        table.row([cell(name.display()), right(count), cell(words)]);
    }
    table
}

fn print_differences(lines: &[CheckRow], settings: &Settings) -> anyhow::Result<()> {
    for row in lines.iter().filter(|row| !row.listed.is_empty()) {
        settings.output.line(format!("\n{}", row.template.display()))?;
        for one in &row.listed {
            settings.output.line(format!("  {one}"))?;
        }
    }
    Ok(())
}
