//! Spreads independent pieces of work over threads: compiles, which take seconds each and share nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// `work` of each item, on at most `threads` threads, in the order of the items. Threads take the next item when they
/// are done with one, so a long piece holds nobody up.
pub(crate) fn map<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let position = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(position) else { break };
                    let result = work(position, item);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((position, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(position, _)| *position);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Threads that compiles may use: one per available core.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    #[test]
    fn results_keep_the_order_of_the_items() {
        let items: Vec<u64> = (0..20).rev().collect();
        let results = super::map(&items, 3, |position, item| {
            std::thread::sleep(Duration::from_millis(*item % 4));
            (position, *item)
        });
        assert_eq!(results, items.iter().copied().enumerate().collect::<Vec<_>>());
        assert!(super::map(&[] as &[u8], 4, |_, _| ()).is_empty());
        assert_eq!(super::map(&[7], 0, |_, item| *item), [7]);
    }

    #[test]
    fn the_threads_run_at_once() {
        // Each piece waits for the other: a single thread would never return.
        let both = Barrier::new(2);
        assert_eq!(
            super::map(&[1, 2], 2, |_, item| {
                both.wait();
                *item
            }),
            [1, 2]
        );
    }
}
