//! Profile documents as they are stored, which may extend templates.
//!
//! Pure. Documents are merged key by key: a profile's own keys override its template's. A `key`
//! belongs to the owner of the document that names it, so a template can lend its key without
//! showing it. The lender sets the prices.

use std::collections::{BTreeMap, BTreeSet};

use longshore::accounts::ProfileRecord;
use longshore::{ProfileName, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::profile_resolution::ProfileDocumentError;
use crate::profile::{ANY_MODEL, Profile, ProfileLimits};

/// The name under which a tenant's settings are stored among its profiles, so that they are read,
/// cached and announced together.
pub const TENANT_SETTINGS: &str = ".tenant";

/// Settings for all profiles of a tenant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantSettings {
    /// The profile to use where a request names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<ProfileName>,
    /// The fallback after the profile's own fallbacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<ProfileName>,
    /// Limits of all the tenant's profiles together.
    pub limits: ProfileLimits,
}

impl TenantSettings {
    /// Parses a tenant's document.
    pub fn read(body: &Value) -> Result<Self, String> {
        Self::deserialize(body).map_err(|error| format!("a tenant's settings: {error}"))
    }
}

/// A profile document, merged with the templates read so far.
#[derive(Debug, Clone)]
pub struct ProfileDocument {
    /// The profile's tenant.
    owner: TenantId,
    /// Tenant of the document that names the key.
    key_owner: Option<TenantId>,
    /// Tenant of the document that decides the endpoint: it names one, or another provider than its
    /// template.
    endpoint_author: Option<TenantId>,
    /// Tenant of the outermost document that names a provider.
    provider_author: Option<TenantId>,
    /// Tenant of the outermost document that names prices, of the model or of further models.
    prices_author: Option<TenantId>,
    /// Tenant of the outermost document that names additional headers.
    headers_author: Option<TenantId>,
    /// For each of [`ROUTE_KEYS`], the tenant of the outermost document that names it.
    route_authors: BTreeMap<&'static str, TenantId>,
    /// The models that templates of other tenants name.
    lent_models: BTreeSet<String>,
    /// Tenant of the template merged last. The next template is looked up there.
    base_tenant: TenantId,
    /// The documents that set limits. Each limit is shared by all profiles that extend its
    /// document.
    limit_documents: Vec<(TenantId, ProfileName, Value)>,
    body: Value,
}

/// Limits, and their document: all profiles that extend it share them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScopedLimits {
    pub(super) tenant: TenantId,
    pub(super) profile: ProfileName,
    pub(super) limits: ProfileLimits,
}

/// Document keys that are not part of a profile.
const EXTENDS: &str = "extends";
const TEMPLATE: &str = "template";

/// Keys for which it matters which tenant wrote them.
const KEY: &str = "key";
const ENDPOINT: &str = "endpoint";
const PROVIDER: &str = "provider";
const PRICES: &str = "prices";
const MODEL: &str = "model";
const MODELS: &str = "models";
const HEADERS: &str = "/wire/headers";
const PROXY: &str = "proxy";
const PROXY_KEY: &str = "proxy_key";
const CA: &str = "ca";

/// Keys that decide by which way, and to which server, a key is sent.
const ROUTE_KEYS: [&str; 3] = [PROXY, PROXY_KEY, CA];

impl ProfileDocument {
    pub(super) fn new(record: ProfileRecord) -> Self {
        let limit_documents = limit_documents(&record).into_iter().collect();
        let ProfileRecord { tenant, body, .. } = record;
        // `"key": null` names no key: the document has no key to pay with.
        let key_owner = body.get(KEY).filter(|key| !key.is_null()).map(|_| tenant.clone());
        let names = |what: &str| body.get(what).map(|_| tenant.clone());
        let (endpoint_author, provider_author) = (names(ENDPOINT), names(PROVIDER));
        let (prices_author, base_tenant) = (names(PRICES).or_else(|| names(MODELS)), tenant.clone());
        let headers_author = body.pointer(HEADERS).map(|_| tenant.clone());
        let mut route_authors = BTreeMap::new();
        add_route_authors(&mut route_authors, &body, &tenant);
        let owner = tenant;
        Self {
            owner,
            key_owner,
            endpoint_author,
            provider_author,
            prices_author,
            headers_author,
            route_authors,
            lent_models: BTreeSet::new(),
            base_tenant,
            limit_documents,
            body,
        }
    }

    /// The merged document.
    pub fn body(&self) -> &Value {
        &self.body
    }

    /// The tenant of the document that names the key: the key's owner.
    pub fn key_owner(&self) -> Option<&TenantId> {
        self.key_owner.as_ref()
    }

    /// The tenant of the document that names the proxy's key: the key's owner.
    pub fn proxy_key_owner(&self) -> Option<&TenantId> {
        self.route_authors.get(PROXY_KEY)
    }

    /// Whether the profile's own tenant decides where, or by which way, a key lent by a template is
    /// sent, or with which headers: a header may choose a dearer service.
    pub(super) fn redirects_lent_key(&self) -> bool {
        let is_lent = |owner: Option<&TenantId>| owner.is_some_and(|owner| *owner != self.owner);
        let own = |author: Option<&TenantId>| author == Some(&self.owner);
        let routes = |key: &str| own(self.route_authors.get(key));
        let redirects = own(self.endpoint_author.as_ref()) || own(self.headers_author.as_ref());
        let lent_key = is_lent(self.key_owner.as_ref());
        lent_key && (redirects || routes(PROXY) || routes(CA))
            || is_lent(self.proxy_key_owner()) && routes(PROXY)
    }

    /// Whether the profile's own tenant sets the price of what a template lends.
    pub(super) fn sets_lent_price(&self) -> bool {
        self.is_lent() && self.prices_author.as_ref() == Some(&self.owner)
    }

    /// The model of a profile that uses what a template lends, if no template of the lender names
    /// it: its price is unknown.
    pub(super) fn unlisted_lent_model(&self) -> Option<&str> {
        let model = self.body.get(MODEL).and_then(Value::as_str).filter(|_| self.is_lent())?;
        let listed = self.lent_models.contains(model) || self.lent_models.contains(ANY_MODEL);
        (!listed).then_some(model)
    }

    /// The models that its templates lend.
    pub(super) fn lent_models(&self) -> impl Iterator<Item = &str> {
        self.lent_models.iter().map(String::as_str)
    }

    /// Whether another tenant pays: with its key, or, if no key is named, at an endpoint that the
    /// profile did not set itself.
    pub(super) fn is_lent(&self) -> bool {
        match &self.key_owner {
            Some(owner) => *owner != self.owner,
            None => self.base_tenant != self.owner && self.endpoint_author.as_ref() != Some(&self.owner),
        }
    }

    /// The tenant that may provide the next template, besides the default tenant. Once a
    /// template of the default tenant is merged, only its own templates count: the profile's tenant
    /// could otherwise replace what the default tenant's template extends.
    pub(super) fn base_tenant(&self) -> &TenantId {
        &self.base_tenant
    }

    /// Whether it names another provider than its template, and so another endpoint.
    fn switches_provider(&self, template: &Value) -> bool {
        let (own, theirs) = (self.body.get(PROVIDER), template.get(PROVIDER));
        own.is_some() && theirs.is_some() && own != theirs && self.endpoint_author.is_none()
    }

    /// Whether a document is a template.
    pub fn is_template(body: &Value) -> bool {
        body.get(TEMPLATE) == Some(&Value::Bool(true))
    }

    /// The template that is still to be merged.
    pub(super) fn extends(&self) -> Result<Option<ProfileName>, ProfileDocumentError> {
        let Some(name) = self.body.get(EXTENDS).filter(|name| !name.is_null()) else {
            return Ok(None);
        };
        let read = name.as_str().and_then(|name| ProfileName::new(name).ok());
        read.map(Some).ok_or_else(|| ProfileDocumentError::NoName(name.to_string()))
    }

    /// Merges a template under this document.
    pub(super) fn with_template(mut self, template: ProfileRecord) -> Self {
        if let Some(own) = self.body.as_object_mut() {
            own.remove(EXTENDS);
        }
        self.limit_documents.extend(limit_documents(&template));
        if self.switches_provider(&template.body) {
            self.endpoint_author.clone_from(&self.provider_author);
        }
        let names = |what: &str| template.body.get(what).map(|_| template.tenant.clone());
        self.key_owner = self.key_owner.or_else(|| names(KEY));
        self.endpoint_author = self.endpoint_author.or_else(|| names(ENDPOINT));
        self.provider_author = self.provider_author.or_else(|| names(PROVIDER));
        self.prices_author = self.prices_author.or_else(|| names(PRICES)).or_else(|| names(MODELS));
        let headers = || template.body.pointer(HEADERS).map(|_| template.tenant.clone());
        self.headers_author = self.headers_author.or_else(headers);
        add_route_authors(&mut self.route_authors, &template.body, &template.tenant);
        if template.tenant != self.owner {
            self.lent_models.extend(models(&template.body));
        }
        self.base_tenant = template.tenant;
        let mut body = template.body;
        // A profile does not become a template by extending one.
        if let Some(body) = body.as_object_mut() {
            body.remove(TEMPLATE);
        }
        merge(&mut body, self.body);
        Self { body, ..self }
    }

    /// The limits that apply: its own, and those of its templates.
    pub(super) fn bounds(&self) -> Result<Vec<ScopedLimits>, String> {
        let bound = |(tenant, profile, limits): &(TenantId, ProfileName, Value)| {
            let limits = ProfileLimits::deserialize(limits).map_err(|error| error.to_string())?;
            Ok(ScopedLimits { tenant: tenant.clone(), profile: profile.clone(), limits })
        };
        self.limit_documents.iter().map(bound).collect()
    }

    /// Parses the merged document as a profile.
    pub fn profile(&self, name: &str) -> Result<Profile, String> {
        let mut body = self.body.clone();
        if let Some(body) = body.as_object_mut() {
            body.remove(TEMPLATE);
            body.insert("name".to_owned(), Value::from(name));
        }
        Profile::deserialize(body).map_err(|error| error.to_string())
    }
}

/// Adds the author of the route keys that a document names and no document before it did.
fn add_route_authors(authors: &mut BTreeMap<&'static str, TenantId>, body: &Value, tenant: &TenantId) {
    for key in ROUTE_KEYS.into_iter().filter(|key| body.get(key).is_some()) {
        authors.entry(key).or_insert_with(|| tenant.clone());
    }
}

/// The models that a document names.
fn models(body: &Value) -> impl Iterator<Item = String> {
    let further = body.get(MODELS).and_then(Value::as_object).into_iter().flat_map(Map::keys).cloned();
    further.chain(body.get(MODEL).and_then(Value::as_str).map(str::to_owned))
}

fn limit_documents(record: &ProfileRecord) -> Option<(TenantId, ProfileName, Value)> {
    let limits = record.body.get("limits")?;
    Some((record.tenant.clone(), record.name.clone(), limits.clone()))
}

/// Merges `over` into `under`, objects key by key.
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
        let sheet = ProfileDocument::new(record("acme", own)).with_template(record("default", template));
        let profile = sheet.profile("p").unwrap();
        assert_eq!(profile.model, "small");
        assert_eq!((profile.limits.requests, profile.limits.tokens), (Some(60.0), Some(1000.0)));
        assert_eq!(sheet.extends().unwrap(), None);
    }

    #[test]
    fn a_templates_limits_hold_for_all_who_extend_it_beside_their_own() {
        let default_tenant = json!({ "template": true, "provider": "echo", "limits": { "requests": 100 } });
        let own = json!({ "extends": "t", "limits": { "requests": 10 } });
        let sheet =
            ProfileDocument::new(record("acme", own)).with_template(record("default", default_tenant));
        let bounds = sheet.bounds().unwrap();
        let values: Vec<_> =
            bounds.iter().map(|bound| (bound.tenant.as_str(), bound.limits.requests)).collect();
        assert_eq!(values, [("acme", Some(10.0)), ("default", Some(100.0))]);
    }

    #[test]
    fn a_key_belongs_to_whoever_names_it() {
        let lent = record("default", json!({ "provider": "openai", "key": "house" }));
        let sheet =
            ProfileDocument::new(record("acme", json!({ "extends": "t" }))).with_template(lent.clone());
        assert_eq!(sheet.key_owner().unwrap().as_str(), "default");
        let own = json!({ "extends": "t", "key": "own" });
        let sheet = ProfileDocument::new(record("acme", own)).with_template(lent);
        assert_eq!(sheet.key_owner().unwrap().as_str(), "acme");
    }

    #[test]
    fn a_key_that_was_lent_goes_only_where_its_owner_says() {
        let lent = record("default", json!({ "provider": "openai", "key": "house" }));
        let own = |body: Value| ProfileDocument::new(record("acme", body)).with_template(lent.clone());
        let elsewhere = json!({ "extends": "t", "endpoint": "https://acme.example" });
        assert!(own(elsewhere.clone()).redirects_lent_key());
        let mut with_key = elsewhere;
        with_key["key"] = json!("own");
        assert!(!own(with_key).redirects_lent_key());
        assert!(!own(json!({ "extends": "t" })).redirects_lent_key());
        assert!(own(json!({ "extends": "t", "provider": "ollama" })).redirects_lent_key());
        assert!(
            own(json!({ "extends": "t", "wire": { "headers": { "x-fast": "1" } } })).redirects_lent_key()
        );
        assert!(!own(json!({ "extends": "t", "wire": { "sampling": true } })).redirects_lent_key());
        assert!(!own(json!({ "extends": "t", "provider": "openai" })).redirects_lent_key());
        // Nor by a proxy or a certificate authority that could read it.
        for way in [json!({ "proxy": "http://acme.example:1" }), json!({ "ca": "PEM" })] {
            let mut body = json!({ "extends": "t" });
            body.as_object_mut().unwrap().extend(way.as_object().unwrap().clone());
            assert!(own(body.clone()).redirects_lent_key(), "{body}");
            body["key"] = json!("own");
            assert!(!own(body.clone()).redirects_lent_key(), "{body}");
        }
        let proxied = json!({ "provider": "openai", "proxy": "http://house:1", "proxy_key": "house" });
        let own_proxy = json!({ "extends": "t", "key": "own", "proxy": "http://acme.example:1" });
        let sheet = ProfileDocument::new(record("acme", own_proxy)).with_template(record("default", proxied));
        assert!(sheet.redirects_lent_key(), "the proxy's password was lent");
        // The default tenant may set an endpoint itself.
        let default_tenant = json!({ "extends": "t", "endpoint": "https://house.example" });
        let sheet = ProfileDocument::new(record("acme", json!({ "extends": "u" })));
        assert!(
            !sheet.with_template(record("default", default_tenant)).with_template(lent).redirects_lent_key()
        );
    }

    #[test]
    fn a_lender_names_the_models_that_its_key_may_ask() {
        let template =
            json!({ "provider": "openai", "key": "house", "model": "small", "models": { "large": {} } });
        let lent = record("default", template);
        let own = |body: Value| ProfileDocument::new(record("acme", body)).with_template(lent.clone());
        for (body, unlisted) in [
            (json!({ "extends": "t" }), None),
            (json!({ "extends": "t", "model": "large" }), None),
            (json!({ "extends": "t", "model": "huge" }), Some("huge")),
            (json!({ "extends": "t", "model": "huge", "key": "own" }), None),
        ] {
            assert_eq!(own(body.clone()).unlisted_lent_model(), unlisted, "{body}");
        }
        // Nor by way of a template of its own.
        let base = record("acme", json!({ "extends": "u", "model": "huge" }));
        let by_way = ProfileDocument::new(record("acme", json!({ "extends": "t" })));
        assert_eq!(by_way.with_template(base).with_template(lent).unlisted_lent_model(), Some("huge"));
    }

    #[test]
    fn what_was_lent_is_paid_at_the_lenders_prices() {
        let free = json!({ "input": 0, "output": 0 });
        let default_tenant = |body: Value| record("default", body);
        let own = |body: Value| ProfileDocument::new(record("acme", body));
        let keyed = json!({ "provider": "openai", "key": "house", "prices": { "input": 1 } });
        let mut cheap = json!({ "extends": "t", "prices": free });
        assert!(own(cheap.clone()).with_template(default_tenant(keyed.clone())).sets_lent_price());
        // Neither through a template of its own, nor where the lender sets no price.
        let base = record("acme", json!({ "extends": "u", "prices": free }));
        let by_way = own(json!({ "extends": "t" })).with_template(base);
        assert!(by_way.with_template(default_tenant(keyed.clone())).sets_lent_price());
        assert!(
            own(cheap.clone())
                .with_template(default_tenant(json!({ "provider": "ollama" })))
                .sets_lent_price()
        );
        assert!(
            !own(json!({ "extends": "t" })).with_template(default_tenant(keyed.clone())).sets_lent_price()
        );
        let none = json!({ "extends": "t", "key": null, "prices": free });
        assert!(own(none).with_template(default_tenant(keyed.clone())).sets_lent_price());
        // The tenant that pays may set prices.
        cheap["key"] = json!("own");
        assert!(!own(cheap).with_template(default_tenant(keyed.clone())).sets_lent_price());
        let elsewhere = json!({ "extends": "t", "endpoint": "http://acme.example", "prices": free });
        assert!(
            !own(elsewhere).with_template(default_tenant(json!({ "provider": "ollama" }))).sets_lent_price()
        );
        assert!(!own(json!({ "provider": "echo", "prices": free })).sets_lent_price());
        let further = own(json!({ "extends": "t", "models": { "large": free } }));
        assert!(further.with_template(default_tenant(keyed.clone())).sets_lent_price());
        let own = ProfileDocument::new(default_tenant(json!({ "extends": "t", "prices": free })));
        assert!(!own.with_template(default_tenant(keyed)).sets_lent_price(), "the house may");
    }
}
