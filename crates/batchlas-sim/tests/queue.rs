//! The queue: kernels of a fixture through `Queue::launch`, transfers, and what goes wrong.

#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)]

use batchlas_core::{Buffer, CpuQueue, Kernel, KernelSource, Launch, Place, Promise, Queue};
use batchlas_sim::mutate::{Mutation, sites};
use batchlas_sim::{Compiled, DeviceConfig, FindingKind, Findings, SimQueue};
use std::error::Error;
use std::sync::Arc;

static SOURCE: KernelSource = KernelSource { name: "broken.cu", text: "" };

fn kernel(entry: &str) -> Kernel {
    Kernel {
        source: &SOURCE,
        entry: entry.into(),
        promise: Promise { threads: 64, min_blocks: 1, max_dynamic_shared: 0 },
    }
}

fn queue() -> SimQueue {
    let path = format!("{}/tests/ptx/broken.sm_90.ptx", env!("CARGO_MANIFEST_DIR"));
    let ptx = std::fs::read_to_string(path).unwrap();
    SimQueue::new("sm_90", DeviceConfig::default(), move |k| {
        Ok(Compiled { ptx: ptx.clone(), entry: k.entry.clone() })
    })
}

fn launch(queue: &SimQueue, kernel: &Kernel, a: &Buffer<i32>) -> batchlas_core::Result<()> {
    let args = [a.address().to_le_bytes().to_vec(), 64i32.to_le_bytes().to_vec()].concat();
    // SAFETY: the simulator checks every access.
    unsafe { queue.launch(&Launch { kernel, grid: 1, dynamic_shared: 0, args: &args }) }?;
    Ok(())
}

#[test]
fn a_clean_kernel_runs_and_a_finding_is_an_error() {
    let queue = queue();
    assert_eq!(queue.device().place, Place::Simulated(0));
    let a = Buffer::from_slice(&queue, &[1i32; 64]).unwrap();
    launch(&queue, &kernel("good_race"), &a).unwrap();
    assert_eq!(a.to_vec(&queue).unwrap(), [64; 64]);
    let error = launch(&queue, &kernel("bad_race"), &a).unwrap_err();
    let text = format!("{error} {:?}", error.source().map(ToString::to_string));
    assert!(text.contains("data race in bad_race"), "{text}");
    let reports = queue.take_reports();
    assert_eq!(
        reports.iter().map(|(k, r)| (k.as_str(), r.is_clean())).collect::<Vec<_>>(),
        [("good_race", true), ("bad_race", false)]
    );
    assert!(queue.take_reports().is_empty());
}

#[test]
fn a_broken_module_can_be_installed() {
    let queue = queue();
    let a = Buffer::from_slice(&queue, &[1i32; 64]).unwrap();
    let kernel = kernel("good_race");
    let (module, entry) = queue.module(&kernel).unwrap();
    let target = sites(&module, module.entry(&entry).unwrap())
        .into_iter()
        .find(|t| t.mutation == Mutation::Delete)
        .unwrap();
    queue.install(&kernel, Arc::new(module.mutated(&entry, &target).unwrap()), entry.clone());
    assert!(launch(&queue, &kernel, &a).is_err());
    assert!(queue.take_reports()[0].1.has(FindingKind::Race));
    queue.install(&kernel, module, entry);
    launch(&queue, &kernel, &a).unwrap();
}

#[test]
fn memory_is_checked_freed_and_of_one_queue() {
    let queue = queue();
    let mut a = Buffer::from_slice(&queue, &[1i32; 64]).unwrap();
    assert_eq!(a.address() % batchlas_core::WORKSPACE_ALIGN as u64, 0);
    assert!(a.write(&queue, 60, &[0; 5]).is_err());
    let other = self::queue();
    // Memory at the same address of another device is not this memory.
    let twin = Buffer::from_slice(&other, &[1i32; 64]).unwrap();
    assert_eq!(twin.address(), a.address());
    assert!(a.write(&other, 0, &[0]).is_err());
    let b = Buffer::<i32>::new(&queue, 64).unwrap();
    a.copy_from(&queue, &b).unwrap();
    let initialised = queue.with_device(|d| d.is_initialised(a.address(), 4)).unwrap();
    assert!(!initialised, "a copy of nothing is nothing");
    // SAFETY: the range is the buffer's.
    unsafe { queue.zero(a.address(), 256) }.unwrap();
    assert_eq!(a.to_vec(&queue).unwrap(), [0; 64]);
    let address = a.address();
    drop(a);
    // SAFETY: the simulator refuses what is not its memory.
    assert!(unsafe { queue.zero(address, 4) }.is_err());
    assert!(queue.wait(&CpuQueue::new(1).unwrap().record().unwrap()).is_err());
    queue.wait(&queue.record().unwrap()).unwrap();
}

#[test]
fn a_buffer_ends_where_it_ends_on_both_sides() {
    let queue = queue();
    // The kernel writes elements 1 to 63 of 64: one step to either side leaves the buffer.
    let neighbours: Vec<_> = (0..3).map(|_| Buffer::from_slice(&queue, &[1i32; 64]).unwrap()).collect();
    for (shift, clean) in [(0i64, true), (4, false), (-4, true), (-8, false)] {
        let address = neighbours[1].address().wrapping_add_signed(shift);
        let args = [address.to_le_bytes().to_vec(), 64i32.to_le_bytes().to_vec()].concat();
        let kernel = kernel("good_bounds");
        // SAFETY: the simulator checks every access.
        let result =
            unsafe { queue.launch(&Launch { kernel: &kernel, grid: 1, dynamic_shared: 0, args: &args }) };
        assert_eq!(result.is_ok(), clean, "{shift}");
        let (_, report) = queue.take_reports().remove(0);
        let outside = if clean { vec![] } else { vec![FindingKind::OutOfBounds] };
        assert_eq!(report.kinds(), outside, "{shift}");
    }
}

#[test]
fn more_shared_memory_than_promised_is_refused() {
    let queue = queue();
    let a = Buffer::from_slice(&queue, &[1i32; 64]).unwrap();
    let args = [a.address().to_le_bytes().to_vec(), 64i32.to_le_bytes().to_vec()].concat();
    let kernel = kernel("good_race");
    // SAFETY: the simulator checks every access.
    let result =
        unsafe { queue.launch(&Launch { kernel: &kernel, grid: 1, dynamic_shared: 4, args: &args }) };
    assert!(result.unwrap_err().source().unwrap().to_string().contains("promises at most 0"));
    assert!(!Findings(Default::default()).to_string().is_empty());
}
