//! `mail check`: what the embedded renderer makes of templates, beside npm's mjml.

use std::path::{Path, PathBuf};

use longshore_mail::mjml::{Difference, Renderer, Template, differences};
use serde::Serialize;

use super::{folder_of, templates};
use crate::args::mail::Check;
use crate::exit::ExitCode;
use crate::mail::{self, RendererName};
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Differences that are told unless all are asked for.
const FEW: usize = 5;
/// Of a tag or of words.
const SHORT: usize = 160;

#[derive(Serialize)]
struct Line {
    template: PathBuf,
    /// Why one of the two does not render it.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    differences: usize,
    /// What one has more often than the other.
    listed: Vec<String>,
}

/// Runs the command.
pub async fn run(typed: &Check, settings: &Settings) -> anyhow::Result<ExitCode> {
    let here = mail::renderer(&RendererName::Embedded, &settings.mail).await?;
    let there = mail::renderer(&RendererName::Reference, &settings.mail).await?;
    let (folder, paths) = match typed.path.is_dir() {
        true => (typed.path.as_path(), templates(&typed.path)?),
        false => (folder_of(&typed.path), vec![typed.path.clone()]),
    };
    let roots = mail::roots(folder, &typed.includes, &settings.mail)?;
    let mut lines = Vec::new();
    for path in paths {
        let template = Template::read(&path, &roots).map_err(|fault| fault.to_string());
        lines.push(match template {
            Ok(template) => compare(path, &template, &*here, &*there, typed.all).await,
            Err(error) => failed(path, error),
        });
    }
    settings.output.list(&lines, || table(&lines, folder))?;
    if !settings.output.is_json() {
        told(&lines, settings)?;
    }
    let same = lines.iter().all(|line| line.error.is_none());
    Ok(if same { ExitCode::Good } else { ExitCode::Failures })
}

fn failed(template: PathBuf, error: String) -> Line {
    Line { template, error: Some(error), differences: 0, listed: Vec::new() }
}

async fn compare(
    path: PathBuf,
    template: &Template,
    here: &dyn Renderer,
    there: &dyn Renderer,
    all: bool,
) -> Line {
    let (here, there) = match (here.render(template).await, there.render(template).await) {
        (Ok(here), Ok(there)) => (here, there),
        (Err(error), _) => return failed(path, format!("embedded: {error}")),
        (_, Err(error)) => return failed(path, format!("reference: {error}")),
    };
    let found = differences(&there.html, &here.html);
    let most = if all { found.len() } else { FEW };
    let listed = found.iter().take(most).map(shown).collect();
    Line { template: path, error: None, differences: found.len(), listed }
}

fn shown(one: &Difference) -> String {
    let who = if one.more > 0 { "embedded" } else { "reference" };
    let what: String = one.what.chars().take(SHORT).collect();
    format!("{} more in {who}: {what}", one.more.abs())
}

fn table(lines: &[Line], folder: &Path) -> Table {
    let heading = [cell("TEMPLATE"), right("DIFFERENCES"), cell("")];
    let mut table = Table::new(heading, "there are no templates here");
    for line in lines {
        let name = line.template.strip_prefix(folder).unwrap_or(&line.template);
        let (count, words) = match &line.error {
            Some(error) => ("-".to_owned(), error.as_str()),
            None => (line.differences.to_string(), ""),
        };
        table.row([cell(name.display()), right(count), cell(words)]);
    }
    table
}

fn told(lines: &[Line], settings: &Settings) -> anyhow::Result<()> {
    for line in lines.iter().filter(|line| !line.listed.is_empty()) {
        settings.output.line(format!("\n{}", line.template.display()))?;
        for one in &line.listed {
            settings.output.line(format!("  {one}"))?;
        }
    }
    Ok(())
}
