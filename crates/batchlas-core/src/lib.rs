//! Contracts of batchlas: scalars, batched views, devices, queues, workspaces, seams and errors.
