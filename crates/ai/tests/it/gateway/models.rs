//! Profiles as models.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::json;

use super::fake_backend::PROFILES;
use super::{GatewayFixture, TOKEN};

fn look(path: &str, anthropic: bool) -> Request<Body> {
    let mut request = Request::get(path).header("x-api-key", TOKEN);
    if anthropic {
        request = request.header("anthropic-version", "2023-06-01");
    }
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn profiles_are_listed_in_the_shape_of_whoever_asks() {
    let fixture = GatewayFixture::new();
    let list = fixture.reply(look("/v1/models", false)).await.json();
    assert_eq!((&list["object"], list["data"].as_array().unwrap().len()), (&json!("list"), PROFILES.len()));
    let model = json!({"id": "plain", "object": "model", "created": 0, "owned_by": "longshore"});
    assert_eq!(list["data"][0], model);

    let list = fixture.reply(look("/v1/models", true)).await.json();
    assert_eq!((&list["first_id"], &list["has_more"]), (&json!("plain"), &json!(false)));
    assert_eq!((&list["data"][0]["type"], &list["data"][0]["id"]), (&json!("model"), &json!("plain")));
}

#[tokio::test]
async fn one_profile_is_shown_also_with_another_model() {
    let fixture = GatewayFixture::new();
    for id in ["plain", "plain/org/model"] {
        let model = fixture.reply(look(&format!("/v1/models/{id}"), false)).await.json();
        assert_eq!(model["id"], id);
    }
    let none = fixture.reply(look("/v1/models/plain/unknown", false)).await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
    assert!(none.body.contains("only `fake-1` is offered"), "{}", none.body);
    let none = fixture.reply(look("/v1/models/none", false)).await;
    assert_eq!(
        (none.status, &none.json()["error"]["code"]),
        (StatusCode::NOT_FOUND, &json!("model_not_found"))
    );
    let none = fixture.reply(look("/v1/models/none", true)).await;
    assert_eq!(none.json()["error"]["type"], "not_found_error");
}

#[tokio::test]
async fn strangers_see_no_profiles() {
    let request = Request::get("/v1/models").body(Body::empty()).unwrap();
    assert_eq!(GatewayFixture::new().reply(request).await.status, StatusCode::UNAUTHORIZED);
}
