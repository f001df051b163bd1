// The operands of a batch of definite systems A X = B, one parameter of every kernel that solves them.
#pragma once
#include <batchlas/operand.cuh>

namespace batchlas {

struct Systems {
  Operand a, b;
  /// Order and right-hand sides, both at least 1.
  u64 n, nrhs;
  /// Number of items.
  u64 batch;
  /// Address of the status of each item (32 bits), or 0 if there is none.
  u64 info;
};

} // namespace batchlas
