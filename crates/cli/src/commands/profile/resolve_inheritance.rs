//! Resolves a profile's document against the templates it extends, with hints.

use longshore::accounts::{Ledger, ProfileRecord};
use longshore::{ProfileName, TenantId, Timestamp};
use longshore_ai::{Sheet, SheetError};
use serde_json::Value;

use crate::error::{hinted, usage};

/// The complete document of a profile.
pub async fn resolve_profile(ledger: &dyn Ledger, record: &ProfileRecord) -> anyhow::Result<Sheet> {
    Sheet::read(ledger, record.clone()).await.map_err(with_hint)
}

/// The complete document of a profile that is not stored yet.
pub async fn of(
    ledger: &dyn Ledger,
    tenant: &TenantId,
    own: &ProfileName,
    body: &Value,
) -> anyhow::Result<Sheet> {
    let record = ProfileRecord {
        tenant: tenant.clone(),
        name: own.clone(),
        body: body.clone(),
        suspended: false,
        revision: 0,
        created_at: Timestamp::ZERO,
        updated_at: Timestamp::ZERO,
    };
    resolve_profile(ledger, &record).await
}

fn with_hint(error: SheetError) -> anyhow::Error {
    let hint = match &error {
        SheetError::Unknown(name) | SheetError::NoTemplate(name) => {
            format!("`longshore profile add {name} --template …` adds one")
        }
        SheetError::Endless(_) => {
            "`longshore profile show` shows which template each extends".to_owned()
        }
        SheetError::LentElsewhere(_) => {
            "leave out --endpoint and --provider, or name a key of your own".to_owned()
        }
        SheetError::LentAtOwnPrice(_) => {
            "leave out prices, or name a key of your own; another price needs another template"
                .to_owned()
        }
        SheetError::NoName(_) => "as --extends base".to_owned(),
        _ => return error.into(),
    };
    hinted(usage(error.to_string()), hint)
}
