//! What the tests share: fixtures, parameter blocks, buffers.
#![allow(dead_code)]

use batchlas_sim::{DeviceConfig, Module, Options, Report, Schedule, SimDevice};

/// The PTX of a fixture, for instance `potrf.sm_90`, produced from the CUDA source beside it.
pub(crate) fn module(name: &str) -> Module {
    let path = format!("{}/tests/ptx/{name}.ptx", env!("CARGO_MANIFEST_DIR"));
    Module::parse(&std::fs::read_to_string(&path).expect(&path)).expect(&path)
}

/// A parameter block, built value by value with natural alignment.
#[derive(Default)]
pub(crate) struct Params(pub(crate) Vec<u8>);

impl Params {
    fn push(mut self, bytes: &[u8]) -> Params {
        self.0.resize(self.0.len().next_multiple_of(bytes.len()), 0);
        self.0.extend_from_slice(bytes);
        self
    }
    pub(crate) fn u64(self, v: u64) -> Params {
        self.push(&v.to_le_bytes())
    }
    pub(crate) fn i32(self, v: i32) -> Params {
        self.push(&v.to_le_bytes())
    }
}

/// Numbers as device bytes.
pub(crate) trait Bytes: Copy {
    const SIZE: usize;
    fn put(self, out: &mut Vec<u8>);
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! bytes {
    ($($t:ty),*) => {$(impl Bytes for $t {
        const SIZE: usize = size_of::<$t>();
        fn put(self, out: &mut Vec<u8>) {
            out.extend_from_slice(&self.to_le_bytes());
        }
        fn get(bytes: &[u8]) -> Self {
            <$t>::from_le_bytes(bytes.try_into().unwrap())
        }
    })*};
}
bytes!(u8, u16, i32, u32, i64, u64, f32, f64);

/// A device with typed buffers.
pub(crate) struct Bench {
    pub(crate) device: SimDevice,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench { device: SimDevice::new(DeviceConfig::default()) }
    }

    pub(crate) fn empty<T: Bytes>(&mut self, name: &str, count: usize) -> u64 {
        self.device.alloc(name, count * T::SIZE).unwrap()
    }

    pub(crate) fn filled<T: Bytes>(&mut self, name: &str, data: &[T]) -> u64 {
        let at = self.empty::<T>(name, data.len());
        let mut bytes = Vec::new();
        data.iter().for_each(|x| x.put(&mut bytes));
        self.device.write(at, &bytes).unwrap();
        at
    }

    pub(crate) fn read<T: Bytes>(&mut self, at: u64, count: usize) -> Vec<T> {
        self.device.read(at, count * T::SIZE).unwrap().chunks(T::SIZE).map(T::get).collect()
    }

    pub(crate) fn run(
        &mut self,
        module: &Module,
        entry: &str,
        grid: [u32; 3],
        block: u32,
        shared: usize,
        params: Params,
        schedule: Schedule,
    ) -> Report {
        let options = Options { max_instructions: 5_000_000, ..Options::with_schedule(schedule) };
        let entry = module.entry(entry).unwrap();
        let mut params = params.0;
        params.resize(entry.param_bytes().max(params.len()), 0);
        self.device.launch(module, &entry.name, grid, [block, 1, 1], shared, &params, &options).unwrap()
    }
}

/// Uniform numbers in [-0.5, 0.5), reproducible.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / (1u64 << 24) as f64 - 0.5
    }
}

/// The schedules that every test of a correct kernel runs under.
pub(crate) const SCHEDULES: [Schedule; 5] =
    [Schedule::Forward, Schedule::Reverse, Schedule::Random(1), Schedule::Random(2), Schedule::Random(3)];
