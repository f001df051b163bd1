//! What `cargo xtask races` runs: calls that launch every family, plants that it must see, survivors with their reason.
//!
//! A family adds an entry to [`FAMILIES`]: a few small calls (the format is that of `batchlas_bench::once`) that reach
//! every barrier of its kernels. `*` stands for all four element types, or both triangles, where one is expected; a call
//! of such a line that the family refuses is left out. What the residency probe compiles and no call launches must have
//! no synchronisation at all.

use batchlas::Dtype;
use batchlas_sim::mutate::Mutation;

use crate::simulate::Edit;

/// One family.
pub(crate) struct Family {
    /// Operation and family.
    pub(crate) name: &'static str,
    /// Calls that CI has time for.
    pub(crate) subset: &'static [&'static str],
    /// Calls of a whole run, beside those.
    pub(crate) all: &'static [&'static str],
}

pub(crate) const FAMILIES: &[Family] = &[
    Family {
        name: "potrf:tiny",
        // Work-groups that are full, partly idle, and more than one; the last column of an odd order is not sent.
        subset: &[
            "potrf f32 L 17 17 tiny:lanes=16:send=shared:warps=2",
            "potrf c64 U 5 9 tiny:lanes=8:send=shared:warps=1",
            "potrf f32 U 9 5 tiny",
        ],
        all: &[
            "potrf * * 32 5 tiny:send=shared",
            "potrf * * 31 9 tiny:send=shared:store=late",
            "potrf * * 17 17 tiny:lanes=16:send=shared:warps=2",
            "potrf * * 2 70 tiny:lanes=2:send=shared",
            "potrf * * 32 5 tiny",
            "potrf * * 4 70 tiny:lanes=1",
        ],
    },
    Family {
        name: "potrf:cta",
        // One warp and several, whose barriers are not the same instructions; vector units and tensor cores.
        subset: &["potrf f32 L 40 2 cta", "potrf f64 U 70 1 cta"],
        all: &["potrf * * 40 2 cta", "potrf * * 70 1 cta", "potrf * * 129 1 cta"],
    },
    Family {
        name: "potrf:lpanel",
        // Two warps a matrix; panels that are reused.
        subset: &["potrf f32 L 40 2 lpanel:panel=8", "potrf c64 U 40 2 lpanel:panel=8"],
        all: &["potrf * * 40 3 lpanel:panel=8", "potrf f32 * 40 3 lpanel:panel=16"],
    },
    Family {
        name: "potrf:left",
        // Two whole tiles and a part: a block that goes on from the tile below to the diagonal one, and one that does not.
        subset: &["potrf f64 L 130 1 left"],
        all: &["potrf * * 130 1 left", "potrf * * 200 2 left"],
    },
    Family {
        name: "potrf:potri",
        subset: &["potri f32 L 40 2 native"],
        all: &["potri * * 40 2 native", "potri * * 5 3 native"],
    },
    Family {
        name: "posv:tiny",
        subset: &["posv f32 L 9 1 9 tiny", "posv f64 U 17 9 3 tiny"],
        all: &["posv * * 9 1 17 tiny", "posv * * 17 9 5 tiny", "posv * * 32 3 3 tiny"],
    },
    Family {
        name: "posv:cta",
        // One warp, and several that take turns.
        subset: &[
            "potrs f32 L 100 3 5 cta",
            "potrs f32 L 40 2 5 cta:units=4",
            "potrs f32 U 40 2 5 cta",
            "potrs f64 U 70 3 1 cta:rhs=4:warps=2",
            "potrs f64 L 70 3 1 cta:warps=2:read=twice",
        ],
        all: &[
            "potrs * * 40 3 3 cta",
            "potrs * * 40 4 5 cta:units=4",
            "potrs * * 70 5 2 cta:rhs=4:warps=2",
            "potrs * * 70 9 2 cta",
            "potrs * * 70 5 2 cta:warps=2:read=twice",
        ],
    },
    Family {
        name: "posv:mixed",
        subset: &["mixed f64 L 9 2 3 tiny", "mixed f64 L 40 2 3 tiny"],
        all: &["mixed f64 * 20 3 3 tiny", "mixed c64 * 20 3 3 tiny"],
    },
    Family {
        name: "trsm:cta",
        // Groups of one warp and of several.
        subset: &[
            "trsm f32 L L N N 9 33 2 cta",
            "trsm c64 L U T N 7 5 3 sg_left",
            "trsm f64 L U C N 9 70 2 cta:warps=2",
        ],
        all: &[
            "trsm * L * N N 17 70 3 cta",
            "trsm * R * T N 17 70 3 cta",
            "trsm * L * C U 9 33 3 sg_left",
            "trsm * R * N N 32 130 1 cta:lanes=64:cols=1:warps=2",
        ],
    },
    Family {
        name: "trsm:few",
        subset: &["trsm f32 L L N N 17 1 5 few", "trsm f64 R U N N 40 3 2 few:rhs=2"],
        all: &["trsm * L * N N 17 1 5 few", "trsm * L * T N 40 3 2 few", "trsm * R * C N 33 8 2 few"],
    },
    Family {
        name: "trsm:fused",
        subset: &["trsm f32 L L N N 40 33 2 fused:warps=2", "trsm f64 R U T N 33 9 2 fused"],
        all: &[
            "trsm * L * N N 40 33 2 fused",
            "trsm * R * T N 65 33 1 fused",
            "trsm * L * C N 33 9 2 fused:warps=2",
        ],
    },
    Family {
        name: "gemm:tile",
        subset: &["gemm f32 N C 33 20 70 2 tile", "herk c64 L N 20 40 2 tile"],
        all: &[
            "gemm * N C 33 70 70 2 tile",
            "gemm * T N 20 33 70 2 tile",
            "herk * * N 70 40 2 tile",
            "herk * * C 70 40 2 tile",
        ],
    },
    Family {
        name: "gemm:mma",
        subset: &["gemm f64 N C 33 20 40 1 mma", "herk c64 U C 20 40 1 mma"],
        all: &[
            "gemm f64 N C 33 70 70 2 mma",
            "gemm c64 T N 20 33 70 2 mma",
            "herk f64 * N 70 40 2 mma",
            "herk c64 * C 70 40 2 mma",
        ],
    },
    Family {
        name: "mmq:stream",
        // The simulated device has one multiprocessor: a block takes three tiles, and the ring comes round.
        subset: &["mmq f32 int8 3 33 512 1 stream:stages=2"],
        all: &["mmq f32 int8 9 49 4352 1 stream:stages=2", "mmq f32 int8 9 70 256 1 stream"],
    },
    Family {
        name: "mmq:tile",
        // Several blocks share the steps of a tile, each with more than its ring holds.
        subset: &["mmq f32 int8 5 33 768 1 tile:tokens=16:rows=64:splits=2:stages=2"],
        all: &[
            // The last step of each block lies where the count of arrivals goes.
            "mmq f32 int8 33 70 1024 1 tile:tokens=32:rows=64:splits=2",
            "mmq f32 int8 5 33 1024 1 tile:tokens=128:rows=128:splits=2",
        ],
    },
    Family {
        name: "mmq:bf16",
        subset: &["mmq f32 bf16 5 33 768 1 bf16:tokens=16:rows=64:splits=2:stages=2"],
        all: &["mmq f32 bf16 33 70 1024 1 bf16:tokens=32:rows=64:splits=2"],
    },
    Family {
        name: "mmq:wide",
        subset: &["mmq f32 int8 3 9 512 1 wide:depth=4"],
        all: &["mmq f32 int8 33 70 512 1 wide:depth=8"],
    },
];

/// A defect that was made once, here or in the system that this project follows: planted, it must be seen, by a call or
/// by a case of the corpus.
pub(crate) struct Plant {
    /// Operation and family.
    pub(crate) family: &'static str,
    /// What goes wrong.
    pub(crate) what: &'static str,
    /// The change.
    pub(crate) edit: Edit,
    /// Calls, in the format of the families': what they may not touch is protected.
    pub(crate) calls: &'static [&'static str],
    /// Cases of the corpus, by name.
    pub(crate) cases: &'static [&'static str],
    /// Orders, in place of the cases'.
    pub(crate) n: &'static [usize],
    /// Element type.
    pub(crate) dtype: Dtype,
}

const fn tiny(
    what: &'static str,
    find: &'static str,
    replace: &'static str,
    cases: &'static [&'static str],
) -> Plant {
    let edit = Edit { file: "potrf/cuda/tiny.cuh", find, replace };
    Plant { family: "potrf:tiny", what, edit, calls: &[], cases, n: &[5], dtype: Dtype::F32 }
}

pub(crate) const PLANTS: &[Plant] = &[
    tiny(
        "DEF-06: the pivot is the original diagonal",
        "Lanes::broadcast(real_part(a[j / P][j]), j % P)",
        "real_part(load(live, item + j * (args.ld_bytes + sizeof(T)), from_real<T>(0)))",
        &["stale pivots"],
    ),
    tiny(
        "DEF-13: a column is sent before it is scaled",
        "const T v = Lanes::broadcast(a[k / P][j], k % P);",
        "const T v = scale(Lanes::broadcast(a[k / P][j], k % P), p.root);",
        &["orders"],
    ),
    tiny(
        "DEF-14: the warp's number is missing in the item's",
        "(arch::block() * Warps + arch::warp()) * Lanes::PER_WARP",
        "arch::block() * Warps * Lanes::PER_WARP",
        &["items that share a work-group"],
    ),
    tiny(
        "DEF-15: idle partitions write a status",
        "arch::store(live && l == 0 && args.info != 0",
        "arch::store(l == 0 && args.info != 0",
        &["orders"],
    ),
    tiny(
        "DEF-17: idle partitions load and store",
        "const int reader = live ? l : IDLE;",
        "const int reader = l;",
        &["orders"],
    ),
    tiny(
        "DEF-22: the last failure wins",
        "info = positive || info != 0 ? info : j + 1;",
        "info = positive ? info : j + 1;",
        &["negative pivots"],
    ),
    Plant {
        family: "potrf:tiny",
        what: "DEF-17: rows beyond the order are stored",
        edit: Edit {
            file: "batchlas/tile.cuh",
            find: "store(within(l, r == J / P ? J % P : 0, N - r * P), column + r * P * sizeof(T), a[r][J]);",
            replace: "store(within(l, r == J / P ? J % P : 0, P), column + r * P * sizeof(T), a[r][J]);",
        },
        calls: &["potrf f32 L 5 3 tiny"],
        cases: &[],
        n: &[],
        dtype: Dtype::F32,
    },
    Plant {
        family: "potrf:tiny",
        what: "DEF-21: the load's triangle guard is open",
        edit: Edit {
            file: "batchlas/tile.cuh",
            find: "a[r][c] = load(within(l, r == c / P ? c % P : 0, N - r * P), column",
            replace: "a[r][c] = load(within(l, 0, N - r * P), column",
        },
        calls: &["potrf f32 L 5 3 tiny"],
        cases: &[],
        n: &[],
        dtype: Dtype::F32,
    },
    Plant {
        family: "trsm:fused",
        what: "the guard of the triangle's copy is open",
        edit: Edit {
            file: "fused.cuh",
            find: "const bool inside = p < s && s < n;",
            replace: "const bool inside = p < n && s < n;",
        },
        calls: &["trsm f32 L L N N 33 9 2 fused"],
        cases: &[],
        n: &[],
        dtype: Dtype::F32,
    },
];

/// A broken synchronisation that nothing reports, and why that is right.
pub(crate) struct Survivor {
    /// The start of the name expression of the kernels, without their namespace.
    pub(crate) kernel: &'static str,
    /// The end of the name of the file that calls for the synchronisation.
    pub(crate) file: &'static str,
    /// Part of the line that does.
    pub(crate) line: &'static str,
    /// How it is broken.
    pub(crate) mutation: Mutation,
    /// Why nothing goes wrong.
    pub(crate) reason: &'static str,
}

/// A thread of the unaligned f32 kernel copies the row of its own number, so that a warp reads, of the tile itself, what it copied.
const OWN_ROWS: &str = "a warp reads the rows that it copied";

pub(crate) const SURVIVORS: &[Survivor] = &[
    Survivor {
        kernel: "potrf_left<f32, 2, 16, 3, 27648, Uplo::Lower, false",
        file: "left.cuh",
        line: "arch::sync_block();",
        mutation: Mutation::WarpScope,
        reason: OWN_ROWS,
    },
    Survivor {
        kernel: "potrf_left<f32, 2, 32, 2, 32768, Uplo::Upper, false",
        file: "left.cuh",
        line: "arch::sync_block();",
        mutation: Mutation::WarpScope,
        reason: OWN_ROWS,
    },
];
