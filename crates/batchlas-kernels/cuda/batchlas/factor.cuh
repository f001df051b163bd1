// What a kernel that works on a batch of square matrices in place is told.
#pragma once
#include <batchlas/integers.cuh>

namespace batchlas {

/// The operands of a launch. Sizes in bytes are 64-bit; `ld_bytes` and `item_bytes` are multiples of the size of an element.
struct FactorArgs {
  /// Layout::Strided: address of item 0. Layout::Pointers: address of the table of item addresses. Aligned to an element (a table: to 8 bytes).
  u64 a;
  /// Bytes from a column to the next, at least n elements.
  u64 ld_bytes;
  /// Layout::Strided: bytes from an item to the next. Layout::Pointers: bytes from an address in the table to its item.
  u64 item_bytes;
  /// Number of items.
  u64 batch;
  /// Address of `batch` 32-bit integers, or 0 if the caller does not want them.
  u64 info;
  /// Order of the matrices.
  u64 n;
};

} // namespace batchlas
