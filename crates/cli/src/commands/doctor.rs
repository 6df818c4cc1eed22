//! `doctor`: looks for what is wrong and says how to mend it. Prints no secret, and changes nothing; but it
//! opens the store as every command does, which brings an older schema up to date.

mod files;
mod finding;
mod machine;
mod programs;
mod providers;
mod store;

use anyhow::Result;

use crate::args::doctor::Doctor as Typed;
use crate::error;
use crate::exit::ExitCode;
use crate::output::{Output, paint};
use crate::settings::Settings;
use finding::{Finding, State};

/// Runs the command.
pub async fn run(typed: &Typed, settings: &Settings) -> Result<ExitCode> {
    let mut all = vec![Finding::good("configuration", files::whence(settings))];
    all.extend(files::look(settings));
    let (found, opened) = store::look(settings).await;
    all.extend(found);
    if let Some((store, ledger)) = &opened {
        all.extend(store::workers(&**store).await);
        if !typed.no_providers {
            all.extend(providers::look(ledger, settings).await);
        }
    }
    all.extend(machine::look(settings));
    all.extend(programs::look(settings));
    report(&all, settings.output)
}

/// What can be said when the configuration cannot be read: that.
pub fn misconfigured(problem: &anyhow::Error, output: Output) -> Result<ExitCode> {
    let mend = error::hint(problem);
    let mend = mend.unwrap_or_else(|| "longshore.reference.toml shows every key".to_owned());
    report(&[Finding::wrong("configuration", format!("{problem:#}"), mend)], output)
}

fn report(all: &[Finding], output: Output) -> Result<ExitCode> {
    if output.is_json() {
        output.json(&all)?;
    } else {
        let width = all.iter().map(|finding| finding.area.len()).max().unwrap_or(0);
        for finding in all.iter().filter(|one| !output.is_quiet() || one.state != State::Good) {
            let state = finding.state.word();
            let shown = paint(output.is_coloured(), finding.state.colour(), &format!("{state:<8}"));
            output.line(format!("{shown}  {:<width$}  {}", finding.area, clean(&finding.says)))?;
            if let Some(mend) = &finding.mend {
                output.line(format!("          {:<width$}  mend: {}", "", clean(mend)))?;
            }
        }
    }
    let is_wrong = all.iter().any(|finding| finding.state == State::Wrong);
    Ok(if is_wrong { ExitCode::Error } else { ExitCode::Good })
}

/// Words of others must not move the reader's cursor.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
