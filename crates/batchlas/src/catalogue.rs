//! Every device kernel that ships, for ahead-of-time bundles.

use batchlas_core::{Error, Kernel, Result};
use batchlas_potrf::tiny;

/// The kernels that calls without a route pin can need, for orders of `tiny` in `orders` (of 1 to [`tiny::MAX_N`]).
///
/// # Errors
/// None, unless a vocabulary is inconsistent, which a test excludes.
pub fn kernels(orders: impl IntoIterator<Item = usize>) -> Result<Vec<Kernel>> {
    let family = batchlas_potrf::VOCABULARY.spelling("tiny")?;
    let small = orders.into_iter().filter(|n| (1..=tiny::MAX_N).contains(n)).collect::<Vec<_>>();
    Ok(tiny::kernels(small, &family)
        .chain(batchlas_vendor::kernels())
        .chain(batchlas_posv::kernels())
        .collect())
}

/// The kernels of one pinned route of `op` at order `n`; none for families that launch nothing of ours.
///
/// # Errors
/// The route is not a spelling of the operation.
pub fn kernels_of(op: &str, route: &str, n: usize) -> Result<Vec<Kernel>> {
    let vocabulary = crate::VOCABULARIES.iter().find(|v| v.op == op);
    let vocabulary = vocabulary.ok_or_else(|| Error::Internal(format!("there is no operation {op}")))?;
    let family = vocabulary.spelling(route)?;
    Ok(match (op, family.family()) {
        ("potrf", "tiny") => tiny::kernels([n], &family).collect(),
        _ => Vec::new(),
    })
}
