//! Messages to rows of a batch: compiled, sealed, and kept in the spool, once per row and period.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use longshore::{Clock, Priority};
use longshore_batch::mail::{Office, OfficeError, Parcel, Posted, Told};

use crate::letter::Draft;
use crate::letterbox::Letterbox;
use crate::mjml::{Compiler, RenderError, Roots, Template, any_include};
use crate::spool::{Key, Letter, Put};

/// The template, the addresses or the subject of a row cannot become a message.
const MAIL_ERROR: &str = "MAIL_ERROR";
/// Nobody compiled it.
const MJML_ERROR: &str = "MJML_ERROR";
/// The disk did not take it.
const SPOOL_ERROR: &str = "SPOOL_ERROR";

/// An [`Office`] that keeps messages in a spool.
///
/// Who comes again with the same parcel's key, from whatever process, after whatever crash, is told what
/// is in the message that is kept.
pub struct SpoolOffice {
    sealer: Sealer,
    letterbox: Letterbox,
}

/// Makes letters of parcels, and keeps none: for whoever keeps them, and for rehearsals.
pub struct Sealer {
    compiler: Compiler,
    includes: Vec<PathBuf>,
    clock: Arc<dyn Clock>,
}

impl SpoolOffice {
    /// Pages are made by `compiler`, and may include from these folders beside their own. No page comes
    /// twice, so none is remembered.
    pub fn new(
        compiler: Compiler,
        letterbox: Letterbox,
        includes: Vec<PathBuf>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { sealer: Sealer::new(compiler, includes, clock), letterbox }
    }
}

impl Sealer {
    /// Pages are made by `compiler`, and may include from these folders beside their own.
    pub fn new(compiler: Compiler, includes: Vec<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self { compiler: compiler.keeping(0), includes, clock }
    }

    /// The letter, compiled and with its addresses read.
    pub async fn seal(&self, parcel: Parcel) -> Result<Letter, OfficeError> {
        let page = self.compiler.compile(&self.template(&parcel)?).await;
        let page = page.map_err(|error| OfficeError {
            retryable: error.is_retryable(),
            busy: matches!(error, RenderError::Permit(_)),
            ..hopeless(MJML_ERROR, &error)
        })?;
        let Parcel { key, from, to, subject, headers, told, .. } = parcel;
        let html = page.html.clone();
        let draft =
            Draft { from, to: vec![to], subject, html, text: None, bounces_to: None, headers };
        let (now, key) = (self.clock.now(), Key::new(&key));
        let key = key.map_err(|error| hopeless(MAIL_ERROR, &error))?;
        let letter = draft.seal(key, now, Priority::NORMAL, now);
        let mut letter = letter.map_err(|error| hopeless(MAIL_ERROR, &error))?;
        letter.about =
            Some(serde_json::to_value(&told).map_err(|error| hopeless(MAIL_ERROR, &error))?);
        Ok(letter)
    }

    fn template(&self, parcel: &Parcel) -> Result<Template, OfficeError> {
        let roots = match any_include(&parcel.mjml) {
            None => Roots::default(),
            Some(_) => {
                let folders = std::iter::once(&parcel.folder).chain(&self.includes);
                Roots::new(folders).map_err(|error| hopeless(MJML_ERROR, &error))?
            }
        };
        Template::from_text(&parcel.mjml, &roots).map_err(|fault| hopeless(MJML_ERROR, &fault))
    }
}

#[async_trait]
impl Office for SpoolOffice {
    async fn post(&self, parcel: Parcel) -> Result<Posted, OfficeError> {
        let (mail_key, told) = (parcel.key.clone(), parcel.told.clone());
        let letter = self.sealer.seal(parcel).await?;
        let message_id = letter.message_id.clone();
        let kept = self.letterbox.put(letter).await.map_err(|error| OfficeError {
            retryable: error.is_retryable(),
            ..hopeless(SPOOL_ERROR, &*error)
        })?;
        let created = kept.put == Put::Created;
        let told: Told = match (created, kept.about) {
            (true, _) => told,
            (false, Some(about)) => {
                serde_json::from_value(about).map_err(|error| hopeless(SPOOL_ERROR, &error))?
            }
            (false, None) => {
                let message = format!("`{mail_key}` is in the spool, and not as a digest");
                return Err(OfficeError {
                    code: SPOOL_ERROR,
                    message,
                    retryable: false,
                    busy: false,
                });
            }
        };
        Ok(Posted { mail_key, message_id, created, told })
    }
}

/// With its causes; trying again would not help.
fn hopeless(code: &'static str, error: &dyn std::error::Error) -> OfficeError {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    let message = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    OfficeError { code, message, retryable: false, busy: false }
}
