//! Mail that goes into a folder: for trying things out, and for examples that run offline.

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::{Carrier, Offered};
use crate::spool::{Message, Outcome};

/// One `.eml` file per message, named by its Message-ID: one that comes twice is there once.
#[derive(Debug, Clone)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes the folder if it is missing.
    pub fn new(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Ok(Self(path.to_path_buf()))
    }
}

#[async_trait]
impl Carrier for Folder {
    async fn offer(&self, _: &Message) -> Result<Box<dyn Offered>, Outcome> {
        Ok(Box::new(self.clone()))
    }
}

#[async_trait]
impl Offered for Folder {
    async fn hand_over(self: Box<Self>, message: &Message) -> Outcome {
        let name = format!("{}.eml", message.message_id.replace(['/', '\0'], "_"));
        let (path, part) = (self.0.join(&name), self.0.join(format!(".{name}.part")));
        // Who looks into the folder never sees half a message.
        let written =
            std::fs::write(&part, &message.body).and_then(|()| std::fs::rename(&part, &path));
        match written {
            Ok(()) => Outcome::Taken { answer: format!("written to {name}") },
            Err(error) => {
                Outcome::Deferred { why: format!("cannot write {}: {error}", path.display()) }
            }
        }
    }
}
