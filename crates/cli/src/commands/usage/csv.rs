//! Formats comma-separated values as in RFC 4180.

/// A line without its newline.
pub fn line<const N: usize>(fields: [String; N]) -> String {
    fields.map(|field| quoted(&field)).join(",")
}

/// Quotes a field where needed. A field that begins like a formula is marked as text for
/// spreadsheets: names come from clients.
fn quoted(field: &str) -> String {
    let formula = field.starts_with(['=', '@', '\t', '\r'])
        || (field.starts_with(['+', '-']) && field.parse::<f64>().is_err());
    let field = if formula { format!("'{field}") } else { field.to_owned() };
    if field.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", field.replace('"', "\"\""));
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_a_reader_would_stumble() {
        let fields = ["a", "b,c", "say \"no\"", "=1+1", "-0.5", "-x"].map(str::to_owned);
        assert_eq!(line(fields), "a,\"b,c\",\"say \"\"no\"\"\",'=1+1,-0.5,'-x");
    }
}
