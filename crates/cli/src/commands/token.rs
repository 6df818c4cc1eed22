//! `token`: manages API tokens with their tenants and roles.

use longshore::TokenId;
use longshore::accounts::{NewToken, TokenRecord};
use longshore::duration::format_ago;
use longshore_web::FreshToken;
use serde::Serialize;

use super::{ledger, now};
use crate::args::web::{TokenAddArgs, TokenCommand as Typed};
use crate::audit;
use crate::exit::ExitCode;
use crate::output::{Table, cell};
use crate::settings::Settings;

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    match typed {
        Typed::Add(typed) => add(typed, settings).await?,
        Typed::List => {
            let tokens = ledger(settings).await?.tokens(&settings.scope(), None, u32::MAX).await?;
            settings.output.list(&tokens, || table(&tokens))?;
        }
        Typed::Revoke { id } => {
            let ledger = ledger(settings).await?;
            audit::record(&*ledger, "token.revoke", settings.tenant.as_ref(), id).await?;
            let revoked = ledger.revoke_token(&settings.scope(), id).await?;
            settings.output.answer(&revoked, || format!("token {id} is revoked"))?;
        }
    }
    Ok(ExitCode::Good)
}

async fn add(typed: TokenAddArgs, settings: &Settings) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct TokenResult<'a> {
        #[serde(flatten)]
        record: &'a TokenRecord,
        secret: &'a str,
    }
    let fresh = FreshToken::new();
    let new = NewToken {
        id: TokenId::new(),
        tenant: typed.owner.or_else(|| settings.tenant.clone()).unwrap_or_default(),
        role: typed.role,
        label: typed.label,
        hash: fresh.hash(),
        expires_at: typed.expires.map(|span| now() + span.0),
    };
    let ledger = ledger(settings).await?;
    new.check(&settings.scope())?;
    audit::record(&*ledger, "token.add", Some(&new.tenant), new.id).await?;
    let record = ledger.add_token(&settings.scope(), new).await?;
    let answer = TokenResult { record: &record, secret: fresh.expose() };
    if settings.output.is_json() {
        return settings.output.json(&answer);
    }
    // Data, printed also with `--quiet`: it cannot be retrieved again.
    settings.output.line(fresh.expose())?;
    let TokenRecord { id, tenant, role, .. } = &record;
    settings
        .output
        .note(format!("this is the only time that it is shown; it is token {id}, role {role} of `{tenant}`"));
    Ok(())
}

fn table(tokens: &[TokenRecord]) -> Table {
    let heading = ["token", "tenant", "role", "state", "added", "label"].map(cell);
    let mut table = Table::new(heading, "no tokens");
    let now = now();
    for token in tokens {
        table.row([
            cell(token.id),
            cell(&token.tenant),
            cell(token.role),
            cell(match (token.revoked_at, token.is_valid(now)) {
                (Some(_), _) => "revoked",
                (None, false) => "expired",
                (None, true) => "good",
            }),
            cell(format_ago(token.created_at, now)),
            cell(&token.label),
        ]);
    }
    table
}
