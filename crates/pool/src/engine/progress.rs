//! Maps a call's progress to its unit's.

use longshore::Context;
use serde_json::Value;

use crate::payload::CallPayload;

/// Passes a progress value of a worker on to the unit.
pub(super) fn report(context: &Context, value: &CallPayload) {
    let Ok(parsed) = value.read::<Value>() else { return };
    let (fraction, message) = read(&parsed);
    context.progress(fraction, message.as_deref());
}

/// A number is a fraction, a string a message. From an object, `fraction` (or `done` or `step`
/// divided by `of`) and `message` are read. Any other value becomes the message as JSON.
fn read(value: &Value) -> (Option<f64>, Option<String>) {
    match value {
        Value::Number(_) => (fraction(value), None),
        Value::String(text) => (None, Some(text.clone())),
        Value::Object(fields) => {
            let number = |name: &str| fields.get(name).and_then(Value::as_f64);
            let part = || Some(number("done").or_else(|| number("step"))? / number("of")?);
            let share = fields.get("fraction").and_then(fraction).or_else(|| clamp_fraction(part()?));
            let message = fields.get("message").and_then(Value::as_str).map(str::to_owned);
            match (share, message) {
                (None, None) => (None, Some(value.to_string())),
                read => read,
            }
        }
        _ => (None, Some(value.to_string())),
    }
}

fn fraction(value: &Value) -> Option<f64> {
    value.as_f64().and_then(clamp_fraction)
}

fn clamp_fraction(fraction: f64) -> Option<f64> {
    (fraction.is_finite() && fraction >= 0.0).then(|| fraction.min(1.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_of_several_sorts_are_understood() {
        assert_eq!(read(&json!(0.25)), (Some(0.25), None));
        assert_eq!(read(&json!("halfway")), (None, Some("halfway".into())));
        assert_eq!(read(&json!({"done": 1, "of": 4})), (Some(0.25), None));
        let both = json!({"fraction": 0.5, "message": "halfway"});
        assert_eq!(read(&both), (Some(0.5), Some("halfway".into())));
        assert_eq!(read(&json!({"step": 2, "of": 0})), (None, Some(r#"{"of":0,"step":2}"#.into())));
        assert_eq!(read(&json!(7)), (Some(1.0), None));
    }
}
