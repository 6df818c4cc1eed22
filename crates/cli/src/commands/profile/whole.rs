//! A profile's document upon the templates that it extends.
//!
//! Merged key by key, the own one over its template. Templates are the tenant's own, or the default
//! tenant's.

use longshore::ledger::{Ledger, ProfileRecord};
use longshore::{Error, ProfileName, Scope, TenantId};
use serde_json::Value;

use crate::error::{WithHint, usage};

/// How long a chain of templates may be.
const DEEPEST: usize = 8;

/// A document with what its templates say.
#[derive(Debug, Clone)]
pub struct Whole {
    /// What it says.
    pub body: Value,
    /// Who wrote the document that names the key: it is theirs.
    pub key_owner: Option<TenantId>,
}

/// What a profile comes to with its templates.
pub async fn whole(ledger: &dyn Ledger, record: &ProfileRecord) -> anyhow::Result<Whole> {
    of(ledger, &record.tenant, &record.name, &record.body).await
}

/// The same for a document that is not kept yet.
pub async fn of(
    ledger: &dyn Ledger,
    tenant: &TenantId,
    own: &ProfileName,
    body: &Value,
) -> anyhow::Result<Whole> {
    let mut whole = Whole { body: body.clone(), key_owner: None };
    whole.key_from(body, tenant);
    for _ in 0..DEEPEST {
        let extends = whole.body.as_object_mut().and_then(|own| own.remove("extends"));
        let Some(extends) = extends else { return Ok(whole) };
        let name = extends.as_str().ok_or_else(|| usage("`extends` is not a template's name"))?;
        let template = template(ledger, tenant, &ProfileName::new(name)?).await?;
        // What is kept of it may still be harmless.
        if template.tenant == *tenant && template.name == *own {
            break;
        }
        whole.lay_upon(template);
    }
    Err(usage("this profile extends itself, or too many others"))
        .hint(format!("a chain of templates may have {DEEPEST} of them"))
}

impl Whole {
    fn key_from(&mut self, body: &Value, owner: &TenantId) {
        if self.key_owner.is_none() && body["key"].is_string() {
            self.key_owner = Some(owner.clone());
        }
    }

    fn lay_upon(&mut self, template: ProfileRecord) {
        self.key_from(&template.body, &template.tenant);
        let mut body = template.body;
        // Whoever extends a template is none because of that.
        if let Some(body) = body.as_object_mut() {
            body.remove("template");
        }
        merge(&mut body, self.body.take());
        self.body = body;
    }
}

async fn template(
    ledger: &dyn Ledger,
    tenant: &TenantId,
    name: &ProfileName,
) -> anyhow::Result<ProfileRecord> {
    let mut plain = false;
    for owner in [tenant, &TenantId::default()] {
        match ledger.profile(&Scope::Tenant(owner.clone()), owner, name).await {
            Ok(record) if record.body["template"] == Value::Bool(true) => return Ok(record),
            Ok(_) => plain = true,
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let problem = match plain {
        true => format!("profile `{name}` is no template"),
        false => format!("there is no template `{name}`"),
    };
    Err(usage(problem)).hint(format!("`longshore profile add {name} --template …` makes one"))
}

/// Lays `over` on `under`, objects key by key.
fn merge(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}
