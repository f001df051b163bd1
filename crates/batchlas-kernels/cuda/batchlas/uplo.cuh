// The triangle of a Hermitian or triangular matrix that is stored.
#pragma once

namespace batchlas {

enum class Uplo { Lower, Upper };

} // namespace batchlas
