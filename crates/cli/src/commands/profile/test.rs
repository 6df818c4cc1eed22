//! `profile test`: whether a profile works, as far as can be said without asking its provider.

use longshore::Scope;
use serde_json::{Value, json};

use super::whole::{Whole, whole};
use super::{Book, check};
use crate::args::profile::Test;
use crate::error::{WithHint, usage};
use crate::vault;

/// Reads the profile with its templates, and opens its key.
pub async fn run(book: &Book<'_>, typed: &Test) -> anyhow::Result<()> {
    let name = super::ordinary(&typed.named.name)?;
    let record = book.known(name).await?;
    if record.body["template"] == Value::Bool(true) {
        return Err(usage(format!("profile `{name}` is a template")))
            .hint("templates are there to be extended");
    }
    let whole = whole(&*book.ledger, &record).await?;
    for warning in check::profile(name, &record.body, &whole.body)? {
        book.warn(&warning);
    }
    let key = key(book, &whole).await?;
    let answer = json!({ "tenant": book.tenant, "profile": name, "document": "ok", "key": key });
    book.settings.output.answer(&answer, || {
        let key = key.map_or("it needs no key", |_| "its key opens");
        format!("profile `{name}` reads well, {key}; its provider was not asked")
    })
}

/// Opens the key, which belongs to whoever wrote the document that names it.
async fn key(book: &Book<'_>, whole: &Whole) -> anyhow::Result<Option<&'static str>> {
    let (Some(key), Some(owner)) = (whole.body["key"].as_str(), &whole.key_owner) else {
        return Ok(None);
    };
    let vault = vault::open(book.ledger.clone(), book.settings)?;
    vault.open(&Scope::Tenant(owner.clone()), owner, &key.parse()?).await?;
    Ok(Some("ok"))
}
