// Fixed-width integers under short names. NVRTC finds no <cstdint>, and a 64-bit offset must not depend on what
// `long` means on the host.
#pragma once

namespace batchlas {

using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

static_assert(sizeof(i32) == 4 && sizeof(u32) == 4, "32-bit integers");
static_assert(sizeof(i64) == 8 && sizeof(u64) == 8, "64-bit integers");

}  // namespace batchlas
