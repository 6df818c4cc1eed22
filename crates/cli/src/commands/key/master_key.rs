//! `key init` and `key rewrap`: create and replace the master key.

use longshore_ai::{MasterKey, MasterSource, RewrapReport, Vault};
use serde_json::json;

use super::super::ledger;
use crate::args::key::{KeyInitArgs, KeyRewrapArgs};
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::output::{Table, cell};
use crate::settings::Settings;

/// Creates the file.
pub fn init(typed: &KeyInitArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let Some(path) = typed.out.clone().or_else(|| settings.vault.new_file()) else {
        return Err(usage("[vault] key_file names no file")).hint("name one by --out FILE");
    };
    if path.exists() {
        return Err(anyhow::anyhow!("{} exists already", path.display())).hint(
            "it is never overwritten: its keys would be lost; `longshore key rewrap` changes \
             to another one",
        );
    }
    let id = MasterKey::generate(&path)?.id().to_owned();
    settings.output.answer(&json!({ "file": path, "master": id }), || {
        format!("master key {id} is in {}: keep a copy of it away from the store's copies", path.display())
    })?;
    Ok(ExitCode::Good)
}

/// Re-encrypts all keys with the new one.
pub async fn rewrap(typed: &KeyRewrapArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let load = |text: &str| MasterKey::load(&text.parse::<MasterSource>()?);
    let (old, new) = (load(&typed.old)?, load(&typed.new)?);
    if old.id() == new.id() {
        return Err(usage("--old and --new are the same master key"))
            .hint("`longshore key init --out FILE` creates a new one");
    }
    let id = new.id().to_owned();
    let vault = Vault::new(ledger(settings).await?, Some(new)).with_older(old);
    let done = vault.rewrap(&settings.scope()).await?;
    print_result(&done, &id, settings)?;
    Ok(if done.failed.is_empty() { ExitCode::Good } else { ExitCode::Failures })
}

fn print_result(done: &RewrapReport, id: &str, settings: &Settings) -> anyhow::Result<()> {
    let RewrapReport { rewrapped: moved, current: there, failed: left } = done;
    let keys: Vec<_> = left.iter().map(|(key, why)| json!({ "key": key, "why": why.to_string() })).collect();
    let answer = json!({ "master": id, "moved": moved, "there": there, "left": keys });
    settings.output.answer(&answer, || {
        format!("{moved} keys are now encrypted by master key {id}, {there} were before")
    })?;
    if left.is_empty() || settings.output.is_json() {
        return Ok(());
    }
    let mut table = Table::new([cell("tenant"), cell("key"), cell("version"), cell("why")], "");
    for (key, why) in left {
        table.row([cell(&key.tenant), cell(&key.name), cell(key.version), cell(why)]);
    }
    settings.output.note("the old master key is still needed for these:");
    settings.output.note(table.render(false).trim_end());
    Ok(())
}
