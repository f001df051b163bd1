//! Pins of packing, the left-looking panel's geometry and the register file.

use batchlas_resident::Element;
use batchlas_resident::footprint::{left_panel, left_panel_ceilings};
use batchlas_resident::hole::{HOLE_PAD_TO, pad};
use batchlas_resident::lpanel::{Geometry, geometry, panels};
use batchlas_resident::pack::{Barriers, Bound, PackLimits, Packing, pack_matrices_per_wg};
use batchlas_resident::registers::{
    MAX_REGISTERS_PER_THREAD, allocated, blocks_per_sm, fits, max_registers, passes_first_screen,
    sub_partition_use,
};

fn device(max_wg: usize) -> PackLimits {
    PackLimits::for_device(max_wg)
}

#[test]
fn packing_table() {
    for (bytes, lanes, max_wg, target_wg, max_pack, matrices, bound) in [
        (8_192, 32, 1024, 128, 4, 2, Bound::SharedMemory),
        (64, 8, 1024, 128, 4, 4, Bound::Cap),
        (64, 8, 1024, 128, 16, 16, Bound::TargetWidth),
        (64, 8, 1024, 32, 16, 4, Bound::TargetWidth),
        (64, 8, 64, 128, 16, 8, Bound::DeviceWidth),
        (4_096, 32, 64, 128, 4, 2, Bound::DeviceWidth),
    ] {
        let limits = PackLimits { max_wg, target_wg, max_pack };
        assert_eq!(
            pack_matrices_per_wg(bytes, lanes, 24_320, limits),
            Some(Packing { matrices, bound }),
            "{bytes} bytes, {lanes} lanes, {limits:?}"
        );
    }
    assert_eq!(PackLimits::for_device(1024), PackLimits { max_wg: 1024, target_wg: 128, max_pack: 4 });
}

#[test]
fn what_does_not_fit_is_none_and_wide_matrices_go_alone() {
    let limits = PackLimits::for_device(1024);
    assert_eq!(pack_matrices_per_wg(24_321, 32, 24_320, limits), None);
    assert_eq!(pack_matrices_per_wg(64, 1056, 24_320, limits), None);
    assert_eq!(pack_matrices_per_wg(64, 0, 24_320, limits), None);
    assert_eq!(pack_matrices_per_wg(64, 256, 24_320, limits).map(|p| p.matrices), Some(1));
}

#[test]
fn packing_needs_barriers_that_allow_it() {
    for (barriers, one, two) in [
        (Barriers::Warp, true, true),
        (Barriers::UniformWorkGroup, true, true),
        (Barriers::WorkGroup, true, false),
    ] {
        assert_eq!((barriers.allow(1), barriers.allow(2)), (one, two), "{barriers:?}");
    }
}

#[test]
fn left_panel_geometry_covers_every_row_and_stays_within_the_slice() {
    for (element, budget) in Element::ALL.into_iter().flat_map(|e| [(e, 97_280), (e, 198_000), (e, 228_352)])
    {
        for &panel in panels(element) {
            let ceiling = left_panel_ceilings(element, panel, budget).advertised.unwrap();
            for n in 1..=ceiling {
                let launch = geometry(element, panel, n, budget, device(1024)).unwrap();
                assert!(launch.lanes >= n && launch.lanes.is_multiple_of(32) && launch.work_group() <= 1024);
                assert_eq!(launch.bytes, left_panel(element, panel, n, launch.matrices));
                assert!((1..=4).contains(&launch.matrices) && launch.bytes <= budget / 4, "{n}: {launch:?}");
            }
            assert_eq!(geometry(element, panel, ceiling + 1, budget, device(1024)), None);
        }
    }
}

/// Order 379 fits a slice of 49,850 although 359..=378 do not: it is above the ceiling, so it is refused.
#[test]
fn left_panel_geometry_refuses_orders_above_a_miss() {
    let budget = 4 * 49_850;
    assert_eq!(left_panel_ceilings(Element::C64, 8, budget).advertised, Some(358));
    assert!(left_panel(Element::C64, 8, 378, 1) > 49_850 && left_panel(Element::C64, 8, 379, 1) <= 49_850);
    assert_eq!(geometry(Element::C64, 8, 379, budget, device(1024)), None);
}

#[test]
fn left_panel_geometry_is_what_the_walk_finds() {
    // Slices around the hole among them: a quarter of the budget is a work-group's.
    for budget in (0..=232_448).step_by(1024).chain([4 * 49_919, 4 * 49_920, 4 * 49_664, 4 * 47_104]) {
        for element in [Element::F32, Element::F64, Element::C32, Element::C64] {
            for &panel in panels(element) {
                let walked = left_panel_ceilings(element, panel, budget).advertised.unwrap_or(0);
                let served = |n: &usize| geometry(element, panel, *n, budget, device(1024)).is_some();
                let found = (1..=1024).take_while(served).count();
                assert_eq!(found, walked, "{element:?} panel {panel}, budget {budget}");
                assert_eq!((1..=1024).filter(served).count(), walked, "none above a miss");
            }
        }
    }
}

#[test]
fn left_panel_geometry_refuses() {
    assert_eq!(geometry(Element::F32, 8, 0, 97_280, device(1024)), None);
    assert_eq!(geometry(Element::F64, 16, 8, 97_280, device(1024)), None, "width 16 is built for f32 only");
    assert_eq!(geometry(Element::F32, 8, 65, 97_280, device(64)), None, "one lane per row is mandatory");
    assert!(geometry(Element::F32, 8, 64, 97_280, device(64)).is_some());
}

/// Two panels of 23,552 bytes and the slack fit a slice of 49,500 until the hole pads the sum past it.
#[test]
fn a_padded_request_sheds_a_matrix() {
    let (element, n, slice) = (Element::F64, 360, 49_500);
    let wide = PackLimits { max_wg: 1024, target_wg: 1024, max_pack: 4 };
    assert!(2 * (n * 8 + 64) * 8 + 256 <= slice);
    assert_eq!(left_panel(element, 8, n, 2), HOLE_PAD_TO);
    assert_eq!(
        geometry(element, 8, n, 4 * slice, wide),
        Some(Geometry { lanes: 384, matrices: 1, bytes: (n * 8 + 64) * 8 + 256 })
    );
    assert_eq!(geometry(element, 8, n, 4 * HOLE_PAD_TO, wide).map(|g| g.matrices), Some(2));
}

#[test]
fn register_rule_of_the_widest_solver() {
    assert_eq!(allocated(226), 232);
    assert_eq!(sub_partition_use(256, 226), 14_848);
    assert!(fits(256, 226));
    assert!(fits(256, 248) && fits(256, 255), "at 256 lanes the two rules are identical");
    for registers in 1..=MAX_REGISTERS_PER_THREAD {
        assert_eq!(fits(256, registers), passes_first_screen(256, registers), "{registers}");
    }
    assert!(!fits(32, 256), "no thread names more than 255 registers");
}

#[test]
fn the_first_screen_is_not_sufficient() {
    // Nine warps put three into one sub-partition.
    assert!(passes_first_screen(288, 200) && !fits(288, 200));
    for work_group in 1..=1024 {
        for registers in 1..=MAX_REGISTERS_PER_THREAD {
            assert!(!fits(work_group, registers) || passes_first_screen(work_group, registers));
        }
    }
}

#[test]
fn register_bounds_are_the_largest_that_fit() {
    assert_eq!(max_registers(0), None);
    assert_eq!([128, 256, 288, 512, 1024].map(max_registers), [255, 255, 168, 128, 64].map(Some));
    for work_group in 1..=1024 {
        let most = max_registers(work_group).unwrap();
        assert!(fits(work_group, most) && !fits(work_group, most + 1), "{work_group}: {most}");
    }
}

#[test]
fn resident_blocks_by_registers() {
    // Complex f32 at order 32: 166 registers, 64 lanes -> 6 blocks, 12 warps of the 48 of sm_89: 25 % occupancy.
    assert_eq!(blocks_per_sm(64, 166), 6);
    assert_eq!(blocks_per_sm(32, 255), 8);
    assert_eq!(blocks_per_sm(288, 200), 0);
    assert_eq!(blocks_per_sm(0, 32), 0);
}

/// Compares with the padding itself, for every request an arrangement of panels can make.
#[test]
fn every_panel_request_is_padded_once_as_a_whole() {
    for (n, matrices) in (1..=744).flat_map(|n| [(n, 1), (n, 2), (n, 4)]) {
        assert_eq!(left_panel(Element::F32, 8, n, matrices), pad((n * 8 + 64) * 4 * matrices + 256));
    }
}
