//! `key`: stores encrypted keys of providers. The master key's own commands are in
//! `key/master_key.rs`.

mod master_key;

use std::sync::Arc;

use longshore::accounts::{KeyStatus, Ledger};
use longshore::duration::{self, format_ago};
use longshore::{HumanDuration, KeyName, TenantId};
use longshore_ai::{KeyEntry, KeyRef, Vault};
use serde::Serialize;

use super::{ledger, now};
use crate::args::key::{KeyAddArgs, KeyArg, KeyCommand as Typed, KeyRevokeArgs, KeyRotateArgs};
use crate::args::unit_worker::PageArgs;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;
use crate::{audit, keyring, secret_prompt};

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    match typed {
        Typed::Init(typed) => return master_key::init(&typed, settings),
        Typed::Rewrap(typed) => return master_key::rewrap(&typed, settings).await,
        Typed::Add(typed) => add(&typed, settings).await?,
        Typed::List { page } => list(&page, settings).await?,
        Typed::Rotate(typed) => rotate(&typed, settings).await?,
        Typed::Revoke(typed) => revoke(&typed, settings).await?,
    }
    Ok(ExitCode::Good)
}

/// The result of a change.
#[derive(Serialize)]
struct KeyResult<'a> {
    tenant: &'a TenantId,
    key: &'a KeyName,
    version: Option<u32>,
}

async fn add(typed: &KeyAddArgs, settings: &Settings) -> anyhow::Result<()> {
    let (tenant, name) = resolve_key(&typed.named, settings)?;
    // Checks that it is a provider's name, and not the secret itself.
    if !typed.provider.is_empty() {
        typed.provider.parse::<KeyRef>()?;
    }
    let (vault, ledger) = open(settings).await?;
    let secret = secret_prompt::read(&format!("the secret of key `{name}`"), settings.output).await?;
    audit::record(&*ledger, "key.add", Some(&tenant), &name).await?;
    let version = vault.add(&settings.scope(), &tenant, &name, &typed.provider, &secret).await?;
    let answer = KeyResult { tenant: &tenant, key: &name, version: Some(version) };
    settings.output.answer(&answer, || format!("key `{name}` of `{tenant}` is stored"))
}

async fn rotate(typed: &KeyRotateArgs, settings: &Settings) -> anyhow::Result<()> {
    let (tenant, name) = resolve_key(&typed.named, settings)?;
    let (vault, ledger) = open(settings).await?;
    let secret = secret_prompt::read(&format!("the new secret of key `{name}`"), settings.output).await?;
    audit::record(&*ledger, "key.rotate", Some(&tenant), &name).await?;
    let HumanDuration(grace) = typed.grace;
    let version = vault.rotate(&settings.scope(), &tenant, &name, &secret, grace).await?;
    let answer = KeyResult { tenant: &tenant, key: &name, version: Some(version) };
    settings.output.answer(&answer, || {
        let before = match grace.is_zero() {
            true => "the previous version is no longer valid".to_owned(),
            false => {
                format!("the previous version stays valid for {}", duration::format(grace))
            }
        };
        format!("key `{name}` of `{tenant}` has version {version}; {before}")
    })
}

async fn revoke(typed: &KeyRevokeArgs, settings: &Settings) -> anyhow::Result<()> {
    let (tenant, name) = resolve_key(&typed.named, settings)?;
    // Revoking decrypts nothing, so it must work without a master key.
    let ledger = ledger(settings).await?;
    audit::record(&*ledger, "key.revoke", Some(&tenant), &name).await?;
    let vault = Vault::new(ledger, None);
    vault.revoke(&settings.scope(), &tenant, &name, typed.which).await?;
    let answer = KeyResult { tenant: &tenant, key: &name, version: typed.which };
    settings.output.answer(&answer, || {
        let version = typed.which.map_or(String::new(), |version| format!("version {version} of "));
        format!("{version}key `{name}` of `{tenant}` is revoked")
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

/// Opens the vault, which must have a master key: the error is better before a secret is prompted
/// for. Returns its ledger, too.
async fn open(settings: &Settings) -> anyhow::Result<(Vault, Arc<dyn Ledger>)> {
    if settings.vault.master()?.is_none() {
        return Err(longshore_ai::VaultError::NoMaster.into());
    }
    let ledger = ledger(settings).await?;
    Ok((keyring::open(Arc::clone(&ledger), settings)?, ledger))
}

/// The tenant and the name of the key. No argument is repeated in an error: it may be the secret
/// itself.
fn resolve_key(named: &KeyArg, settings: &Settings) -> anyhow::Result<(TenantId, KeyName)> {
    if !named.misplaced.is_empty() {
        return Err(usage("a secret must not be an argument: other users can read it"))
            .hint("pass it on stdin, as `longshore key add NAME < FILE`; and replace the exposed one");
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
    let empty = "no keys; `longshore key add NAME < FILE` adds one";
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
            cell(format_ago(key.created_at, now)),
            cell(until.map_or(String::new(), |end| format_ago(end, now))),
            cell(&key.master),
        ]);
    }
    table
}
