//! Checks of the runtime that need a device, as functions that a program calls there.
//!
//! Each returns what it measured or saw, or what is wrong. They use the device 0, and compile a few small kernels. One
//! of them needs a process in which the compiler is hidden, so it starts the running program again with the same
//! arguments: a program that calls [`all`] calls [`child`] first.
#![allow(unsafe_code)]

use std::env;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use batchlas_core::{Kernel, KernelSource, Launch, Memory, Promise, Queue, QueueError, WORKSPACE_ALIGN};
use bytemuck::{Pod, Zeroable};

use crate::Error;
use crate::bundle::{self, Bundle};
use crate::cache::{DEFAULT_LIMIT, DiskCache};
use crate::cuda::{CudaDevice, CudaQueue, Strided, probe_devices, with_slice, with_slice_mut};
use crate::locate::{HIDE_VARIABLE, Library};
use crate::nvrtc::Nvrtc;
use crate::residency::Breach;
use crate::store::KernelStore;

/// What a check measured or saw; what is wrong.
pub type Outcome = Result<String, String>;

/// A name and what it checks.
pub type Check = (&'static str, fn() -> Outcome);

/// Most host time of one launch, in microseconds.
const LAUNCH_LIMIT_US: f64 = 5.0;
/// Long enough for a queue that does not wait to overtake: about 10 ms.
const SLOW: u32 = 20_000_000;
/// Tells a child process which bundle to use.
const CHILD_VARIABLE: &str = "BATCHLAS_SELFTEST_BUNDLE";

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-kernels/src/cuda/selftest.cu", text: include_str!("selftest.cu") };
static PLANTS: KernelSource =
    KernelSource { name: "batchlas-kernels/src/probe/plants.cu", text: include_str!("../probe/plants.cu") };

/// Every check.
pub fn all() -> &'static [Check] {
    &[
        ("devices are reported", devices_are_reported),
        ("the driver agrees with the architecture's table", the_driver_agrees_with_the_table),
        ("launch and read back", launch_and_read_back),
        ("the whole budget of shared memory", the_whole_shared_budget),
        ("an upload leaves its source free", an_upload_leaves_its_source_free),
        ("events order two queues", events_order_two_queues),
        ("memory is freed in stream order", memory_is_freed_in_stream_order),
        ("raw streams", raw_streams),
        ("arrays of cudarc", arrays_of_cudarc),
        ("threads share a queue", threads_share_a_queue),
        ("graph replay equals direct launches", graph_replay_equals_direct_launches),
        ("what a capture cannot hold is refused", what_a_capture_cannot_hold_is_refused),
        ("prepare compiles in parallel", prepare_compiles_in_parallel),
        ("a refusal is kept", a_refusal_is_kept),
        ("host time of a launch", host_time_of_a_launch),
        ("the largest grid, and one more", the_largest_grid_and_one_more),
        ("wrong launches are refused", wrong_launches_are_refused),
        ("broken promises are refused", broken_promises_are_refused),
        ("memory that the device has not", memory_that_the_device_has_not),
        ("a corrupt cache entry, and no cache", a_corrupt_cache_entry_and_no_cache),
        ("a bundle without the compiler", a_bundle_without_the_compiler),
    ]
}

/// In a process that a check started, the rest of that check; `None` in any other. The program reports it, exits with
/// failure on an error, and does nothing else.
pub fn child() -> Option<Outcome> {
    env::var_os(CHILD_VARIABLE).map(|path| without_the_compiler(Path::new(&path)))
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Args {
    data: u64,
    count: u64,
    value: u32,
    cycles: u32,
}

fn kernel(name: &str, threads: u32, max_dynamic_shared: u32) -> Kernel {
    let promise = Promise { threads, min_blocks: 1, max_dynamic_shared };
    Kernel { source: &SOURCE, entry: format!("selftest::{name}<{threads}>"), promise }
}

fn affine() -> Kernel {
    kernel("affine", 128, 0)
}

fn text(error: impl Display) -> String {
    error.to_string()
}

fn demand(condition: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(what()) }
}

/// The error that must come, whose message must hold `parts`.
fn refusal<T>(what: &str, result: Result<T, impl Display>, parts: &[&str]) -> Outcome {
    let message = match result {
        Ok(_) => return Err(format!("{what} was accepted")),
        Err(error) => error.to_string(),
    };
    match parts.iter().find(|part| !message.contains(**part)) {
        Some(part) => Err(format!("{what}: `{part}` is absent from: {message}")),
        None => Ok(message),
    }
}

fn queue() -> Result<CudaQueue, String> {
    CudaQueue::new(0).map_err(text)
}

/// A queue whose kernels come from nowhere but `store`.
fn queue_over(store: KernelStore) -> Result<CudaQueue, String> {
    CudaQueue::on(CudaDevice::open(0, Arc::new(store)).map_err(text)?).map_err(text)
}

fn filled(queue: &CudaQueue, data: &[u32]) -> Result<Memory, String> {
    let mut memory = queue.alloc(size_of_val(data)).map_err(text)?;
    queue.write(&mut memory, 0, bytemuck::cast_slice(data)).map_err(text)?;
    Ok(memory)
}

fn contents(queue: &CudaQueue, memory: &Memory) -> Result<Vec<u32>, String> {
    let mut data = vec![0_u32; memory.bytes() / 4];
    queue.read(memory, 0, bytemuck::cast_slice_mut(&mut data)).map_err(text)?;
    Ok(data)
}

/// Enqueues `kernel` over all elements of `memory`.
fn enqueue(
    queue: &CudaQueue,
    kernel: &Kernel,
    memory: &Memory,
    value: u32,
    cycles: u32,
) -> Result<(), QueueError> {
    let count = memory.bytes() as u64 / 4;
    let args = Args { data: memory.address(), count, value, cycles };
    let grid = count.div_ceil(kernel.promise.threads.into()).max(1) as u32;
    let launch = Launch { kernel, grid, dynamic_shared: 0, args: bytemuck::bytes_of(&args) };
    // SAFETY: the arguments are those of `affine`, over memory that is freed in stream order.
    unsafe { queue.launch(&launch) }
}

fn devices_are_reported() -> Outcome {
    let report = probe_devices();
    demand(report.devices.iter().any(Result::is_ok), || format!("no usable device:\n{report}"))?;
    Ok(format!("\n{report}"))
}

fn the_driver_agrees_with_the_table() -> Outcome {
    let device = CudaDevice::shared(0).map_err(text)?;
    let (seen, table) = (device.multiprocessor(), device.arch().multiprocessor());
    demand(table.is_none_or(|table| table == seen), || format!("driver {seen:?}, table {table:?}"))?;
    let block = device.device().slm_budget + batchlas_resident::budget::RESERVE;
    let left = (seen.shared - seen.shared_reserved) as usize;
    demand(block == left, || format!("a block may have {block} B, but the gate admits {left}"))?;
    let registers =
        batchlas_resident::registers::SUB_PARTITIONS * batchlas_resident::registers::SUB_PARTITION_REGISTERS;
    demand(device.device().registers as usize == registers, || {
        format!("{} registers, {registers} expected", device.device().registers)
    })?;
    Ok(format!("{:?}, {seen:?}", device.device()))
}

fn launch_and_read_back() -> Outcome {
    let queue = queue()?;
    for count in [1, 127, 128, 129, 100_001] {
        let data: Vec<u32> = (0..count).map(|i| i * 7 + 1).collect();
        let memory = filled(&queue, &data)?;
        demand(memory.address().is_multiple_of(WORKSPACE_ALIGN as u64), || {
            format!("{memory:?} is misaligned")
        })?;
        enqueue(&queue, &affine(), &memory, 5, 0).map_err(text)?;
        let expected: Vec<u32> = data.iter().map(|x| x.wrapping_mul(3).wrapping_add(5)).collect();
        demand(contents(&queue, &memory)? == expected, || format!("{count} elements are wrong"))?;
    }
    let mut memory = filled(&queue, &[1, 2, 3, 4])?;
    queue.write(&mut memory, 4, &9_u32.to_ne_bytes()).map_err(text)?;
    // SAFETY: inside the memory.
    unsafe { queue.zero(memory.address() + 8, 4) }.map_err(text)?;
    let data = contents(&queue, &memory)?;
    demand(data == [1, 9, 0, 4], || format!("writes and zeros: {data:?}"))?;
    let mut empty = queue.alloc(0).map_err(text)?;
    queue.write(&mut empty, 0, &[]).map_err(text)?;
    refusal("a write past the end", queue.write(&mut memory, 13, &[0; 4]), &["offset 13", "16 bytes"])?;
    Ok("1 to 100,001 elements".into())
}

fn the_whole_shared_budget() -> Outcome {
    let queue = queue()?;
    let bytes = queue.device().slm_budget as u32 / 4 * 4;
    let kernel = kernel("reverse", 256, bytes);
    let data: Vec<u32> = (0..bytes / 4).collect();
    let memory = filled(&queue, &data)?;
    let args = Args { data: memory.address(), count: data.len() as u64, value: 0, cycles: 0 };
    let launch = Launch { kernel: &kernel, grid: 1, dynamic_shared: bytes, args: bytemuck::bytes_of(&args) };
    // SAFETY: the arguments are those of `reverse`, over live memory.
    unsafe { queue.launch(&launch) }.map_err(text)?;
    let reversed = contents(&queue, &memory)?;
    demand(reversed.iter().rev().eq(&data), || "the data is not reversed".into())?;
    Ok(format!("{bytes} B"))
}

fn an_upload_leaves_its_source_free() -> Outcome {
    let queue = queue()?;
    let slow = filled(&queue, &[0])?;
    let mut seen = Vec::new();
    for count in [16_usize, 1 << 14, 1 << 24] {
        let mut source = vec![1_u32; count];
        let mut memory = queue.alloc(4 * count).map_err(text)?;
        // The copy cannot start before this is done.
        enqueue(&queue, &affine(), &slow, 0, SLOW).map_err(text)?;
        queue.write(&mut memory, 0, bytemuck::cast_slice(&source)).map_err(text)?;
        source.fill(2);
        demand(contents(&queue, &memory)?.iter().all(|&x| x == 1), || {
            format!("{count} elements: the device saw what was written after the call")
        })?;
        seen.push(count * 4);
    }
    Ok(format!("{seen:?} bytes"))
}

fn events_order_two_queues() -> Outcome {
    let (first, second) = (queue()?, queue()?);
    let memory = filled(&first, &[1])?;
    first.prepare(&[affine()]).map_err(text)?;
    first.synchronize().map_err(text)?;
    for round in 0..5 {
        let before = contents(&first, &memory)?[0];
        enqueue(&first, &affine(), &memory, 1, SLOW).map_err(text)?;
        second.wait(&first.record().map_err(text)?).map_err(text)?;
        enqueue(&second, &affine(), &memory, 2, 0).map_err(text)?;
        first.wait(&second.record().map_err(text)?).map_err(text)?;
        first.fence().map_err(text)?;
        let (seen, expected) = (contents(&first, &memory)?[0], (before * 3 + 1) * 3 + 2);
        demand(seen == expected, || format!("round {round}: {seen}, where {expected} keeps the order"))?;
    }
    let foreign = batchlas_core::Event(Box::new(0_u8));
    refusal("an event of another kind", first.wait(&foreign), &["event"])?;
    Ok("5 rounds both ways".into())
}

fn memory_is_freed_in_stream_order() -> Outcome {
    let queue = queue()?;
    const ELEMENTS: usize = 1 << 18;
    let mut reused = 0;
    for round in 0..50_u32 {
        let dropped = filled(&queue, &vec![round; ELEMENTS])?;
        enqueue(&queue, &affine(), &dropped, 1, SLOW / 20).map_err(text)?;
        let address = dropped.address();
        drop(dropped);
        // Likely the same memory: the kernel above must be done with it before it is written.
        let kept = filled(&queue, &vec![7; ELEMENTS])?;
        reused += usize::from(kept.address() == address);
        demand(contents(&queue, &kept)?.iter().all(|&x| x == 7), || {
            format!("round {round}: freed memory was written after its reuse")
        })?;
    }
    let outlives = filled(&queue, &[1])?;
    drop(queue);
    drop(outlives);
    Ok(format!("{reused} of 50 allocations reused the address freed before"))
}

/// Zeros the second of three items through a writable view, and finds a slice that is one element short.
fn arrays_of_cudarc() -> Outcome {
    // cudarc panics where there is no driver; ours says so.
    drop(CudaQueue::new(0).map_err(text)?);
    let context = cudarc::driver::CudaContext::new(0).map_err(text)?;
    let stream = context.new_stream().map_err(text)?;
    let mut slice = stream.clone_htod(&[1f32; 12]).map_err(text)?;
    // SAFETY: the stream lives until the end of this function, longer than the queue.
    let queue = unsafe { CudaQueue::from_raw_stream(0, stream.cu_stream().cast()) }.map_err(text)?;
    let three = Strided { rows: 2, cols: 2, ld: 2, stride: 4, batch: 3 };
    with_slice_mut(&mut slice, three, |view| {
        let second = view.items(1..2)?;
        // SAFETY: the item is four elements of the slice, which the view borrows exclusively.
        unsafe { queue.zero(second.address().0, 4 * size_of::<f32>())? };
        Ok(())
    })
    .map_err(text)?;
    let after = stream.clone_dtoh(&slice).map_err(text)?;
    if after != [1., 1., 1., 1., 0., 0., 0., 0., 1., 1., 1., 1.] {
        return Err(format!("{after:?}"));
    }
    let four = Strided { batch: 4, ..three };
    match with_slice(&slice, four, |_| Ok(())) {
        Err(error) if error.to_string().contains("12 elements") => Ok("one item zeroed, four refused".into()),
        other => Err(format!("four items of four elements in twelve: {other:?}")),
    }
}

fn raw_streams() -> Outcome {
    let owner = queue()?;
    for raw in [owner.raw_stream(), std::ptr::null_mut()] {
        // SAFETY: the owner's stream outlives the queue; null is the legacy default stream.
        let queue = unsafe { CudaQueue::from_raw_stream(0, raw) }.map_err(text)?;
        demand(queue.raw_stream() == raw && queue.ordinal() == 0, || "another stream".into())?;
        let memory = filled(&queue, &[2])?;
        enqueue(&queue, &affine(), &memory, 1, 0).map_err(text)?;
        demand(contents(&queue, &memory)? == [7], || "a wrong result".into())?;
    }
    // It is still there.
    owner.synchronize().map_err(text)?;
    Ok("a stream and the default stream".into())
}

fn threads_share_a_queue() -> Outcome {
    let queue = queue()?;
    let memory = filled(&queue, &[0])?;
    // Adding 0 to 0 a thousand times from 8 threads, each of which has no current context at first.
    std::thread::scope(|scope| {
        let spawn = |_| {
            scope.spawn(|| {
                (0..125).try_for_each(|_| enqueue(&queue, &affine(), &memory, 0, 0)).map_err(text)?;
                let own = filled(&queue, &[3])?;
                enqueue(&queue, &affine(), &own, 1, 0).map_err(text)?;
                demand(contents(&queue, &own)? == [10], || "a wrong result".into())
            })
        };
        let threads: Vec<_> = (0..8).map(spawn).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })?;
    Ok("8 threads".into())
}

fn graph_replay_equals_direct_launches() -> Outcome {
    let queue = queue()?;
    let kernels = [affine(), kernel("affine", 64, 0)];
    queue.prepare(&kernels).map_err(text)?;
    let data: Vec<u32> = (0..10_000).collect();
    let (direct, replayed) = (filled(&queue, &data)?, filled(&queue, &data)?);
    let dropped = filled(&queue, &data)?;
    let work = |memory: &Memory| {
        enqueue(&queue, &kernels[0], memory, 1, 1000)?;
        enqueue(&queue, &kernels[1], memory, 2, 0)?;
        // SAFETY: inside the memory.
        unsafe { queue.zero(memory.address() + 400, 40) }?;
        enqueue(&queue, &kernels[0], memory, 3, 0)
    };
    let graph = queue
        .capture(|| {
            drop(dropped);
            Ok(work(&replayed)?)
        })
        .map_err(text)?;
    demand(graph.nodes() == 4, || format!("{} nodes, where 4 were captured", graph.nodes()))?;
    demand(contents(&queue, &replayed)? == data, || "capturing ran the work".into())?;
    let start = Instant::now();
    for round in 0..10 {
        work(&direct).map_err(text)?;
        // SAFETY: the memory is live.
        unsafe { graph.launch() }.map_err(text)?;
        demand(contents(&queue, &direct)? == contents(&queue, &replayed)?, || {
            format!("replay {round} differs from the direct launches")
        })?;
    }
    let elapsed = start.elapsed();
    drop(graph);
    queue.synchronize().map_err(text)?;
    Ok(format!("4 nodes, 10 replays, bits equal, {:.1} ms", elapsed.as_secs_f64() * 1e3))
}

fn what_a_capture_cannot_hold_is_refused() -> Outcome {
    let queue = queue()?;
    let mut memory = filled(&queue, &[1, 2])?;
    // A kernel that nothing else here uses.
    let unprepared = kernel("affine", 992, 0);
    let during = |work: &mut dyn FnMut() -> Result<(), QueueError>| queue.capture(|| Ok(work()?));
    let launch = during(&mut || enqueue(&queue, &unprepared, &memory, 1, 0));
    refusal("an unprepared kernel", launch, &["affine<992>", "prepare it before"])?;
    let alloc = during(&mut || queue.alloc(8).map(drop));
    refusal("an allocation", alloc, &["capture", "lend"])?;
    let read = during(&mut || queue.read(&memory, 0, &mut [0; 4]));
    refusal("a read", read, &["capture"])?;
    let write = queue.capture(|| Ok(queue.write(&mut memory, 0, &[0; 4])?));
    refusal("a write", write, &["capture"])?;
    let nested = queue.capture(|| queue.capture(|| Ok(())).map(drop));
    refusal("a nested capture", nested, &["end the running one"])?;
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        queue.capture(|| -> batchlas_core::Result<()> { panic!("planted: work that panics in a capture") })
    }));
    demand(panicked.is_err(), || "the panic was swallowed".into())?;
    // Nothing is left capturing, and the memory is untouched.
    demand(contents(&queue, &memory)? == [1, 2], || "the memory changed".into())?;
    Ok("kernel, allocation, read, write, nesting, panic".into())
}

fn prepare_compiles_in_parallel() -> Outcome {
    let queue = queue_over(KernelStore::default())?;
    let kernels: Vec<Kernel> = (1..=16).map(|i| kernel("affine", 32 * i + 512, 0)).collect();
    let start = Instant::now();
    queue.prepare(&kernels[..1]).map_err(text)?;
    let one = start.elapsed().as_secs_f64();
    let start = Instant::now();
    // The last is beyond what a block may have, and is refused; the others are loaded all the same.
    let mut with_bad = kernels.clone();
    with_bad.insert(3, kernel("affine", 1056, 0));
    refusal("1056 threads", queue.prepare(&with_bad), &["affine<1056>"])?;
    let rest = start.elapsed().as_secs_f64();
    let memory = filled(&queue, &[1])?;
    queue
        .capture(|| kernels.iter().try_for_each(|kernel| Ok(enqueue(&queue, kernel, &memory, 0, 0)?)))
        .map_err(text)?;
    Ok(format!("1 kernel in {one:.2} s, 15 more in {rest:.2} s"))
}

fn a_refusal_is_kept() -> Outcome {
    const TIMES: u32 = 1000;
    let queue = queue_over(KernelStore::default())?;
    let (bad, memory) = (kernel("affine", 1056, 0), filled(&queue, &[1])?);
    refusal("1056 threads", enqueue(&queue, &bad, &memory, 0, 0), &["affine<1056>"])?;
    let start = Instant::now();
    for _ in 0..TIMES {
        refusal("1056 threads again", enqueue(&queue, &bad, &memory, 0, 0), &["affine<1056>"])?;
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES);
    let told = format!("{each:.1} us to refuse a kernel again");
    // Loading it again takes hundreds of microseconds.
    if each < 100.0 { Ok(told) } else { Err(told) }
}

fn host_time_of_a_launch() -> Outcome {
    let queue = queue()?;
    // One of many, as in a process that has used the library for a while.
    let others: Vec<Kernel> = (1..=16).map(|i| kernel("affine", 32 * i, 0)).collect();
    queue.prepare(&others).map_err(text)?;
    let kernel = affine();
    let memory = filled(&queue, &[1])?;
    enqueue(&queue, &kernel, &memory, 0, 0).map_err(text)?;
    queue.synchronize().map_err(text)?;
    // The driver blocks the host when about a thousand launches wait: time groups that fit, and drain between.
    let mut groups = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        for _ in 0..500 {
            enqueue(&queue, &kernel, &memory, 0, 0).map_err(text)?;
        }
        groups.push(start.elapsed().as_secs_f64() * 1e6 / 500.0);
        queue.synchronize().map_err(text)?;
    }
    groups.sort_by(f64::total_cmp);
    let found = format!("{:.2} us, median of 20 x 500 ({:.2} to {:.2})", groups[10], groups[0], groups[19]);
    demand(groups[10] < LAUNCH_LIMIT_US, || format!("{found}; the limit is {LAUNCH_LIMIT_US}"))?;
    Ok(found)
}

fn the_largest_grid_and_one_more() -> Outcome {
    let queue = queue()?;
    let kernel = kernel("affine", 32, 0);
    let memory = filled(&queue, &[1])?;
    let args = Args { data: memory.address(), count: 1, value: 4, cycles: 0 };
    let launch = |grid| {
        let launch = Launch { kernel: &kernel, grid, dynamic_shared: 0, args: bytemuck::bytes_of(&args) };
        // SAFETY: the arguments are those of `affine`, over live memory; only its first thread writes.
        unsafe { queue.launch(&launch) }
    };
    let start = Instant::now();
    launch((1 << 31) - 1).map_err(text)?;
    demand(contents(&queue, &memory)? == [7], || "a wrong result".into())?;
    let seconds = start.elapsed().as_secs_f64();
    let message = refusal("2^31 work-groups", launch(1 << 31), &["2147483648", "2147483647"])?;
    refusal("no work-group", launch(0), &["grid of 0"])?;
    Ok(format!("2^31 - 1 work-groups in {seconds:.2} s; then: {message}"))
}

fn wrong_launches_are_refused() -> Outcome {
    let queue = queue()?;
    let kernel = affine();
    let launch = |kernel: &Kernel, dynamic_shared, args: &[u8]| {
        let launch = Launch { kernel, grid: 1, dynamic_shared, args };
        // SAFETY: refused before anything is enqueued; if it were not, no element is counted, so none is reached.
        unsafe { queue.launch(&launch) }
    };
    refusal("8 bytes of arguments", launch(&kernel, 0, &[0; 8]), &["8 B", "24"])?;
    refusal("unpromised shared memory", launch(&kernel, 16, &[0; 24]), &["16 B", "at most 0"])?;
    let two = self::kernel("two_parameters", 32, 0);
    refusal("two parameters", launch(&two, 0, &[0; 24]), &["two_parameters", "takes 2 parameters"])?;
    let absent = self::kernel("absent", 32, 0);
    refusal("an absent kernel", launch(&absent, 0, &[0; 24]), &["selftest::absent<32>", "selftest.cu"])?;
    Ok("argument size, shared memory, parameters, name".into())
}

fn broken_promises_are_refused() -> Outcome {
    let queue = queue()?;
    let refuse = |entry: &str, threads, min_blocks, is_it: fn(&Breach) -> bool| {
        let promise = Promise { threads, min_blocks, max_dynamic_shared: 0 };
        let kernel = Kernel { source: &PLANTS, entry: entry.into(), promise };
        let launch = Launch { kernel: &kernel, grid: 1, dynamic_shared: 0, args: &[0; 8] };
        // SAFETY: refused before anything is enqueued.
        let Err(error) = (unsafe { queue.launch(&launch) }) else {
            return Err(format!("`{entry}` was launched"));
        };
        match Error::behind(&error) {
            Some(Error::Residency(residency)) if residency.breaches.iter().any(is_it) => {
                Ok(error.to_string())
            }
            _ => Err(format!("`{entry}`: another error than its breach: {error}")),
        }
    };
    refuse("plants::framed<64>", 32, 1, |b| matches!(b, Breach::Frame { .. }))?;
    refuse("plants::oversize<9000>", 32, 1, |b| matches!(b, Breach::Code { .. }))?;
    refuse("plants::clean<128>", 128, 500, |b| matches!(b, Breach::Registers { .. }))?;
    refuse("plants::clean<64>", 128, 1, |b| matches!(b, Breach::LaunchBound { .. }))?;
    refuse("plants::spiller<96>", 1024, 1, |b| matches!(b, Breach::Spill { .. }))
}

fn memory_that_the_device_has_not() -> Outcome {
    let queue = queue()?;
    match queue.alloc(1 << 46) {
        Err(error @ QueueError::OutOfMemory { .. }) => {
            // The queue still works.
            demand(contents(&queue, &filled(&queue, &[1])?)? == [1], || "the queue is broken".into())?;
            Ok(error.to_string())
        }
        Err(other) => Err(format!("another error than out of memory: {other}")),
        Ok(_) => Err("64 TiB were allocated".into()),
    }
}

/// A directory that is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Scratch, String> {
        let path = env::temp_dir().join(format!("batchlas-selftest-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).map_err(text)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left behind, it is a few kilobytes among the temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs one kernel on a queue over `store`.
fn run_over(store: KernelStore) -> Result<(), String> {
    let queue = queue_over(store)?;
    let memory = filled(&queue, &[5])?;
    enqueue(&queue, &affine(), &memory, 1, 0).map_err(text)?;
    demand(contents(&queue, &memory)? == [16], || "a wrong result".into())
}

fn a_corrupt_cache_entry_and_no_cache() -> Outcome {
    let scratch = Scratch::new("cache")?;
    let store = || KernelStore::new(vec![], Some(DiskCache::new(&scratch.0, DEFAULT_LIMIT)));
    let entries = || {
        let files = fs::read_dir(&scratch.0).map_err(text)?;
        files.map(|file| Ok(file.map_err(text)?.path())).collect::<Result<Vec<PathBuf>, String>>()
    };
    run_over(store())?;
    let found = entries()?;
    let [entry] = &found[..] else { return Err(format!("one entry expected: {found:?}")) };
    let good = fs::read(entry).map_err(text)?;
    let mut corrupt = good.clone();
    let middle = corrupt.len() / 2;
    corrupt[middle] ^= 0x55;
    fs::write(entry, corrupt).map_err(text)?;
    run_over(store())?;
    demand(fs::read(entry).map_err(text)? == good, || "the entry was not made again".into())?;
    run_over(KernelStore::new(vec![], Some(DiskCache::new("/dev/null/cache", DEFAULT_LIMIT))))?;
    Ok("dropped and made again; a cache that cannot be written changes nothing".into())
}

fn a_bundle_without_the_compiler() -> Outcome {
    if env::var_os(CHILD_VARIABLE).is_some() {
        return Err("the program does not call selftest::child first".into());
    }
    let scratch = Scratch::new("bundle")?;
    let path = scratch.0.join("kernels.bundle");
    let arch = CudaDevice::shared(0).map_err(text)?.arch();
    let bytes = bundle::compile([affine()], arch, 1, |_, _| ()).map_err(text)?.bytes;
    bundle::write(&path, &bytes).map_err(text)?;
    let output = Command::new(env::current_exe().map_err(text)?)
        .args(env::args_os().skip(1))
        .env(CHILD_VARIABLE, &path)
        .env(HIDE_VARIABLE, Library::Nvrtc.name())
        .output()
        .map_err(text)?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout).trim(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    demand(output.status.success(), || format!("the child failed ({}): {said}", output.status))?;
    Ok(format!("bundle of {} B; the child: {said}", bytes.len()))
}

/// In the child, where NVRTC is hidden.
fn without_the_compiler(path: &Path) -> Outcome {
    demand(Nvrtc::load().is_err(), || "the compiler is not hidden".into())?;
    let open = || Bundle::open(path).map_err(text);
    run_over(KernelStore::new(vec![open()?], None))?;
    let run_other = |store| {
        let queue = queue_over(store)?;
        let memory = filled(&queue, &[5])?;
        enqueue(&queue, &kernel("affine", 64, 0), &memory, 1, 0).map_err(text)
    };
    let file = path.display().to_string();
    let bundled = run_other(KernelStore::new(vec![open()?], None));
    refusal("a kernel outside the bundle", bundled, &["affine<64>", &file, "hidden by"])?;
    let none = run_other(KernelStore::default());
    refusal("no bundle and no compiler", none, &["libnvrtc.so.13 was not found", "pip install", "hidden by"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::residency::admit;

    /// What can be known of the checks without a device: their kernels compile, and keep or break their promises as
    /// the checks expect.
    #[test]
    fn the_kernels_of_the_checks_compile() {
        let store = KernelStore::default();
        let arch: crate::Arch = "sm_90".parse().unwrap();
        let verdict = |kernel: &Kernel| {
            let image = store.kernel(kernel, arch).unwrap();
            admit(&kernel.entry, &kernel.promise, &image.usage, image.code, &arch.multiprocessor().unwrap())
        };
        let budget = 227 * 1024 - batchlas_resident::budget::RESERVE as u32;
        for kernel in [
            affine(),
            kernel("affine", 992, 0),
            kernel("reverse", 256, budget),
            kernel("two_parameters", 32, 0),
        ] {
            verdict(&kernel).unwrap();
        }
        let breaches = verdict(&kernel("affine", 1056, 0)).unwrap_err().breaches;
        assert!(breaches.contains(&Breach::Threads { threads: 1056 }), "{breaches:?}");
        assert_eq!(size_of::<Args>(), 24);
    }

    #[test]
    fn a_refusal_must_come_and_name_its_numbers() {
        assert!(refusal("it", Ok::<_, String>(()), &[]).unwrap_err().contains("was accepted"));
        assert!(refusal("it", Err::<(), _>("7 B"), &["8"]).unwrap_err().contains("`8` is absent"));
        assert_eq!(refusal("it", Err::<(), _>("7 B of 8"), &["7", "8"]).unwrap(), "7 B of 8");
    }

    #[test]
    fn names_are_distinct() {
        let names: std::collections::HashSet<&str> = all().iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), all().len());
    }
}
