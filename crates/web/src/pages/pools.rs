//! `/pools`: bounded pools, who holds and who waits.

use longshore::ledger::Role;
use maud::{Markup, html};

use super::Visit;
use super::chart::short;
use super::frame::{frame, sheet};
use super::words::number;
use crate::api::pools::{self, Shown};
use crate::problem::Problem;

/// Holders and waiters shown of each pool.
const MOST: usize = 50;

pub(super) async fn page(visit: &Visit) -> Result<Markup, Problem> {
    let pools = pools::gather(&visit.house, &visit.caller).await?;
    let main = html! {
        h1 { "Pools" }
        (table(&pools))
        @for pool in &pools { (people(pool, visit.caller.role >= Role::Admin)) }
    };
    Ok(frame(&visit.caller, "/pools", "Pools", main))
}

fn table(pools: &[Shown]) -> Markup {
    let nothing = html! { "No bounded pools." br; code { "longshore pool exec NAME -- COMMAND" } };
    let time = |seconds: Option<f64>| seconds.map_or(String::new(), seconds_as_words);
    sheet(
        pools.len(),
        nothing,
        html! {
            table {
                thead { tr {
                    th { "Pool" } th { "Used" } th.n { "Held" } th.n { "Of" } th.n { "Waiting" }
                    th.n.less { "Median wait" } th.n.less { "Longest waits" } th.n.less { "Given" }
                    th.n.less { "Timed out" } th.n.less { "Ran out" }
                } }
                tbody { @for pool in pools {
                    tr {
                        td.wide { a href={ "#pool-" (pool.pool) } { (pool.pool) } }
                        td { (meter(pool)) }
                        td.n { (pool.in_use) }
                        td.n { (pool.max) }
                        td.n { (number(pool.in_line)) }
                        td.n.less { (time(pool.wait_p50_seconds)) }
                        td.n.less { (time(pool.wait_p95_seconds)) }
                        td.n.less { (number(pool.acquired)) }
                        td.n.less { (number(pool.timeouts)) }
                        td.n.less { (number(pool.expired)) }
                    }
                } }
            }
        },
    )
}

fn meter(pool: &Shown) -> Markup {
    let words = format!("{} of {}", pool.in_use, pool.max);
    html! {
        progress value=(pool.in_use.min(pool.max)) max=(pool.max.max(1)) title=(words) { (words) }
    }
}

fn resize(pool: &Shown) -> Markup {
    let name = pool.pool.as_str();
    let action = format!("/pools/{}/resize", name.replace('/', "%2F"));
    html! {
        form.number method="post" action=(action) {
            label { "Permits"
                input type="number" name="max" min="0" max="1000000" required value=(pool.max)
                    id={ "max-" (name) };
            }
            button { "Resize" }
        }
    }
}

fn people(pool: &Shown, resizes: bool) -> Markup {
    let (held, waiting) = (&pool.holders, &pool.waiting);
    html! {
        h2 id={ "pool-" (pool.pool) } { (pool.pool) }
        @if resizes { (resize(pool)) }
        @if pool.masked { p.soft { "Shared with other tenants: who holds and who waits is not shown." } }
        @else if held.is_empty() && waiting.is_empty() { p.soft { "Nobody holds, nobody waits." } }
        @else {
            div.sheet { table {
                thead { tr {
                    th { "Who" } th { "" } th.n { "Weight" } th.n { "For" } th.n.less { "Lease ends in" }
                    th.n.less { "Fence" }
                } }
                tbody {
                    @for holder in held.iter().take(MOST) { tr {
                        td.wide { (holder.owner) } td { span class="pill leased" { "holds" } }
                        td.n { (holder.weight) } td.n { (seconds_as_words(holder.held_seconds)) }
                        td.n.less { (seconds_as_words(holder.left_seconds)) } td.n.less { (holder.fence) }
                    } }
                    @for waiter in waiting.iter().take(MOST) { tr {
                        td.wide { (waiter.owner) } td { span class="pill paused" { "waits" } }
                        td.n { (waiter.weight) } td.n { (seconds_as_words(waiter.waited_seconds)) }
                        td.n.less {} td.n.less {}
                    } }
                }
            } }
            @for (many, verb) in [(held.len(), "hold"), (waiting.len(), "wait")] {
                @if many > MOST { p.soft { (number((many - MOST) as u64)) " more " (verb) "." } }
            }
        }
    }
}

fn seconds_as_words(seconds: f64) -> String {
    short(std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1e9)))
}
