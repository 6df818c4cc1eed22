//! Password hashes: deliberately slow and CPU-bound.

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordHasher};
use longshore_pool::{BoxError, Operations, PoolCall};
use serde_json::{Value, json};

pub(crate) fn operations() -> Operations {
    Operations::stateless().add_with("hash", |(), call: &PoolCall, count: u32| hash(call, count))
}

/// Hashes as many passwords as an import of accounts.
fn hash(call: &PoolCall, count: u32) -> Result<Value, BoxError> {
    let mut last = String::new();
    for number in 1..=count {
        if call.is_cancelled() {
            return Err("nobody wants it any more".into());
        }
        let hash: PasswordHash = Argon2::default().hash_password(password(number).as_bytes())?;
        last = hash.to_string();
        call.progress(&json!({"done": number, "of": count}));
    }
    Ok(json!({"text": format!("{count} hashes, the last: {last}")}))
}

fn password(number: u32) -> String {
    format!("correct horse battery staple {number}")
}
