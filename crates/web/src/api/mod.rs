//! The API: its table, and how the table becomes routes.

pub(crate) mod batches;
mod cron;
pub(crate) mod dispatch;
mod events;
pub(crate) mod fill;
mod health;
pub(crate) mod lines;
mod permits;
pub(crate) mod pools;
pub(crate) mod profiles;
mod queues;
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
use longshore::ledger::Role;

use crate::call::answer;
use crate::house::House;
use crate::problem::Problem;
use crate::table::{BASE, Endpoint, Gives, Param, ParamKind, Takes};
use crate::{metrics, pages};

const AFTER: Param = Param {
    name: "after",
    about: "`next` of the page before: no other text is one",
    kind: ParamKind::Text,
};
const LIMIT: Param =
    Param { name: "limit", about: "how many at most", kind: ParamKind::Number(1_000) };
const TENANT: Param = Param { name: "tenant", about: "only this tenant's", kind: ParamKind::Name };
const STATES: &[&str] = &["blocked", "scheduled", "ready", "leased", "done", "failed", "cancelled"];
const STATE: Param =
    Param { name: "state", about: "in this state", kind: ParamKind::OneOf(STATES) };
const STATUSES: &[&str] = &["queued", "running", "paused", "complete", "failed", "cancelled"];
const STATUS: Param =
    Param { name: "status", about: "with this status", kind: ParamKind::OneOf(STATUSES) };
const QUEUE: Param = Param { name: "queue", about: "in this queue", kind: ParamKind::Name };
const KIND: Param = Param { name: "kind", about: "of this kind", kind: ParamKind::Name };
const BATCH: Param = Param { name: "batch", about: "of this batch", kind: ParamKind::Name };
const WAIT: Param = Param {
    name: "wait",
    about: "seconds to wait for its end, before it is shown as it is",
    kind: ParamKind::Seconds(300),
};
const ROOM: Param = Param {
    name: "room",
    about: "seconds to wait for room in a full queue; without, it is refused at once (429)",
    kind: ParamKind::Seconds(300),
};
const CURSOR: Param = Param {
    name: "cursor",
    about: "where its sender believes it is; without, at the beginning",
    kind: ParamKind::Text,
};
const NEXT: Param = Param {
    name: "next",
    about: "where it is after these lines: a text of the sender's own, another for each chunk",
    kind: ParamKind::Needed,
};
const PERMIT: Param = Param {
    name: "wait",
    about: "seconds to wait for a permit; without, it is refused at once (429)",
    kind: ParamKind::Seconds(300),
};
const REST: Param = Param {
    name: "wait",
    about: "seconds to wait until nothing of it runs, before it is shown as it is",
    kind: ParamKind::Seconds(300),
};
const BY: Param = Param {
    name: "by",
    about: "how calls are put together; by day without",
    kind: ParamKind::OneOf(&["day", "tenant", "model", "batch", "profile"]),
};
const DAYS: Param =
    Param { name: "days", about: "of so many days; 30 without", kind: ParamKind::Number(3_660) };
const BEGUN: Param = Param {
    name: "since",
    about: "begun then or later, as 2030-01-31T08:00:00Z; goes before `days`",
    kind: ParamKind::Time,
};
const UNTIL: Param = Param {
    name: "until",
    about: "begun before then, as 2030-01-31T08:00:00Z",
    kind: ParamKind::Time,
};
const PROFILE: Param = Param { name: "profile", about: "by this profile", kind: ParamKind::Name };
const SINCE: Param =
    Param { name: "since", about: "the last event's id; now without", kind: ParamKind::Text };

macro_rules! endpoint {
    ($method:ident $path:literal $id:literal, $role:ident, $about:literal,
     query: $query:expr, takes: $takes:expr, gives: $gives:expr, deed: $deed:literal, $run:path) => {
        Endpoint {
            method: Method::$method,
            path: $path,
            id: $id,
            about: $about,
            role: Role::$role,
            query: $query,
            takes: $takes,
            gives: $gives,
            deed: $deed,
            run: |call| Box::pin($run(call)),
        }
    };
    (GET $path:literal $id:literal, $role:ident, $about:literal, $query:expr, $gives:expr, $run:path) => {
        endpoint!(GET $path $id, $role, $about, query: $query, takes: Takes::Nothing,
            gives: $gives, deed: "", $run)
    };
    (POST $path:literal $id:literal, $role:ident, $about:literal, $takes:expr => $gives:expr, $deed:literal, $run:path) => {
        endpoint!(POST $path $id, $role, $about, query: &[], takes: $takes,
            gives: $gives, deed: $deed, $run)
    };
    (POST $path:literal $id:literal, $role:ident, $about:literal, $gives:expr, $deed:literal, $run:path) => {
        endpoint!(POST $path $id, $role, $about, query: &[], takes: Takes::Nothing,
            gives: $gives, deed: $deed, $run)
    };
}

/// All there is.
#[rustfmt::skip]
pub static ENDPOINTS: &[Endpoint] = &[
    endpoint!(GET "/queues" "listQueues", Read, "Queues, one entry per lane",
        &[TENANT], Gives::Page("Queue"), queues::list),
    endpoint!(GET "/queues/{queue}" "showQueue", Read, "The lanes of a queue",
        &[TENANT], Gives::Page("Queue"), queues::show),
    endpoint!(POST "/queues/{queue}/pause" "pauseQueue", Operate,
        "Let claims pass a queue by: the lane of `tenant` or the own one, or all of it for an admin or \
         its owner",
        query: &[TENANT], takes: Takes::Nothing, gives: Gives::Page("Queue"), deed: "queue.pause",
        queues::pause),
    endpoint!(POST "/queues/{queue}/resume" "resumeQueue", Operate, "Let claims take from it again",
        query: &[TENANT], takes: Takes::Nothing, gives: Gives::Page("Queue"), deed: "queue.resume",
        queues::resume),
    endpoint!(GET "/batches" "listBatches", Read, "Batches, newest first",
        &[STATUS, TENANT, AFTER, LIMIT], Gives::Page("Batch"), batches::list),
    endpoint!(POST "/batches" "openBatch", Submit,
        "Open a batch, or find the one of that name: its `cursor` says from where on it is filled",
        Takes::Json("NewBatch") => Gives::One("Opened"), "batch.open", fill::open),
    endpoint!(POST "/batches/{batch}/units" "addToBatch", Submit,
        "Add units, as lines of JSON, to a batch that is at `cursor`, and move it to `next`: both or neither. \
         A conflict (409) says in `so_far.cursor` where the batch is: there, after a repeat, if it is `next`",
        query: &[CURSOR, NEXT, ROOM], takes: Takes::Lines("NewUnit"), gives: Gives::One("Filled"),
        deed: "batch.add", fill::add),
    endpoint!(POST "/batches/{batch}/seal" "sealBatch", Submit,
        "Say that all its units are in: once they have ended, so has the batch",
        Gives::One("Batch"), "batch.seal", fill::seal),
    endpoint!(GET "/batches/{batch}" "showBatch", Read, "A batch with its progress",
        &[], Gives::One("Batch"), batches::show),
    endpoint!(GET "/batches/{batch}/rows" "listRows", Read, "A batch's rows, newest first",
        &[STATE, AFTER, LIMIT], Gives::Page("Row"), batches::rows),
    endpoint!(GET "/batches/{batch}/failures" "listFailures", Read, "A batch's newest 5,000 failures by reason",
        &[], Gives::Page("FailureGroup"), batches::failures),
    endpoint!(POST "/batches/{batch}/pause" "pauseBatch", Operate, "Claim no more of it",
        Takes::MaybeJson("Why") => Gives::One("Batch"), "batch.pause", batches::pause),
    endpoint!(POST "/batches/{batch}/resume" "resumeBatch", Operate, "Claim from it again",
        Gives::One("Batch"), "batch.resume", batches::resume),
    endpoint!(POST "/batches/{batch}/drain" "drainBatch", Operate,
        "Pause it and wait until nothing of it runs; a conflict (409) says that somebody resumed it",
        query: &[REST], takes: Takes::Nothing, gives: Gives::One("Batch"), deed: "batch.drain",
        batches::drain),
    endpoint!(POST "/batches/{batch}/cancel" "cancelBatch", Operate,
        "Give it up: waiting units are cancelled, running ones asked to stop",
        Gives::One("Batch"), "batch.cancel", batches::cancel),
    endpoint!(POST "/batches/{batch}/retry" "retryBatch", Operate, "Run its failed units again",
        Gives::One("Batch"), "batch.retry", batches::retry),
    endpoint!(GET "/units" "listUnits", Read, "Units, newest first; without what they carry",
        &[STATE, QUEUE, KIND, BATCH, TENANT, AFTER, LIMIT], Gives::Page("Unit"), units::list),
    endpoint!(POST "/units" "submitUnit", Submit,
        "Send a unit. `Idempotency-Key`, or `key` in the body: a second one is recognised by it",
        query: &[ROOM], takes: Takes::Json("NewUnit"), gives: Gives::One("Sent"),
        deed: "unit.submit", submit::one),
    endpoint!(POST "/units/stream" "submitUnits", Submit,
        "Send units as lines of JSON (NDJSON), as many as there are. With `Idempotency-Key` the same \
         stream may be sent again: units that are in are recognised by their line",
        query: &[ROOM], takes: Takes::Lines("NewUnit"), gives: Gives::One("Tally"),
        deed: "unit.submit", lines::many),
    endpoint!(GET "/units/{unit}" "showUnit", Read, "A unit with what it carries and its failures",
        &[WAIT], Gives::One("Unit"), units::show),
    endpoint!(POST "/units/{unit}/cancel" "cancelUnit", Operate,
        "End it if it waits; ask it to stop if it runs",
        Gives::One("Operated"), "unit.cancel", units::cancel),
    endpoint!(POST "/units/{unit}/retry" "retryUnit", Operate,
        "Run it again, with fresh attempts",
        Gives::One("Operated"), "unit.retry", units::retry),
    endpoint!(GET "/workers" "listWorkers", Admin, "Workers, and what they were asked to do",
        &[], Gives::Page("Worker"), workers::list),
    endpoint!(POST "/workers/{worker}/quiet" "quietWorker", Admin, "Have it claim nothing new",
        Gives::One("Ordered"), "worker.quiet", workers::quiet),
    endpoint!(POST "/workers/{worker}/work" "resumeWorker", Admin, "Have it go on",
        Gives::One("Ordered"), "worker.work", workers::work),
    endpoint!(POST "/workers/{worker}/drain" "drainWorker", Admin,
        "Have it finish what it holds, then end",
        Gives::One("Ordered"), "worker.drain", workers::drain),
    endpoint!(POST "/workers/{worker}/stop" "stopWorker", Admin,
        "Have it end now; what runs is interrupted and will run again",
        Gives::One("Ordered"), "worker.stop", workers::stop),
    endpoint!(GET "/cron" "listSchedules", Read, "What is sent at set times",
        &[TENANT, AFTER, LIMIT], Gives::Page("Schedule"), cron::list),
    endpoint!(GET "/tenants" "listTenants", Read, "Tenants that have a record",
        &[], Gives::Page("Tenant"), tenants::list),
    endpoint!(GET "/pools" "listPools", Read,
        "Bounded pools: who holds, who waits. A tenant sees its own, and the figures of shared ones",
        &[], Gives::Page("Pool"), pools::list),
    endpoint!(POST "/pools/{pool}/resize" "resizePool", Admin,
        "Set how many permits there are: more at once, fewer as they come back",
        Takes::Json("PoolSize") => Gives::One("PoolSize"), "pool.resize", pools::resize),
    endpoint!(POST "/pools/{pool}/permits" "acquirePermit", Submit,
        "Hold a permit: a lease that ends by itself unless it is extended",
        query: &[PERMIT], takes: Takes::Json("NewPermit"), gives: Gives::One("Permit"),
        deed: "permit.acquire", permits::acquire),
    endpoint!(POST "/pools/{pool}/permits/{permit}/extend" "extendPermit", Submit,
        "Begin its lease anew; a conflict (409) says that it was lost",
        Takes::MaybeJson("PermitLife") => Gives::One("PermitLeft"), "", permits::extend),
    endpoint!(POST "/pools/{pool}/permits/{permit}/release" "releasePermit", Submit,
        "Give it back; harmless if it is not held any more",
        Gives::One("PermitLeft"), "permit.release", permits::release),
    endpoint!(GET "/profiles" "listProfiles", Read, "AI profiles with their limits; never keys",
        &[TENANT, AFTER, LIMIT], Gives::Page("Profile"), profiles::list),
    endpoint!(GET "/usage" "listUsage", Read, "What AI calls came to, in tokens and money",
        &[BY, DAYS, BEGUN, UNTIL, BATCH, PROFILE, TENANT], Gives::Page("Usage"), usage::list),
    endpoint!(GET "/budgets" "listBudgets", Read, "This month of tenants: what may be spent, and was",
        &[], Gives::Page("Budget"), usage::months),
    endpoint!(GET "/dispatch" "listScriptPools", Admin, "Pools of script workers, with their nodes",
        &[], Gives::Page("ScriptPool"), dispatch::list),
    endpoint!(POST "/dispatch/{pool}/scale" "scaleScriptPool", Admin, "Have it keep so many workers",
        Takes::Json("Scale") => Gives::One("Scale"), "dispatch.scale", dispatch::scale),
    endpoint!(GET "/audit" "listDeeds", Operate, "Changes that were asked for, newest first",
        &[TENANT, AFTER, LIMIT], Gives::Page("Deed"), tenants::deeds),
    endpoint!(GET "/whoami" "whoami", Read, "Whose token it is, and how far it reaches",
        &[], Gives::One("Caller"), tenants::whoami),
    endpoint!(GET "/events" "events", Read, "What changes, as it changes",
        &[SINCE], Gives::Events, events::stream),
    endpoint!(GET "/openapi.json" "openapi", Read, "This document",
        &[], Gives::Document, health::document),
];

/// Everything of the API, and what is asked to know whether we live.
pub(crate) fn routes(house: &Arc<House>) -> Router {
    let mut router = Router::new();
    for endpoint in ENDPOINTS {
        router = mount(router, endpoint, house);
    }
    let (ready, metered) = (Arc::clone(house), Arc::clone(house));
    router
        .route("/healthz", on(MethodFilter::GET, health::alive))
        .route("/readyz", on(MethodFilter::GET, move || health::ready(ready)))
        .route("/metrics", on(MethodFilter::GET, move |request| metrics::answer(metered, request)))
        .merge(pages::routes(house))
        .fallback(unknown)
        .method_not_allowed_fallback(method)
        .layer(axum::middleware::map_response(guarded))
}

fn mount(router: Router, endpoint: &'static Endpoint, house: &Arc<House>) -> Router {
    let house = Arc::clone(house);
    let run = async move |path: RawPathParams, request: Request| {
        let path: BTreeMap<_, _> =
            path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        answer(house, endpoint, path, request).await
    };
    let filter = match endpoint.method {
        Method::POST => MethodFilter::POST,
        _ => MethodFilter::GET,
    };
    router.route(&format!("{BASE}{}", endpoint.path), on(filter, run))
}

async fn unknown(request: Request) -> Response {
    let problem = Problem::not_found(format!("there is no `{}`", request.uri().path()));
    // A browser that was sent astray shows a page, not JSON.
    let wants = request.headers().get(ACCEPT).and_then(|kinds| kinds.to_str().ok());
    match wants.is_some_and(|kinds| kinds.contains("text/html")) {
        true if !request.uri().path().starts_with(BASE) => pages::astray(&problem),
        _ => problem.into_response(),
    }
}

async fn method(request: Request) -> Response {
    let words = format!("`{}` is not for {}", request.uri().path(), request.method());
    Problem::method(words).into_response()
}

/// What every answer says to browsers.
async fn guarded(mut response: Response) -> Response {
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        // With `no-referrer` browsers send `Origin: null` with our own forms, and no button would work.
        ("referrer-policy", "same-origin"),
    ] {
        let name = HeaderName::from_static(name);
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
