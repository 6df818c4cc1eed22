//! Token buckets, shared by all processes.

use std::sync::Arc;
use std::time::Duration;

use longshore_accounts::{BucketRequest, DrawResult};
use longshore_core::Error;
use tokio::task::JoinSet;

use super::helpers::*;
use crate::StoreFixture;

/// A request to a bucket of ten tokens that refills by one per second.
fn bucket_request(bucket: &str, want: f64, at_least: f64) -> BucketRequest {
    BucketRequest {
        bucket: bucket.to_owned(),
        per_minute: 60.0,
        capacity: 10.0,
        amount: want,
        minimum: at_least,
    }
}

async fn draw(fixture: &StoreFixture, bucket_request: BucketRequest) -> DrawResult {
    fixture.ledger.draw(vec![bucket_request]).await.unwrap().remove(0)
}

pub(super) async fn draws_share_a_bucket_and_keep_fractions(fixture: &StoreFixture) {
    assert_eq!(draw(fixture, bucket_request("a", 25.0, 1.0)).await.taken, 10.0, "a new bucket is full");
    fixture.clock.advance(Duration::from_millis(400));
    let early = draw(fixture, bucket_request("a", 1.0, 1.0)).await;
    assert_eq!((early.taken, early.wait), (0.0, Duration::from_millis(600)));
    fixture.clock.advance(Duration::from_millis(600));
    assert_eq!(draw(fixture, bucket_request("a", 1.0, 1.0)).await.taken, 1.0);
    assert_eq!(draw(fixture, bucket_request("b", 1.0, 1.0)).await.taken, 1.0, "another bucket");
    fixture.clock.advance(secs(3600));
    assert_eq!(
        draw(fixture, bucket_request("a", 99.0, 1.0)).await.taken,
        10.0,
        "a bucket is never fuller than its capacity"
    );
}

pub(super) async fn draws_of_one_call_see_those_before_them(fixture: &StoreFixture) {
    let draws =
        vec![bucket_request("a", 8.0, 1.0), bucket_request("b", 3.0, 3.0), bucket_request("a", 8.0, 1.0)];
    let got = |drawn: Vec<DrawResult>| drawn.iter().map(|drawn| drawn.taken).collect::<Vec<f64>>();
    assert_eq!(got(fixture.ledger.draw(draws).await.unwrap()), [8.0, 3.0, 2.0]);
    let back =
        vec![bucket_request("a", -4.0, 0.0), bucket_request("b", 9.0, 0.0), bucket_request("a", 9.0, 1.0)];
    assert_eq!(got(fixture.ledger.draw(back).await.unwrap()), [-4.0, 9.0, 4.0]);
    let paid_off = draw(fixture, bucket_request("b", 1.0, 1.0)).await;
    assert_eq!(paid_off.wait, secs(3), "a debt is paid off first");
}

pub(super) async fn a_bucket_gives_no_more_than_it_holds_however_many_draw(fixture: &StoreFixture) {
    let mut callers = JoinSet::new();
    for _ in 0..32 {
        let ledger = Arc::clone(&fixture.ledger);
        callers
            .spawn(async move { ledger.draw(vec![bucket_request("a", 0.5, 0.5)]).await.unwrap()[0].taken });
    }
    let got: f64 = callers.join_all().await.into_iter().sum();
    assert_eq!(got, 10.0);
}

pub(super) async fn a_draw_that_is_no_number_is_refused(fixture: &StoreFixture) {
    for bad in [f64::NAN, f64::INFINITY] {
        let draws = vec![bucket_request("a", 4.0, 1.0), bucket_request("a", bad, 1.0)];
        let answer = fixture.ledger.draw(draws).await;
        assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
    }
    assert_eq!(draw(fixture, bucket_request("a", 99.0, 1.0)).await.taken, 10.0, "nothing was taken");
}
