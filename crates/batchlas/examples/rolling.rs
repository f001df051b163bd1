//! Rolling ridge regressions on the Mauna Loa CO2 record: thousands of small systems, solved by one `posv` call.
//!
//! Around each of the 2284 weeks a model of 12 features is fitted to the observations at most `HALF_WIDTH` years away: a
//! cubic in time for the trend and four harmonics of the year for the seasons. With the feature rows as X, tricube
//! weights as W and the observations as y, the coefficients solve `(X^T W X + ridge I) c = X^T W y`. A second
//! right-hand side, the features of the week itself, gives the weight that the week has in its own fit, and with it the
//! exact error of predicting each observation from the others.
//!
//! ```text
//! cargo run --release -p batchlas --example rolling
//! ```
//!
//! prints the fit, draws `examples/rolling/fit.svg`, and writes the systems as NumPy arrays, for
//! `batchlas posv examples/rolling/A.npy examples/rolling/B.npy -o X.npy --check`.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::f64::consts::TAU;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;
use std::{fs, io};

use batchlas::{Context, PosvOptions};

/// Degree of the local polynomial plus one.
const POWERS: usize = 4;
/// Harmonics of the year, each a cosine and a sine.
const HARMONICS: usize = 4;
/// Features: the order of the systems.
const N: usize = POWERS + 2 * HARMONICS;
/// Right-hand sides: the observations, and the week's own features.
const NRHS: usize = 2;
/// Half of the window in years: long enough to tell the trend from the seasons, short enough to follow both.
const HALF_WIDTH: f64 = 2.5;
/// Added to the diagonal, where the features have moments of about 100 (the weeks in a window, weighted): enough to
/// keep the systems well-posed where observations are missing, too little to bend the fit.
const RIDGE: f64 = 1e-2;

fn main() -> Result<(), Box<dyn Error>> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let series = parse(&fs::read_to_string(examples.join("data/co2.csv"))?)?;
    let (a, b) = normal_equations(&series);
    let batch = series.len();

    let begun = Instant::now();
    let ctx = Context::new()?;
    let (mut factor, mut x) = (ctx.upload(&a)?, ctx.upload(&b)?);
    let pending = ctx.posv(
        factor.view_mut(N, N, N, N * N, batch)?,
        x.view_mut(N, NRHS, N, N * NRHS, batch)?,
        &PosvOptions::default(),
    )?;
    let ran = pending.ran().to_string();
    let info = pending.wait()?;
    let x = ctx.download(&x)?;
    let elapsed = begun.elapsed();
    if let Some((item, status)) = info.first_failure() {
        return Err(format!("week {item} has no solution: info {status}").into());
    }

    let fits: Vec<Fit> =
        series.iter().zip(x.chunks_exact(N * NRHS)).map(|(&week, x)| Fit::new(week, x)).collect();
    println!("{batch} systems of order {N} with {NRHS} right-hand sides in {elapsed:.1?}: ran {ran}");
    let rms = |error: fn(&Fit) -> Option<f64>| {
        let squares: Vec<f64> = fits.iter().filter_map(error).map(|e| e * e).collect();
        (squares.iter().sum::<f64>() / squares.len() as f64).sqrt()
    };
    println!("RMSE {:.3} ppm in the fit, {:.3} ppm left out", rms(|f| f.residual), rms(|f| f.left_out));
    println!("decade   growth (ppm/year)   seasonal cycle (ppm, peak to peak)");
    for decade in (1960..=1990).step_by(10) {
        let years = f64::from(decade)..f64::from(decade + 10);
        let inside: Vec<&Fit> = fits.iter().filter(|f| years.contains(&f.year)).collect();
        let mean =
            |value: fn(&Fit) -> f64| inside.iter().map(|f| value(f)).sum::<f64>() / inside.len() as f64;
        println!("{decade}s {:>18.2} {:>22.2}", mean(|f| f.growth), mean(|f| f.seasonal));
    }

    let out = examples.join("rolling");
    write_npy(&out.join("A.npy"), &[batch, N, N], &a)?;
    write_npy(&out.join("B.npy"), &[batch, N, NRHS], &row_major(&b))?;
    fs::write(out.join("fit.svg"), picture(&fits))?;
    Ok(())
}

/// One week: decimal year, and CO2 in ppm where it was measured.
#[derive(Clone, Copy)]
struct Week {
    year: f64,
    co2: Option<f64>,
}

/// Reads lines of `YYYYMMDD,ppm` below a heading.
fn parse(text: &str) -> Result<Vec<Week>, Box<dyn Error>> {
    let week = |line: &str| -> Result<Week, Box<dyn Error>> {
        let (date, co2) = line.split_once(',').ok_or_else(|| format!("{line:?} has no comma"))?;
        let number = date.parse::<u32>()?;
        let (year, month, day) = (number / 10_000, number / 100 % 100, number % 100);
        let leap = year.is_multiple_of(4);
        let february = if leap { 29 } else { 28 };
        let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let before: u32 = months.iter().take(month.saturating_sub(1) as usize).sum();
        let days = if leap { 366.0 } else { 365.0 };
        let year = f64::from(year) + (f64::from(before + day) - 0.5) / days;
        let co2 = if co2.is_empty() { None } else { Some(co2.parse()?) };
        Ok(Week { year, co2 })
    };
    text.lines().skip(1).map(week).collect()
}

/// Features of time `year` in the window around `centre`.
fn features(year: f64, centre: f64) -> [f64; N] {
    let u = (year - centre) / HALF_WIDTH;
    let mut row = [0.0; N];
    for (power, feature) in row[..POWERS].iter_mut().enumerate() {
        *feature = u.powi(power as i32);
    }
    for (k, pair) in row[POWERS..].chunks_exact_mut(2).enumerate() {
        let (sin, cos) = (TAU * (k + 1) as f64 * year).sin_cos();
        pair.copy_from_slice(&[cos, sin]);
    }
    row
}

/// The matrices and right-hand sides of all weeks, packed and column-major.
fn normal_equations(series: &[Week]) -> (Vec<f64>, Vec<f64>) {
    let mut a = vec![0.0; N * N * series.len()];
    let mut b = vec![0.0; N * NRHS * series.len()];
    for ((centre, a), b) in series.iter().zip(a.chunks_exact_mut(N * N)).zip(b.chunks_exact_mut(N * NRHS)) {
        let (xty, own) = b.split_at_mut(N);
        for week in series {
            let distance = (week.year - centre.year).abs() / HALF_WIDTH;
            let Some(y) = week.co2.filter(|_| distance < 1.0) else { continue };
            let weight = (1.0 - distance.powi(3)).powi(3);
            let row = features(week.year, centre.year);
            for j in 0..N {
                for i in 0..N {
                    a[j * N + i] += weight * row[i] * row[j];
                }
                xty[j] += weight * row[j] * y;
            }
        }
        for i in 0..N {
            a[i * N + i] += RIDGE;
        }
        own.copy_from_slice(&features(centre.year, centre.year));
    }
    (a, b)
}

/// What the solution says of one week.
struct Fit {
    year: f64,
    co2: Option<f64>,
    /// The polynomial: CO2 without the seasons, in ppm.
    trend: f64,
    /// Its slope, in ppm per year.
    growth: f64,
    /// Largest less smallest value of the harmonics over a year, in ppm.
    seasonal: f64,
    /// Observation less fit.
    residual: Option<f64>,
    /// Observation less the fit without it.
    left_out: Option<f64>,
}

impl Fit {
    fn new(week: Week, solution: &[f64]) -> Fit {
        let (c, leverage) = solution.split_at(N);
        let own = features(week.year, week.year);
        let dot = |x: &[f64]| own.iter().zip(x).map(|(a, b)| a * b).sum::<f64>();
        let season = |day: u32| {
            let row = features(f64::from(day) / 365.0, week.year);
            row[POWERS..].iter().zip(&c[POWERS..]).map(|(a, b)| a * b).sum::<f64>()
        };
        let (low, high) = (0..365)
            .map(season)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), s| (low.min(s), high.max(s)));
        let residual = week.co2.map(|y| y - dot(c));
        // The week's own weight is 1, so this is the diagonal of the smoother, and leaving the week out divides the
        // residual by what is left of 1 (the matrix changes by a rank of one: Sherman and Morrison).
        let left_out = residual.map(|r| r / (1.0 - dot(leverage)));
        Fit {
            year: week.year,
            co2: week.co2,
            trend: c[0],
            growth: c[1] / HALF_WIDTH,
            seasonal: high - low,
            residual,
            left_out,
        }
    }
}

/// Right-hand sides as NumPy has them by default: the last index fastest.
fn row_major(b: &[f64]) -> Vec<f64> {
    b.chunks_exact(N * NRHS).flat_map(|item| (0..N * NRHS).map(|k| item[k % NRHS * N + k / NRHS])).collect()
}

/// Writes a C-order array of little-endian doubles in the `.npy` format, version 1.0.
fn write_npy(path: &Path, shape: &[usize], data: &[f64]) -> io::Result<()> {
    let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
    let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({}), }}", dims.join(", "));
    // The magic string, version and length take 10 bytes, and the data starts at a multiple of 64.
    let len = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((len as u16).to_le_bytes());
    bytes.extend(format!("{header:<width$}\n", width = len - 1).bytes());
    bytes.extend(data.iter().flat_map(|x| x.to_le_bytes()));
    fs::write(path, bytes)
}

/// A panel of the picture: where it is, and which values it spans.
struct Panel {
    top: f64,
    height: f64,
    low: f64,
    high: f64,
}

/// The plot's horizontal extent in pixels and in years, and the picture's size.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 936.0;
const YEARS: [f64; 2] = [1958.0, 2002.0];
const SIZE: [f64; 2] = [960.0, 800.0];

fn x(year: f64) -> f64 {
    LEFT + (year - YEARS[0]) / (YEARS[1] - YEARS[0]) * (RIGHT - LEFT)
}

impl Panel {
    fn y(&self, value: f64) -> f64 {
        self.top + (self.high - value) / (self.high - self.low) * self.height
    }

    /// Frame, grid and labels; `step` is the distance of the grid lines.
    fn axes(&self, svg: &mut String, label: &str, step: f64) {
        let bottom = self.top + self.height;
        let mut value = (self.low / step).ceil() * step;
        while value <= self.high {
            let y = self.y(value);
            add(svg, format!("<line class='grid' x1='{LEFT}' x2='{RIGHT}' y1='{y:.1}' y2='{y:.1}'/>"));
            add(svg, format!("<text class='right' x='{}' y='{:.1}'>{value}</text>", LEFT - 8.0, y + 4.0));
            value += step;
        }
        for year in (1960..=2000).step_by(10) {
            let x = x(f64::from(year));
            add(svg, format!("<line class='grid' x1='{x:.1}' x2='{x:.1}' y1='{}' y2='{bottom}'/>", self.top));
            add(svg, format!("<text class='middle' x='{x:.1}' y='{}'>{year}</text>", bottom + 18.0));
        }
        let (width, height) = (RIGHT - LEFT, self.height);
        add(
            svg,
            format!("<rect class='frame' x='{LEFT}' y='{}' width='{width}' height='{height}'/>", self.top),
        );
        let (x, y) = (26.0, self.top + self.height / 2.0);
        add(svg, format!("<text class='middle' transform='translate({x} {y}) rotate(-90)'>{label}</text>"));
    }

    fn line(&self, svg: &mut String, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let points: Vec<String> =
            points.map(|(year, value)| format!("{:.1},{:.1}", x(year), self.y(value))).collect();
        add(svg, format!("<polyline class='{class}' points='{}'/>", points.join(" ")));
    }

    fn title(&self, svg: &mut String, text: &str) {
        add(svg, format!("<text class='title' x='{LEFT}' y='{}'>{text}</text>", self.top - 10.0));
    }
}

fn add(svg: &mut String, element: String) {
    // Writing to a string cannot fail.
    let _ = writeln!(svg, "{element}");
}

/// Three panels over the years: concentration, growth, seasonal cycle.
fn picture(fits: &[Fit]) -> String {
    let [width, height] = SIZE;
    let mut svg = String::new();
    add(
        &mut svg,
        format!(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>
<!-- Drawn by the example `rolling` of the crate batchlas. -->
<style>
  text {{ font: 13px sans-serif; fill: #333 }} .title {{ font-size: 15px; font-weight: bold }}
  .right {{ text-anchor: end }} .middle {{ text-anchor: middle }}
  .grid {{ stroke: #e4e4e4 }} .frame {{ fill: none; stroke: #777 }}
  .dot {{ fill: #8fb4d9 }} polyline {{ fill: none; stroke-width: 2; stroke-linejoin: round }}
  .trend {{ stroke: #c0392b }} .growth {{ stroke: #1f6f50 }} .season {{ stroke: #6c3f99 }}
</style>
<rect width='{width}' height='{height}' fill='white'/>"
        ),
    );
    let svg = &mut svg;

    let top = Panel { top: 40.0, height: 300.0, low: 310.0, high: 375.0 };
    top.title(
        svg,
        &format!("CO2 at Mauna Loa: {} rolling ridge regressions, solved as one batch", fits.len()),
    );
    top.axes(svg, "CO2 (ppm)", 10.0);
    for (year, co2) in fits.iter().filter_map(|f| Some((f.year, f.co2?))) {
        add(svg, format!("<circle class='dot' cx='{:.1}' cy='{:.1}' r='1.4'/>", x(year), top.y(co2)));
    }
    top.line(svg, "trend", fits.iter().map(|f| (f.year, f.trend)));
    add(svg, format!("<circle class='dot' cx='{}' cy='64' r='3'/>", LEFT + 24.0));
    add(svg, format!("<text x='{}' y='68'>weekly observation</text>", LEFT + 44.0));
    add(svg, format!("<polyline class='trend' points='{},86 {},86'/>", LEFT + 12.0, LEFT + 36.0));
    add(svg, format!("<text x='{}' y='90'>trend: fit without its seasonal part</text>", LEFT + 44.0));

    let middle = Panel { top: 396.0, height: 150.0, low: 0.0, high: 3.5 };
    middle.title(svg, "Growth of the trend");
    middle.axes(svg, "ppm per year", 1.0);
    middle.line(svg, "growth", fits.iter().map(|f| (f.year, f.growth)));

    let bottom = Panel { top: 602.0, height: 150.0, low: 4.0, high: 8.0 };
    bottom.title(svg, "Seasonal cycle, peak to peak");
    bottom.axes(svg, "ppm", 1.0);
    bottom.line(svg, "season", fits.iter().map(|f| (f.year, f.seasonal)));
    add(svg, format!("<text class='middle' x='{}' y='{}'>year</text>", (LEFT + RIGHT) / 2.0, height - 8.0));
    svg.push_str("</svg>\n");
    std::mem::take(svg)
}
