//! Kernel selection of batchlas: spellings, tuned tables, pins and the trace of what ran.
