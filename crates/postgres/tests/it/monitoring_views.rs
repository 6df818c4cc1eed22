//! The SQL views for people's own queries.

use longshore_testkit::conformance::monitoring_views;

use crate::test_server::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_monitoring_queries_run_as_sql() {
    let database = Server::start().await.database().await;
    let fixture = database.fixture().await;
    let query = |sql: &str| tokio::task::block_in_place(|| database.run(sql));
    monitoring_views::the_monitoring_queries_run_as_sql(&fixture, query).await;
}
