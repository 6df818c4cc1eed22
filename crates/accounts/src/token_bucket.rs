//! Token buckets.
//!
//! Pure. A bucket refills at its rate up to its capacity, in fractions. Rate and capacity come with
//! every request, so a changed limit applies to the next request, and a bucket needs no set-up.

use std::time::Duration;

use longshore_core::{Error, Result, Timestamp};

/// A request to one bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketRequest {
    /// The bucket, as `tenant/acme/requests`.
    pub bucket: String,
    /// The refill rate per minute.
    pub per_minute: f64,
    /// The capacity.
    pub capacity: f64,
    /// The amount to take; a negative amount is returned to the bucket.
    pub amount: f64,
    /// Take nothing if less than this is available. If this exceeds the capacity, a full bucket
    /// grants it and goes into debt. At zero or below, all of `want` is taken, in debt or not:
    /// consumption that has happened must be accounted for.
    pub minimum: f64,
}

impl BucketRequest {
    /// Rejects numbers that are not finite.
    pub fn check(&self) -> Result<()> {
        if [self.per_minute, self.capacity, self.amount, self.minimum].iter().all(|n| n.is_finite()) {
            return Ok(());
        }
        Err(Error::Invalid(format!("the amounts for bucket `{}` must be finite numbers", self.bucket)))
    }
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DrawResult {
    /// The amount taken.
    pub taken: f64,
    /// If nothing was taken: how long until `at_least` is available, as things stand.
    pub wait: Duration,
}

/// A bucket as stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BucketLevel {
    /// The fill level; negative in debt.
    pub level: f64,
    /// When the level was computed.
    pub at: Timestamp,
}

/// A store may delete a bucket that was not used for this long: it counts as full then.
pub const UNUSED_BUCKET_TTL: Duration = Duration::from_secs(32 * 24 * 3600);

/// The longest wait that is reported: at a rate of zero it would be infinite.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Takes from a bucket. A bucket that was never used (`None`) is full.
pub fn draw(stored: Option<BucketLevel>, now: Timestamp, draw: &BucketRequest) -> (DrawResult, BucketLevel) {
    let capacity = draw.capacity.max(0.0);
    let per_second = draw.per_minute.max(0.0) / 60.0;
    let level = stored.map_or(capacity, |stored| {
        let inflow = now.since(stored.at).as_secs_f64() * per_second;
        (stored.level + inflow).min(capacity)
    });
    // If the clock was set back, nothing flows in, and it does not flow in twice when the clock
    // catches up.
    let at = stored.map_or(now, |stored| stored.at.max(now));
    let enough = draw.minimum.min(capacity);
    let got = if draw.minimum <= 0.0 {
        draw.amount
    } else if level >= enough {
        draw.amount.min(level.max(draw.minimum))
    } else {
        0.0
    };
    let wait = if draw.minimum > 0.0 && got == 0.0 {
        Duration::try_from_secs_f64((enough - level) / per_second).unwrap_or(MAX_WAIT).min(MAX_WAIT)
    } else {
        Duration::ZERO
    };
    (DrawResult { taken: got, wait }, BucketLevel { level: (level - got).min(capacity), at })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_micros((seconds * 1e6) as i64)
    }

    fn request(want: f64, at_least: f64) -> BucketRequest {
        BucketRequest {
            bucket: "b".into(),
            per_minute: 60.0,
            capacity: 10.0,
            amount: want,
            minimum: at_least,
        }
    }

    #[test]
    fn a_new_bucket_is_full_and_an_empty_one_says_how_long() {
        let (drawn, level) = draw(None, at(0.0), &request(25.0, 1.0));
        assert_eq!((drawn.taken, level.level), (10.0, 0.0));
        let (drawn, level) = draw(Some(level), at(0.25), &request(1.0, 1.0));
        assert_eq!((drawn.taken, drawn.wait), (0.0, Duration::from_millis(750)));
        let (drawn, _) = draw(Some(level), at(1.0), &request(1.0, 1.0));
        assert_eq!(drawn.taken, 1.0, "fractions were stored");
    }

    #[test]
    fn more_than_it_holds_is_had_from_a_full_bucket_and_paid_off_later() {
        let (drawn, level) = draw(None, at(0.0), &request(25.0, 25.0));
        assert_eq!((drawn.taken, level.level), (25.0, -15.0));
        let (drawn, _) = draw(Some(level), at(1.0), &request(1.0, 1.0));
        assert_eq!((drawn.taken, drawn.wait), (0.0, Duration::from_secs(15)));
    }

    #[test]
    fn what_is_given_back_never_overflows_and_what_was_used_is_always_charged() {
        let (_, level) = draw(None, at(0.0), &request(-5.0, 0.0));
        assert_eq!(level.level, 10.0);
        let (drawn, level) = draw(Some(level), at(0.0), &request(12.0, 0.0));
        assert_eq!((drawn.taken, level.level), (12.0, -2.0));
    }

    #[test]
    fn a_clock_that_is_put_back_does_not_fill_twice() {
        let (_, level) = draw(None, at(100.0), &request(10.0, 1.0));
        let (drawn, level) = draw(Some(level), at(40.0), &request(1.0, 1.0));
        assert_eq!(drawn.taken, 0.0);
        let (drawn, _) = draw(Some(level), at(100.0), &request(1.0, 1.0));
        assert_eq!(drawn.taken, 0.0);
    }

    proptest::proptest! {
        #[test]
        fn no_window_gives_more_than_its_inflow_and_one_capacity(
            steps in proptest::collection::vec((0_u32..3_000_000, 0.1_f64..4.0), 1..200),
        ) {
            let (mut now, mut stored, mut taken) = (0_i64, None, Vec::new());
            for (pause, want) in steps {
                now += i64::from(pause);
                let at = Timestamp::from_micros(now);
                let (drawn, level) = draw(stored, at, &request(want, want));
                stored = Some(level);
                taken.push((now, drawn.taken));
            }
            for begin in 0..taken.len() {
                let mut sum = 0.0;
                for (time, got) in &taken[begin..] {
                    sum += got;
                    let inflow = (time - taken[begin].0) as f64 / 1e6;
                    proptest::prop_assert!(sum <= inflow + 10.0 + 1e-6);
                }
            }
        }
    }
}
