//! `key`: keys of providers, sealed in the store. The master key's own verbs are in `key/master.rs`.

mod master;

use longshore::ledger::KeyStatus;
use longshore::{KeyName, TenantId};
use longshore_ai::{KeyEntry, KeyRef, Vault};
use serde::Serialize;

use super::{ledger, now};
use crate::args::key::{Add, Key as Typed, Named, Revoke, Rotate};
use crate::args::operate::PageArgs;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;
use crate::span::{Span, ago};
use crate::{secret, vault};

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    match typed {
        Typed::Init(typed) => return master::init(&typed, settings),
        Typed::Rewrap(typed) => return master::rewrap(&typed, settings).await,
        Typed::Add(typed) => add(&typed, settings).await?,
        Typed::List { page } => list(&page, settings).await?,
        Typed::Rotate(typed) => rotate(&typed, settings).await?,
        Typed::Revoke(typed) => revoke(&typed, settings).await?,
    }
    Ok(ExitCode::Good)
}

/// What became of a key.
#[derive(Serialize)]
struct Answer<'a> {
    tenant: &'a TenantId,
    key: &'a KeyName,
    version: Option<u32>,
}

async fn add(typed: &Add, settings: &Settings) -> anyhow::Result<()> {
    let (tenant, name) = meant(&typed.named, settings)?;
    // A word, and not the secret itself.
    if !typed.provider.is_empty() {
        typed.provider.parse::<KeyRef>()?;
    }
    let vault = open(settings).await?;
    let secret = secret::read(&format!("the secret of key `{name}`"), settings.output).await?;
    let version = vault.add(&settings.scope(), &tenant, &name, &typed.provider, &secret).await?;
    let answer = Answer { tenant: &tenant, key: &name, version: Some(version) };
    settings.output.answer(&answer, || format!("key `{name}` of `{tenant}` is kept"))
}

async fn rotate(typed: &Rotate, settings: &Settings) -> anyhow::Result<()> {
    let (tenant, name) = meant(&typed.named, settings)?;
    let vault = open(settings).await?;
    let secret = secret::read(&format!("the new secret of key `{name}`"), settings.output).await?;
    let Span(grace) = typed.grace;
    let version = vault.rotate(&settings.scope(), &tenant, &name, &secret, grace).await?;
    let answer = Answer { tenant: &tenant, key: &name, version: Some(version) };
    settings.output.answer(&answer, || {
        let before = match grace.is_zero() {
            true => "the one before may not be used any more".to_owned(),
            false => format!("the one before may be used for {}", crate::span::brief(grace)),
        };
        format!("key `{name}` of `{tenant}` has version {version}; {before}")
    })
}

async fn revoke(typed: &Revoke, settings: &Settings) -> anyhow::Result<()> {
    let (tenant, name) = meant(&typed.named, settings)?;
    // Nothing is opened for it, so it must work without a master key.
    let vault = Vault::new(ledger(settings).await?, None);
    vault.revoke(&settings.scope(), &tenant, &name, typed.which).await?;
    let answer = Answer { tenant: &tenant, key: &name, version: typed.which };
    settings.output.answer(&answer, || {
        let version = typed.which.map_or(String::new(), |version| format!("version {version} of "));
        format!("{version}key `{name}` of `{tenant}` may not be used any more")
    })
}

async fn list(page: &PageArgs, settings: &Settings) -> anyhow::Result<()> {
    let vault = Vault::new(ledger(settings).await?, None);
    let found = vault.list(&settings.scope(), page.after.as_deref(), page.limit).await?;
    settings.output.list(&found.items, || table(&found.items))?;
    if let Some(next) = found.next {
        settings.output.note(format!("there are more: --after {next}"));
    }
    Ok(())
}

/// The vault, which must be able to seal: better said before a secret is asked for.
async fn open(settings: &Settings) -> anyhow::Result<Vault> {
    if settings.vault.master()?.is_none() {
        return Err(longshore_ai::VaultError::NoMaster.into());
    }
    vault::open(ledger(settings).await?, settings)
}

/// Whose key, and which. Nothing that was typed is repeated: it may be the secret itself.
fn meant(named: &Named, settings: &Settings) -> anyhow::Result<(TenantId, KeyName)> {
    if !named.misplaced.is_empty() {
        return Err(usage("a secret does not belong among the arguments: others can read them"))
            .hint("give it on stdin, as `longshore key add NAME < FILE`; and replace that one");
    }
    let name = match named.name.parse::<KeyRef>()? {
        KeyRef::Vault { name, version: None } => name,
        _ => {
            return Err(usage("a key's name has letters, digits, and - _ . only"))
                .hint("as `longshore key add claude`; env:NAME and file:PATH need no vault");
        }
    };
    let own = || settings.tenant.clone().unwrap_or_default();
    Ok((named.owner.clone().unwrap_or_else(own), name))
}

fn table(keys: &[KeyEntry]) -> Table {
    let heading = ["tenant", "key", "version", "state", "provider", "made", "until", "master"];
    let mut heading = heading.map(cell);
    heading[2] = right("version");
    let empty = "no keys; `longshore key add NAME < FILE` keeps one";
    let mut table = Table::new(heading, empty);
    let now = now();
    for key in keys {
        let state = match key.status {
            KeyStatus::Active => "active",
            KeyStatus::Retiring if key.retires_at.is_some_and(|end| end > now) => "retiring",
            KeyStatus::Retiring => "retired",
            KeyStatus::Revoked => "revoked",
        };
        let until = key.retires_at.filter(|_| state == "retiring");
        table.row([
            cell(&key.tenant),
            cell(&key.name),
            right(key.version),
            cell(state),
            cell(&key.provider),
            cell(ago(key.created_at, now)),
            cell(until.map_or(String::new(), |end| ago(end, now))),
            cell(&key.master),
        ]);
    }
    table
}
