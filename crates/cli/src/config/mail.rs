//! The schema of `[mail]`.

use serde::{Deserialize, Serialize};

/// `[mail]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MailConfig {
    pub spool: String,
    pub renderer: String,
    pub form: String,
    pub mjml_dir: String,
    pub includes: Vec<String>,
    pub render_timeout: String,
    pub pool: String,
    pub folder: String,
    pub per_domain: u32,
    pub on_unanswered: String,
    pub max_age: String,
    pub keep: String,
    pub keep_failed: String,
    pub warning: u32,
    pub critical: u32,
    pub warning_age: String,
    pub critical_age: String,
    pub warning_failed: u32,
    pub critical_failed: u32,
    pub smtp: SmtpConfig,
}

impl Default for MailConfig {
    fn default() -> Self {
        Self {
            spool: "spool".into(),
            renderer: "embedded".into(),
            form: "raw".into(),
            mjml_dir: String::new(),
            includes: Vec::new(),
            render_timeout: "30s".into(),
            pool: String::new(),
            folder: String::new(),
            per_domain: 0,
            on_unanswered: "again".into(),
            max_age: "3d".into(),
            keep: "7d".into(),
            keep_failed: "30d".into(),
            warning: 100,
            critical: 1000,
            warning_age: "15m".into(),
            critical_age: "1h".into(),
            warning_failed: 10,
            critical_failed: 100,
            smtp: SmtpConfig::default(),
        }
    }
}

/// `[mail.smtp]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SmtpConfig {
    pub server: String,
    pub security: String,
    pub authorities: String,
    pub user: String,
    pub password_file: String,
    pub hello: String,
    pub connections: u32,
    pub timeout: String,
}

impl Default for SmtpConfig {
    fn default() -> Self {
        Self {
            server: String::new(),
            security: "starttls".into(),
            authorities: String::new(),
            user: String::new(),
            password_file: String::new(),
            hello: String::new(),
            connections: 8,
            timeout: "60s".into(),
        }
    }
}
