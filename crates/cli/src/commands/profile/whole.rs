//! A profile's document upon the templates that it extends, with hints for people.

use longshore::ledger::{Ledger, ProfileRecord};
use longshore::{ProfileName, TenantId, Timestamp};
use longshore_ai::{Sheet, SheetError};
use serde_json::Value;

use crate::error::{hinted, usage};

/// What a profile comes to with its templates.
pub async fn whole(ledger: &dyn Ledger, record: &ProfileRecord) -> anyhow::Result<Sheet> {
    Sheet::read(ledger, record.clone()).await.map_err(unmade)
}

/// The same for a document that is not kept yet.
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
    whole(ledger, &record).await
}

fn unmade(error: SheetError) -> anyhow::Error {
    let hint = match &error {
        SheetError::Unknown(name) | SheetError::NoTemplate(name) => {
            format!("`longshore profile add {name} --template …` makes one")
        }
        SheetError::Endless(_) => "`longshore profile show` shows what each extends".to_owned(),
        SheetError::LentElsewhere(_) => {
            "leave out --endpoint and --provider, or name a key of your own".to_owned()
        }
        SheetError::LentAtOwnPrice(_) => {
            "leave out prices, or name a key of your own; another price is another template's"
                .to_owned()
        }
        SheetError::NoName(_) => "as --extends base".to_owned(),
        _ => return error.into(),
    };
    hinted(usage(error.to_string()), hint)
}
