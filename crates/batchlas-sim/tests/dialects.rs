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
        module.check().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(name.ends_with(module.target()), "{name} is for {}", module.target());
        entries += module.entries().len();
    }
    assert!(entries > 100, "{entries}");
}
