//! Token buckets: how much may be taken now.
//!
//! Pure. A bucket fills at its rate up to its capacity and keeps fractions. Rate and capacity come
//! with every draw, so a changed limit holds from the next draw on, and a bucket needs no set-up.

use std::time::Duration;

use crate::time::Timestamp;
use crate::{Error, Result};

/// A wish of one bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct Draw {
    /// Which bucket, as `tenant/acme/requests`.
    pub bucket: String,
    /// How much flows in per minute.
    pub per_minute: f64,
    /// How much it holds at most.
    pub capacity: f64,
    /// How much is wanted; below zero it is given back.
    pub want: f64,
    /// Less than this is of no use: then nothing is taken. More than the capacity is had from a full
    /// bucket, which is then in debt. At zero or below, all of `want` is taken, debt or not: what has
    /// been used must be accounted for.
    pub at_least: f64,
}

impl Draw {
    /// Refuses what is no number.
    pub fn check(&self) -> Result<()> {
        if [self.per_minute, self.capacity, self.want, self.at_least].iter().all(|n| n.is_finite())
        {
            return Ok(());
        }
        Err(Error::Invalid(format!("a draw of bucket `{}` must be a number", self.bucket)))
    }
}

/// What a draw brought.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drawn {
    /// How much was taken.
    pub got: f64,
    /// If nothing: how long until `at_least` could be had, as things stand.
    pub wait: Duration,
}

/// A bucket as it is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// How much is in it; below zero it is in debt.
    pub level: f64,
    /// When that was so.
    pub at: Timestamp,
}

/// The longest wait that is told: a rate of nothing would make it endless.
const LONGEST: Duration = Duration::from_secs(3600);

/// Takes from a bucket. One that was never drawn from (`None`) is full.
pub fn draw(kept: Option<Level>, now: Timestamp, draw: &Draw) -> (Drawn, Level) {
    let capacity = draw.capacity.max(0.0);
    let per_second = draw.per_minute.max(0.0) / 60.0;
    let level = kept.map_or(capacity, |kept| {
        let flowed = now.since(kept.at).as_secs_f64() * per_second;
        (kept.level + flowed).min(capacity)
    });
    // A clock that was put back fills nothing, and does not fill twice when it catches up.
    let at = kept.map_or(now, |kept| kept.at.max(now));
    let enough = draw.at_least.min(capacity);
    let got = if draw.at_least <= 0.0 {
        draw.want
    } else if level >= enough {
        draw.want.min(level.max(draw.at_least))
    } else {
        0.0
    };
    let wait = if draw.at_least > 0.0 && got == 0.0 {
        Duration::try_from_secs_f64((enough - level) / per_second).unwrap_or(LONGEST).min(LONGEST)
    } else {
        Duration::ZERO
    };
    (Drawn { got, wait }, Level { level: (level - got).min(capacity), at })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_micros((seconds * 1e6) as i64)
    }

    fn wish(want: f64, at_least: f64) -> Draw {
        Draw { bucket: "b".into(), per_minute: 60.0, capacity: 10.0, want, at_least }
    }

    #[test]
    fn a_new_bucket_is_full_and_an_empty_one_says_how_long() {
        let (drawn, level) = draw(None, at(0.0), &wish(25.0, 1.0));
        assert_eq!((drawn.got, level.level), (10.0, 0.0));
        let (drawn, level) = draw(Some(level), at(0.25), &wish(1.0, 1.0));
        assert_eq!((drawn.got, drawn.wait), (0.0, Duration::from_millis(750)));
        let (drawn, _) = draw(Some(level), at(1.0), &wish(1.0, 1.0));
        assert_eq!(drawn.got, 1.0, "fractions were kept");
    }

    #[test]
    fn more_than_it_holds_is_had_from_a_full_bucket_and_paid_off_later() {
        let (drawn, level) = draw(None, at(0.0), &wish(25.0, 25.0));
        assert_eq!((drawn.got, level.level), (25.0, -15.0));
        let (drawn, _) = draw(Some(level), at(1.0), &wish(1.0, 1.0));
        assert_eq!((drawn.got, drawn.wait), (0.0, Duration::from_secs(15)));
    }

    #[test]
    fn what_is_given_back_never_overflows_and_what_was_used_is_always_charged() {
        let (_, level) = draw(None, at(0.0), &wish(-5.0, 0.0));
        assert_eq!(level.level, 10.0);
        let (drawn, level) = draw(Some(level), at(0.0), &wish(12.0, 0.0));
        assert_eq!((drawn.got, level.level), (12.0, -2.0));
    }

    #[test]
    fn a_clock_that_is_put_back_does_not_fill_twice() {
        let (_, level) = draw(None, at(100.0), &wish(10.0, 1.0));
        let (drawn, level) = draw(Some(level), at(40.0), &wish(1.0, 1.0));
        assert_eq!(drawn.got, 0.0);
        let (drawn, _) = draw(Some(level), at(100.0), &wish(1.0, 1.0));
        assert_eq!(drawn.got, 0.0);
    }

    proptest::proptest! {
        #[test]
        fn no_window_gives_more_than_its_inflow_and_one_capacity(
            steps in proptest::collection::vec((0_u32..3_000_000, 0.1_f64..4.0), 1..200),
        ) {
            let (mut now, mut kept, mut taken) = (0_i64, None, Vec::new());
            for (pause, want) in steps {
                now += i64::from(pause);
                let at = Timestamp::from_micros(now);
                let (drawn, level) = draw(kept, at, &wish(want, want));
                kept = Some(level);
                taken.push((now, drawn.got));
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
