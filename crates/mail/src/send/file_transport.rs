//! Writes mail to a folder: for trials and for examples that run offline.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::{MailTransaction, Transport};
use crate::spool::{DeliveryOutcome, SpooledMessage};

/// Writes one `.eml` file per message, named by its Message-ID: a resent message replaces its file.
#[derive(Debug, Clone)]
pub struct FileTransport(PathBuf);

impl FileTransport {
    /// Creates the folder with mode 0700 if it is missing.
    pub fn new(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
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
    async fn send_data(&mut self, message: &SpooledMessage) -> DeliveryOutcome {
        let name = format!("{}.eml", message.message_id.replace(['/', '\0'], "_"));
        let (path, part) = (self.0.join(&name), self.0.join(format!(".{name}.part")));
        // Rename when complete, so that readers never see a partial message.
        let written = write_private(&part, &message.body).and_then(|()| std::fs::rename(&part, &path));
        match written {
            Ok(()) => DeliveryOutcome::Accepted { answer: format!("written to {name}") },
            Err(error) => {
                DeliveryOutcome::Deferred { why: format!("cannot write {}: {error}", path.display()) }
            }
        }
    }
}

/// Writes a file with mode 0600: a message is for its recipient.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    options.create(true).write(true).truncate(true).mode(0o600).open(path)?.write_all(bytes)
}
