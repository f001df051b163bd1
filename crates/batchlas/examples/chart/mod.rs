//! A line chart as SVG, for the figures of the examples.

use std::fmt::Write as _;

/// A line: what the legend calls it, its colour, its points.
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) colour: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Where the axes lie in the picture: left, right, top, bottom.
const FRAME: [f64; 4] = [80.0, 700.0, 48.0, 400.0];
const SIZE: [f64; 2] = [720.0, 460.0];
/// Grid lines of an axis.
const GRID: usize = 5;

/// The picture of all lines from the origin on; `axes` are the labels of x and y.
pub(crate) fn chart(title: &str, axes: [&str; 2], lines: &[Line<'_>]) -> String {
    let [left, right, top, bottom] = FRAME;
    let largest = |of: fn(&(f64, f64)) -> f64| {
        let values = lines.iter().flat_map(|line| line.points.iter().map(of));
        rounded(values.fold(f64::MIN_POSITIVE, f64::max))
    };
    let (widest, highest) = (largest(|p| p.0), largest(|p| p.1));
    let x = |value: f64| left + value / widest * (right - left);
    let y = |value: f64| bottom - value / highest * (bottom - top);

    let [width, height] = SIZE;
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>
<style>
  text {{ font: 13px sans-serif; fill: #333 }} .title {{ font-size: 15px; font-weight: bold }}
  .right {{ text-anchor: end }} .middle {{ text-anchor: middle }} .grid {{ stroke: #e4e4e4 }}
  polyline {{ fill: none; stroke-width: 2; stroke-linejoin: round }}
</style>
<rect width='{width}' height='{height}' fill='white'/>
"
    );
    // Writing to a string cannot fail.
    let mut add = |element: String| {
        let _ = writeln!(svg, "{element}");
    };
    add(format!("<text class='title' x='{left}' y='{}'>{title}</text>", top - 18.0));
    for step in 0..=GRID {
        let part = step as f64 / GRID as f64;
        let (at_x, at_y) = (x(part * widest), y(part * highest));
        add(format!("<path class='grid' d='M{left},{at_y:.1}H{right}M{at_x:.1},{top}V{bottom}'/>"));
        let label = |value: f64| format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned();
        add(format!(
            "<text class='right' x='{}' y='{:.1}'>{}</text>",
            left - 8.0,
            at_y + 4.0,
            label(part * highest)
        ));
        add(format!(
            "<text class='middle' x='{at_x:.1}' y='{}'>{}</text>",
            bottom + 18.0,
            label(part * widest)
        ));
    }
    for (row, line) in lines.iter().enumerate() {
        let points: Vec<String> =
            line.points.iter().map(|&(a, b)| format!("{:.1},{:.1}", x(a), y(b))).collect();
        add(format!("<polyline stroke='{}' points='{}'/>", line.colour, points.join(" ")));
        let at = top + 20.0 * (row + 1) as f64;
        add(format!(
            "<polyline stroke='{}' points='{},{} {},{}'/>",
            line.colour,
            right - 270.0,
            at - 4.0,
            right - 246.0,
            at - 4.0
        ));
        add(format!("<text x='{}' y='{at}'>{}</text>", right - 238.0, line.name));
    }
    let (centre, middle) = ((left + right) / 2.0, (top + bottom) / 2.0);
    add(format!("<text class='middle' x='{centre}' y='{}'>{}</text>", bottom + 42.0, axes[0]));
    add(format!("<text class='middle' transform='translate(24 {middle}) rotate(-90)'>{}</text>", axes[1]));
    svg.push_str("</svg>\n");
    svg
}

/// The next larger of a few round multiples of a power of ten, so that the grid has short labels.
fn rounded(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.iter().map(|step| step * power).find(|&step| step >= value * (1.0 - 1e-12)).unwrap_or(value)
}
