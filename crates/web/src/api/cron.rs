//! Cron schedules.

use longshore::Schedule;
use longshore::schedule::UnitTemplate;
use longshore::store::{Page, ScheduleFilter};
use longshore::unit::Payload;

use crate::endpoints::ApiResult;
use crate::request_context::{RequestContext, json};

pub(super) async fn list(ctx: RequestContext) -> ApiResult {
    let (scope, limit) = (ctx.scope()?, ctx.limit()?);
    let page = ctx.app.store.schedules(&scope, &ScheduleFilter::All, ctx.after(), limit).await?.page;
    let shown = |mut schedule: Schedule| {
        if !ctx.caller.can_read(&schedule.tenant) {
            let payload = Payload::from(serde_json::Value::Null);
            schedule.plan.template = UnitTemplate { payload, ..schedule.plan.template };
        }
        schedule
    };
    let items: Vec<Schedule> = page.items.into_iter().map(shown).collect();
    json(&Page { items, next: page.next })
}
