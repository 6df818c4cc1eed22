//! `doctor`: finds problems in the installation, with a hint for each. Prints no secret and changes
//! nothing, not even an older schema of the store.

mod check_result;
mod files;
mod host_limits;
mod programs;
mod providers;
mod replication;
mod store;

use anyhow::Result;

use crate::args::doctor::DoctorArgs as Typed;
use crate::error;
use crate::exit::ExitCode;
use crate::output::{Output, paint};
use crate::settings::Settings;
use check_result::{CheckResult, State};

/// Runs the command.
pub async fn run(typed: &Typed, settings: &Settings) -> Result<ExitCode> {
    let mut all = vec![CheckResult::good("configuration", files::describe_source(settings))];
    all.extend(files::check(settings));
    let (found, opened) = store::check(settings).await;
    all.extend(found);
    if let Some((store, ledger)) = &opened {
        all.extend(replication::check(settings).await);
        all.extend(store::workers(&**store).await);
        all.extend(providers::prices(&**ledger).await);
        if !typed.no_providers {
            all.extend(providers::check(ledger, settings).await);
        }
    }
    all.extend(host_limits::check(settings));
    all.extend(programs::check(settings));
    report(&all, settings.output)
}

/// Reports a configuration that cannot be read.
pub fn misconfigured(problem: &anyhow::Error, output: Output) -> Result<ExitCode> {
    let mend = error::hint(problem);
    let mend = mend.unwrap_or_else(|| "longshore.reference.toml shows every key".to_owned());
    report(&[CheckResult::wrong("configuration", format!("{problem:#}"), mend)], output)
}

fn report(all: &[CheckResult], output: Output) -> Result<ExitCode> {
    if output.is_json() {
        output.json(&all)?;
    } else {
        let width = all.iter().map(|result| result.area.len()).max().unwrap_or(0);
        for result in all.iter().filter(|one| !output.is_quiet() || one.state != State::Good) {
            let state = result.state.word();
            let shown = paint(output.is_coloured(), result.state.colour(), &format!("{state:<8}"));
            output.line(format!("{shown}  {:<width$}  {}", result.area, clean(&result.says)))?;
            if let Some(mend) = &result.mend {
                output.line(format!("          {:<width$}  mend: {}", "", clean(mend)))?;
            }
        }
    }
    let is_wrong = all.iter().any(|result| result.state == State::Wrong);
    Ok(if is_wrong { ExitCode::Error } else { ExitCode::Good })
}

/// Replaces control characters, which could move the cursor.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
