//! CSV as in RFC 4180.

/// One line, with its end.
pub fn line<T: AsRef<str>>(cells: impl IntoIterator<Item = T>) -> String {
    let cells: Vec<String> = cells.into_iter().map(|cell| quote(cell.as_ref())).collect();
    cells.join(",") + "\r\n"
}

fn quote(cell: &str) -> String {
    match cell.contains([',', '"', '\n', '\r']) || cell.starts_with(' ') || cell.ends_with(' ') {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn cells_that_contain_what_separates_cells_are_quoted() {
        assert_eq!(
            super::line(["a", "b,c", "say \"no\"", "two\nlines", ""]),
            "a,\"b,c\",\"say \"\"no\"\"\",\"two\nlines\",\r\n"
        );
    }
}
