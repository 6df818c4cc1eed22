//! `longshore.toml`: every key with its type and default, and the loader of the file.
//!
//! A value is parsed once, into the type that commands use; an error names file, line and key.
//! [`crate::settings`] applies the flags and checks keys that depend on each other. A test compares
//! these modules with `longshore.reference.toml`, which documents every key.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use longshore::store::Retention;
use longshore::{PoolName, TenantId, duration};
use toml::{Table, Value};

use self::permissions::Found;
use crate::env::{self, EnvVar};
use crate::error::hinted;
use crate::semaphore_backend::PermitStore;
use crate::store::StoreUrl;

/// A section: its keys, each with its type and its default.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$attr:meta])* $key:ident: $type:ty = $default:expr,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$attr])* pub $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }
    };
}

mod error;
mod listen_address;
#[cfg(feature = "standard")]
mod mail;
mod permissions;
mod sections;
#[cfg(feature = "standard")]
mod supervise;
#[cfg(test)]
mod tests;
mod value;
#[cfg(feature = "standard")]
mod web;

pub use listen_address::ListenAddress;
#[cfg(feature = "standard")]
pub use mail::{MailConfig, RendererName, SmtpAddress, SmtpConfig};
pub use sections::*;
#[cfg(feature = "standard")]
pub use supervise::{SuperviseConfig, SupervisedConfig};
#[cfg(feature = "standard")]
pub use web::{DispatchConfig, WebConfig};

// The quickstart build ignores the sections of commands that it does not have.
#[cfg(not(feature = "standard"))]
use serde::de::IgnoredAny as DispatchConfig;
#[cfg(not(feature = "standard"))]
use serde::de::IgnoredAny as MailConfig;
#[cfg(not(feature = "standard"))]
use serde::de::IgnoredAny as SuperviseConfig;
#[cfg(not(feature = "standard"))]
use serde::de::IgnoredAny as WebConfig;

/// The file name in the working directory.
const FILE_NAME: &str = "longshore.toml";

section! {
    /// The whole file.
    Config {
        /// The store's URL.
        #[serde(deserialize_with = "value::parsed")]
        store: StoreUrl = StoreUrl::Sqlite("longshore.db".into()),
        /// Whether the file or the environment names the store.
        #[serde(skip)]
        store_named: bool = false,
        /// The file itself, if there is one.
        #[serde(skip)]
        file: Option<PathBuf> = None,
        /// The tenant to which commands are restricted, if any.
        #[serde(deserialize_with = "value::optional")]
        tenant: Option<TenantId> = None,
        /// How long to wait for an unavailable store.
        #[serde(with = "duration")]
        patience: Duration = Duration::from_secs(30),
        /// The store of bounded pools' permits.
        #[serde(deserialize_with = "value::parsed")]
        permits: PermitStore = PermitStore::Store,
        log: LogConfig = LogConfig::default(),
        telemetry: TelemetryConfig = TelemetryConfig::default(),
        sqlite: SqliteConfig = SqliteConfig::default(),
        postgres: PostgresConfig = PostgresConfig::default(),
        worker: WorkerConfig = WorkerConfig::default(),
        /// Worker processes in any language, by their names.
        workers: BTreeMap<String, WorkerProcessConfig> = BTreeMap::new(),
        /// Bounded pools, by their names.
        pools: BTreeMap<PoolName, BoundedPoolConfig> = BTreeMap::new(),
        alerts: AlertsConfig = AlertsConfig::default(),
        submit: SubmitConfig = SubmitConfig::default(),
        http: HttpConfig = HttpConfig::default(),
        vault: VaultConfig = VaultConfig::default(),
        ai: AiConfig = AiConfig::default(),
        dispatch: DispatchConfig = Default::default(),
        mail: MailConfig = Default::default(),
        web: WebConfig = Default::default(),
        supervise: SuperviseConfig = Default::default(),
        /// Retention of ended units, batches and audit entries.
        keep: Retention = Retention::default(),
    }
}

/// Loads the configuration from the file and the environment.
pub fn load(flag: Option<&Path>) -> anyhow::Result<Config> {
    let file = find(flag)?;
    let mut table = match &file {
        Some((path, found)) => read(path, *found)?,
        None => Table::new(),
    };
    let file = file.map(|(path, _)| path);
    for var in env::VARS {
        if let Some(value) = std::env::var_os(var.name) {
            let value = value.into_string().ok().with_context(|| not_text(var))?;
            apply_variable(&mut table, var, &value)
                .with_context(|| format!("in environment variable {}", var.name))?;
        }
    }
    let store_named = table.contains_key("store");
    Ok(Config { store_named, file, ..table.try_into()? })
}

fn not_text(var: EnvVar) -> String {
    format!("environment variable {} is not valid UTF-8", var.name)
}

fn find(flag: Option<&Path>) -> anyhow::Result<Option<(PathBuf, Found)>> {
    let named = flag.map(Path::to_owned);
    let named = named.or_else(|| std::env::var_os(env::CONFIG).map(PathBuf::from));
    match named {
        Some(path) if path.is_file() => Ok(Some((path, Found::Named))),
        Some(path) => Err(missing(&path)),
        None => {
            let found = Some(PathBuf::from(FILE_NAME)).filter(|path| path.is_file());
            Ok(found.map(|path| (path, Found::InWorkingDirectory)))
        }
    }
}

/// The error for a named file that is not there, or no file.
fn missing(path: &Path) -> anyhow::Error {
    let cause = match path.metadata() {
        Ok(_) => anyhow!("it is not a regular file"),
        Err(error) => error.into(),
    };
    let error = cause.context(format!("there is no configuration file {}", path.display()));
    hinted(
        error,
        format!("check --config (LONGSHORE_CONFIG); without it, ./{FILE_NAME} is read if it is there"),
    )
}

fn read(path: &Path, found: Found) -> anyhow::Result<Table> {
    let cannot = || format!("cannot read configuration file {}", path.display());
    let mut file = File::open(path).with_context(cannot)?;
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(cannot)?;
    let metadata = file.metadata().with_context(cannot)?;
    permissions::check(path, &metadata, found)?;
    let table = parse(&text, &path.display().to_string())?;
    permissions::check_secrets(path, &metadata, &table)?;
    Ok(table)
}

/// Checks `text` against [`Config`] and returns it as written, so that the environment can set what
/// it leaves out.
fn parse(text: &str, name: &str) -> anyhow::Result<Table> {
    match toml::from_str::<Config>(text) {
        Ok(_) => Ok(text.parse()?),
        Err(problem) => {
            let at = problem.span().map_or(0, |span| span.start).min(text.len());
            let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            let problem = error::misplaced(text).unwrap_or_else(|| error::explain(&problem));
            Err(problem).with_context(|| format!("in {name}, line {line}"))
        }
    }
}

/// Sets a key to its variable's value: the first of text, integer and list that has the key's type.
fn apply_variable(table: &mut Table, var: EnvVar, text: &str) -> anyhow::Result<()> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let forms = [
        Some(Value::from(text)),
        text.parse().ok().map(Value::Integer),
        Some(Value::Array(items.map(Value::from).collect())),
    ];
    let mut type_error = None;
    for value in forms.into_iter().flatten() {
        let mut alone = Table::new();
        set(&mut alone, var.key, value.clone());
        match alone.try_into::<Config>() {
            Ok(_) => {
                set(table, var.key, value);
                return Ok(());
            }
            Err(problem) if error::is_type_error(&problem) => type_error = type_error.or(Some(problem)),
            Err(problem) => return Err(error::explain_at(var.key, problem.message())),
        }
    }
    let message = type_error.as_ref().map_or("", |problem| problem.message());
    Err(error::explain_at(var.key, message))
}

fn set(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => _ = table.insert(key.to_owned(), value),
        Some((section, key)) => {
            let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(section) = section {
                section.insert(key.to_owned(), value);
            }
        }
    }
}
