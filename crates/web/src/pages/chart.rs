//! Small SVG charts, rendered on the server without script or inline style.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

/// The view box; the page scales it.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 90.0;

/// The points of a line, oldest first, each at a position from 0 (left) to 1 (right). A point without a value
/// is a gap.
pub(super) struct ChartLine<'a> {
    pub(super) class: &'a str,
    pub(super) points: Vec<(f64, Option<f64>)>,
}

/// A chart with its name, its current value, and the maximum beside its top.
pub(super) fn chart(
    name: &str,
    now: &str,
    largest: impl Fn(f64) -> String,
    lines: &[ChartLine<'_>],
) -> Markup {
    let top = top(lines);
    let about = format!("{name}: now {now}, at most {}", largest(top));
    html! {
        figure.chart {
            figcaption { span { (name) } b { (now) } }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                aria-label=(about) {
                @for part in [0.0, 0.5, 1.0] {
                    @let y = format!("{:.1}", 2.0 + part * (HEIGHT - 4.0));
                    line.grid x1="0" x2=(WIDTH) y1=(y) y2=(y) {}
                }
                @for (place, line) in lines.iter().enumerate() {
                    @if place == 0 { path class={ "under " (line.class) } d=(path(line, top, true)) {} }
                    path class={ "stroke " (line.class) } d=(path(line, top, false)) {}
                }
            }
            div.scale { span { (largest(top)) } span { "0" } }
        }
    }
}

/// The largest value, at least 1: a line of zeros lies at the bottom.
fn top(lines: &[ChartLine<'_>]) -> f64 {
    let values = lines.iter().flat_map(|line| &line.points).filter_map(|(_, value)| *value);
    let top = values.fold(0.0, f64::max);
    if top > 0.0 { top } else { 1.0 }
}

/// The SVG path of a line, closed along the bottom if the area is filled.
fn path(line: &ChartLine<'_>, top: f64, is_filled: bool) -> PreEscaped<String> {
    let mut way = String::new();
    let ground = HEIGHT - 2.0;
    for run in line.points.split(|(_, value)| value.is_none()).filter(|run| !run.is_empty()) {
        for (place, (x, value)) in run.iter().enumerate() {
            let (x, value) = (x * WIDTH, value.unwrap_or_default());
            let y = ground - value / top * (HEIGHT - 4.0);
            let pen = if place == 0 { 'M' } else { 'L' };
            // Writing into a string cannot fail.
            let _ = match place {
                0 if is_filled => write!(way, "M{x:.1} {ground:.1}L{x:.1} {y:.1}"),
                _ => write!(way, "{pen}{x:.1} {y:.1}"),
            };
        }
        match run {
            // A single point is drawn as a dot.
            [(x, _)] if !is_filled => {
                let _ = write!(
                    way,
                    "L{:.1} {:.1}",
                    x * WIDTH + 0.5,
                    ground - run[0].1.unwrap_or_default() / top * (HEIGHT - 4.0)
                );
            }
            [.., (x, _)] if is_filled => {
                let _ = write!(way, "L{:.1} {ground:.1}Z", x * WIDTH);
            }
            _ => {}
        }
    }
    PreEscaped(way)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_is_drawn_with_gaps_and_says_in_words_what_it_shows() {
        let points = vec![(0.0, Some(1.0)), (0.25, Some(2.0)), (0.5, None), (1.0, Some(4.0))];
        let line = ChartLine { class: "good", points };
        let drawn = chart("Done", "4/s", |top| format!("{top}/s"), &[line]).into_string();
        assert!(drawn.contains("aria-label=\"Done: now 4/s, at most 4/s\""), "{drawn}");
        assert!(drawn.contains("d=\"M0.0 66.5L75.0 45.0M300.0 2.0L300.5 2.0\""), "{drawn}");
        assert!(!drawn.contains("style"), "{drawn}");
    }

    #[test]
    fn nothing_is_a_line_on_the_ground() {
        let line = ChartLine { class: "", points: vec![(0.0, Some(0.0)), (1.0, Some(0.0))] };
        let drawn = chart("Done", "0", |top| top.to_string(), &[line]).into_string();
        assert!(drawn.contains("M0.0 88.0L300.0 88.0"), "{drawn}");
        assert!(!drawn.contains("NaN"), "{drawn}");
    }
}
