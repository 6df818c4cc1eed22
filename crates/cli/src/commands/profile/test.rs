//! `profile test`: whether a profile works: its document, its key, its provider, and with `--ask` a
//! tiny question.

use std::time::Duration;

use longshore::{CallId, ProfileName, Scope};
use longshore_ai::{AskError, Desk, Errand, Question, Sheet};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::whole::whole;
use super::{Book, check};
use crate::args::profile::Test;
use crate::error::{WithHint, hinted, usage};
use crate::inference::{close_books, desk};
use crate::permits;
use crate::vault;

/// Reads the profile with its templates, opens its key, and looks for its provider.
pub async fn run(book: &Book<'_>, typed: &Test) -> anyhow::Result<()> {
    let name = super::ordinary(&typed.named.name)?;
    let record = book.known(name).await?;
    if record.body["template"] == Value::Bool(true) {
        return Err(usage(format!("profile `{name}` is a template")))
            .hint("templates are there to be extended");
    }
    let whole = whole(&*book.ledger, &record).await?;
    for warning in check::profile(name, &record.body, whole.body())? {
        book.warn(&warning);
    }
    let key = key(book, &whole).await?;
    let (mut says, mut said) = (None, None);
    if !typed.offline {
        let desk =
            desk(&book.ledger, book.settings)?.with_pools(permits::book(book.settings).await?);
        let until = Instant::now() + PATIENCE;
        says = Some(desk.health(&book.tenant, Some(name), until).await.map_err(hopeless)?);
        if typed.ask {
            said = Some(ask(&desk, book, name).await?);
        }
    }
    let answer = json!({
        "tenant": book.tenant, "profile": name, "document": "ok", "key": key,
        "provider": says, "answer": said,
    });
    book.settings.output.answer(&answer, || {
        let key = key.map_or("it needs no key", |_| "its key opens");
        let says =
            says.map_or("its provider was not asked".into(), |says| format!("provider: {says}"));
        let said = said.map(|said| format!("; asked to say OK, it says {said:?}"));
        format!("profile `{name}` reads well, {key}; {says}{}", said.unwrap_or_default())
    })
}

/// How long a provider may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A question that costs next to nothing. It is in the books like any other.
async fn ask(desk: &Desk, book: &Book<'_>, name: &ProfileName) -> anyhow::Result<String> {
    let until = Instant::now() + PATIENCE;
    let question = Question::new(CallId::new().to_string(), "Say OK.", until);
    let question = Question { max_tokens: 16, ..question };
    let errand = Errand::new(book.tenant.clone(), Some(name.clone()), question);
    let settled = desk.ask(&errand, None).await;
    desk.note(settled.records).await;
    close_books(desk).await;
    Ok(settled.result.map_err(hopeless)?.text)
}

fn hopeless(error: AskError) -> anyhow::Error {
    hinted(error.into(), "`longshore ai health` looks at all profiles")
}

/// Opens the key, which belongs to whoever wrote the document that names it.
async fn key(book: &Book<'_>, whole: &Sheet) -> anyhow::Result<Option<&'static str>> {
    let (Some(key), Some(owner)) = (whole.body()["key"].as_str(), whole.key_owner()) else {
        return Ok(None);
    };
    let vault = vault::open(book.ledger.clone(), book.settings)?;
    vault.open(&Scope::Tenant(owner.clone()), owner, &key.parse()?).await?;
    Ok(Some("ok"))
}
