//! Pools of script workers.

use longshore::Error;
use longshore::store::Page;
use serde::{Deserialize, Serialize};

use crate::call::{Call, json};
use crate::house::House;
use crate::problem::Problem;
use crate::scripts::ScriptPool;
use crate::table::Answer;
use crate::whole::whole;

/// What is known of them; nothing where nobody knows of any.
pub(crate) async fn gather(house: &House) -> Vec<ScriptPool> {
    match &house.scripts {
        Some(scripts) => scripts.look().await,
        None => Vec::new(),
    }
}

pub(super) async fn list(call: Call) -> Answer {
    json(&Page { items: gather(&call.house).await, next: None })
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Size {
    #[serde(deserialize_with = "whole")]
    min: u32,
    #[serde(default, deserialize_with = "whole")]
    max: Option<u32>,
}

pub(super) async fn scale(mut call: Call) -> Answer {
    let pool: String = call.path("pool")?;
    let Size { min, max } = call.json().await?;
    let max = max.unwrap_or(min).max(min);
    let known = gather(&call.house).await.into_iter().any(|one| one.pool == pool);
    let scripts = call.house.scripts.as_ref().filter(|_| known);
    let scripts = scripts.ok_or_else(|| Error::not_found("dispatch pool", &pool))?;
    call.note(None, &pool, format!("{min} to {max} workers")).await?;
    scripts.scale(&pool, min, max).await.map_err(Problem::conflict)?;
    json(&Size { min, max: Some(max) })
}
