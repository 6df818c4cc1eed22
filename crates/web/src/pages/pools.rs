//! `/pools`: bounded pools with holders and waiters.

use longshore::accounts::Role;
use longshore::store::Page;
use maud::{Markup, html};

use super::PageRequest;
use super::batches::query;
use super::format::{duration, number};
use super::layout::{layout, table_or_empty};
use crate::api::pools::{self, PoolView};
use crate::problem::Problem;
use crate::request_context::page_of;

/// Maximum number of holders and waiters shown per pool.
const MAX_SHOWN: usize = 50;

/// Pools per page.
const PAGE: u32 = 200;

pub(super) async fn page(req: &PageRequest) -> Result<Markup, Problem> {
    let pools = pools::visible_pools(&req.app, &req.caller).await?;
    let after = req.query.get("after").map(String::as_str);
    let Page { items: pools, next } = page_of(pools, after, PAGE, |pool| pool.pool.to_string());
    let main = html! {
        h1 { "Pools" }
        (table(&pools))
        @for pool in &pools { (holders_and_waiters(pool, req.caller.role >= Role::Admin)) }
        @if let Some(next) = next {
            p { a href={ "/pools?after=" (query(&next)) } rel="next" { "More" } }
        }
    };
    Ok(layout(&req.caller, "/pools", "Pools", main))
}

fn table(pools: &[PoolView]) -> Markup {
    let nothing = html! { "No bounded pools." br; code { "longshore pool exec NAME -- COMMAND" } };
    let time = |seconds: Option<f64>| seconds.map_or(String::new(), seconds_as_words);
    table_or_empty(
        pools.len(),
        nothing,
        html! {
            table {
                thead { tr {
                    th { "Pool" } th { "Used" } th.n { "Held" } th.n { "Of" } th.n { "Waiting" }
                    th.n.less { "Median wait" } th.n.less { "Longest waits" } th.n.less { "Granted" }
                    th.n.less { "Timed out" } th.n.less { "Expired" }
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

fn meter(pool: &PoolView) -> Markup {
    let words = format!("{} of {}", pool.in_use, pool.max);
    html! {
        progress value=(pool.in_use.min(pool.max)) max=(pool.max.max(1)) title=(words) { (words) }
    }
}

fn resize(pool: &PoolView) -> Markup {
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

fn holders_and_waiters(pool: &PoolView, resizes: bool) -> Markup {
    let (held, waiting) = (&pool.holders, &pool.waiting);
    html! {
        h2 id={ "pool-" (pool.pool) } { (pool.pool) }
        @if resizes { (resize(pool)) }
        @if pool.masked { p.soft { "Shared with other tenants: holders and waiters are not shown." } }
        @else if held.is_empty() && waiting.is_empty() { p.soft { "No holders, no waiters." } }
        @else {
            div.sheet { table {
                thead { tr {
                    th { "Holder" } th { "" } th.n { "Weight" } th.n { "For" } th.n.less { "Lease ends in" }
                    th.n.less { "Fence" }
                } }
                tbody {
                    @for holder in held.iter().take(MAX_SHOWN) { tr {
                        td.wide { (holder.owner) } td { span class="pill leased" { "holds" } }
                        td.n { (holder.weight) } td.n { (seconds_as_words(holder.held_seconds)) }
                        td.n.less { (seconds_as_words(holder.left_seconds)) } td.n.less { (holder.fence) }
                    } }
                    @for waiter in waiting.iter().take(MAX_SHOWN) { tr {
                        td.wide { (waiter.owner) } td { span class="pill paused" { "waits" } }
                        td.n { (waiter.weight) } td.n { (seconds_as_words(waiter.waited_seconds)) }
                        td.n.less {} td.n.less {}
                    } }
                }
            } }
            @for (many, verb) in [(held.len(), "hold"), (waiting.len(), "wait")] {
                @if many > MAX_SHOWN { p.soft { (number((many - MAX_SHOWN) as u64)) " more " (verb) "." } }
            }
        }
    }
}

fn seconds_as_words(seconds: f64) -> String {
    duration(std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1e9)))
}
