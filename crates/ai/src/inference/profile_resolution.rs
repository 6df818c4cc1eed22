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
        "profile `{0}` has a key lent by a template, which goes only where and as the template says: \
         it cannot have an `endpoint`, a `provider`, a `proxy`, a `ca` or `wire.headers` of its own"
    )]
    LentElsewhere(ProfileName),
    /// It would set the price of a lent key.
    #[error(
        "profile `{0}` asks with what a template lends, which is paid at the template's prices: it \
         cannot have `prices` or `models` of its own"
    )]
    LentAtOwnPrice(ProfileName),
    /// It would ask a model that the lender names no price for.
    #[error(
        "profile `{name}` asks with what a template lends, and the template does not name model \
         `{model}`; it names: {lent}"
    )]
    UnlistedModel {
        /// The profile.
        name: ProfileName,
        /// The model that it names.
        model: String,
        /// The models that its template names.
        lent: String,
    },
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
                return sheet.check_lent(name);
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

    /// Rejects a profile that uses what a template lends in a way that the lender did not permit.
    fn check_lent(self, name: ProfileName) -> Result<Self, ProfileDocumentError> {
        if self.redirects_lent_key() {
            return Err(ProfileDocumentError::LentElsewhere(name));
        }
        if self.sets_lent_price() {
            return Err(ProfileDocumentError::LentAtOwnPrice(name));
        }
        match self.unlisted_lent_model() {
            None => Ok(self),
            Some(model) => {
                let lent = self.lent_models().collect::<Vec<_>>().join(", ");
                let lent = if lent.is_empty() { "none".to_owned() } else { lent };
                Err(ProfileDocumentError::UnlistedModel { name, model: model.to_owned(), lent })
            }
        }
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
