//! The API: the endpoint table, and the routes made from it.

pub(crate) mod batch_ingest;
pub(crate) mod batches;
pub(crate) mod bulk_submit;
mod cron;
pub(crate) mod dispatch;
mod events;
pub(crate) mod health;
pub(crate) mod permits;
pub(crate) mod pools;
pub(crate) mod profiles;
pub(crate) mod queues;
pub(crate) mod reply_queues;
pub(crate) mod submit;
pub(crate) mod tenants;
pub(crate) mod units;
pub(crate) mod usage;
pub(crate) mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{RawPathParams, Request};
use axum::http::header::ACCEPT;
use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use longshore::accounts::Role;
use longshore_ai::worker::MAX_REPLIES;

use crate::app_state::AppState;
use crate::endpoints::{BASE, Endpoint, Param, ParamKind, RequestBody, ResponseBody};
use crate::problem::Problem;
use crate::request_context::respond;
use crate::{metrics, pages};

const AFTER: Param = Param { name: "after", about: "`next` of the previous page", kind: ParamKind::Text };
const LIMIT: Param =
    Param { name: "limit", about: "maximum number of items", kind: ParamKind::Number(1_000) };
const TENANT: Param = Param { name: "tenant", about: "only this tenant's", kind: ParamKind::Name };
const STATES: &[&str] = &["blocked", "scheduled", "ready", "leased", "done", "failed", "cancelled"];
const STATE: Param = Param { name: "state", about: "in this state", kind: ParamKind::OneOf(STATES) };
const STATUSES: &[&str] = &["queued", "running", "paused", "complete", "failed", "cancelled"];
const STATUS: Param = Param { name: "status", about: "with this status", kind: ParamKind::OneOf(STATUSES) };
const QUEUE: Param = Param { name: "queue", about: "in this queue", kind: ParamKind::Name };
const KIND: Param = Param { name: "kind", about: "of this kind", kind: ParamKind::Name };
const BATCH: Param = Param { name: "batch", about: "of this batch", kind: ParamKind::Name };
const WAIT: Param = Param {
    name: "wait",
    about: "seconds to wait for its end; then it is returned as it is",
    kind: ParamKind::Seconds(300),
};
const ROOM: Param = Param {
    name: "room",
    about: "seconds to wait for room in a full queue; default: reject at once (429)",
    kind: ParamKind::Seconds(300),
};
const CURSOR: Param = Param {
    name: "cursor",
    about: "the cursor the sender expects; default: the beginning",
    kind: ParamKind::Text,
};
const NEXT: Param = Param {
    name: "next",
    about: "the cursor after these lines: any text of the sender, different for each chunk",
    kind: ParamKind::RequiredText,
};
const PERMIT_WAIT: Param = Param {
    name: "wait",
    about: "seconds to wait for a permit; default: reject at once (429)",
    kind: ParamKind::Seconds(300),
};
const REPLY_WAIT: Param = Param {
    name: "wait",
    about: "seconds to wait for a reply; then the list is empty",
    kind: ParamKind::Seconds(300),
};
const REPLY_LIMIT: Param =
    Param { name: "limit", about: "maximum number of replies", kind: ParamKind::Number(MAX_REPLIES) };
const DRAIN_WAIT: Param = Param {
    name: "wait",
    about: "seconds to wait until none of its units runs; then it is returned as it is",
    kind: ParamKind::Seconds(300),
};
const BY: Param = Param {
    name: "by",
    about: "how calls are grouped; default: by day",
    kind: ParamKind::OneOf(&["day", "tenant", "model", "batch", "profile"]),
};
const DAYS: Param =
    Param { name: "days", about: "number of days; default: 30", kind: ParamKind::Number(3_660) };
const STARTED_SINCE: Param = Param {
    name: "since",
    about: "started at or after this time, such as 2030-01-31T08:00:00Z; overrides `days`",
    kind: ParamKind::Time,
};
const STARTED_UNTIL: Param = Param {
    name: "until",
    about: "started before this time, such as 2030-01-31T08:00:00Z",
    kind: ParamKind::Time,
};
const PROFILE: Param = Param { name: "profile", about: "by this profile", kind: ParamKind::Name };
const SINCE: Param =
    Param { name: "since", about: "the last event's id; default: now", kind: ParamKind::Text };

macro_rules! endpoint {
    ($method:ident $path:literal $id:literal, $role:ident, $about:literal,
     query: $query:expr, request: $request:expr, response: $response:expr, audit: $audit:literal, $run:path) => {
        Endpoint {
            method: Method::$method,
            path: $path,
            id: $id,
            about: $about,
            role: Role::$role,
            query: $query,
            request: $request,
            response: $response,
            audit_action: $audit,
            run: |ctx| Box::pin($run(ctx)),
        }
    };
    (GET $path:literal $id:literal, $role:ident, $about:literal, $query:expr, $response:expr, $run:path) => {
        endpoint!(GET $path $id, $role, $about, query: $query, request: RequestBody::Nothing,
            response: $response, audit: "", $run)
    };
    (POST $path:literal $id:literal, $role:ident, $about:literal, $request:expr => $response:expr, $audit:literal, $run:path) => {
        endpoint!(POST $path $id, $role, $about, query: &[], request: $request,
            response: $response, audit: $audit, $run)
    };
    (POST $path:literal $id:literal, $role:ident, $about:literal, $response:expr, $audit:literal, $run:path) => {
        endpoint!(POST $path $id, $role, $about, query: &[], request: RequestBody::Nothing,
            response: $response, audit: $audit, $run)
    };
}

/// All endpoints.
#[rustfmt::skip]
pub static ENDPOINTS: &[Endpoint] = &[
    endpoint!(GET "/queues" "listQueues", Read, "List queues, one entry per lane",
        &[TENANT, AFTER, LIMIT], ResponseBody::Page("Queue"), queues::list),
    endpoint!(GET "/queues/{queue}" "showQueue", Read, "List the lanes of a queue",
        &[TENANT, AFTER, LIMIT], ResponseBody::Page("Queue"), queues::show),
    endpoint!(POST "/queues/{queue}/pause" "pauseQueue", Operate,
        "Pause a queue: the lane of `tenant` or the caller's own, or the whole queue for an admin or its \
         owner",
        query: &[TENANT], request: RequestBody::Nothing, response: ResponseBody::Page("Queue"), audit: "queue.pause",
        queues::pause),
    endpoint!(POST "/queues/{queue}/resume" "resumeQueue", Operate, "Resume a paused queue",
        query: &[TENANT], request: RequestBody::Nothing, response: ResponseBody::Page("Queue"), audit: "queue.resume",
        queues::resume),
    endpoint!(GET "/batches" "listBatches", Read, "List batches, newest first",
        &[STATUS, TENANT, AFTER, LIMIT], ResponseBody::Page("Batch"), batches::list),
    endpoint!(POST "/batches" "openBatch", Submit,
        "Open a batch, or return the existing one with that name: continue at its `cursor`",
        RequestBody::Json("NewBatch") => ResponseBody::One("Opened"), "batch.open", batch_ingest::open),
    endpoint!(POST "/batches/{batch}/units" "addToBatch", Submit,
        "Add units (NDJSON) to a batch at `cursor`, and set its cursor to `next`, atomically. A conflict (409) \
         has the batch's cursor in `so_far.cursor`: if it is `next`, this is a repeat of a committed chunk",
        query: &[CURSOR, NEXT, ROOM], request: RequestBody::Ndjson("NewUnit"), response: ResponseBody::One("Filled"),
        audit: "", batch_ingest::add),
    endpoint!(POST "/batches/{batch}/seal" "sealBatch", Submit,
        "Seal a batch: all its units were added, and it completes when they have ended",
        ResponseBody::One("Batch"), "batch.seal", batch_ingest::seal),
    endpoint!(GET "/batches/{batch}" "showBatch", Read, "Show a batch with its progress",
        &[], ResponseBody::One("Batch"), batches::show),
    endpoint!(GET "/batches/{batch}/rows" "listRows", Read, "List a batch's rows, newest first",
        &[STATE, AFTER, LIMIT], ResponseBody::Page("Row"), batches::rows),
    endpoint!(GET "/batches/{batch}/failures" "listFailures", Read, "Group a batch's newest 5,000 failures by reason",
        &[], ResponseBody::Page("FailureGroup"), batches::failures),
    endpoint!(POST "/batches/{batch}/pause" "pauseBatch", Operate, "Pause a batch: claim none of its units",
        RequestBody::OptionalJson("Why") => ResponseBody::One("Batch"), "batch.pause", batches::pause),
    endpoint!(POST "/batches/{batch}/resume" "resumeBatch", Operate, "Resume a paused batch",
        ResponseBody::One("Batch"), "batch.resume", batches::resume),
    endpoint!(POST "/batches/{batch}/drain" "drainBatch", Operate,
        "Pause a batch and wait until none of its units runs; a conflict (409) means that it was resumed",
        query: &[DRAIN_WAIT], request: RequestBody::Nothing, response: ResponseBody::One("Batch"), audit: "batch.drain",
        batches::drain),
    endpoint!(POST "/batches/{batch}/cancel" "cancelBatch", Operate,
        "Cancel a batch: waiting units are cancelled, running ones are asked to stop",
        ResponseBody::One("Batch"), "batch.cancel", batches::cancel),
    endpoint!(POST "/batches/{batch}/retry" "retryBatch", Operate, "Retry a batch's failed units",
        ResponseBody::One("Batch"), "batch.retry", batches::retry),
    endpoint!(GET "/units" "listUnits", Read, "List units, newest first, without payloads",
        &[STATE, QUEUE, KIND, BATCH, TENANT, AFTER, LIMIT], ResponseBody::Page("Unit"), units::list),
    endpoint!(POST "/units" "submitUnit", Submit,
        "Enqueue a unit. `Idempotency-Key`, or `key` in the body, makes a repeat return the first unit",
        query: &[ROOM], request: RequestBody::Json("NewUnit"), response: ResponseBody::One("Sent"),
        audit: "", submit::one),
    endpoint!(POST "/units/stream" "submitUnits", Submit,
        "Enqueue a stream of units (NDJSON) of any length. With `Idempotency-Key` the same stream may be \
         sent again: existing units are recognised by their line",
        query: &[ROOM], request: RequestBody::Ndjson("NewUnit"), response: ResponseBody::One("Tally"),
        audit: "", bulk_submit::submit_stream),
    endpoint!(GET "/units/{unit}" "showUnit", Read, "Show a unit with its payload and failures",
        &[WAIT], ResponseBody::One("Unit"), units::show),
    endpoint!(POST "/units/{unit}/cancel" "cancelUnit", Operate,
        "Cancel a unit; if it runs, ask it to stop",
        ResponseBody::One("Operated"), "unit.cancel", units::cancel),
    endpoint!(POST "/units/{unit}/retry" "retryUnit", Operate,
        "Retry a unit, with a fresh attempt count",
        ResponseBody::One("Operated"), "unit.retry", units::retry),
    endpoint!(GET "/workers" "listWorkers", Admin, "List workers and their commands",
        &[AFTER, LIMIT], ResponseBody::Page("Worker"), workers::list),
    endpoint!(POST "/workers/{worker}/quiet" "quietWorker", Admin, "Quiet a worker: it claims nothing new",
        ResponseBody::One("Ordered"), "worker.quiet", workers::quiet),
    endpoint!(POST "/workers/{worker}/work" "resumeWorker", Admin, "Resume a worker",
        ResponseBody::One("Ordered"), "worker.work", workers::work),
    endpoint!(POST "/workers/{worker}/drain" "drainWorker", Admin,
        "Drain a worker: it finishes its units, then exits",
        ResponseBody::One("Ordered"), "worker.drain", workers::drain),
    endpoint!(POST "/workers/{worker}/stop" "stopWorker", Admin,
        "Stop a worker now; its units are interrupted and run again",
        ResponseBody::One("Ordered"), "worker.stop", workers::stop),
    endpoint!(GET "/cron" "listSchedules", Read, "List cron schedules",
        &[TENANT, AFTER, LIMIT], ResponseBody::Page("Schedule"), cron::list),
    endpoint!(GET "/tenants" "listTenants", Read, "List tenants that have a record",
        &[AFTER, LIMIT], ResponseBody::Page("Tenant"), tenants::list),
    endpoint!(GET "/pools" "listPools", Read,
        "List bounded pools with holders and waiters. A tenant sees its own, and the counts of shared ones",
        &[AFTER, LIMIT], ResponseBody::Page("Pool"), pools::list),
    endpoint!(POST "/pools/{pool}/resize" "resizePool", Admin,
        "Set a pool's number of permits: growing takes effect at once, shrinking as permits are released",
        RequestBody::Json("PoolSize") => ResponseBody::One("PoolSize"), "pool.resize", pools::resize),
    endpoint!(POST "/pools/{pool}/permits" "acquirePermit", Submit,
        "Acquire a permit: a lease that expires unless it is extended",
        query: &[PERMIT_WAIT], request: RequestBody::Json("NewPermit"), response: ResponseBody::One("Permit"),
        audit: "", permits::acquire),
    endpoint!(POST "/pools/{pool}/permits/{permit}/extend" "extendPermit", Submit,
        "Extend a permit's lease; a conflict (409) means that it is not held any more",
        RequestBody::OptionalJson("PermitLife") => ResponseBody::One("PermitLeft"), "", permits::extend),
    endpoint!(POST "/pools/{pool}/permits/{permit}/release" "releasePermit", Submit,
        "Release a permit; no effect if it is not held any more",
        ResponseBody::One("PermitLeft"), "", permits::release),
    endpoint!(GET "/profiles" "listProfiles", Read, "List AI profiles with their limits, without keys",
        &[TENANT, AFTER, LIMIT], ResponseBody::Page("Profile"), profiles::list),
    endpoint!(GET "/reply-queues" "listReplyQueues", Read, "List open reply queues of AI requests",
        &[TENANT, AFTER, LIMIT], ResponseBody::Page("ReplyQueue"), reply_queues::list),
    endpoint!(POST "/reply-queues" "openReplyQueue", Submit,
        "Open a reply queue for the answers to AI requests. It is closed after `ttl_seconds` without a read",
        RequestBody::OptionalJson("NewReplyQueue") => ResponseBody::One("ReplyQueue"), "", reply_queues::open),
    endpoint!(GET "/reply-queues/{reply_queue}/replies" "readReplies", Submit,
        "Read replies and parts of replies, oldest first. They are returned again until they are acknowledged",
        &[REPLY_WAIT, REPLY_LIMIT], ResponseBody::One("Replies"), reply_queues::read),
    endpoint!(POST "/reply-queues/{reply_queue}/ack" "acknowledgeReplies", Submit,
        "Acknowledge replies: they are not returned again",
        RequestBody::Json("Acknowledgement") => ResponseBody::One("Acknowledged"), "", reply_queues::acknowledge),
    endpoint!(POST "/reply-queues/{reply_queue}/close" "closeReplyQueue", Submit,
        "Close a reply queue; replies that are not acknowledged are cancelled",
        ResponseBody::One("ReplyQueue"), "", reply_queues::close),
    endpoint!(GET "/usage" "listUsage", Read, "Sum up AI calls, in tokens and money",
        &[BY, DAYS, STARTED_SINCE, STARTED_UNTIL, BATCH, PROFILE, TENANT, AFTER, LIMIT], ResponseBody::Page("Usage"), usage::list),
    endpoint!(GET "/budgets" "listBudgets", Read, "List tenants' budgets and spending of this month",
        &[AFTER, LIMIT], ResponseBody::Page("Budget"), usage::months),
    endpoint!(GET "/dispatch" "listScriptPools", Admin, "List pools of script workers, with their nodes",
        &[AFTER, LIMIT], ResponseBody::Page("ScriptPool"), dispatch::list),
    endpoint!(POST "/dispatch/{pool}/scale" "scaleScriptPool", Admin, "Set a pool's number of workers",
        RequestBody::Json("Scale") => ResponseBody::One("Scale"), "dispatch.scale", dispatch::scale),
    endpoint!(GET "/audit" "listDeeds", Operate, "List mutations over HTTP, newest first",
        &[TENANT, AFTER, LIMIT], ResponseBody::Page("Deed"), tenants::audit_log),
    endpoint!(GET "/whoami" "whoami", Read, "Show the token's owner, role and scope",
        &[], ResponseBody::One("Caller"), tenants::whoami),
    endpoint!(GET "/events" "events", Read, "Stream changes",
        &[SINCE], ResponseBody::Events, events::stream),
    endpoint!(GET "/openapi.json" "openapi", Read, "Return this document",
        &[], ResponseBody::Document, health::document),
];

/// The routes of the API, health checks, metrics and pages.
pub(crate) fn routes(app: &Arc<AppState>) -> Router {
    let mut router = Router::new();
    for endpoint in ENDPOINTS {
        router = mount(router, endpoint, app);
    }
    let (ready, metrics_app) = (Arc::clone(app), Arc::clone(app));
    router
        .route("/healthz", on(MethodFilter::GET, health::liveness))
        .route("/readyz", on(MethodFilter::GET, move || health::readiness(ready)))
        .route("/metrics", on(MethodFilter::GET, move |request| metrics::answer(metrics_app, request)))
        .merge(pages::routes(app))
        .fallback(unknown)
        .method_not_allowed_fallback(method)
        .layer(axum::middleware::map_response(with_security_headers))
}

fn mount(router: Router, endpoint: &'static Endpoint, app: &Arc<AppState>) -> Router {
    let app = Arc::clone(app);
    let run = async move |path: RawPathParams, request: Request| {
        let path: BTreeMap<_, _> =
            path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        respond(app, endpoint, path, request).await
    };
    let filter = match endpoint.method {
        Method::POST => MethodFilter::POST,
        _ => MethodFilter::GET,
    };
    router.route(&format!("{BASE}{}", endpoint.path), on(filter, run))
}

async fn unknown(request: Request) -> Response {
    let problem = Problem::not_found(format!("there is no `{}`", request.uri().path()));
    // A browser gets a page, not JSON.
    let accept = request.headers().get(ACCEPT).and_then(|kinds| kinds.to_str().ok());
    match accept.is_some_and(|kinds| kinds.contains("text/html")) {
        true if !request.uri().path().starts_with(BASE) => pages::not_found(&problem),
        _ => problem.into_response(),
    }
}

async fn method(request: Request) -> Response {
    let detail = format!("`{}` does not support {}", request.uri().path(), request.method());
    Problem::method_not_allowed(detail).into_response()
}

/// Adds security headers to every response.
async fn with_security_headers(mut response: Response) -> Response {
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        // With `no-referrer` browsers send `Origin: null` with our own forms, and every form would be
        // rejected.
        ("referrer-policy", "same-origin"),
    ] {
        let name = HeaderName::from_static(name);
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
