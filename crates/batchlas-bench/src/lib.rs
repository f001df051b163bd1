//! Conformance corpus and measurement harness of batchlas.
