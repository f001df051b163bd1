//! Residency arithmetic of batchlas: shared-memory budgets, capacity walks, packing and register rules.
