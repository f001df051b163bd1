// An operand of a kernel as data: one kernel serves strided, shared and pointer-array batches, where that choice is not worth an instantiation.
#pragma once
#include <batchlas/arch.cuh>

namespace batchlas {

/// A batch of matrices. All distances in bytes, multiples of the size of an element.
struct Operand {
  /// Value of `stride` that says that `address` is that of a table of item addresses.
  static constexpr u64 TABLE = ~0ull;
  u64 address;
  /// From an item to the next, or TABLE.
  u64 stride;
  /// Added to the addresses of a table.
  u64 offset;
  /// From a column to the next.
  u64 ld;

  /// The address of item `i`; the table is read only if `live`.
  BATCHLAS_DEVICE u64 item(u64 i, bool live) const {
    return stride == TABLE ? arch::load_u64(live, address + i * sizeof(u64), 0) + offset : address + i * stride;
  }
};

} // namespace batchlas
