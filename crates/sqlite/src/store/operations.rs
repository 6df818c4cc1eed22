//! Implements store traits from a table, one line per operation.

/// Implements a trait for [`SqliteStore`](super::SqliteStore). The line
///
/// ```text
/// Durable open_batch[scope: Scope](new: NewBatch) -> OpenBatchResult = batch::open(&new);
/// ```
///
/// implements `open_batch(&self, scope: &Scope, new: NewBatch) -> Result<OpenBatchResult>`: the writer calls
/// `batch::open(tx, &scope, &new)` and commits with this durability. With `Read` in place of the
/// durability, a reader calls the function with its connection.
///
/// The arguments in brackets are borrowed by the trait's method, and cloned for the thread that
/// runs the operation. `; after` in the brackets adds the arguments `after` and `limit` of a page,
/// last. Methods that need more than one call follow in braces.
macro_rules! operations {
    ($trait:ident {
        $($kind:ident $method:ident[$($own:ident: $owned:ty),* $(; $after:ident)?]
            ($($arg:ident: $type:ty),*) -> $output:ty
            = $($function:ident)::+($($value:expr),*);)*
        $({ $($rest:tt)* })?
    }) => {
        #[async_trait::async_trait]
        impl $trait for $crate::store::SqliteStore {
            $(async fn $method(
                &self,
                $($own: &$owned,)*
                $($arg: $type,)*
                $($after: Option<&str>, limit: u32,)?
            ) -> longshore_core::Result<$output> {
                $(let $own = $own.to_owned();)*
                $(let $after = $after.map(str::to_owned);)?
                $crate::store::operations!(@$kind self, $($function)::+(
                    $(&$own,)* $($value,)* $($after.as_deref(), limit,)?
                ))
            })*
            $($($rest)*)?
        }
    };
    (@Read $store:ident, $($function:ident)::+($($value:expr,)*)) => {
        $store.read(move |db| $($function)::+(db, $($value),*)).await
    };
    (@$durability:ident $store:ident, $($function:ident)::+($($value:expr,)*)) => {{
        let durability = $crate::writer::Durability::$durability;
        $store.writer.call(durability, move |tx| $($function)::+(tx, $($value),*)).await
    }};
}
pub(crate) use operations;
