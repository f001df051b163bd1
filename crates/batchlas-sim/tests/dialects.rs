//! Every fixture of every architecture parses and decodes.

#![allow(clippy::unwrap_used)]

mod common;

#[test]
fn all_fixtures_decode() {
    let folder = format!("{}/tests/ptx", env!("CARGO_MANIFEST_DIR"));
    let mut entries = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".ptx") else { continue };
        let module = common::module(name);
        for entry in module.entries() {
            let result = module.check_entry(&entry.name);
            // The one kernel that is there to be refused.
            let refused = entry.name == "recursive";
            assert_eq!(result.is_err(), refused, "{name} {}: {result:?}", entry.name);
        }
        assert!(name.ends_with(module.target()), "{name} is for {}", module.target());
        entries += module.entries().len();
    }
    assert!(entries > 100, "{entries}");
}
