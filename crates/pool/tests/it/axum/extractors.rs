//! Extractors of handlers.

use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::routing::get;
use longshore_pool::axum::{Pools, WorkerPools};
use longshore_pool::{CallError, Operations, WorkerPool};

use super::{json, page};
use crate::helpers::{exactly, pool, worker};

async fn named(name: &str) -> WorkerPool {
    let own = name.to_owned();
    let operations = Operations::stateless().add("name", move |(), (): ()| Ok::<_, String>(own.clone()));
    WorkerPool::threads(name, operations, exactly(1)).await.unwrap()
}

async fn first(workers: WorkerPools) -> Result<String, CallError> {
    workers.call("name", &()).await
}

async fn second(workers: WorkerPools) -> Result<String, CallError> {
    workers.pool("second")?.call("name", &()).await
}

async fn third(workers: WorkerPools) -> Result<String, CallError> {
    workers.pool("third")?.call("name", &()).await
}

async fn thread(workers: WorkerPools) -> Result<String, CallError> {
    workers.run_blocking(|| std::thread::current().name().unwrap_or_default().to_owned()).await
}

fn routes<S: Clone + Send + Sync + 'static>() -> Router<S>
where
    Pools: FromRef<S>,
{
    let router = Router::new().route("/first", get(first)).route("/second", get(second));
    router.route("/third", get(third)).route("/thread", get(thread))
}

#[tokio::test]
async fn several_pools_of_one_app_are_told_apart_by_name() {
    let pools = Pools::new().add(named("first").await).add(named("second").await);
    let app = routes().with_state(pools);
    assert_eq!(page(&app, "/first").await, (StatusCode::OK, "first".to_owned()));
    assert_eq!(page(&app, "/second").await, (StatusCode::OK, "second".to_owned()));
    let (status, problem) = json(&app, "/third").await;
    assert_eq!((status.as_u16(), &problem["kind"]), (503, &"start_failed".into()));
}

/// An app's own state, which contains the pools.
#[derive(Clone)]
struct AppState {
    pools: Pools,
    greeting: &'static str,
}

impl FromRef<AppState> for Pools {
    fn from_ref(state: &AppState) -> Self {
        state.pools.clone()
    }
}

#[tokio::test]
async fn pools_can_be_a_part_of_the_state() {
    let greet = async |State(state): State<AppState>, workers: WorkerPools| {
        let name: String = workers.call("name", &()).await?;
        Ok::<_, CallError>(format!("{} {name}", state.greeting))
    };
    let state = AppState { pools: Pools::new().add(named("first").await), greeting: "ahoy" };
    let app = routes().route("/greet", get(greet)).with_state(state);
    assert_eq!(page(&app, "/greet").await, (StatusCode::OK, "ahoy first".to_owned()));
    assert_eq!(page(&app, "/first").await, (StatusCode::OK, "first".to_owned()));
}

#[tokio::test]
async fn closures_go_to_a_pool_that_has_threads() {
    let processes = pool(worker("json", "well"), exactly(1)).await;
    let app = routes().with_state(Pools::new().add(processes.clone()).add(named("threads").await));
    assert_eq!(page(&app, "/thread").await.0, StatusCode::OK);
    let app = routes().with_state(Pools::new().add(processes));
    assert_eq!(page(&app, "/thread").await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn an_app_without_pools_says_so() {
    let app = routes().with_state(Pools::new());
    assert_eq!(json(&app, "/first").await.1["kind"], "start_failed");
}

#[tokio::test]
async fn of_two_pools_with_one_name_the_later_counts() {
    let operations = Operations::stateless().add("name", |(), (): ()| Ok::<_, String>("later"));
    let later = WorkerPool::threads("first", operations, exactly(1)).await.unwrap();
    let pools = Pools::new().add(named("first").await).add(later);
    assert_eq!(pools.iter().count(), 1);
    assert_eq!(page(&routes().with_state(pools), "/first").await.1, "later");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_database_is_taken_like_a_pool() {
    use longshore_pool::database::{Db, DbOptions, Value};

    async fn sum(db: Db) -> Result<String, CallError> {
        let sum = db.select_value("SELECT ? + 1", [Value::from(41)]).await?;
        Ok(format!("{sum:?}"))
    }
    let folder = tempfile::tempdir().unwrap();
    let options = DbOptions::default().create_if_missing();
    let db = Db::sqlite(folder.path().join("test.db"), options).await.unwrap();
    let pools = Pools::new().add(db).add(named("first").await);
    let app = routes().route("/sum", get(sum)).with_state(pools);
    let (status, text) = page(&app, "/sum").await;
    assert!(status == StatusCode::OK && text.contains("42"), "{status} {text}");
    assert_eq!(page(&app, "/first").await.1, "first", "workers are the first that is no database");
}
