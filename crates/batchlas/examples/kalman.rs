//! A Kalman filter over thousands of tracks at once: predicted and updated covariances by products and one `posv` a step.
//!
//! Every track is a point that moves in the plane, with its own scatter of velocity; four stations measure its position,
//! each with its own precision. With the predicted covariance P, the measurement matrix H and the noise R, the update is
//!
//! ```text
//! S = H P H^T + R        S [W w] = [H P  z]        P' = P - (H P)^T W        x' = x + (H P)^T w
//! ```
//!
//! where z is what was measured less what was expected. S is symmetric positive definite, so the gain `(H P)^T S^-1` is never
//! formed: one solve per track serves its covariance and its state.
//!
//! ```text
//! cargo run --release -p batchlas --example kalman
//! ```
//!
//! prints how well the filter knows where its tracks are and how well it thinks it does, and draws `examples/kalman.svg`.
#![allow(clippy::print_stdout)]

mod chart;

use std::error::Error;
use std::f64::consts::TAU;
use std::fs;
use std::path::Path;
use std::time::Instant;

use batchlas::{Context, GemmOptions, PosvOptions, Trans};
use chart::{Line, chart};

/// Position and velocity, in the plane.
const N: usize = 4;
/// Measurements a step: two coordinates by each station.
const M: usize = 2 * NOISE.len();
/// Standard deviation of each station's coordinates, in metres.
const NOISE: [f64; 4] = [3.0, 4.0, 6.0, 9.0];
/// Tracks, and steps of one second.
const TRACKS: usize = 2000;
const STEPS: usize = 40;
/// Standard deviation of what a step adds to each velocity, in metres per second.
const SCATTER: f64 = 0.3;
/// Standard deviations of position and velocity at the start.
const START: [f64; 2] = [50.0, 10.0];

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let ctx = Context::new()?;
    let begun = Instant::now();
    let steps = run(&ctx, |_| ())?;
    let elapsed = begun.elapsed();
    println!("{TRACKS} tracks, {STEPS} steps on {} in {elapsed:.1?}", ctx.device().name);
    println!("step   error of position (m, RMS)   by its covariance");
    for step in [0, 1, 4, 9, 19, STEPS - 1] {
        println!("{:>4} {:>20.3} {:>22.3}", step + 1, steps[step].error, steps[step].expected);
    }
    // What the weighted mean of one step's measurements would know.
    let single = (2.0 / NOISE.iter().map(|sd| sd.powi(-2)).sum::<f64>()).sqrt();
    let of = |value: fn(&Step) -> f64| {
        steps.iter().enumerate().map(|(k, step)| ((k + 1) as f64, value(step))).collect()
    };
    let lines = [
        Line { name: "error of the filter, RMS", colour: "#c0392b", points: of(|step| step.error) },
        Line { name: "by its covariance", colour: "#1f6f50", points: of(|step| step.expected) },
        Line {
            name: "best of one step alone",
            colour: "#8fb4d9",
            points: vec![(1.0, single), (STEPS as f64, single)],
        },
    ];
    let title = format!("{TRACKS} tracks: Kalman filter, one batched solve a step");
    let picture = chart(&title, ["step (s)", "position (m)"], &lines);
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kalman.svg");
    Ok(fs::write(out, picture)?)
}

/// What is known after a step.
struct Step {
    /// Root mean square distance between filter and truth, in metres, and what the covariances say it is.
    error: f64,
    expected: f64,
}

/// Simulates and filters; the same on every machine up to rounding. `seen` gets all covariances after each step,
/// column-major, one track after the other.
fn run(ctx: &Context, mut seen: impl FnMut(&[f64])) -> Outcome<Vec<Step>> {
    let mut noise = Noise(1);
    let repeated = |one: Vec<f64>| one.repeat(TRACKS);
    let [far, fast] = START;
    let mut truth: Vec<[f64; N]> = (0..TRACKS)
        .map(|_| [far * noise.normal(), far * noise.normal(), fast * noise.normal(), fast * noise.normal()])
        .collect();
    let (f, h) = (ctx.upload(&motion())?, ctx.upload(&stations())?);
    let mut x = ctx.upload(&vec![0.0; N * TRACKS])?;
    let mut p = ctx.upload(&repeated(diagonal(&[far, far, fast, fast])))?;
    let mut moved = ctx.upload(&vec![0.0; N * N * TRACKS])?;
    let plain = GemmOptions::<f64>::default();
    let onto = GemmOptions { beta: 1.0, ..GemmOptions::default() };

    let mut steps = Vec::new();
    for _ in 0..STEPS {
        // P = F P F^T + Q, x = F x.
        ctx.gemm(
            shared(&f, N, N)?,
            p.view(N, N, N, N * N, TRACKS)?,
            moved.view_mut(N, N, N, N * N, TRACKS)?,
            &plain,
        )?;
        p = ctx.upload(&repeated(diagonal(&[0.0, 0.0, SCATTER, SCATTER])))?;
        let transposed = GemmOptions { trans_b: Trans::Trans, ..onto.clone() };
        ctx.gemm(
            moved.view(N, N, N, N * N, TRACKS)?,
            shared(&f, N, N)?,
            p.view_mut(N, N, N, N * N, TRACKS)?,
            &transposed,
        )?;
        let mut predicted = ctx.upload(&vec![0.0; N * TRACKS])?;
        ctx.gemm(
            shared(&f, N, N)?,
            x.view(N, 1, N, N, TRACKS)?,
            predicted.view_mut(N, 1, N, N, TRACKS)?,
            &plain,
        )?;

        // H P and z = measured - H x are the right-hand sides.
        for state in &mut truth {
            for k in 0..2 {
                state[k] += state[k + 2];
                state[k + 2] += SCATTER * noise.normal();
            }
        }
        let width = N + 1;
        let mut measured = vec![0.0; M * width * TRACKS];
        for (track, state) in measured.chunks_exact_mut(M * width).zip(&truth) {
            for (k, z) in track[M * N..].iter_mut().enumerate() {
                *z = state[k % 2] + NOISE[k / 2] * noise.normal();
            }
        }
        let mut rhs = ctx.upload(&measured)?;
        let parts = rhs.view_mut(M, width, M, M * width, TRACKS)?;
        let negative = GemmOptions { alpha: -1.0, ..onto.clone() };
        let state = predicted.view(N, 1, N, N, TRACKS)?;
        ctx.gemm(shared(&h, M, N)?, state, parts.sub(0..M, N..width)?, &negative)?;
        let parts = rhs.view_mut(M, width, M, M * width, TRACKS)?;
        ctx.gemm(shared(&h, M, N)?, p.view(N, N, N, N * N, TRACKS)?, parts.sub(0..M, 0..N)?, &plain)?;

        // S = (H P) H^T + R, then the solve in a copy of the right-hand sides.
        let deviations: Vec<f64> = (0..M).map(|k| NOISE[k / 2]).collect();
        let mut s = ctx.upload(&repeated(diagonal(&deviations)))?;
        let rhs_view = rhs.view(M, width, M, M * width, TRACKS)?;
        ctx.gemm(
            rhs_view.sub(0..M, 0..N)?,
            shared(&h, M, N)?,
            s.view_mut(M, M, M, M * M, TRACKS)?,
            &transposed,
        )?;
        let mut solved = ctx.upload(&vec![0.0; M * width * TRACKS])?;
        solved.copy_from(ctx.queue(), &rhs)?;
        let solution = solved.view_mut(M, width, M, M * width, TRACKS)?;
        let info =
            ctx.posv(s.view_mut(M, M, M, M * M, TRACKS)?, solution, &PosvOptions::default())?.wait()?;
        if let Some((track, order)) = info.first_failure() {
            return Err(format!("the covariance of track {track} is not positive definite at {order}").into());
        }

        // P' = P - (H P)^T W, x' = x + (H P)^T w.
        let solution = solved.view(M, width, M, M * width, TRACKS)?;
        let hp = rhs.view(M, width, M, M * width, TRACKS)?.sub(0..M, 0..N)?;
        let gain = GemmOptions { trans_a: Trans::Trans, ..onto.clone() };
        let less = GemmOptions { alpha: -1.0, ..gain.clone() };
        ctx.gemm(hp, solution.sub(0..M, 0..N)?, p.view_mut(N, N, N, N * N, TRACKS)?, &less)?;
        ctx.gemm(hp, solution.sub(0..M, N..width)?, predicted.view_mut(N, 1, N, N, TRACKS)?, &gain)?;
        x = predicted;

        let (states, covariances) = (ctx.download(&x)?, ctx.download(&p)?);
        let square =
            |(state, truth): (&[f64], &[f64; N])| (0..2).map(|k| (state[k] - truth[k]).powi(2)).sum::<f64>();
        let mean = |sum: f64| (sum / TRACKS as f64).sqrt();
        let error = mean(states.chunks_exact(N).zip(&truth).map(square).sum());
        let expected = mean(covariances.chunks_exact(N * N).map(|p| p[0] + p[N + 1]).sum());
        seen(&covariances);
        steps.push(Step { error, expected });
    }
    Ok(steps)
}

/// One matrix for all tracks.
fn shared(
    one: &batchlas::Buffer<f64>,
    rows: usize,
    cols: usize,
) -> batchlas::Result<batchlas::MatBatch<'_, f64>> {
    one.view(rows, cols, rows, 0, TRACKS)
}

/// The squares of standard deviations on the diagonal of a column-major matrix.
fn diagonal(deviations: &[f64]) -> Vec<f64> {
    let n = deviations.len();
    (0..n * n).map(|e| if e % n == e / n { deviations[e / n].powi(2) } else { 0.0 }).collect()
}

/// F: a second passes.
fn motion() -> Vec<f64> {
    let at = |i: usize, j: usize| f64::from(u8::from(i == j || i + 2 == j));
    (0..N * N).map(|e| at(e % N, e / N)).collect()
}

/// H: every station sees the position.
fn stations() -> Vec<f64> {
    let at = |i: usize, j: usize| f64::from(u8::from(i % 2 == j));
    (0..M * N).map(|e| at(e % M, e / M)).collect()
}

/// Normally distributed numbers: `SplitMix64` (Steele, Lea and Flood 2014) by the transform of Box and Muller.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.uniform(), self.uniform());
        (-2.0 * (1.0 - radius).ln()).sqrt() * (TAU * angle).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inverse by Gauss and Jordan, of a definite matrix.
    fn inverse(a: &[f64]) -> Vec<f64> {
        let (mut a, mut b) = (a.to_vec(), diagonal(&[1.0; N]));
        for k in 0..N {
            let pivot = a[k * N + k];
            for j in 0..N {
                a[j * N + k] /= pivot;
                b[j * N + k] /= pivot;
            }
            for i in (0..N).filter(|&i| i != k) {
                let factor = a[k * N + i];
                for j in 0..N {
                    a[j * N + i] -= factor * a[j * N + k];
                    b[j * N + i] -= factor * b[j * N + k];
                }
            }
        }
        b
    }

    fn product(a: &[f64], b: &[f64], transposed: bool) -> Vec<f64> {
        let right = |k: usize, j: usize| if transposed { b[k * N + j] } else { b[j * N + k] };
        (0..N * N).map(|e| (0..N).map(|k| a[k * N + e % N] * right(k, e / N)).sum()).collect()
    }

    /// The covariances do not depend on what was measured: the information form, `P'^-1 = P^-1 + H^T R^-1 H`.
    #[test]
    fn covariances_are_those_of_the_information_form() {
        let (f, [far, fast]) = (motion(), START);
        let mut p = diagonal(&[far, far, fast, fast]);
        let weight: f64 = NOISE.iter().map(|sd| sd.powi(-2)).sum();
        run(&Context::new().unwrap(), |covariances| {
            p = product(&product(&f, &p, false), &f, true);
            p.iter_mut().zip(diagonal(&[0.0, 0.0, SCATTER, SCATTER])).for_each(|(p, q)| *p += q);
            let mut information = inverse(&p);
            (0..2).for_each(|k| information[k * N + k] += weight);
            p = inverse(&information);
            for track in covariances.chunks_exact(N * N) {
                let error = track.iter().zip(&p).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(error < 1e-9 * far, "differs by {error:e}");
            }
        })
        .unwrap();
    }

    /// Errors are as large as the covariances say: over this many tracks the ratio scatters by about 1%.
    #[test]
    fn errors_are_what_the_covariances_say() {
        let steps = run(&Context::new().unwrap(), |covariances| {
            assert!(covariances.iter().all(|x| x.is_finite()));
        })
        .unwrap();
        for step in &steps {
            assert!((step.error / step.expected - 1.0).abs() < 0.06, "{} {}", step.error, step.expected);
        }
        assert!(steps[STEPS - 1].expected < 0.7 * steps[0].expected, "the past helps");
    }
}
