//! The program from outside: files in, files and exit status out. The arrays are written and read by a second, minimal
//! implementation of the format, so that a misreading of it cannot cancel out.
// Helpers outside of test functions; clippy exempts only those.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use num_complex::Complex;
use serde_json::{Value, json};
use tempfile::TempDir;

type C64 = Complex<f64>;

const DTYPES: [&str; 4] = ["f4", "f8", "c8", "c16"];

/// An array whose elements are listed in C order, whatever the order of the file.
#[derive(Clone, Debug, PartialEq)]
struct Array {
    shape: Vec<usize>,
    data: Vec<C64>,
}

impl Array {
    fn from_fn(shape: &[usize], f: impl Fn(&[usize]) -> C64) -> Array {
        let len = shape.iter().product();
        let data = (0..len).map(|k| f(&unravel(k, shape))).collect();
        Array { shape: shape.to_vec(), data }
    }

    fn at(&self, index: &[usize]) -> C64 {
        self.data[index.iter().zip(&self.shape).fold(0, |k, (&i, &d)| k * d + i)]
    }

    fn set(&mut self, index: &[usize], value: C64) {
        let k = index.iter().zip(&self.shape).fold(0, |k, (&i, &d)| k * d + i);
        self.data[k] = value;
    }

    /// The bytes of a file: `endian` is `<` or `>`, `dtype` one of [`DTYPES`].
    fn encode(&self, endian: char, dtype: &str, fortran: bool) -> Vec<u8> {
        let reversed: Vec<usize> = self.shape.iter().rev().copied().collect();
        let mut body = Vec::new();
        for k in 0..self.data.len() {
            let value = if fortran {
                let mut index = unravel(k, &reversed);
                index.reverse();
                self.at(&index)
            } else {
                self.data[k]
            };
            let parts = if dtype.starts_with('c') { vec![value.re, value.im] } else { vec![value.re] };
            for part in parts {
                let mut bytes = match dtype {
                    "f4" | "c8" => (part as f32).to_le_bytes().to_vec(),
                    _ => part.to_le_bytes().to_vec(),
                };
                if endian == '>' {
                    bytes.reverse();
                }
                body.extend(bytes);
            }
        }
        let order = if fortran { "True" } else { "False" };
        let header = format!(
            "{{'descr': '{endian}{dtype}', 'fortran_order': {order}, 'shape': {}, }}",
            python(&self.shape)
        );
        [with_header(&header), body].concat()
    }

    fn decode(bytes: &[u8]) -> (Array, String) {
        let len = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let header = std::str::from_utf8(&bytes[10..10 + len]).unwrap();
        assert!(header.contains("'fortran_order': False"), "{header}");
        let between = |a: &str, b: &str| header.split(a).nth(1).unwrap().split(b).next().unwrap().to_owned();
        let descr = between("'descr': '", "'");
        let dims = between("'shape': (", ")");
        let shape: Vec<usize> =
            dims.split(',').map(str::trim).filter(|d| !d.is_empty()).map(|d| d.parse().unwrap()).collect();
        let body = &bytes[10 + len..];
        let single = |b: &[u8]| f64::from(f32::from_le_bytes(b.try_into().unwrap()));
        let double = |b: &[u8]| f64::from_le_bytes(b.try_into().unwrap());
        let data = match descr.as_str() {
            "<f4" => body.chunks(4).map(|b| single(b).into()).collect(),
            "<f8" => body.chunks(8).map(|b| double(b).into()).collect(),
            "<c8" => body.chunks(8).map(|b| C64::new(single(&b[..4]), single(&b[4..]))).collect(),
            "<c16" => body.chunks(16).map(|b| C64::new(double(&b[..8]), double(&b[8..]))).collect(),
            other => panic!("{other}"),
        };
        let array = Array { shape, data };
        assert_eq!(array.data.len(), array.shape.iter().product::<usize>());
        (array, descr)
    }
}

fn unravel(mut k: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, &d) in index.iter_mut().zip(shape).rev() {
        *i = k % d;
        k /= d;
    }
    index
}

fn python(shape: &[usize]) -> String {
    format!("({})", shape.iter().map(|d| format!("{d},")).collect::<String>())
}

fn with_header(text: &str) -> Vec<u8> {
    let len = (11 + text.len()).next_multiple_of(64) - 10;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((len as u16).to_le_bytes());
    bytes.extend(format!("{text:<width$}\n", width = len - 1).bytes());
    bytes
}

/// A Hermitian positive definite batch, different in every element; the triangle that is not `kept` holds rubbish.
fn hermitian(batch: usize, n: usize, complex: bool, kept: &str) -> Array {
    Array::from_fn(&[batch, n, n], |ix| {
        let (b, i, j) = (ix[0], ix[1], ix[2]);
        let off = |i: usize, j: usize| {
            let imaginary = if complex { 0.25 + 0.125 * (i + j) as f64 } else { 0.0 };
            C64::new(1.0 / (1 + i + 2 * j + b) as f64, imaginary)
        };
        let unused = if kept == "lower" { j > i } else { j < i };
        match i.cmp(&j) {
            _ if unused => C64::new(-999.0, 777.0),
            std::cmp::Ordering::Equal => C64::from(3.0 * (n + 1) as f64 + b as f64 + i as f64),
            std::cmp::Ordering::Greater => off(i, j),
            std::cmp::Ordering::Less => off(j, i).conj(),
        }
    })
}

/// Element `(i, j)` of item `b` of the matrix that [`hermitian`] stands for.
fn element(a: &Array, kept: &str, b: usize, i: usize, j: usize) -> C64 {
    let stored = if kept == "lower" { j <= i } else { j >= i };
    if stored { a.at(&[b, i, j]) } else { a.at(&[b, j, i]).conj() }
}

fn solution(shape: &[usize], complex: bool) -> Array {
    Array::from_fn(shape, |ix| {
        let k = ix.iter().fold(0, |k, &i| 3 * k + i) as f64;
        C64::new(1.0 + 0.5 * k, if complex { 2.0 - k } else { 0.0 })
    })
}

/// `A X` for every item, with X `(batch, n, nrhs)` or `(batch, n)`.
fn product(a: &Array, kept: &str, x: &Array) -> Array {
    let n = a.shape[1];
    Array::from_fn(&x.shape, |ix| {
        let mut other = ix.to_vec();
        (0..n)
            .map(|k| {
                other[1] = k;
                element(a, kept, ix[0], ix[1], k) * x.at(&other)
            })
            .sum()
    })
}

fn distance(a: &Array, b: &Array) -> f64 {
    assert_eq!(a.shape, b.shape);
    let difference = a.data.iter().zip(&b.data).map(|(a, b)| (a - b).norm()).fold(0.0, f64::max);
    let scale = b.data.iter().map(|b| b.norm()).fold(1.0, f64::max);
    // NaN must not pass as small.
    if a.data.iter().any(|a| a.is_nan()) { f64::NAN } else { difference / scale }
}

struct Sandbox {
    dir: TempDir,
}

impl Sandbox {
    fn new() -> Sandbox {
        Sandbox { dir: TempDir::new().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn save(&self, name: &str, array: &Array) {
        self.put(name, &array.encode('<', "f8", false));
    }

    fn run(&self, args: &str) -> Output {
        let program = env!("CARGO_BIN_EXE_batchlas");
        Command::new(program).current_dir(self.dir.path()).args(args.split_whitespace()).output().unwrap()
    }

    /// Runs with `--json` and returns the report.
    fn report(&self, args: &str, status: i32) -> Value {
        let output = self.run(&format!("{args} --json"));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(status), "{text}{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_str(&text).unwrap()
    }

    /// Runs expecting status 2, an error that holds `parts`, and no output file.
    fn refuse(&self, args: &str, parts: &[&str]) {
        let output = self.run(args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args}: {text}");
        assert!(output.stdout.is_empty());
        for part in parts {
            assert!(text.contains(part), "{args}: {part:?} is absent from {text:?}");
        }
        self.no_leftovers();
    }

    fn no_leftovers(&self) {
        for entry in std::fs::read_dir(self.dir.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(name != "X.npy" && !name.ends_with(".partial"), "{name} was left");
        }
    }

    fn load(&self, name: &str) -> (Array, String) {
        Array::decode(&std::fs::read(self.path(name)).unwrap())
    }
}

#[test]
fn every_type_order_endianness_and_triangle_is_solved() {
    let files = Sandbox::new();
    let (batch, n) = (7, 5);
    for dtype in DTYPES {
        let complex = dtype.starts_with('c');
        let tolerance = if matches!(dtype, "f4" | "c8") { 1e-5 } else { 1e-13 };
        for case in 0..8 {
            let endian = ['<', '>'][case % 2];
            let fortran = case / 2 % 2 == 1;
            let kept = ["lower", "upper"][case / 4];
            let a = hermitian(batch, n, complex, kept);
            for shape in [vec![batch, n, 3], vec![batch, n]] {
                let x = solution(&shape, complex);
                files.put("A.npy", &a.encode(endian, dtype, fortran));
                // The order of one file says nothing about the other's.
                files.put("B.npy", &product(&a, kept, &x).encode(endian, dtype, !fortran));
                let report = files.report(&format!("posv A.npy B.npy -o X.npy --uplo {kept} --check"), 0);
                let (found, descr) = files.load("X.npy");
                assert_eq!(descr, format!("<{dtype}"));
                let error = distance(&found, &x);
                assert!(error < tolerance, "{endian}{dtype} fortran={fortran} {kept} {shape:?}: {error}");
                let residual = report["worst"]["residual"].as_f64().unwrap();
                assert!(residual < tolerance, "{endian}{dtype} {kept}: {residual}");
            }
        }
    }
}

#[test]
fn potrf_writes_the_factor_and_zeros() {
    let files = Sandbox::new();
    for (kept, dtype, fortran) in [("lower", "c16", false), ("upper", "c16", true), ("upper", "f8", false)] {
        let a = hermitian(4, 6, dtype == "c16", kept);
        files.put("A.npy", &a.encode('<', dtype, fortran));
        let report = files.report(&format!("potrf A.npy -o X.npy --uplo {kept} --check"), 0);
        assert!(report["worst"]["residual"].as_f64().unwrap() < 1e-14);
        let (f, _) = files.load("X.npy");
        for (b, i, j) in (0..4).flat_map(|b| (0..36).map(move |k| (b, k / 6, k % 6))) {
            let inside = if kept == "lower" { j <= i } else { j >= i };
            if !inside {
                assert_eq!(f.at(&[b, i, j]), C64::from(0.0), "{kept} ({i}, {j})");
            }
            let product: C64 = (0..6)
                .map(|k| match kept {
                    "lower" => f.at(&[b, i, k]) * f.at(&[b, j, k]).conj(),
                    _ => f.at(&[b, k, i]).conj() * f.at(&[b, k, j]),
                })
                .sum();
            let error = (product - element(&a, kept, b, i, j)).norm();
            assert!(error < 1e-12, "{kept} ({i}, {j}): {error}");
        }
    }
}

#[test]
fn every_trsm_case_solves_its_equation() {
    let files = Sandbox::new();
    let (batch, n, m) = (3, 4, 2);
    let alpha = C64::new(1.5, -0.5);
    let full = Array::from_fn(&[batch, n, n], |ix| {
        let (b, i, j) = (ix[0] as f64, ix[1] as f64, ix[2] as f64);
        if ix[1] == ix[2] { C64::new(4.0 + b, 1.0) } else { C64::new(0.3 + 0.1 * i, 0.2 * j - 0.1 * b) }
    });
    files.put("A.npy", &full.encode('<', "c16", false));
    for case in 0..24 {
        let side = ["left", "right"][case % 2];
        let uplo = ["lower", "upper"][case / 2 % 2];
        let diag = ["nonunit", "unit"][case / 4 % 2];
        let trans = ["n", "t", "c"][case / 8];
        let stored = |b: usize, i: usize, j: usize| match (uplo, i == j) {
            (_, true) if diag == "unit" => C64::from(1.0),
            (_, true) => full.at(&[b, i, j]),
            ("lower", _) if j < i => full.at(&[b, i, j]),
            ("upper", _) if j > i => full.at(&[b, i, j]),
            _ => C64::from(0.0),
        };
        let op = |b: usize, i: usize, j: usize| match trans {
            "n" => stored(b, i, j),
            "t" => stored(b, j, i),
            _ => stored(b, j, i).conj(),
        };
        let left = side == "left";
        let shape = if left { [batch, n, m] } else { [batch, m, n] };
        let x = solution(&shape, true);
        let b = Array::from_fn(&shape, |ix| {
            let term = |k: usize| match left {
                true => op(ix[0], ix[1], k) * x.at(&[ix[0], k, ix[2]]),
                false => x.at(&[ix[0], ix[1], k]) * op(ix[0], k, ix[2]),
            };
            (0..n).map(term).sum::<C64>() / alpha
        });
        files.put("B.npy", &b.encode('<', "c16", true));
        let flags = format!("--side {side} --uplo {uplo} --trans {trans} --diag {diag} --alpha 1.5-0.5i");
        let report = files.report(&format!("trsm A.npy B.npy -o X.npy --check {flags}"), 0);
        let error = distance(&files.load("X.npy").0, &x);
        assert!(error < 1e-13, "{flags}: {error}");
        let residual = report["worst"]["residual"].as_f64().unwrap();
        assert!(residual < 1e-14, "{flags}: {residual}");
    }
}

#[test]
fn a_bad_item_fails_alone_and_is_nan() {
    let files = Sandbox::new();
    let (batch, n) = (1000, 6);
    let clean = hermitian(batch, n, false, "lower");
    let x = solution(&[batch, n, 2], false);
    files.save("A.npy", &clean);
    files.save("B.npy", &product(&clean, "lower", &x));
    files.report("posv A.npy B.npy -o clean.npy", 0);
    let (clean_x, _) = files.load("clean.npy");

    let mut bad = clean.clone();
    bad.set(&[17, 3, 3], C64::from(f64::NAN));
    bad.set(&[500, 0, 0], C64::from(-1.0));
    files.save("A.npy", &bad);
    let report = files.report("posv A.npy B.npy -o X.npy --check", 1);
    assert_eq!(report["failed"], 2);
    assert_eq!(report["failures"], json!([{"item": 17, "info": 4}, {"item": 500, "info": 1}]));
    assert!(report["worst"]["residual"].as_f64().unwrap() < 1e-14);
    let (found, _) = files.load("X.npy");
    for (k, (a, b)) in found.data.iter().zip(&clean_x.data).enumerate() {
        match k / (2 * n) {
            17 | 500 => assert!(a.re.is_nan(), "item {} holds {a}", k / (2 * n)),
            item => assert_eq!(a, b, "item {item}"),
        }
    }
    let output = files.run("posv A.npy B.npy -o X.npy");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("1000 items of order 6 in float64, 2 failed"), "{text}");
    assert!(text.contains("item 17 failed: info 4"), "{text}");

    // The factor of a failed item is marked as well.
    let report = files.report("potrf A.npy -o X.npy", 1);
    assert_eq!(report["failed"], 2);
    let (factor, _) = files.load("X.npy");
    assert!(factor.at(&[17, 0, 0]).re.is_nan() && !factor.at(&[999, 5, 5]).re.is_nan());
}

#[test]
fn jitter_solves_what_a_small_shift_makes_definite() {
    let files = Sandbox::new();
    let (batch, n) = (20, 6);
    let mut bad = hermitian(batch, n, false, "lower");
    let x = solution(&[batch, n, 2], false);
    files.save("B.npy", &product(&bad, "lower", &x));
    // All ones: singular, and definite with any shift. The other item is far from definite.
    for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
        bad.set(&[7, i, j], C64::from(1.0));
    }
    bad.set(&[11, 0, 0], C64::from(-1.0));
    files.save("A.npy", &bad);
    files.refuse("posv A.npy B.npy -o X.npy --jitter 1e-30", &["the largest shift is 1e-30"]);
    assert_eq!(files.report("posv A.npy B.npy -o X.npy --check", 1)["failed"], 2);
    let report = files.report("posv A.npy B.npy -o X.npy --check --jitter", 1);
    assert_eq!((&report["failed"], &report["shifted"]), (&json!(1), &json!(1)));
    assert_eq!(report["failures"], json!([{"item": 11, "info": 1}]));
    assert_eq!(report["shifts"], json!([{"item": 7, "shift": 16.0 * f64::EPSILON}]));
    assert!(report["worst"]["residual"].as_f64().unwrap() < 1e-14, "{}", report["worst"]);
    let (found, _) = files.load("X.npy");
    assert!(found.at(&[11, 0, 0]).re.is_nan() && found.at(&[7, 0, 0]).re.is_finite());
    let text = String::from_utf8(files.run("posv A.npy B.npy -o X.npy --jitter 1e-6").stdout).unwrap();
    assert!(text.contains("item 7 was solved with 3.55e-15 added to its diagonal"), "{text}");
}

#[test]
fn many_failures_are_listed_up_to_ten_and_counted() {
    let files = Sandbox::new();
    files.save("A.npy", &Array::from_fn(&[25, 1, 1], |_| C64::from(-1.0)));
    files.save("B.npy", &solution(&[25, 1], false));
    let report = files.report("posv A.npy B.npy -o X.npy --check", 1);
    assert_eq!((&report["failed"], report["failures"].as_array().unwrap().len()), (&25.into(), 10));
    assert!(report["worst"].is_null());
    let text = String::from_utf8(files.run("posv A.npy B.npy -o X.npy").stdout).unwrap();
    assert!(text.contains("and 15 more"), "{text}");
}

#[test]
fn a_zero_or_nan_on_the_diagonal_fails_trsm_unless_it_is_unit() {
    let files = Sandbox::new();
    let mut a = Array::from_fn(&[3, 2, 2], |_| C64::from(2.0));
    a.set(&[1, 1, 1], C64::from(0.0));
    a.set(&[2, 0, 0], C64::from(f64::NAN));
    files.save("A.npy", &a);
    files.save("B.npy", &solution(&[3, 2], false));
    let report = files.report("trsm A.npy B.npy -o X.npy", 1);
    assert_eq!(report["failures"], json!([{"item": 1, "info": 2}, {"item": 2, "info": 1}]));
    files.report("trsm A.npy B.npy -o X.npy --diag unit", 0);
}

/// The files span several chunks, in both orders, and the last item is right.
#[test]
fn files_larger_than_a_chunk_are_streamed() {
    let files = Sandbox::new();
    let (batch, n) = (2100, 64);
    let a = hermitian(batch, n, false, "lower");
    let x = solution(&[batch, n], false);
    let b = product(&a, "lower", &x);
    for fortran in [false, true] {
        files.put("A.npy", &a.encode('<', "f8", fortran));
        files.put("B.npy", &b.encode('<', "f8", fortran));
        let report = files.report("posv A.npy B.npy -o X.npy --threads 1 --check", 0);
        assert_eq!(report["items"], batch);
        assert!(report["worst"]["residual"].as_f64().unwrap() < 1e-14);
        let error = distance(&files.load("X.npy").0, &x);
        assert!(error < 1e-11, "fortran={fortran}: {error}");
    }
    let mut bad = a;
    bad.set(&[2099, 2, 2], C64::from(-1.0));
    files.save("A.npy", &bad);
    let report = files.report("posv A.npy B.npy -o X.npy --check", 1);
    assert_eq!(report["failures"], json!([{"item": 2099, "info": 3}]));
}

#[test]
fn empty_problems_give_empty_results() {
    let files = Sandbox::new();
    for (a, b) in [
        ([0, 4, 4], vec![0, 4, 2]),
        ([5, 0, 0], vec![5, 0, 3]),
        ([5, 0, 0], vec![5, 0]),
        ([0, 0, 0], vec![0, 0]),
        ([3, 2, 2], vec![3, 2, 0]),
    ] {
        files.save("A.npy", &hermitian(a[0], a[1], false, "lower"));
        files.save("B.npy", &solution(&b, false));
        let report = files.report("posv A.npy B.npy -o X.npy --check", 0);
        assert_eq!((&report["items"], &report["failed"]), (&a[0].into(), &0.into()));
        assert_eq!(files.load("X.npy").0.shape, b);
        files.report("potrf A.npy -o X.npy", 0);
        assert_eq!(files.load("X.npy").0.shape, a);
    }
    // Nothing to solve for, and still a status: A is factored.
    files.save("A.npy", &Array::from_fn(&[2, 1, 1], |ix| C64::from(ix[0] as f64)));
    files.save("B.npy", &solution(&[2, 1, 0], false));
    assert_eq!(files.report("posv A.npy B.npy -o X.npy", 1)["failed"], 1);
    // A batch of nothing is not iterated over.
    files.put(
        "A.npy",
        &with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000000, 0, 0), }"),
    );
    files.report("potrf A.npy -o X.npy", 0);
}

#[test]
fn shapes_that_do_not_fit_are_refused_with_the_numbers() {
    let files = Sandbox::new();
    let posv = "posv A.npy B.npy -o X.npy";
    let check = |a: &[usize], b: &[usize], command: &str, parts: &[&str]| {
        files.save("A.npy", &solution(a, false));
        files.save("B.npy", &solution(b, false));
        files.refuse(command, parts);
    };
    check(&[3, 4, 5], &[3, 4], posv, &["A.npy", "(3, 4, 5)", "4 x 5", "square"]);
    check(&[4, 4], &[3, 4], posv, &["(4, 4)", "(1, 4, 4)"]);
    check(&[4], &[3, 4], posv, &["(4,)", "(batch, n, n)"]);
    check(&[3, 4, 4], &[2, 4, 1], posv, &["B.npy", "(2, 4, 1)", "2 items", "A has 3"]);
    check(&[3, 4, 4], &[3, 5, 1], posv, &["B.npy", "5 rows", "order 4"]);
    check(&[3, 4, 4], &[3], posv, &["B.npy", "(3,)", "(batch, n, nrhs)"]);
    check(&[3, 4, 4], &[3, 4, 1, 1], posv, &["(3, 4, 1, 1)"]);
    let right = "trsm A.npy B.npy -o X.npy --side right";
    check(&[3, 4, 4], &[3, 4, 5], right, &["5 columns", "order 4", "(batch, m, n)"]);
}

#[test]
fn types_that_do_not_fit_are_refused() {
    let files = Sandbox::new();
    let a = hermitian(2, 3, false, "lower");
    files.save("A.npy", &a);
    files.put("B.npy", &solution(&[2, 3], false).encode('<', "f4", false));
    let posv = "posv A.npy B.npy -o X.npy";
    files.refuse(posv, &["A.npy holds float64", "B.npy holds float32"]);
    files.save("B.npy", &solution(&[2, 3], false));
    files.refuse("trsm A.npy B.npy -o X.npy --alpha 1+2i", &["1+2i", "float64", "imaginary"]);
    for (descr, named) in [
        ("'<i4'", "<i4"),
        ("'<f2'", "<f2"),
        ("'|O'", "|O"),
        ("'<U3'", "<U3"),
        ("[('x', '<f8'), ('y', '<f8', (2, 2))]", "structured"),
    ] {
        let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (2, 3, 3), }}");
        files.put("A.npy", &[with_header(&header), vec![0; 1000]].concat());
        files.refuse(posv, &["A.npy", named]);
    }
}

#[test]
fn files_that_are_not_whole_arrays_are_refused() {
    let files = Sandbox::new();
    let posv = "posv A.npy B.npy -o X.npy";
    let whole = hermitian(5, 3, false, "lower").encode('<', "f8", false);
    files.save("B.npy", &solution(&[5, 3], false));
    files.put("A.npy", &whole[..whole.len() - 8]);
    files.refuse(posv, &["A.npy", "truncated", "(5, 3, 3)", "360 bytes", "352"]);
    for cut in [0, 3, 7, 9, 40] {
        files.put("A.npy", &whole[..cut]);
        files.refuse(posv, &["A.npy", "not a .npy file"]);
    }
    files.put("A.npy", b"PK\x03\x04 this is an archive of arrays");
    files.refuse(posv, &["not a .npy file", "\\x93NUMPY"]);
    std::fs::remove_file(files.path("A.npy")).unwrap();
    files.refuse(posv, &["A.npy", "cannot be read"]);
    std::fs::create_dir(files.path("A.npy")).unwrap();
    files.refuse(posv, &["A.npy", "not a regular file"]);
}

/// Headers that would make a parser recurse, multiply out of range, or allocate what they claim.
#[test]
fn hostile_headers_are_refused() {
    let files = Sandbox::new();
    files.save("B.npy", &solution(&[5, 3], false));
    let header =
        |shape: &str| with_header(&format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}"));
    for shape in [
        "(4294967296, 4294967296, 4294967296)",
        "(18446744073709551615, 2, 2)",
        "(99999999999999999999999999, 2, 2)",
        "(0x7fffffffffffffff, 0x7fffffffffffffff, 3)",
        "(9999999999, 9999, 9999)",
        "(-1, 3, 3)",
        "(1.5, 3, 3)",
        "'(1, 3, 3)'",
        &"(".repeat(8000),
        &"[".repeat(8000),
    ] {
        files.put("A.npy", &header(shape));
        files.refuse("potrf A.npy -o X.npy", &["A.npy"]);
    }
    let mut long = b"\x93NUMPY\x02\x00".to_vec();
    long.extend(u32::MAX.to_le_bytes());
    files.put("A.npy", &long);
    files.refuse("potrf A.npy -o X.npy", &["4294967295 bytes"]);
    let every_byte: Vec<u8> = (0..=255).collect();
    files.put("A.npy", &[&b"\x93NUMPY\x01\x00\xff\x00"[..], &every_byte].concat());
    files.refuse("potrf A.npy -o X.npy", &["A.npy"]);
}

#[test]
fn an_unusable_output_is_refused_and_an_old_one_survives_an_error() {
    let files = Sandbox::new();
    let a = hermitian(5, 3, false, "lower");
    files.save("A.npy", &a);
    files.refuse("potrf A.npy -o missing/X.npy", &["missing/X.npy", "cannot be written"]);
    files.refuse("potrf A.npy -o .", &["not a regular file"]);
    files.put("old.npy", b"precious");
    files.refuse("potrf A.npy -o old.npy --route nonsense", &["nonsense", "vendor"]);
    assert_eq!(std::fs::read(files.path("old.npy")).unwrap(), b"precious");
    // The input may be its own output.
    files.report("potrf A.npy -o A.npy", 0);
    assert_eq!(files.load("A.npy").0.shape, [5, 3, 3]);
}

#[test]
fn devices_and_routes_are_named() {
    let files = Sandbox::new();
    files.save("A.npy", &hermitian(5, 3, false, "lower"));
    files.refuse("potrf A.npy -o X.npy --device gpu", &["auto, cpu or cuda:N"]);
    files.refuse("potrf A.npy -o X.npy --threads 5000", &["4096"]);
    let report = files.report("potrf A.npy -o X.npy --device cpu --threads 2 --route vendor", 0);
    assert_eq!(report["executed"], json!(["potrf=vendor"]));
    assert_eq!(report["device"], "CPU, 2 threads");
    let output = files.run("devices --threads 2");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("2 threads"), "{text}");
    assert!(text.contains("libcuda.so.1"), "{text}");
}

/// The committed systems of the example are what the README's command solves.
#[test]
fn the_committed_example_is_solved() {
    let files = Sandbox::new();
    let rolling = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rolling");
    let (a, b) = (rolling.join("A.npy"), rolling.join("B.npy"));
    let report = files.report(&format!("posv {} {} -o X.npy --check", a.display(), b.display()), 0);
    assert!(report["items"].as_u64().unwrap() > 2000);
    assert!(report["worst"]["residual"].as_f64().unwrap() < 50.0 * 12.0 * f64::EPSILON);
}

/// A GGUF file with one Q4_K tensor `w` of 2 x 256: d = 1, dmin = 0, every scale 1; nibbles of row 0 are 1, of row 1 they are 2.
fn gguf() -> Vec<u8> {
    let mut file =
        [b"GGUF".as_slice(), &3u32.to_le_bytes(), &1u64.to_le_bytes(), &0u64.to_le_bytes()].concat();
    file.extend([&1u64.to_le_bytes()[..], b"w", &2u32.to_le_bytes()].concat());
    file.extend([256u64.to_le_bytes(), 2u64.to_le_bytes()].concat());
    file.extend([&12u32.to_le_bytes()[..], &0u64.to_le_bytes()].concat());
    file.resize(file.len().next_multiple_of(32), 0);
    for nibbles in [0x11, 0x22] {
        file.extend([0, 0x3c, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]);
        file.extend([nibbles; 128]);
    }
    file
}

#[test]
fn activations_meet_the_weights_of_a_model_file() {
    let sandbox = Sandbox::new();
    sandbox.put("w.gguf", &gguf());
    let x = Array::from_fn(&[3, 256], |ix| C64::from(ix[0] as f64 - 1.0));
    for fortran in [false, true] {
        sandbox.put("x.npy", &x.encode('<', "f4", fortran));
        let output = sandbox.run("mmq w.gguf:w x.npy -o y.npy --device cpu");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("3 tokens, 2 x 256 weights, mmq=dot"), "{text}");
        let (y, descr) = Array::decode(&std::fs::read(sandbox.path("y.npy")).unwrap());
        assert_eq!((y.shape.as_slice(), descr.as_str()), (&[3, 2][..], "<f4"));
        let sums: Vec<f64> = y.data.iter().map(|y| y.re).collect();
        assert_eq!(sums, [-256.0, -512.0, 0.0, 0.0, 256.0, 512.0]);
    }
    std::fs::remove_file(sandbox.path("y.npy")).unwrap();
    sandbox.refuse("mmq w.gguf x.npy -o y.npy --device cpu", &["FILE:TENSOR"]);
    sandbox.refuse("mmq w.gguf:v x.npy -o y.npy --device cpu", &["no tensor \"v\"", "such as w"]);
    sandbox.refuse("mmq x.npy:w x.npy -o y.npy --device cpu", &["GGUF"]);
    sandbox.save("x.npy", &x);
    sandbox.refuse("mmq w.gguf:w x.npy -o y.npy --device cpu", &["float64", "float32"]);
    sandbox.put("x.npy", &Array::from_fn(&[3, 255], |_| C64::from(1.0)).encode('<', "f4", false));
    sandbox.refuse("mmq w.gguf:w x.npy -o y.npy --device cpu", &["(3, 255)", "(tokens, 256)"]);
}
