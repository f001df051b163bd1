//! Library handles and every library call.
//!
//! A handle is made once per process and device and never destroyed: destroying one synchronises the device, and needs a
//! context that a dropping thread may not have. It carries the stream of the call in progress, so it sits behind a lock
//! that is held while a call is enqueued, which is microseconds.
//!
//! Settings: host pointer mode, no atomics, default math. Default math keeps at least the mantissa and exponent bits of
//! the type: no TF32 and no emulation unless the process's environment asks the library for it.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use batchlas_core::{Diag, Dtype, Scalar, Side, Trans, Uplo};
use cudarc::{cublas::sys as blas, cusolver::sys as solver};

use super::library::{Failure, Status, Vendor};
use super::stream::Stream;

/// A handle, which any one thread at a time may use.
struct Handle<H>(H);

// SAFETY: both libraries allow a handle to be used from any thread, one at a time, with its context current.
unsafe impl Send for Handle<blas::cublasHandle_t> {}
// SAFETY: as above.
unsafe impl Send for Handle<solver::cusolverDnHandle_t> {}

type Registry<H> = Mutex<BTreeMap<u32, &'static Mutex<Handle<H>>>>;

static BLAS: Registry<blas::cublasHandle_t> = Mutex::new(BTreeMap::new());
static SOLVER: Registry<solver::cusolverDnHandle_t> = Mutex::new(BTreeMap::new());

/// The lock of a device's handle, which is made where there is none. A panic elsewhere does not spoil a handle: each
/// call sets what it depends on.
fn lock<H>(
    registry: &'static Registry<H>,
    vendor: Vendor,
    ordinal: u32,
    create: impl FnOnce() -> Result<H, Failure>,
) -> Result<MutexGuard<'static, Handle<H>>, Failure> {
    vendor.ready().map_err(Failure::Absent)?;
    let mut handles = registry.lock().unwrap_or_else(PoisonError::into_inner);
    let handle: &'static Mutex<Handle<H>> = match handles.get(&ordinal) {
        Some(handle) => handle,
        None => {
            let handle: &'static _ = Box::leak(Box::new(Mutex::new(Handle(create()?))));
            handles.insert(ordinal, handle);
            handle
        }
    };
    drop(handles);
    Ok(handle.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Expands a call per element type. Pointers among the arguments are cast to what each function takes.
macro_rules! typed {
    ($T:ty: $library:ident :: [$s:ident, $d:ident, $c:ident, $z:ident] ($($argument:expr),* $(,)?)) => {
        match <$T as Scalar>::DTYPE {
            Dtype::F32 => $library::$s($($argument),*).check(stringify!($s)),
            Dtype::F64 => $library::$d($($argument),*).check(stringify!($d)),
            Dtype::C32 => $library::$c($($argument),*).check(stringify!($c)),
            Dtype::C64 => $library::$z($($argument),*).check(stringify!($z)),
        }
    };
}

/// A device address as a pointer that is only passed on.
fn at<P>(address: u64) -> *mut P {
    ptr::without_provenance_mut(address as usize)
}

fn fill(uplo: Uplo) -> blas::cublasFillMode_t {
    match uplo {
        Uplo::Lower => blas::cublasFillMode_t::CUBLAS_FILL_MODE_LOWER,
        Uplo::Upper => blas::cublasFillMode_t::CUBLAS_FILL_MODE_UPPER,
    }
}

fn operation(trans: Trans) -> blas::cublasOperation_t {
    match trans {
        Trans::No => blas::cublasOperation_t::CUBLAS_OP_N,
        Trans::Trans => blas::cublasOperation_t::CUBLAS_OP_T,
        Trans::ConjTrans => blas::cublasOperation_t::CUBLAS_OP_C,
    }
}

fn side_mode(side: Side) -> blas::cublasSideMode_t {
    match side {
        Side::Left => blas::cublasSideMode_t::CUBLAS_SIDE_LEFT,
        Side::Right => blas::cublasSideMode_t::CUBLAS_SIDE_RIGHT,
    }
}

fn diagonal(diag: Diag) -> blas::cublasDiagType_t {
    match diag {
        Diag::NonUnit => blas::cublasDiagType_t::CUBLAS_DIAG_NON_UNIT,
        Diag::Unit => blas::cublasDiagType_t::CUBLAS_DIAG_UNIT,
    }
}

/// A scalar that a library reads from host memory. Its complex types are aligned to their whole size and are loaded as
/// such, which Rust's are not: an unaligned one faults, depending on where it happens to lie.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Host<T>(T);

impl<T> Host<T> {
    /// The address in whatever type a function takes.
    fn at<P>(&self) -> *const P {
        (&raw const self.0).cast()
    }
}

/// Where an operand of a library call is, and its leading dimension. What the address is that of (a matrix, or a table
/// of matrices) is the call's business.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) address: u64,
    pub(crate) ld: usize,
}

/// The options of a triangular solve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Triangle {
    pub(crate) side: Side,
    pub(crate) uplo: Uplo,
    pub(crate) trans: Trans,
    pub(crate) diag: Diag,
}

/// cuBLAS on one stream, for as long as it is held.
pub(crate) struct Blas(MutexGuard<'static, Handle<blas::cublasHandle_t>>);

impl Blas {
    /// Bytes of workspace that [`Blas::on`] should be given: what the library's manual recommends for the architecture.
    pub(crate) fn workspace_bytes(arch: &str) -> usize {
        let mib = match arch {
            a if a.starts_with("sm_9") || a.starts_with("sm_10") => 32,
            a if a.starts_with("sm_12") => 12,
            _ => 4,
        };
        mib << 20
    }

    /// Takes the handle and directs it to a stream. The workspace is the call's own: with the handle's, two streams would
    /// share one, results would depend on what else runs, and a captured call would allocate.
    ///
    /// # Safety
    /// The stream is live with its context current. The workspace is memory of the device that nothing else uses except
    /// work in stream order, until all calls made through the result are done.
    pub(crate) unsafe fn on(stream: Stream, workspace: u64, bytes: usize) -> Result<Blas, Failure> {
        let handle = lock(&BLAS, Vendor::Cublas, stream.ordinal, || {
            let mut handle = ptr::null_mut();
            // SAFETY: the library is ready and the context current; the handle is set before it is used.
            unsafe {
                blas::cublasCreate_v2(&mut handle).check("cublasCreate")?;
                let host = blas::cublasPointerMode_t::CUBLAS_POINTER_MODE_HOST;
                blas::cublasSetPointerMode_v2(handle, host).check("cublasSetPointerMode")?;
                let atomics = blas::cublasAtomicsMode_t::CUBLAS_ATOMICS_NOT_ALLOWED;
                blas::cublasSetAtomicsMode(handle, atomics).check("cublasSetAtomicsMode")?;
                let math = blas::cublasMath_t::CUBLAS_DEFAULT_MATH;
                blas::cublasSetMathMode(handle, math).check("cublasSetMathMode")?;
            }
            Ok(handle)
        })?;
        // SAFETY: the handle is live and locked; stream and workspace are the caller's promise. Setting the stream
        // resets the workspace, hence the order.
        unsafe {
            blas::cublasSetStream_v2(handle.0, stream.raw.cast()).check("cublasSetStream")?;
            blas::cublasSetWorkspace_v2(handle.0, at(workspace), bytes).check("cublasSetWorkspace")?;
        }
        Ok(Blas(handle))
    }

    /// `op(A) X = alpha B` or `X op(A) = alpha B` for one item; B is `m x n`.
    ///
    /// # Safety
    /// The operands are matrices of the shapes given in device memory, B writable.
    pub(crate) unsafe fn trsm<T: Scalar>(
        &self,
        triangle: Triangle,
        [m, n]: [usize; 2],
        alpha: T,
        a: At,
        b: At,
    ) -> Result<(), Failure> {
        let alpha = Host(alpha);
        let Triangle { side, uplo, trans, diag } = triangle;
        // SAFETY: the handle is live; host scalars outlive the call; operands are the caller's promise.
        unsafe {
            typed!(T: blas::[cublasStrsm_v2_64, cublasDtrsm_v2_64, cublasCtrsm_v2_64, cublasZtrsm_v2_64](
                self.0.0,
                side_mode(side),
                fill(uplo),
                operation(trans),
                diagonal(diag),
                m as i64,
                n as i64,
                alpha.at(),
                at(a.address),
                a.ld as i64,
                at(b.address),
                b.ld as i64,
            ))
        }
    }

    /// The same for each item of two tables.
    ///
    /// # Safety
    /// The operands are tables of `batch` such matrices.
    pub(crate) unsafe fn trsm_batched<T: Scalar>(
        &self,
        triangle: Triangle,
        [m, n]: [usize; 2],
        alpha: T,
        a: At,
        b: At,
        batch: usize,
    ) -> Result<(), Failure> {
        let alpha = Host(alpha);
        let Triangle { side, uplo, trans, diag } = triangle;
        // SAFETY: the handle is live; host scalars outlive the call; operands are the caller's promise.
        unsafe {
            typed!(T: blas::[cublasStrsmBatched_64, cublasDtrsmBatched_64, cublasCtrsmBatched_64, cublasZtrsmBatched_64](
                self.0.0,
                side_mode(side),
                fill(uplo),
                operation(trans),
                diagonal(diag),
                m as i64,
                n as i64,
                alpha.at(),
                at(a.address),
                a.ld as i64,
                at(b.address),
                b.ld as i64,
                batch as i64,
            ))
        }
    }

    /// `C = alpha op(A) op(B) + beta C` for each item, `stride` elements apart. C is `m x n`, the inner dimension `k`.
    ///
    /// # Safety
    /// The operands are `batch` matrices of the shapes given in device memory, C writable and its items disjoint.
    pub(crate) unsafe fn gemm_strided<T: Scalar>(
        &self,
        [trans_a, trans_b]: [Trans; 2],
        [m, n, k]: [usize; 3],
        [alpha, beta]: [T; 2],
        [a, b, c]: [At; 3],
        [stride_a, stride_b, stride_c]: [usize; 3],
        batch: usize,
    ) -> Result<(), Failure> {
        let (alpha, beta) = (Host(alpha), Host(beta));
        // SAFETY: the handle is live; host scalars outlive the call; operands are the caller's promise.
        unsafe {
            typed!(T: blas::[
                cublasSgemmStridedBatched_64,
                cublasDgemmStridedBatched_64,
                cublasCgemmStridedBatched_64,
                cublasZgemmStridedBatched_64
            ](
                self.0.0,
                operation(trans_a),
                operation(trans_b),
                m as i64,
                n as i64,
                k as i64,
                alpha.at(),
                at(a.address),
                a.ld as i64,
                stride_a as i64,
                at(b.address),
                b.ld as i64,
                stride_b as i64,
                beta.at(),
                at(c.address),
                c.ld as i64,
                stride_c as i64,
                batch as i64,
            ))
        }
    }

    /// The same for each item of three tables.
    ///
    /// # Safety
    /// The operands are tables of `batch` such matrices.
    pub(crate) unsafe fn gemm_batched<T: Scalar>(
        &self,
        [trans_a, trans_b]: [Trans; 2],
        [m, n, k]: [usize; 3],
        [alpha, beta]: [T; 2],
        [a, b, c]: [At; 3],
        batch: usize,
    ) -> Result<(), Failure> {
        let (alpha, beta) = (Host(alpha), Host(beta));
        // SAFETY: the handle is live; host scalars outlive the call; operands are the caller's promise.
        unsafe {
            typed!(T: blas::[cublasSgemmBatched_64, cublasDgemmBatched_64, cublasCgemmBatched_64, cublasZgemmBatched_64](
                self.0.0,
                operation(trans_a),
                operation(trans_b),
                m as i64,
                n as i64,
                k as i64,
                alpha.at(),
                at(a.address),
                a.ld as i64,
                at(b.address),
                b.ld as i64,
                beta.at(),
                at(c.address),
                c.ld as i64,
                batch as i64,
            ))
        }
    }

    /// `C = alpha A A^H + beta C`, or with `A^H A`, in one triangle of C of order `n`, for one item.
    ///
    /// # Safety
    /// The operands are matrices of the shapes given in device memory, C writable.
    pub(crate) unsafe fn herk<T: Scalar>(
        &self,
        uplo: Uplo,
        trans: Trans,
        [n, k]: [usize; 2],
        [alpha, beta]: [T::Real; 2],
        a: At,
        c: At,
    ) -> Result<(), Failure> {
        let (alpha, beta) = (Host(alpha), Host(beta));
        let trans = match (trans, T::DTYPE.is_complex()) {
            (Trans::No, _) => Trans::No,
            (_, true) => Trans::ConjTrans,
            (_, false) => Trans::Trans,
        };
        // SAFETY: the handle is live; host scalars outlive the call; operands are the caller's promise.
        unsafe {
            typed!(T: blas::[cublasSsyrk_v2_64, cublasDsyrk_v2_64, cublasCherk_v2_64, cublasZherk_v2_64](
                self.0.0,
                fill(uplo),
                operation(trans),
                n as i64,
                k as i64,
                alpha.at(),
                at(a.address),
                a.ld as i64,
                beta.at(),
                at(c.address),
                c.ld as i64,
            ))
        }
    }
}

/// cuSOLVER on one stream, for as long as it is held.
pub(crate) struct Solver(MutexGuard<'static, Handle<solver::cusolverDnHandle_t>>);

impl Solver {
    /// Takes the handle and directs it to a stream.
    ///
    /// # Safety
    /// The stream is live with its context current.
    pub(crate) unsafe fn on(stream: Stream) -> Result<Solver, Failure> {
        let handle = lock(&SOLVER, Vendor::Cusolver, stream.ordinal, || {
            let mut handle = ptr::null_mut();
            // SAFETY: the library is ready and the context current.
            unsafe { solver::cusolverDnCreate(&mut handle) }.check("cusolverDnCreate")?;
            Ok(handle)
        })?;
        // SAFETY: the handle is live and locked; the stream is the caller's promise.
        unsafe { solver::cusolverDnSetStream(handle.0, stream.raw.cast()) }.check("cusolverDnSetStream")?;
        Ok(Solver(handle))
    }

    fn fill(uplo: Uplo) -> solver::cublasFillMode_t {
        match uplo {
            Uplo::Lower => solver::cublasFillMode_t::CUBLAS_FILL_MODE_LOWER,
            Uplo::Upper => solver::cublasFillMode_t::CUBLAS_FILL_MODE_UPPER,
        }
    }

    /// Elements of workspace that [`Solver::potrf`] needs for order `n`.
    pub(crate) fn potrf_workspace<T: Scalar>(&self, uplo: Uplo, n: usize) -> Result<usize, Failure> {
        let mut elements = -1;
        // SAFETY: the handle is live, and the pointer is to a live integer. The matrix is only measured: the size depends
        // on its order alone, and the null pointer is not followed.
        unsafe {
            typed!(T: solver::[
                cusolverDnSpotrf_bufferSize,
                cusolverDnDpotrf_bufferSize,
                cusolverDnCpotrf_bufferSize,
                cusolverDnZpotrf_bufferSize
            ](self.0.0, Self::fill(uplo), n as i32, ptr::null_mut(), n as i32, &mut elements))?;
        }
        let call = "cusolverDnpotrf_bufferSize";
        usize::try_from(elements).map_err(|_| Failure::Workspace { call, elements, n })
    }

    /// Factors one packed matrix of order `n`; its status goes to `reported`.
    ///
    /// # Safety
    /// The matrix, a workspace of `elements` elements, and the status are device memory that nothing else uses except work
    /// in stream order.
    pub(crate) unsafe fn potrf<T: Scalar>(
        &self,
        uplo: Uplo,
        n: usize,
        a: u64,
        workspace: u64,
        elements: usize,
        reported: u64,
    ) -> Result<(), Failure> {
        // SAFETY: the handle is live; the rest is the caller's promise.
        unsafe {
            typed!(T: solver::[cusolverDnSpotrf, cusolverDnDpotrf, cusolverDnCpotrf, cusolverDnZpotrf](
                self.0.0,
                Self::fill(uplo),
                n as i32,
                at(a),
                n as i32,
                at(workspace),
                elements as i32,
                at(reported),
            ))
        }
    }

    /// Factors each packed matrix of a table; their statuses go to `reported`.
    ///
    /// # Safety
    /// The table, its `batch` matrices of order `n`, and as many statuses are device memory that nothing else uses except
    /// work in stream order.
    pub(crate) unsafe fn potrf_batched<T: Scalar>(
        &self,
        uplo: Uplo,
        n: usize,
        table: u64,
        reported: u64,
        batch: usize,
    ) -> Result<(), Failure> {
        // SAFETY: the handle is live; the rest is the caller's promise.
        unsafe {
            typed!(T: solver::[
                cusolverDnSpotrfBatched,
                cusolverDnDpotrfBatched,
                cusolverDnCpotrfBatched,
                cusolverDnZpotrfBatched
            ](self.0.0, Self::fill(uplo), n as i32, at(table), n as i32, at(reported), batch as i32))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_follow_the_architecture() {
        let mib = |arch| Blas::workspace_bytes(arch) >> 20;
        assert_eq!(["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"].map(mib), [4, 4, 32, 32, 12]);
    }
}
