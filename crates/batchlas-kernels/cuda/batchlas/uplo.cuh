// The one option that device code shares across operations.
#pragma once

namespace batchlas {

/// The triangle of A that is stored.
enum class Uplo { Lower, Upper };

} // namespace batchlas
