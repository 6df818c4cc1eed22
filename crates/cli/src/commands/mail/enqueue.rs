//! `mail spool`: adds a message to the spool.

use anyhow::Context;
use longshore_mail::message_builder::Draft;
use longshore_mail::mjml::MjmlTemplate;
use longshore_mail::spool::{EnqueueResult as PutResult, MessageKey};
use serde::Serialize;

use super::{folder_of, now};
use crate::args::mail::MailSpoolArgs;
use crate::exit::ExitCode;
use crate::mail;
use crate::settings::Settings;

#[derive(Serialize)]
struct SpoolResult<'a> {
    key: &'a str,
    message_id: &'a str,
    created: bool,
}

/// Runs the command.
pub async fn run(typed: MailSpoolArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let html = page(&typed, settings).await?;
    let text = typed.text.as_ref().map(std::fs::read_to_string).transpose();
    let draft = Draft {
        from: typed.from,
        to: typed.to,
        subject: typed.subject,
        html,
        text: text.context("cannot read the text")?,
        bounces_to: typed.bounces_to,
        headers: Vec::new(),
    };
    let (now, key) = (now(), MessageKey::new(&typed.key)?);
    let letter = draft.build(key, now + typed.after.0, typed.priority, now)?;
    let spool = mail::spool(&settings.mail)?;
    let results = spool.enqueue(std::slice::from_ref(&letter), now)?;
    let created = results == [PutResult::Created];
    let answer = SpoolResult { key: &typed.key, message_id: &letter.message_id, created };
    settings.output.answer(&answer, || match created {
        true => format!("{} is in the spool", typed.key),
        false => format!("{} was in the spool before and is unchanged", typed.key),
    })?;
    Ok(ExitCode::Good)
}

async fn page(typed: &MailSpoolArgs, settings: &Settings) -> anyhow::Result<String> {
    if typed.page.extension().is_none_or(|end| end != "mjml") {
        return std::fs::read_to_string(&typed.page)
            .with_context(|| format!("cannot read {}", typed.page.display()));
    }
    let roots = mail::include_roots(folder_of(&typed.page), &[], &settings.mail)?;
    let template = MjmlTemplate::read(&typed.page, &roots)?;
    let page = mail::compiler(None, settings).await?.compile(&template).await?;
    Ok(page.html.clone())
}
