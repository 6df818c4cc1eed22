//! Plain tables: columns as wide as needed, no rules, colours for states.

/// Rows of cells under a heading.
#[derive(Debug, Default)]
pub struct Table {
    heading: Vec<TableCell>,
    rows: Vec<Vec<TableCell>>,
    empty: &'static str,
    without_empty_columns: bool,
}

/// A text and its alignment.
#[derive(Debug, Clone)]
pub struct TableCell {
    text: String,
    right: bool,
}

/// A left-aligned cell.
pub fn cell(text: impl ToString) -> TableCell {
    TableCell { text: clean(&text.to_string()), right: false }
}

/// A right-aligned cell.
pub fn right(text: impl ToString) -> TableCell {
    TableCell { text: clean(&text.to_string()), right: true }
}

/// Replaces newlines and escape sequences in data, which could move the cursor.
fn clean(text: &str) -> String {
    clean_lines(text).replace(['\n', '\t'], " ")
}

/// Replaces escape sequences in text of several lines.
pub fn clean_lines(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && !"\n\t".contains(c) { ' ' } else { c }).collect()
}

impl Table {
    /// A table with this heading; `empty` is printed when there are no rows.
    pub fn new<const N: usize>(heading: [TableCell; N], empty: &'static str) -> Self {
        Self { heading: heading.into(), empty, ..Self::default() }
    }

    /// Leaves out the columns that have no value in any row.
    #[cfg(feature = "standard")]
    #[must_use]
    pub fn without_empty_columns(self) -> Self {
        Self { without_empty_columns: true, ..self }
    }

    /// Lines of `name  value`.
    pub fn record() -> Self {
        Self::default()
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [TableCell; N]) {
        self.rows.push(cells.into());
    }

    /// Adds `name  value` unless the value is empty.
    pub fn field(&mut self, name: &str, value: impl ToString) {
        let value = value.to_string();
        if !value.is_empty() {
            self.rows.push(vec![cell(name), cell(value)]);
        }
    }

    /// The table as text.
    pub fn render(&self, colour: bool) -> String {
        if self.rows.is_empty() {
            return if self.empty.is_empty() { String::new() } else { format!("{}\n", self.empty) };
        }
        let widths = self.widths();
        let mut text = String::new();
        if !self.heading.is_empty() {
            let line = line(&self.heading, &widths, |_, padded| padded.to_uppercase());
            text.push_str(&paint(colour, "heading", &line));
            text.push('\n');
        }
        for row in &self.rows {
            text.push_str(&line(row, &widths, |word, padded| paint(colour, word, padded)));
            text.push('\n');
        }
        text
    }

    /// The width of each column; 0 of one that is left out.
    fn widths(&self) -> Vec<usize> {
        let rows = || self.rows.iter().chain([&self.heading]);
        let columns = rows().map(Vec::len).max().unwrap_or(0);
        let width =
            |i: usize| rows().filter_map(|row| row.get(i)).map(|cell| cell.text.chars().count()).max();
        let is_empty =
            |i: usize| self.rows.iter().all(|row| row.get(i).is_none_or(|cell| cell.text.is_empty()));
        let is_shown = |i: usize| !self.without_empty_columns || !is_empty(i);
        (0..columns).map(|i| width(i).filter(|_| is_shown(i)).unwrap_or(0)).collect()
    }
}

fn line(row: &[TableCell], widths: &[usize], show: impl Fn(&str, &str) -> String) -> String {
    let shown = row.iter().zip(widths).enumerate().filter(|(_, (_, width))| **width > 0);
    let cells = shown.map(|(i, (cell, &width))| {
        let text = &cell.text;
        let padded = match cell.right {
            true => format!("{text:>width$}"),
            false if i + 1 == row.len() => text.clone(),
            false => format!("{text:<width$}"),
        };
        show(text, &padded)
    });
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// Colours a state; other words have no colour.
pub fn paint(colour: bool, word: &str, text: &str) -> String {
    let code = match word {
        "done" | "complete" | "ok" | "✓" => "32",
        "failed" | "✗" => "31",
        "paused" | "suspended" | "cancelled" | "scheduled" | "blocked" => "33",
        "running" | "leased" => "36",
        "heading" => "2",
        _ => return text.to_owned(),
    };
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_numbers_stand_right() {
        let mut table = Table::new([cell("queue"), right("ready")], "none");
        table.row([cell("mail"), right(7)]);
        table.row([cell("a-long-name"), right(12345)]);
        assert_eq!(table.render(false), "QUEUE        READY\nmail             7\na-long-name  12345\n");
    }

    #[test]
    fn control_characters_in_data_do_not_reach_the_terminal() {
        let mut table = Table::record();
        table.field("note", "a\x1b[2Jb\nc");
        assert_eq!(table.render(true), "note  a [2Jb c\n");
        assert_eq!(clean_lines("a\x1b[2Jb\r\n\tc\u{9b}d"), "a [2Jb \n\tc d");
    }
}
