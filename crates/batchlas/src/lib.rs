//! Batched dense linear algebra: the facade that wires operations, queues and vendor libraries.
