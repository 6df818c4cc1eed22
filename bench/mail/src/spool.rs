//! Messages into the spool, and from the spool to a server.

use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use longshore::{Clock, Priority, SystemClock};
use longshore_mail::message_builder::Draft;
use longshore_mail::mjml::{EmbeddedRenderer, MjmlTemplate, Roots};
use longshore_mail::send::{Security, Sender, SenderSettings, Smtp, SmtpSettings, Transport};
use longshore_mail::spool::{MessageKey, NewMessage, Share, Spool};
use longshore_testkit::servers::{MailSecurity, PrivateSmtp};

use crate::{Scratch, median};

/// Messages that are enqueued concurrently.
const GROUP: usize = 50;

pub(crate) async fn measure(scratch: &Scratch, messages: usize, rounds: usize) -> anyhow::Result<()> {
    let server = tokio::task::spawn_blocking(|| PrivateSmtp::start(MailSecurity::None)).await??;
    let (mut made, mut kept, mut sent) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..rounds {
        let folder = scratch.folder(&format!("spool-{n}"))?;
        let spool = Spool::open(&folder)?;
        let begun = Instant::now();
        for group in (0..messages).collect::<Vec<_>>().chunks(GROUP) {
            let letters = group.iter().map(|n| letter(*n)).collect::<anyhow::Result<Vec<_>>>()?;
            let putting = Instant::now();
            spool.enqueue(&letters, SystemClock.now())?;
            kept.push(letters.len() as f64 / putting.elapsed().as_secs_f64());
        }
        made.push(messages as f64 / begun.elapsed().as_secs_f64());
        sent.push(send(&spool, server.port(), messages).await?);
    }
    println!("\n{:<52} {:>8.0}/s", "rendered anew each, and put into the spool", median(made));
    println!("{:<52} {:>8.0}/s", format!("put into the spool alone, {GROUP} at a time"), median(kept));
    println!("{:<52} {:>8.0}/s", "from the spool to aiosmtpd", median(sent));
    Ok(())
}

/// A unique message, so that no rendered part can be reused.
fn letter(n: usize) -> anyhow::Result<NewMessage> {
    let text = include_str!("../../../crates/mail/templates/digest.mjml");
    let template = MjmlTemplate::from_text(&text.replace("Three", &n.to_string()), &Roots::default())?;
    let draft = Draft {
        from: "The Harbour <harbour@example.org>".into(),
        to: vec![format!("u{n}@example.org")],
        subject: "Your digest".into(),
        html: EmbeddedRenderer::render_blocking(&template)?.html,
        text: None,
        bounces_to: None,
        headers: Vec::new(),
    };
    let now = SystemClock.now();
    Ok(draft.build(MessageKey::new(&format!("digest/daily/{n}"))?, now, Priority::NORMAL, now)?)
}

async fn send(spool: &Spool, port: u16, messages: usize) -> anyhow::Result<f64> {
    let settings = SmtpSettings { security: Security::None, ..SmtpSettings::new("127.0.0.1", port) };
    let carrier = Arc::new(Smtp::new(settings)?);
    let shard = spool.shard(Share::ALL)?;
    let settings = SenderSettings::default();
    let sender = Sender::new(shard, carrier.clone(), settings, Arc::new(SystemClock)).await?;
    let (begun, mut sent) = (Instant::now(), 0);
    while sent < messages {
        let round = sender.round(&|| false).await?;
        ensure!(round.sent > 0, "the server takes nothing: {round:?}");
        sent += round.sent;
    }
    let rate = messages as f64 / begun.elapsed().as_secs_f64();
    carrier.close().await;
    Ok(rate)
}
