//! `/dispatch`: pools of script workers with their nodes, threads and tasks.

use longshore::accounts::Role;
use maud::{Markup, html};

use super::PageRequest;
use super::batches::left;
use super::format::number;
use super::layout::{layout, pill, table_or_empty};
use crate::api::dispatch::script_pools;
use crate::dispatch_port::{ScriptNode, ScriptPool, ScriptPoolStatus};
use crate::problem::Problem;

pub(super) async fn page(req: &PageRequest) -> Result<Markup, Problem> {
    req.caller.require_role(Role::Admin)?;
    let pools = script_pools(&req.app).await;
    let main = html! {
        h1 { "Dispatch" }
        @if pools.is_empty() { (nothing()) }
        @for pool in &pools { (pool_section(pool)) }
    };
    Ok(layout(&req.caller, "/dispatch", "Dispatch", main))
}

fn nothing() -> Markup {
    table_or_empty(
        0,
        html! {
            "No pool of script workers has been started here." br;
            code { "longshore dispatch start --workers 4" }
        },
        html! {},
    )
}

fn pool_section(pool: &ScriptPool) -> Markup {
    html! {
        h2 { (pool.pool) @if let Some(status) = &pool.status { " " (pill(&status.mood)) } }
        @if let Some(trouble) = &pool.trouble { p.message { (trouble) } }
        @if let Some(status) = &pool.status { (tiles(status)) (scale(&pool.pool, status)) (nodes(&status.nodes)) }
    }
}

fn tiles(status: &ScriptPoolStatus) -> Markup {
    let threads: u64 = status.nodes.iter().map(|node| u64::from(node.threads)).sum();
    let taken: u64 = status.nodes.iter().map(|node| u64::from(node.taken)).sum();
    let wanted = match status.min == status.max {
        true => status.min.to_string(),
        false => format!("{} to {}", status.min, status.max),
    };
    let tile = |name: &str, value: String, class: &str| {
        html! { div class={ "tile " (class) } { b { (value) } span { (name) } } }
    };
    html! {
        div.tiles {
            (tile("nodes", number(status.nodes.len() as u64), ""))
            (tile(&format!("threads of {}", number(threads)), number(taken), ""))
            (tile("waiting", number(status.waiting), ""))
            (tile("running", number(status.running), ""))
            (tile("done", number(status.done), ""))
            (tile("failed", number(status.failed), if status.failed > 0 { "bad" } else { "" }))
        }
        p.soft {
            (wanted) " workers wanted, started by " (status.base) "; "
            (number(status.later)) " scripts wait for others or for their time; up for "
            (left(status.up_seconds)) "."
        }
    }
}

fn scale(pool: &str, status: &ScriptPoolStatus) -> Markup {
    let field = |name: &str, label: &str, value: u32| {
        html! {
            label { (label)
                input type="number" name=(name) min="0" max="100000" required value=(value)
                    id={ (name) "-" (pool) };
            }
        }
    };
    html! {
        form.number method="post" action={ "/dispatch/" (pool) "/scale" } {
            (field("min", "At least", status.min)) (field("max", "At most", status.max))
            button { "Scale" }
        }
    }
}

fn nodes(nodes: &[ScriptNode]) -> Markup {
    table_or_empty(
        nodes.len(),
        html! { "No workers yet." br; code { "longshore dispatch explain" } },
        html! {
            table {
                thead { tr {
                    th { "Node" } th { "State" } th { "Threads" } th.n { "Taken" } th.n { "Of" }
                    th.n { "Scripts" } th.n.less { "Load" } th.n.less { "Process" } th.less { "Worker" }
                } }
                tbody { @for node in nodes {
                    tr {
                        td.wide { (node.host) }
                        td { (pill(&node.mood)) }
                        td { progress value=(node.taken.min(node.threads)) max=(node.threads.max(1)) {} }
                        td.n { (node.taken) }
                        td.n { (node.threads) }
                        td.n { (number(node.scripts)) }
                        td.n.less { (format!("{:.2}", node.load)) }
                        td.n.less { (node.pid) }
                        td.less { code { (node.id.get(..8).unwrap_or(&node.id)) } }
                    }
                } }
            }
        },
    )
}
