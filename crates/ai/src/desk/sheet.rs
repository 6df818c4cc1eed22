//! What is written of profiles: documents that may extend templates.
//!
//! Pure. A sheet is merged key by key, the own one over its template; what it does not say the
//! template says. `key` belongs to the owner of the document that names it, so a template may lend
//! its key without showing it. Whoever lends says what it costs.

use longshore::ledger::ProfileRecord;
use longshore::{ProfileName, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::whole::SheetError;
use crate::profile::{Limits, Profile};

/// The name under which a tenant's own settings are kept, beside its profiles: they are read,
/// remembered and announced together.
pub const TENANT_SHEET: &str = ".tenant";

/// What holds for all profiles of a tenant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantSheet {
    /// The profile that is used where none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<ProfileName>,
    /// The profile that is asked where the named one, and its own, cannot answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<ProfileName>,
    /// How much may be asked by all of them together.
    pub limits: Limits,
}

impl TenantSheet {
    /// Reads a tenant's document.
    pub fn read(body: &Value) -> Result<Self, String> {
        Self::deserialize(body).map_err(|error| format!("a tenant's settings: {error}"))
    }
}

/// A profile's document on its way to being whole.
#[derive(Debug, Clone)]
pub struct Sheet {
    /// Whose profile it is.
    owner: TenantId,
    /// Who wrote the document that names the key.
    key_owner: Option<TenantId>,
    /// Who wrote the document that says where it asks: that names the endpoint, or another provider
    /// than the one below.
    placed_by: Option<TenantId>,
    /// Who wrote the outermost document that names a provider.
    provided_by: Option<TenantId>,
    /// Who wrote the outermost document that names prices.
    priced_by: Option<TenantId>,
    /// Whose the document is that was laid below it last. Those it extends are looked for there.
    lowest: TenantId,
    /// The documents that set limits. Each holds for all who extend it, together.
    limiting: Vec<(TenantId, ProfileName, Value)>,
    body: Value,
}

/// Limits, and all profiles of which document they hold for together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bound {
    pub(super) tenant: TenantId,
    pub(super) profile: ProfileName,
    pub(super) limits: Limits,
}

/// Keys of documents that are no part of a profile.
const EXTENDS: &str = "extends";
const TEMPLATE: &str = "template";

/// Keys that matter by who wrote them.
const KEY: &str = "key";
const ENDPOINT: &str = "endpoint";
const PROVIDER: &str = "provider";
const PRICES: &str = "prices";

impl Sheet {
    pub(super) fn new(record: ProfileRecord) -> Self {
        let limiting = limiting(&record).into_iter().collect();
        let ProfileRecord { tenant, body, .. } = record;
        // Who says that there is no key names none, and pays for none.
        let key_owner = body.get(KEY).filter(|key| !key.is_null()).map(|_| tenant.clone());
        let names = |what: &str| body.get(what).map(|_| tenant.clone());
        let (placed_by, provided_by) = (names(ENDPOINT), names(PROVIDER));
        let (priced_by, lowest) = (names(PRICES), tenant.clone());
        let owner = tenant;
        Self { owner, key_owner, placed_by, provided_by, priced_by, lowest, limiting, body }
    }

    /// What it says, as far as it is whole.
    pub fn body(&self) -> &Value {
        &self.body
    }

    /// Who wrote the document that names the key: it is theirs.
    pub fn key_owner(&self) -> Option<&TenantId> {
        self.key_owner.as_ref()
    }

    /// Whether it would take a key that was lent to where its own writer says.
    pub(super) fn leads_astray(&self) -> bool {
        let lent = self.key_owner.as_ref().is_some_and(|owner| *owner != self.owner);
        lent && self.placed_by.as_ref() == Some(&self.owner)
    }

    /// Whether it would pay for what was lent as its own writer says.
    pub(super) fn sets_its_own_price(&self) -> bool {
        self.is_lent() && self.priced_by.as_ref() == Some(&self.owner)
    }

    /// Whether somebody else pays for what it asks: by their key, or, where no key is named, at an
    /// endpoint that it did not bring itself.
    fn is_lent(&self) -> bool {
        match &self.key_owner {
            Some(owner) => *owner != self.owner,
            None => self.lowest != self.owner && self.placed_by.as_ref() != Some(&self.owner),
        }
    }

    /// Whose templates it may still extend, beside those of the house: once it is upon one of the
    /// house, none of its own. They would take the place of what the house's template extends.
    pub(super) fn lowest(&self) -> &TenantId {
        &self.lowest
    }

    /// Whether it asks another provider than its template does, and so elsewhere.
    fn switches_provider(&self, template: &Value) -> bool {
        let (own, theirs) = (self.body.get(PROVIDER), template.get(PROVIDER));
        own.is_some() && theirs.is_some() && own != theirs && self.placed_by.is_none()
    }

    /// Whether a document is there to be extended.
    pub fn is_template(body: &Value) -> bool {
        body.get(TEMPLATE) == Some(&Value::Bool(true))
    }

    /// The template that it still extends.
    pub(super) fn extends(&self) -> Result<Option<ProfileName>, SheetError> {
        let Some(name) = self.body.get(EXTENDS).filter(|name| !name.is_null()) else {
            return Ok(None);
        };
        let read = name.as_str().and_then(|name| ProfileName::new(name).ok());
        read.map(Some).ok_or_else(|| SheetError::NoName(name.to_string()))
    }

    /// The same, upon a template.
    pub(super) fn upon(mut self, template: ProfileRecord) -> Self {
        if let Some(own) = self.body.as_object_mut() {
            own.remove(EXTENDS);
        }
        self.limiting.extend(limiting(&template));
        if self.switches_provider(&template.body) {
            self.placed_by.clone_from(&self.provided_by);
        }
        let names = |what: &str| template.body.get(what).map(|_| template.tenant.clone());
        self.key_owner = self.key_owner.or_else(|| names(KEY));
        self.placed_by = self.placed_by.or_else(|| names(ENDPOINT));
        self.provided_by = self.provided_by.or_else(|| names(PROVIDER));
        self.priced_by = self.priced_by.or_else(|| names(PRICES));
        self.lowest = template.tenant;
        let mut body = template.body;
        // Whoever extends a template is none because of that.
        if let Some(body) = body.as_object_mut() {
            body.remove(TEMPLATE);
        }
        merge(&mut body, self.body);
        Self { body, ..self }
    }

    /// What bounds it: its own limits, and those of its templates.
    pub(super) fn bounds(&self) -> Result<Vec<Bound>, String> {
        let bound = |(tenant, profile, limits): &(TenantId, ProfileName, Value)| {
            let limits = Limits::deserialize(limits).map_err(|error| error.to_string())?;
            Ok(Bound { tenant: tenant.clone(), profile: profile.clone(), limits })
        };
        self.limiting.iter().map(bound).collect()
    }

    /// The profile that it comes to.
    pub(super) fn profile(&self, name: &str) -> Result<Profile, String> {
        let mut body = self.body.clone();
        if let Some(body) = body.as_object_mut() {
            body.remove(TEMPLATE);
            body.insert("name".to_owned(), Value::from(name));
        }
        Profile::deserialize(body).map_err(|error| error.to_string())
    }
}

fn limiting(record: &ProfileRecord) -> Option<(TenantId, ProfileName, Value)> {
    let limits = record.body.get("limits")?;
    Some((record.tenant.clone(), record.name.clone(), limits.clone()))
}

/// Lays `over` on `under`, objects key by key.
fn merge(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => merge_objects(under, over),
        (under, over) => *under = over,
    }
}

fn merge_objects(under: &mut Map<String, Value>, over: Map<String, Value>) {
    for (key, value) in over {
        merge(under.entry(key).or_insert(Value::Null), value);
    }
}

#[cfg(test)]
mod tests {
    use longshore::Timestamp;
    use serde_json::json;

    use super::*;

    fn record(tenant: &str, body: Value) -> ProfileRecord {
        ProfileRecord {
            tenant: TenantId::new(tenant).unwrap(),
            name: ProfileName::new("p").unwrap(),
            body,
            suspended: false,
            revision: 1,
            created_at: Timestamp::ZERO,
            updated_at: Timestamp::ZERO,
        }
    }

    #[test]
    fn what_a_profile_does_not_say_its_template_says() {
        let own = json!({ "extends": "t", "model": "small", "limits": { "requests": 60 } });
        let template = json!({
            "template": true, "provider": "openai", "model": "large",
            "limits": { "tokens": 1000, "requests": 10 },
        });
        let sheet = Sheet::new(record("acme", own)).upon(record("default", template));
        let profile = sheet.profile("p").unwrap();
        assert_eq!(profile.model, "small");
        assert_eq!((profile.limits.requests, profile.limits.tokens), (Some(60.0), Some(1000.0)));
        assert_eq!(sheet.extends().unwrap(), None);
    }

    #[test]
    fn a_templates_limits_hold_for_all_who_extend_it_beside_their_own() {
        let house = json!({ "template": true, "provider": "echo", "limits": { "requests": 100 } });
        let own = json!({ "extends": "t", "limits": { "requests": 10 } });
        let sheet = Sheet::new(record("acme", own)).upon(record("default", house));
        let bounds = sheet.bounds().unwrap();
        let told: Vec<_> =
            bounds.iter().map(|bound| (bound.tenant.as_str(), bound.limits.requests)).collect();
        assert_eq!(told, [("acme", Some(10.0)), ("default", Some(100.0))]);
    }

    #[test]
    fn a_key_belongs_to_whoever_names_it() {
        let lent = record("default", json!({ "provider": "openai", "key": "house" }));
        let sheet = Sheet::new(record("acme", json!({ "extends": "t" }))).upon(lent.clone());
        assert_eq!(sheet.key_owner().unwrap().as_str(), "default");
        let own = json!({ "extends": "t", "key": "own" });
        let sheet = Sheet::new(record("acme", own)).upon(lent);
        assert_eq!(sheet.key_owner().unwrap().as_str(), "acme");
    }

    #[test]
    fn a_key_that_was_lent_goes_only_where_its_owner_says() {
        let lent = record("default", json!({ "provider": "openai", "key": "house" }));
        let own = |body: Value| Sheet::new(record("acme", body)).upon(lent.clone());
        let elsewhere = json!({ "extends": "t", "endpoint": "https://acme.example" });
        assert!(own(elsewhere.clone()).leads_astray());
        let mut with_key = elsewhere;
        with_key["key"] = json!("own");
        assert!(!own(with_key).leads_astray());
        assert!(!own(json!({ "extends": "t" })).leads_astray());
        assert!(own(json!({ "extends": "t", "provider": "ollama" })).leads_astray());
        assert!(!own(json!({ "extends": "t", "provider": "openai" })).leads_astray());
        // The house may say so itself.
        let house = json!({ "extends": "t", "endpoint": "https://house.example" });
        let sheet = Sheet::new(record("acme", json!({ "extends": "u" })));
        assert!(!sheet.upon(record("default", house)).upon(lent).leads_astray());
    }

    #[test]
    fn what_was_lent_is_paid_at_the_lenders_prices() {
        let free = json!({ "input": 0, "output": 0 });
        let house = |body: Value| record("default", body);
        let own = |body: Value| Sheet::new(record("acme", body));
        let keyed = json!({ "provider": "openai", "key": "house", "prices": { "input": 1 } });
        let mut cheap = json!({ "extends": "t", "prices": free });
        assert!(own(cheap.clone()).upon(house(keyed.clone())).sets_its_own_price());
        // Not by way of a template of one's own either, nor where the house says no price.
        let base = record("acme", json!({ "extends": "u", "prices": free }));
        let by_way = own(json!({ "extends": "t" })).upon(base);
        assert!(by_way.upon(house(keyed.clone())).sets_its_own_price());
        assert!(
            own(cheap.clone()).upon(house(json!({ "provider": "ollama" }))).sets_its_own_price()
        );
        assert!(!own(json!({ "extends": "t" })).upon(house(keyed.clone())).sets_its_own_price());
        let none = json!({ "extends": "t", "key": null, "prices": free });
        assert!(own(none).upon(house(keyed.clone())).sets_its_own_price());
        // Who pays says what.
        cheap["key"] = json!("own");
        assert!(!own(cheap).upon(house(keyed.clone())).sets_its_own_price());
        let elsewhere =
            json!({ "extends": "t", "endpoint": "http://acme.example", "prices": free });
        assert!(!own(elsewhere).upon(house(json!({ "provider": "ollama" }))).sets_its_own_price());
        assert!(!own(json!({ "provider": "echo", "prices": free })).sets_its_own_price());
        let upon = Sheet::new(house(json!({ "extends": "t", "prices": free })));
        assert!(!upon.upon(house(keyed)).sets_its_own_price(), "the house may");
    }
}
