//! Resolves a profile document: reads its templates and merges them.
//!
//! The only place that does so: for calls, and for commands that show or check profiles.

use longshore::accounts::{Ledger, ProfileRecord};
use longshore::{Error, ProfileName, Scope, TenantId};

use super::profile_document::ProfileDocument;

/// Longest chain of templates.
pub(super) const MAX_TEMPLATES: usize = 8;

/// Why a profile document cannot be resolved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileDocumentError {
    /// `extends` is not a valid name.
    #[error("`extends` names a template, and {0} is no name")]
    NoName(String),
    /// The template does not exist.
    #[error("there is no template `{0}`")]
    Unknown(ProfileName),
    /// The extended profile is not a template.
    #[error("profile `{0}` is no template")]
    NoTemplate(ProfileName),
    /// The chain of templates is a cycle or too long.
    #[error("profile `{0}` extends itself, or more than {MAX_TEMPLATES} others")]
    Endless(ProfileName),
    /// It would send a lent key to another endpoint.
    #[error(
        "profile `{0}` has a key lent by a template, which goes only where the template says: it \
         cannot have an `endpoint` or a `provider` of its own"
    )]
    LentElsewhere(ProfileName),
    /// It would set the price of a lent key.
    #[error(
        "profile `{0}` asks with what a template lends, which is paid at the template's prices: it \
         cannot have `prices` of its own"
    )]
    LentAtOwnPrice(ProfileName),
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] Error),
}

impl ProfileDocument {
    /// Reads a profile document's templates and merges them under it.
    pub async fn resolve(ledger: &dyn Ledger, record: ProfileRecord) -> Result<Self, ProfileDocumentError> {
        let (tenant, name) = (record.tenant.clone(), record.name.clone());
        let mut sheet = Self::new(record);
        for _ in 0..=MAX_TEMPLATES {
            let Some(base) = sheet.extends()? else {
                return match () {
                    () if sheet.redirects_lent_key() => Err(ProfileDocumentError::LentElsewhere(name)),
                    () if sheet.sets_lent_price() => Err(ProfileDocumentError::LentAtOwnPrice(name)),
                    () => Ok(sheet),
                };
            };
            let template = template(ledger, sheet.base_tenant(), &base).await?;
            // Compare with the document being checked, not the stored one: it may be about to
            // replace it.
            if template.tenant == tenant && template.name == name {
                break;
            }
            sheet = sheet.with_template(template);
        }
        Err(ProfileDocumentError::Endless(name))
    }
}

/// Finds a template of the extending document's tenant, or of the default tenant.
async fn template(
    ledger: &dyn Ledger,
    tenant: &TenantId,
    name: &ProfileName,
) -> Result<ProfileRecord, ProfileDocumentError> {
    let mut plain = false;
    for owner in [tenant, &TenantId::default()] {
        match ledger.profile(&Scope::Tenant(owner.clone()), owner, name).await {
            Ok(record) if ProfileDocument::is_template(&record.body) => return Ok(record),
            Ok(_) => plain = true,
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let name = name.clone();
    Err(if plain { ProfileDocumentError::NoTemplate(name) } else { ProfileDocumentError::Unknown(name) })
}
