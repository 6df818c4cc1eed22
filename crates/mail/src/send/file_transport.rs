//! Writes mail to a folder: for trials and for examples that run offline.

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::{MailTransaction, Transport};
use crate::spool::{DeliveryOutcome, SpooledMessage};

/// Writes one `.eml` file per message, named by its Message-ID: a resent message replaces its file.
#[derive(Debug, Clone)]
pub struct FileTransport(PathBuf);

impl FileTransport {
    /// Creates the folder if it is missing.
    pub fn new(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Ok(Self(path.to_path_buf()))
    }
}

#[async_trait]
impl Transport for FileTransport {
    async fn begin(&self, _: &SpooledMessage) -> Result<Box<dyn MailTransaction>, DeliveryOutcome> {
        Ok(Box::new(self.clone()))
    }
}

#[async_trait]
impl MailTransaction for FileTransport {
    async fn send_data(self: Box<Self>, message: &SpooledMessage) -> DeliveryOutcome {
        let name = format!("{}.eml", message.message_id.replace(['/', '\0'], "_"));
        let (path, part) = (self.0.join(&name), self.0.join(format!(".{name}.part")));
        // Rename when complete, so that readers never see a partial message.
        let written = std::fs::write(&part, &message.body).and_then(|()| std::fs::rename(&part, &path));
        match written {
            Ok(()) => DeliveryOutcome::Accepted { answer: format!("written to {name}") },
            Err(error) => {
                DeliveryOutcome::Deferred { why: format!("cannot write {}: {error}", path.display()) }
            }
        }
    }
}
