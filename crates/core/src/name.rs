//! Names and ids of tenants, queues, units and so on.
//!
//! Names that people write (tenant, queue, kind, batch, schedule) are validated once, on
//! construction, and nowhere else. Ids are UUIDs. The sender makes a unit's id, so a send that is
//! repeated after a lost answer is recognised and not duplicated.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::{Builder, Uuid};

/// An invalid name, and the rule it breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{given}` {problem}")]
pub struct NameError {
    what: &'static str,
    given: String,
    problem: &'static str,
}

/// Most bytes in a name; in `tenant/name`, of each part.
pub const MAX_NAME: usize = 128;

fn check(what: &'static str, given: &str) -> Result<(), NameError> {
    let fail = |problem| {
        let given = given.chars().take(40).collect();
        Err(NameError { what, given, problem })
    };
    if given.is_empty() {
        return fail("is empty");
    }
    if given.len() > MAX_NAME {
        return fail("is longer than 128 bytes");
    }
    if !given.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c)) {
        return fail("may only hold letters, digits, and - _ . :");
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Validates and wraps a name.
            pub fn new(name: impl AsRef<str>) -> Result<Self, NameError> {
                check($what, name.as_ref())?;
                Ok(Self(name.as_ref().into()))
            }
        }
        name_traits!($name);
        inline_schema!($name, {
            "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9_.:-]+$",
        });
    };
}

macro_rules! name_traits {
    ($name:ident) => {
        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }
        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

name!(
    /// A customer: owns queues, batches, profiles and budgets.
    TenantId,
    "tenant"
);
name!(
    /// The kind of a unit, which selects its handler.
    Kind,
    "kind"
);
name!(
    /// A schedule's name, chosen by its owner; unique within its tenant.
    ScheduleName,
    "schedule"
);

name!(
    /// A profile's name; unique within its tenant.
    ProfileName,
    "profile"
);
name!(
    /// A key's name; unique within its tenant.
    KeyName,
    "key"
);

impl BatchId {
    /// A name made of a short word and a number. It is always valid.
    pub(crate) fn from_number(word: &'static str, number: u128) -> Self {
        Self(format!("{word}-{number:032x}").into())
    }

    /// The batch of `tenant` with this name: `tenant/name`, or `name` for the default tenant. A name
    /// that has an owner stays as it is.
    #[must_use]
    pub fn of_tenant(&self, tenant: &TenantId) -> Self {
        if self.owner().is_some() || *tenant == TenantId::default() {
            return self.clone();
        }
        Self(format!("{tenant}/{self}").into())
    }
}

impl Default for TenantId {
    fn default() -> Self {
        Self("default".into())
    }
}

/// A name that may be prefixed with its owner.
macro_rules! owned_name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Validates and wraps a name.
            pub fn new(name: impl AsRef<str>) -> Result<Self, NameError> {
                let (what, name) = ($what, name.as_ref());
                let (owner, own) = name.split_once('/').map_or((None, name), |(o, own)| (Some(o), own));
                owner.map_or(Ok(()), |owner| check(what, owner))?;
                check(what, own)?;
                Ok(Self(name.into()))
            }

            /// The tenant that owns it; `None` if it is shared.
            pub fn owner(&self) -> Option<&str> {
                self.0.split_once('/').map(|(owner, _)| owner)
            }
        }
        name_traits!($name);
        inline_schema!($name, {
            "type": "string", "minLength": 1, "maxLength": 257,
            "pattern": "^[A-Za-z0-9_.:-]{1,128}(/[A-Za-z0-9_.:-]{1,128})?$",
        });
    };
}

owned_name!(
    /// A queue's name: `name`, shared by tenants, or `tenant/name`, owned by one.
    ///
    /// ```
    /// # use longshore_core::QueueName;
    /// let shared = QueueName::new("mail").unwrap();
    /// assert_eq!(shared.owner(), None);
    /// let owned = QueueName::new("acme/mail").unwrap();
    /// assert_eq!(owned.owner(), Some("acme"));
    /// assert!(QueueName::new("a/b/c").is_err());
    /// ```
    QueueName,
    "queue"
);
owned_name!(
    /// A bounded pool's name: `name`, or `tenant/name` if a tenant owns it. Only the network API
    /// enforces the ownership; processes with direct access to the store may use any pool.
    PoolName,
    "pool"
);

owned_name!(
    /// A batch's name, chosen by its initiator: `name` for the default tenant, `tenant/name` for all
    /// others. A tenant may omit its own name ([`Scope::batch_id`]).
    BatchId,
    "batch"
);

impl QueueName {
    /// Whether units of `tenant` may be sent here.
    pub fn admits(&self, tenant: &TenantId) -> bool {
        self.owner().is_none_or(|owner| owner == tenant.as_str())
    }
}

impl Default for QueueName {
    fn default() -> Self {
        Self("default".into())
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $make:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);
        inline_schema!($name, { "type": "string", "format": "uuid" });

        impl $name {
            /// A new id.
            #[expect(clippy::new_without_default, reason = "each call gives another value")]
            #[expect(clippy::disallowed_methods, reason = "the one place that makes ids")]
            pub fn new() -> Self {
                Self($make)
            }
            /// The id that every process derives from a name in a namespace (UUIDv5).
            pub fn from_name(namespace: &[u8; 16], name: &[u8]) -> Self {
                Self(Uuid::new_v5(&Uuid::from_bytes(*namespace), name))
            }
            /// This id as a UUIDv7 of a time in milliseconds since 1970, so that it is stored next to
            /// ids of the same time.
            #[must_use]
            pub fn at_millis(self, millis: u64) -> Self {
                let mut random = [0; 10];
                random.copy_from_slice(&self.0.as_bytes()[6..]);
                Self(Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
            }
            /// From sixteen bytes.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }
            /// The sixteen bytes.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Uuid::parse_str(text).map(Self).map_err(|_| InvalidId)
            }
        }
    };
}

/// The text is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id as 01a1f081-c397-74a0-9767-5ff58fe1dbb6")]
pub struct InvalidId;

id!(
    /// A unit's id, made by its sender. Time-ordered, so that the newest rows of a store lie
    /// together and the units of one sender keep their order.
    UnitId,
    Uuid::now_v7()
);
id!(
    /// A call's id, made by its caller. Time-ordered, like a unit's.
    CallId,
    Uuid::now_v7()
);
id!(
    /// The id of one run of a worker process. Random, never a host name: a restarted process must
    /// not be taken for its former run.
    SessionId,
    Uuid::new_v4()
);
id!(
    /// A token's id, not its secret. Time-ordered, like a unit's.
    TokenId,
    Uuid::now_v7()
);
id!(
    /// A permit's id, made by the client that asks for it. Random, so that a client cannot release
    /// another's permit.
    PermitId,
    Uuid::new_v4()
);

/// Which tenants' objects an operation may touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All tenants: operators, and workers of shared queues.
    All,
    /// One tenant; objects of other tenants do not exist for it.
    Tenant(TenantId),
}

impl Scope {
    /// Whether objects of `tenant` are included.
    pub fn covers(&self, tenant: &TenantId) -> bool {
        self.tenant().is_none_or(|own| own == tenant)
    }

    /// The full name of the batch that this scope calls `id`.
    pub fn batch_id(&self, id: &BatchId) -> BatchId {
        self.tenant().map_or_else(|| id.clone(), |tenant| id.of_tenant(tenant))
    }

    /// The number of a batch, if `id` may be one: digits without a zero before them.
    pub fn batch_number(&self, id: &BatchId) -> Option<i64> {
        let own = |tenant: &TenantId| id.as_str().strip_prefix(tenant.as_str())?.strip_prefix('/');
        let text = self.tenant().and_then(own).unwrap_or(id.as_str());
        text.parse().ok().filter(|number: &i64| *number > 0 && number.to_string() == text)
    }

    /// The only tenant; `None` for all.
    pub fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::All => None,
            Self::Tenant(own) => Some(own),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_refused_with_the_rule_they_break() {
        for (bad, why) in [("", "empty"), ("a b", "letters"), ("ü", "letters"), ("a/b", "letters")] {
            let error = Kind::new(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{bad:?}: {error}");
        }
        assert!(Kind::new("x".repeat(129)).is_err());
        let long = "x".repeat(128);
        assert!(QueueName::new(format!("{long}/{long}")).is_ok());
        for bad in ["/", "a/", "/b", "a/b/c", &format!("{long}x/b"), &format!("a/{long}x")] {
            assert!(QueueName::new(bad).is_err(), "{bad}");
            assert!(PoolName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pool_is_shared_or_a_tenants() {
        assert_eq!(PoolName::new("erp").unwrap().owner(), None);
        assert_eq!(PoolName::new("acme/erp").unwrap().owner(), Some("acme"));
    }

    #[test]
    fn a_tenant_may_omit_its_own_name_before_a_batch() {
        let id = |name: &str| BatchId::new(name).unwrap();
        let acme = Scope::Tenant(TenantId::new("acme").unwrap());
        assert_eq!(acme.batch_id(&id("b")), id("acme/b"));
        assert_eq!(acme.batch_id(&id("acme/b")), id("acme/b"));
        assert_eq!(acme.batch_id(&id("other/b")), id("other/b"));
        assert_eq!(
            [Scope::All, Scope::Tenant(TenantId::default())].map(|own| own.batch_id(&id("b"))),
            [id("b"), id("b")]
        );
    }

    #[test]
    fn unit_ids_of_one_sender_are_in_order() {
        let ids: Vec<UnitId> = (0..1000).map(|_| UnitId::new()).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn a_scope_covers_only_its_tenant() {
        let acme = TenantId::new("acme").unwrap();
        assert!(Scope::All.covers(&acme));
        assert!(Scope::Tenant(acme.clone()).covers(&acme));
        assert!(!Scope::Tenant(TenantId::default()).covers(&acme));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_name_parsers_panic(text: String) {
            let _ = (Kind::new(&text), QueueName::new(&text), text.parse::<UnitId>());
        }
    }
}
