//! The admin token that the first start of `serve` makes.

use longshore::accounts::{NewToken, Role};
use longshore::{Ledger, Scope, TenantId, TokenId};
use longshore_web::FreshToken;

use crate::audit;
use crate::commands::now;

/// Adds an admin token if the store has no valid token.
pub async fn add(ledger: &dyn Ledger) -> anyhow::Result<Option<FreshToken>> {
    if ledger.has_valid_token(now()).await? {
        return Ok(None);
    }
    let fresh = FreshToken::new();
    let new = NewToken {
        id: TokenId::new(),
        tenant: TenantId::default(),
        role: Role::Admin,
        label: "first start of serve".to_owned(),
        hash: fresh.hash(),
        expires_at: None,
    };
    audit::record(ledger, "token.add", Some(&new.tenant), new.id).await?;
    ledger.add_token(&Scope::All, new).await?;
    Ok(Some(fresh))
}
