//! The staging kernels compile for every probed architecture and keep their promise.

use batchlas_kernels::nvrtc::Nvrtc;
use batchlas_kernels::probe::{self, DEFAULT_ARCHS, Family};
use batchlas_kernels::residency::Promise;

#[test]
fn staging_kernels_keep_their_promise() {
    let nvrtc = Nvrtc::load()
        .unwrap_or_else(|error| panic!("{error}\n\nThis test compiles kernels: run `cargo xtask setup`."));
    let listed: Vec<_> = batchlas_vendor::kernels().collect();
    let source = listed[0].source;
    let promise = |p: batchlas_core::Promise| {
        let batchlas_core::Promise { threads, min_blocks, max_dynamic_shared } = p;
        Promise { threads, min_blocks, max_dynamic_shared }
    };
    let family = Family {
        owner: "batchlas-vendor".into(),
        name: "staging".into(),
        source_name: source.name.into(),
        source: source.text.into(),
        options: vec![],
        kernels: listed.iter().map(|kernel| (kernel.entry.clone(), promise(kernel.promise))).collect(),
    };
    let archs = DEFAULT_ARCHS.map(|arch| arch.parse().unwrap());
    let report = probe::run(nvrtc, &archs, 2, |_| vec![family.clone()]);
    assert!(report.is_green(), "{report}");
    assert_eq!(report.rows.len(), 4 * 24);
}
