//! Resolves `[mail]`.

use longshore_mail::spool::Thresholds;

use super::{at_key, duration, parse_choice, path, pool_name, positive_duration};
use crate::config::{self, Config};
use crate::error::usage;
use crate::mail::{MailSettings, ServerSettings};

pub(super) fn mail(config: &Config) -> anyhow::Result<MailSettings> {
    let mail = &config.mail;
    let pool = Some(&mail.pool).filter(|name| !name.is_empty());
    Ok(MailSettings {
        spool: path(&mail.spool).unwrap_or_else(|| "spool".into()),
        renderer: at_key("mail.renderer", mail.renderer.parse().map_err(usage))?,
        form: parse_choice("mail.form", &mail.form)?,
        mjml_dir: path(&mail.mjml_dir).unwrap_or_else(|| ".".into()),
        includes: mail.includes.iter().map(Into::into).collect(),
        render_timeout: positive_duration("mail.render_timeout", &mail.render_timeout)?,
        pool: pool.map(|name| pool_name("mail.pool", name, config)).transpose()?,
        folder: path(&mail.folder),
        per_domain: mail.per_domain,
        on_unanswered: parse_choice("mail.on_unanswered", &mail.on_unanswered)?,
        max_age: positive_duration("mail.max_age", &mail.max_age)?,
        keep: duration("mail.keep", &mail.keep)?,
        keep_failed: duration("mail.keep_failed", &mail.keep_failed)?,
        thresholds: Thresholds {
            warning: usize::try_from(mail.warning)?,
            critical: usize::try_from(mail.critical)?,
            warning_age: positive_duration("mail.warning_age", &mail.warning_age)?,
            critical_age: positive_duration("mail.critical_age", &mail.critical_age)?,
            warning_failed: usize::try_from(mail.warning_failed)?,
            critical_failed: usize::try_from(mail.critical_failed)?,
        },
        smtp: server(mail)?,
    })
}

fn server(mail: &config::MailConfig) -> anyhow::Result<ServerSettings> {
    let smtp = &mail.smtp;
    let server = Some(&smtp.server).filter(|text| !text.is_empty()).map(|text| address(text));
    Ok(ServerSettings {
        server: at_key("mail.smtp.server", server.transpose())?,
        security: parse_choice("mail.smtp.security", &smtp.security)?,
        authorities: path(&smtp.authorities),
        user: smtp.user.clone(),
        password_file: path(&smtp.password_file),
        hello: smtp.hello.clone(),
        connections: usize::try_from(smtp.connections)?.max(1),
        timeout: positive_duration("mail.smtp.timeout", &smtp.timeout)?,
    })
}

fn address(text: &str) -> anyhow::Result<(String, u16)> {
    let wrong = || usage(format!("`{text}` is not a server, as mail.example.org:587"));
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    match host.is_empty() {
        true => Err(wrong()),
        false => Ok((host.trim_matches(['[', ']']).to_owned(), port)),
    }
}
