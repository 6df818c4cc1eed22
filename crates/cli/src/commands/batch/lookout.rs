//! Tells people when somebody should look at a batch: in words, in the log, and as its definition
//! says.

use longshore::{BatchId, Timestamp};
use longshore_batch::alerts::{Alert, Seen, watch};
use longshore_batch::definition::Definition;
use longshore_batch::end::perform;
use serde_json::json;

use super::place::Place;
use super::show::Show;
use crate::actions::Actions;
use crate::commands::now;

/// Watches one batch.
pub struct Lookout<'a> {
    place: &'a Place,
    actions: &'a Actions,
    definition: &'a Definition,
    show: &'a Show,
    seen: Seen,
}

impl<'a> Lookout<'a> {
    /// Has seen nothing yet.
    pub fn new(
        place: &'a Place,
        actions: &'a Actions,
        definition: &'a Definition,
        show: &'a Show,
    ) -> Self {
        Self { place, actions, definition, show, seen: Seen::default() }
    }

    /// Looks at the batch and says what has to be said.
    pub async fn look(&mut self, id: &BatchId) {
        // A store that is away is said aloud by the workers.
        let Ok(batch) = self.place.store.batch(self.place.client.scope(), id).await else { return };
        let now: Timestamp = now();
        for alert in watch(&batch, self.definition.alerts.no_progress, &mut self.seen, now) {
            self.tell(&alert).await;
        }
    }

    async fn tell(&self, alert: &Alert) {
        tracing::warn!(batch = %alert.batch, code = %alert.code, "{}", alert.words);
        self.show.say(&format!("alert: batch `{}`: {}", alert.batch, alert.words));
        let Some(action) = &self.definition.alerts.action else { return };
        let facts = json!({
            "code": alert.code, "batch": alert.batch, "type": self.definition.kind,
            "tenant": self.definition.tenant, "words": alert.words,
        });
        let database = &self.definition.database;
        let done = perform(action, &facts, database, &self.place.sources, self.actions).await;
        if let Err(error) = done {
            self.show.say(&format!("warning: the alert could not be passed on: {error}"));
        }
    }
}
