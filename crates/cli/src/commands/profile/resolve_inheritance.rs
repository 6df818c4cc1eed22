//! Resolves a profile's document against the templates it extends, with hints.

use longshore::accounts::{Ledger, ProfileRecord};
use longshore::{ProfileName, TenantId, Timestamp};
use longshore_ai::{ProfileDocument, ProfileDocumentError};
use serde_json::Value;

use crate::error::{hinted, usage};

/// The complete document of a profile.
pub async fn resolve_profile(ledger: &dyn Ledger, record: &ProfileRecord) -> anyhow::Result<ProfileDocument> {
    ProfileDocument::resolve(ledger, record.clone()).await.map_err(with_hint)
}

/// The complete document of a profile that is not stored yet.
pub async fn of(
    ledger: &dyn Ledger,
    tenant: &TenantId,
    own: &ProfileName,
    body: &Value,
) -> anyhow::Result<ProfileDocument> {
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

fn with_hint(error: ProfileDocumentError) -> anyhow::Error {
    let hint = match &error {
        ProfileDocumentError::Unknown(name) | ProfileDocumentError::NoTemplate(name) => {
            format!("`longshore profile add {name} --template …` adds one")
        }
        ProfileDocumentError::Endless(_) => {
            "`longshore profile show` shows which template each extends".to_owned()
        }
        ProfileDocumentError::LentElsewhere(_) => {
            "leave out --endpoint, --provider, --proxy, --ca-file and wire.headers, or name a key of your own"
                .to_owned()
        }
        ProfileDocumentError::LentAtOwnPrice(_) => {
            "leave out prices and further models, or name a key of your own; another price needs \
             another template"
                .to_owned()
        }
        ProfileDocumentError::UnlistedModel { model, .. } => {
            format!("the template's owner adds it, with its price: `--also-model {model}=IN/OUT`")
        }
        ProfileDocumentError::NoName(_) => "as --extends base".to_owned(),
        _ => return error.into(),
    };
    hinted(usage(error.to_string()), hint)
}
