//! Alternating least squares: factors of a matrix of ratings that is mostly unknown, one batch of small systems for all
//! users, then one for all films.
//!
//! The ratings are synthetic: 3 stars, plus a product of two random matrices of rank 6, plus noise of 0.3 stars; one in six
//! is known, and a twentieth of those is held out. With the vectors of the films a user rated as rows of V, the user's own
//! vector is the solution of `(V^T V + k RIDGE I) u = V^T r` for k ratings r: symmetric positive definite, of the order of
//! the rank, and independent of every other user's. Films are solved likewise.
//!
//! ```text
//! cargo run --release -p batchlas --example als
//! ```
//!
//! prints the error of known and of held-out ratings after each sweep, and draws `examples/als.svg`.
#![allow(clippy::print_stdout)]

mod chart;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Instant;

use batchlas::{Context, PosvOptions};
use chart::{Line, chart};

const USERS: usize = 1500;
const FILMS: usize = 400;
/// Rank of the ratings, and of the model.
const RANK: usize = 6;
/// Standard deviation of the noise, in stars.
const NOISE: f64 = 0.3;
/// Weight of a vector's length against one rating's error.
const RIDGE: f64 = 0.02;
const SWEEPS: usize = 12;
/// Mean of the ratings.
const MEAN: f64 = 3.0;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let ctx = Context::new()?;
    let ratings = synthetic();
    println!(
        "{} ratings of {FILMS} films by {USERS} users, {} held out, on {}",
        ratings.known.len(),
        ratings.held_out.len(),
        ctx.device().name
    );
    let mut model = Model::new();
    let begun = Instant::now();
    let (mut known, mut held_out) = (Vec::new(), Vec::new());
    println!("sweep   RMSE known   held out (noise is {NOISE})");
    for sweep in 0..=SWEEPS {
        if sweep > 0 {
            model.sweep(&ctx, &ratings.known)?;
        }
        let errors = [model.rmse(&ratings.known), model.rmse(&ratings.held_out)];
        println!("{sweep:>5} {:>12.4} {:>10.4}", errors[0], errors[1]);
        known.push((sweep as f64, errors[0]));
        held_out.push((sweep as f64, errors[1]));
    }
    println!("{} systems of order {RANK} in {:.1?}", SWEEPS * (USERS + FILMS), begun.elapsed());
    let lines = [
        Line { name: "held-out ratings", colour: "#c0392b", points: held_out },
        Line { name: "known ratings", colour: "#1f6f50", points: known },
        Line { name: "noise", colour: "#8fb4d9", points: vec![(0.0, NOISE), (SWEEPS as f64, NOISE)] },
    ];
    let title = "Alternating least squares: two batched solves a sweep";
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/als.svg");
    Ok(fs::write(out, chart(title, ["sweep", "RMSE (stars)"], &lines))?)
}

/// One user's stars for one film.
#[derive(Clone, Copy)]
struct Rating {
    user: usize,
    film: usize,
    stars: f64,
}

struct Ratings {
    known: Vec<Rating>,
    held_out: Vec<Rating>,
}

/// The vectors of users and films, one after the other.
struct Model {
    users: Vec<f64>,
    films: Vec<f64>,
}

impl Model {
    /// Small vectors without structure.
    fn new() -> Model {
        let mut random = Random(7);
        let mut vectors = |count: usize| (0..count * RANK).map(|_| 0.1 * random.uniform()).collect();
        Model { users: vectors(USERS), films: vectors(FILMS) }
    }

    fn predict(&self, user: usize, film: usize) -> f64 {
        let (u, v) = (&self.users[user * RANK..][..RANK], &self.films[film * RANK..][..RANK]);
        MEAN + u.iter().zip(v).map(|(u, v)| u * v).sum::<f64>()
    }

    fn rmse(&self, ratings: &[Rating]) -> f64 {
        let square = |r: &Rating| (r.stars - self.predict(r.user, r.film)).powi(2);
        (ratings.iter().map(square).sum::<f64>() / ratings.len() as f64).sqrt()
    }

    /// All users for the films as they are, then all films for the users.
    fn sweep(&mut self, ctx: &Context, ratings: &[Rating]) -> Outcome<()> {
        self.users = solve(ctx, USERS, &self.films, ratings.iter().map(|r| (r.user, r.film, r.stars)))?;
        self.films = solve(ctx, FILMS, &self.users, ratings.iter().map(|r| (r.film, r.user, r.stars)))?;
        Ok(())
    }
}

/// The vectors of `count` users (or films), given those of the films (or users) and (own, other, stars) triples.
fn solve(
    ctx: &Context,
    count: usize,
    others: &[f64],
    ratings: impl Iterator<Item = (usize, usize, f64)>,
) -> Outcome<Vec<f64>> {
    let (mut a, mut b) = (vec![0.0; RANK * RANK * count], vec![0.0; RANK * count]);
    for (own, other, stars) in ratings {
        let v = &others[other * RANK..][..RANK];
        let (a, b) = (&mut a[own * RANK * RANK..][..RANK * RANK], &mut b[own * RANK..][..RANK]);
        for j in 0..RANK {
            // The lower triangle is all that is read.
            (j..RANK).for_each(|i| a[j * RANK + i] += v[i] * v[j]);
            a[j * RANK + j] += RIDGE;
            b[j] += (stars - MEAN) * v[j];
        }
    }
    let (mut a, mut x) = (ctx.upload(&a)?, ctx.upload(&b)?);
    let systems = a.view_mut(RANK, RANK, RANK, RANK * RANK, count)?;
    let info = ctx.posv(systems, x.view_mut(RANK, 1, RANK, RANK, count)?, &PosvOptions::default())?.wait()?;
    match info.first_failure() {
        Some((item, _)) => Err(format!("number {item} has no ratings").into()),
        None => Ok(ctx.download(&x)?),
    }
}

/// The ratings that the text describes, the same on every machine.
fn synthetic() -> Ratings {
    let mut random = Random(11);
    let spread = (3.0 / RANK as f64).sqrt();
    let users: Vec<f64> = (0..USERS * RANK).map(|_| spread * random.uniform()).collect();
    let films: Vec<f64> = (0..FILMS * RANK).map(|_| spread * random.uniform()).collect();
    let truth = Model { users, films };
    let mut ratings = Ratings { known: Vec::new(), held_out: Vec::new() };
    for (user, film) in (0..USERS).flat_map(|user| (0..FILMS).map(move |film| (user, film))) {
        let (seen, kept) = (random.uniform(), random.uniform());
        // A sum of three uniform numbers is nearly normal, with variance 1.
        let noise = NOISE * (random.uniform() + random.uniform() + random.uniform());
        if seen < -2.0 / 3.0 {
            let rating = Rating { user, film, stars: truth.predict(user, film) + noise };
            if kept < 0.9 { ratings.known.push(rating) } else { ratings.held_out.push(rating) }
        }
    }
    ratings
}

/// Uniform numbers in [-1, 1): `SplitMix64` (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a sweep minimises: squared errors, and each vector's length weighted by its ratings.
    fn objective(model: &Model, ratings: &[Rating]) -> f64 {
        let length = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>();
        let of = |r: &Rating| {
            let (u, v) = (&model.users[r.user * RANK..][..RANK], &model.films[r.film * RANK..][..RANK]);
            (r.stars - model.predict(r.user, r.film)).powi(2) + RIDGE * (length(u) + length(v))
        };
        ratings.iter().map(of).sum()
    }

    #[test]
    fn sweeps_descend_to_the_noise_and_predict_what_was_held_out() {
        let (ctx, ratings) = (Context::new().unwrap(), synthetic());
        let mut model = Model::new();
        let mut before = objective(&model, &ratings.known);
        for sweep in 1..=SWEEPS {
            model.sweep(&ctx, &ratings.known).unwrap();
            let now = objective(&model, &ratings.known);
            assert!(now < before, "sweep {sweep}: {before} to {now}");
            before = now;
        }
        let (known, held_out) = (model.rmse(&ratings.known), model.rmse(&ratings.held_out));
        assert!(known < 1.05 * NOISE, "{known}");
        assert!(held_out < 1.3 * NOISE, "{held_out}");
    }

    /// After the films were solved, the derivative with respect to each of their vectors is zero.
    #[test]
    fn each_half_of_a_sweep_is_a_minimum() {
        let (ctx, ratings) = (Context::new().unwrap(), synthetic());
        let mut model = Model::new();
        model.sweep(&ctx, &ratings.known).unwrap();
        let mut gradient = vec![0.0; FILMS * RANK];
        for r in &ratings.known {
            let error = r.stars - model.predict(r.user, r.film);
            for k in 0..RANK {
                let own = model.films[r.film * RANK + k];
                gradient[r.film * RANK + k] += RIDGE * own - error * model.users[r.user * RANK + k];
            }
        }
        let largest = gradient.iter().fold(0.0f64, |most, g| most.max(g.abs()));
        assert!(largest < 1e-9, "{largest:e}");
    }
}
