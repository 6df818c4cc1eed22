//! What is sent at set times.

use longshore::Schedule;
use longshore::schedule::Template;
use longshore::store::Page;
use longshore::unit::Payload;

use crate::call::{Call, json};
use crate::table::Answer;

pub(super) async fn list(call: Call) -> Answer {
    let (scope, limit) = (call.scope()?, call.limit()?);
    let page = call.house.store.schedules(&scope, call.after(), limit).await?;
    let shown = |mut schedule: Schedule| {
        if !call.caller.reads(&schedule.tenant) {
            let payload = Payload::from(serde_json::Value::Null);
            schedule.plan.template = Template { payload, ..schedule.plan.template };
        }
        schedule
    };
    let items: Vec<Schedule> = page.items.into_iter().map(shown).collect();
    json(&Page { items, next: page.next })
}
