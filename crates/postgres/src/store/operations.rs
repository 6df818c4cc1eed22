//! Implements store traits from a table, one line per operation.

/// Implements a trait for [`PostgresStore`](super::PostgresStore). The line
///
/// ```text
/// Durable open_batch[scope: Scope](new: NewBatch) -> OpenBatchResult = batch::open(&new);
/// ```
///
/// implements `open_batch(&self, scope: &Scope, new: NewBatch) -> Result<OpenBatchResult>`: it calls
/// `batch::open(tx, scope, &new)` in a transaction of this durability, within the store's timeout.
///
/// The arguments in brackets are borrowed by the trait's method. `; after` in the brackets adds the
/// arguments `after` and `limit` of a page, last. Methods that need more than one call follow in
/// braces.
macro_rules! operations {
    ($trait:ident {
        $($durability:ident $method:ident[$($own:ident: $borrowed:ty),* $(; $after:ident)?]
            ($($arg:ident: $type:ty),*) -> $output:ty
            = $($function:ident)::+($($value:expr),*);)*
        $({ $($rest:tt)* })?
    }) => {
        #[async_trait::async_trait]
        impl $trait for $crate::store::PostgresStore {
            $(async fn $method(
                &self,
                $($own: &$borrowed,)*
                $($arg: $type,)*
                $($after: Option<&str>, limit: u32,)?
            ) -> longshore_core::Result<$output> {
                $crate::store::operation!(self, $durability, tx => $($function)::+(
                    &mut tx, $($own,)* $($value,)* $($after, limit,)?
                ))
            })*
            $($($rest)*)?
        }
    };
}
pub(crate) use operations;
