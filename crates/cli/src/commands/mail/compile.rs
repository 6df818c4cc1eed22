//! `mail compile`: compiles MJML to HTML.

use std::path::{Path, PathBuf};

use anyhow::Context;
use longshore_mail::mjml::{Compiler, MjmlTemplate, RenderError, RenderedPage, Roots};

use super::{folder_of, templates};
use crate::args::mail::MailCompileArgs;
use crate::exit::ExitCode;
use crate::mail;
use crate::settings::Settings;

/// Runs the command.
pub async fn run(typed: &MailCompileArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let compiler = mail::compiler(typed.renderer.as_ref(), settings).await?;
    match typed.path.is_dir() {
        true => folder(typed, &compiler, settings).await,
        false => file(typed, &compiler, settings).await,
    }
}

async fn file(typed: &MailCompileArgs, compiler: &Compiler, settings: &Settings) -> anyhow::Result<ExitCode> {
    let roots = mail::include_roots(folder_of(&typed.path), &typed.includes, &settings.mail)?;
    let page = compile(&typed.path, &roots, compiler, settings).await?;
    match &typed.output {
        Some(output) => write(output, &page.html)?,
        None => settings.output.piece(&page.html)?,
    }
    Ok(ExitCode::Good)
}

/// Compiles all templates of a folder, also if some fail.
async fn folder(
    typed: &MailCompileArgs,
    compiler: &Compiler,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let roots = mail::include_roots(&typed.path, &typed.includes, &settings.mail)?;
    let (mut good, mut bad) = (0, 0);
    for path in templates(&typed.path)? {
        let to = target(&path, typed)?;
        match compile(&path, &roots, compiler, settings).await {
            Ok(page) => {
                write(&to, &page.html)?;
                good += 1;
            }
            Err(error) => {
                settings.output.note(format!("error: {error}"));
                bad += 1;
            }
        }
    }
    let value = serde_json::json!({ "compiled": good, "failed": bad });
    settings.output.answer(&value, || format!("{good} templates compiled, {bad} failed"))?;
    Ok(if bad > 0 { ExitCode::Failures } else { ExitCode::Good })
}

fn target(path: &Path, typed: &MailCompileArgs) -> anyhow::Result<PathBuf> {
    let to = match &typed.output {
        Some(output) => output.join(path.strip_prefix(&typed.path)?),
        None => path.to_path_buf(),
    };
    Ok(to.with_extension("html"))
}

async fn compile(
    path: &Path,
    roots: &Roots,
    compiler: &Compiler,
    settings: &Settings,
) -> Result<std::sync::Arc<RenderedPage>, RenderError> {
    let page = compiler.compile(&MjmlTemplate::read(path, roots)?).await?;
    for warning in &page.warnings {
        settings.output.note(format!("warning: {warning}"));
    }
    Ok(page)
}

fn write(path: &Path, html: &str) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    std::fs::create_dir_all(folder_of(path)).with_context(cannot)?;
    std::fs::write(path, html).with_context(cannot)
}
