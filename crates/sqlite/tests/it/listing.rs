//! Lists of units.

use longshore::store::UnitFilter;
use longshore::{Kind, NewUnit, Scope, TenantId};

use crate::helpers::fixture_at;

/// A list without a state scans a bounded number of rows per page, which may all be another tenant's.
#[tokio::test]
async fn a_cursor_names_no_unit_of_another_tenant() {
    let (fixture, _path) = fixture_at().await;
    let unit = |_| NewUnit::new(Kind::new("k").unwrap(), serde_json::json!(0));
    let other = (0..20_010).map(unit).collect::<Vec<_>>();
    fixture.store.send(&Scope::All, other).await.unwrap();
    let scope = Scope::Tenant(TenantId::new("acme").unwrap());
    let page = fixture.store.units(&scope, &UnitFilter::default(), None, 10).await.unwrap();
    let next = page.next.unwrap();
    let id = next.split_once('.').unwrap().1.parse().unwrap();
    assert!(fixture.store.unit(&Scope::All, id).await.is_err(), "{next}");
    let rest = fixture.store.units(&scope, &UnitFilter::default(), Some(&next), 10).await.unwrap();
    assert_eq!((rest.items.len(), rest.next), (0, None));
}
