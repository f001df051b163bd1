//! Vendor arms of batchlas: faer on a CPU, cuBLAS and cuSOLVER on a GPU.
