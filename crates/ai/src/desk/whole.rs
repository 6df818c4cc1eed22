//! From a profile's document to one that is whole: the templates are read, and laid below it.
//!
//! The one place where that is done, for whoever asks and for whoever shows or checks profiles.

use longshore::ledger::{Ledger, ProfileRecord};
use longshore::{Error, ProfileName, Scope, TenantId};

use super::sheet::Sheet;

/// How long a chain of templates may be.
pub(super) const DEEPEST: usize = 8;

/// Why a profile's document cannot be made whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SheetError {
    /// What it extends is no name.
    #[error("`extends` names a template, and {0} is no name")]
    NoName(String),
    /// What it extends is not there.
    #[error("there is no template `{0}`")]
    Unknown(ProfileName),
    /// What it extends may not be extended.
    #[error("profile `{0}` is no template")]
    NoTemplate(ProfileName),
    /// It has no end.
    #[error("profile `{0}` extends itself, or more than {DEEPEST} others")]
    Endless(ProfileName),
    /// It would take another's key elsewhere.
    #[error(
        "profile `{0}` has a key lent by a template, which goes only where the template says: it \
         cannot have an `endpoint` or a `provider` of its own"
    )]
    LentElsewhere(ProfileName),
    /// It would say itself what another's key costs.
    #[error(
        "profile `{0}` asks with what a template lends, which is paid at the template's prices: it \
         cannot have `prices` of its own"
    )]
    LentAtOwnPrice(ProfileName),
    /// The ledger could not say.
    #[error(transparent)]
    Ledger(#[from] Error),
}

impl Sheet {
    /// A profile's document upon those it extends.
    pub async fn read(ledger: &dyn Ledger, record: ProfileRecord) -> Result<Self, SheetError> {
        let (tenant, name) = (record.tenant.clone(), record.name.clone());
        let mut sheet = Self::new(record);
        for _ in 0..=DEEPEST {
            let Some(base) = sheet.extends()? else {
                return match () {
                    () if sheet.leads_astray() => Err(SheetError::LentElsewhere(name)),
                    () if sheet.sets_its_own_price() => Err(SheetError::LentAtOwnPrice(name)),
                    () => Ok(sheet),
                };
            };
            let template = template(ledger, sheet.lowest(), &base).await?;
            // What is kept of it may still be harmless: this may be about to take its place.
            if template.tenant == tenant && template.name == name {
                break;
            }
            sheet = sheet.upon(template);
        }
        Err(SheetError::Endless(name))
    }
}

/// A template of the tenant whose document extends it, or of the default tenant.
async fn template(
    ledger: &dyn Ledger,
    tenant: &TenantId,
    name: &ProfileName,
) -> Result<ProfileRecord, SheetError> {
    let mut plain = false;
    for owner in [tenant, &TenantId::default()] {
        match ledger.profile(&Scope::Tenant(owner.clone()), owner, name).await {
            Ok(record) if Sheet::is_template(&record.body) => return Ok(record),
            Ok(_) => plain = true,
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let name = name.clone();
    Err(if plain { SheetError::NoTemplate(name) } else { SheetError::Unknown(name) })
}
