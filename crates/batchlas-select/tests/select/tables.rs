//! Table files: what is accepted, what is refused and where, and which set is in force.

use batchlas_select::{Device, Environment, SelectError, Source, Table, Tables};

use crate::ops::{ALL, Call, POTRF, file, set, spelled};

const GOOD: &str = "\
format = 1
op = 'potrf'
dtype = 'f32'
device = 'sm_90'
generated_by = 'cargo xtask tune potrf'
key = ['n', 'uplo', 'batch']
rows = [
    # a comment
    { key = [8, 'L', 1024], ranking = ['tiny:8', 'vendor'], source = 'measured', ns = [1.5, 12], kernel = 'ab12' },
    { key = [8, 'U', 1024], ranking = ['lpanel:16'], source = 'transcribed:8b9adeb3' },
    { key = [16, 'U', 1024], ranking = ['blocked:nb=64'], source = 'provisional' },
]
";
const NAME: &str = "potrf.f32.sm_90.toml";

#[test]
fn a_table_is_read() {
    let table = Table::parse(&POTRF, NAME, GOOD).unwrap();
    let header = table.header();
    assert_eq!(
        (header.dtype.as_str(), header.device, header.generated_by.as_str()),
        ("f32", Device::Sm(90), "cargo xtask tune potrf")
    );
    let [first, second, third] = table.rows() else { panic!("three rows") };
    assert_eq!(first.key, POTRF.key(&["L"], &[8, 1024]).unwrap(), "key fields in the header's order");
    assert_eq!(first.ranking, [spelled(&POTRF, "tiny:lanes=8"), spelled(&POTRF, "vendor")]);
    assert_eq!(
        (first.ns.as_slice(), first.kernel.as_deref(), first.line),
        (&[1.5, 12.0][..], Some("ab12"), 9)
    );
    assert_eq!(
        (&first.source, &second.source, &third.source),
        (&Source::Measured, &Source::Transcribed("8b9adeb3".to_owned()), &Source::Provisional)
    );
    assert_eq!((second.line, third.line), (10, 11));
}

#[test]
fn a_table_is_written_as_it_is_read() {
    let table = Table::parse(&POTRF, NAME, GOOD).unwrap();
    let text = table.to_toml();
    let again = Table::parse(&POTRF, NAME, &text).unwrap();
    assert_eq!((again.header(), again.to_toml()), (table.header(), text.clone()));
    for (a, b) in table.rows().iter().zip(again.rows()) {
        assert_eq!(
            (&a.key, &a.ranking, &a.source, &a.ns, &a.kernel),
            (&b.key, &b.ranking, &b.source, &b.ns, &b.kernel)
        );
    }
    assert_eq!(table.rows().len(), again.rows().len());
    assert!(text.contains(r#"    { key = ["L", 8, 1024], ranking = ["tiny:lanes=8", "vendor"], source = "measured", ns = [1.5, 12.0], kernel = "ab12" },"#), "{text}");
}

/// Each defect, planted into the good table: the error names the file, the line and the defect.
#[test]
fn errors_name_file_and_line() {
    for (from, to, line, what) in [
        ("format = 1", "format = 2", 1, "format is 2, this version reads 1"),
        ("format = 1\n", "", 1, "missing field `format`"),
        ("op = 'potrf'", "op = 'posv'", 2, "op is 'posv', expected 'potrf'"),
        ("dtype = 'f32'", "dtype = 'f64'", 3, "dtype is 'f64', expected 'f32'"),
        ("device = 'sm_90'", "device = 'sm_89'", 4, "device is 'sm_89', expected 'sm_90'"),
        ("generated_by", "made_by", 5, "unknown field `made_by`"),
        ("'uplo', 'batch']", "'uplo', 'count']", 6, "unknown key field 'count', expected uplo, n, batch"),
        ("'uplo', 'batch']", "'uplo']", 6, "2 key fields, expected each of uplo, n, batch once"),
        ("'uplo', 'batch']", "'uplo', 'n']", 6, "key field 'batch' is missing"),
        ("[8, 'U', 1024]", "[8, 'L', 1024]", 10, "key uplo=L n=8 batch=1024 repeats line 9"),
        ("[8, 'U', 1024]", "[8, 'U']", 10, "2 key values, expected 3"),
        ("[8, 'U', 1024]", "[0, 'U', 1024]", 10, "n is 0"),
        ("[8, 'U', 1024]", "[-8, 'U', 1024]", 10, "RawValue"),
        ("[8, 'U', 1024]", "['8', 'U', 1024]", 10, "n is '8', expected a number"),
        ("[8, 'U', 1024]", "[8, 1, 1024]", 10, "uplo is 1, expected a string"),
        ("[8, 'U', 1024]", "[8, 'X', 1024]", 10, "uplo is 'X', expected one of: L, U"),
        ("'lpanel:16'", "'lpanel:12'", 10, "'lpanel:12' is not a valid spelling"),
        ("'lpanel:16'", "'lpanel'", 10, "'lpanel' is retired"),
        ("'lpanel:16'", "", 10, "empty ranking"),
        ("'lpanel:16'", "'cta', 'tiny', 'cta'", 10, "'cta' is ranked twice"),
        ("'transcribed:8b9adeb3'", "'transcribed:'", 10, "source 'transcribed:': expected measured"),
        ("'provisional'", "'guess'", 11, "source 'guess': expected measured"),
        ("'provisional'", "'provisional', sourse = 1", 11, "unknown field `sourse`"),
        ("ns = [1.5, 12]", "ns = [1.5]", 9, "1 times for 2 ranked spellings"),
        ("ns = [1.5, 12]", "ns = [1.5, -1]", 9, "time -1 is not"),
        ("ns = [1.5, 12]", "ns = [1.5, nan]", 9, "time NaN is not"),
        ("rows = [", "rows = ] [", 7, ""),
    ] {
        let planted = GOOD.replacen(from, to, 1);
        assert_ne!(planted, GOOD, "nothing planted: {from}");
        let error = Table::parse(&POTRF, NAME, &planted).unwrap_err();
        let SelectError::Table { file, line: at, what: message } = &error else { panic!("{error:?}") };
        assert_eq!((file.as_str(), *at), (NAME, line), "{to}: {message}");
        let expected = if what == "RawValue" { "did not match any variant" } else { what };
        assert!(message.contains(expected), "{to}: expected '{expected}', got '{message}'");
        assert!(error.to_string().starts_with(&format!("{NAME}:{line}: ")));
    }
}

#[test]
fn file_names_are_checked() {
    for name in [
        "potrf.f32.toml",
        "potrf.f32.sm_90.txt",
        "potrf.f32.gpu.toml",
        ".f32.cpu.toml",
        "potrf.f32.sm_90.a.toml",
    ] {
        let error = Tables::from_texts(&ALL, [(name, GOOD)]).unwrap_err();
        assert!(matches!(&error, SelectError::File { file, .. } if file == name), "{error}");
        assert!(error.to_string().contains("<op>.<dtype>.<device>.toml"));
    }
    let twice = Tables::from_texts(&ALL, [(NAME, GOOD), (NAME, GOOD)]).unwrap_err();
    assert_eq!(twice.to_string(), format!("{NAME}: given twice"));
}

#[test]
fn devices_parse() {
    for (text, device) in [("cpu", Device::Cpu), ("sm_90", Device::Sm(90)), ("sm_120", Device::Sm(120))] {
        assert_eq!(text.parse(), Ok(device));
        assert_eq!(device.to_string(), text);
    }
    for text in ["", "sm_", "sm_090", "sm_9x", "SM_90", "gpu", "sm_+9", "sm_99999999999"] {
        assert_eq!(text.parse::<Device>(), Err(SelectError::Device(text.to_owned())));
    }
}

#[test]
fn files_of_other_operations_are_set_aside() {
    let tables = Tables::from_texts(&[&POTRF], [(NAME, GOOD), ("syev.f32.sm_90.toml", "")]).unwrap();
    assert_eq!(tables.ignored(), ["syev.f32.sm_90.toml"]);
    assert_eq!(tables.check().map(|tables| tables.len()), Ok(1));
}

/// A malformed table is an error of the call that needs it and of the check, and of no other call.
#[test]
fn a_malformed_table_is_loud() {
    let good = file(&POTRF, "f32", "sm_80", &["key = ['L', 8, 8], ranking = ['cta'], source = 'measured'"]);
    let tables = set([good, (NAME.to_owned(), GOOD.replace("'lpanel:16'", "'lpanel:12'"))]);
    let mut call = Call::new(&POTRF, &tables, &["L"], &[8, 8]);
    for result in [call.choose().map(|_| ()), tables.check().map(|_| ())] {
        assert!(matches!(result, Err(SelectError::Table { line: 10, .. })), "{result:?}");
    }
    call.device = Device::Sm(80);
    assert_eq!(call.picks(), "cta");
}

/// `BATCHLAS_TUNED_DIR` replaces every built-in table, also those it has no counterpart for.
#[test]
fn a_directory_replaces_all_tables() {
    let directory = std::env::temp_dir().join(format!("batchlas-select-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (name, text) =
        file(&POTRF, "f32", "sm_90", &["key = ['L', 8, 8], ranking = ['cta'], source = 'measured'"]);
    std::fs::write(directory.join(name), text).unwrap();
    std::fs::write(directory.join("README.md"), "not a table").unwrap();
    let environment = |path: &str| [("BATCHLAS_TUNED_DIR", path)].into_iter().collect::<Environment>();

    let embedded: [(&str, &str); 2] = [(NAME, GOOD), ("trsm.f32.sm_90.toml", "")];
    let built_in = Tables::from_environment(&ALL, &embedded, &Environment::default()).unwrap();
    assert_eq!(Call::new(&POTRF, &built_in, &["L"], &[8, 8]).picks(), "tiny:lanes=8");

    let replaced =
        Tables::from_environment(&ALL, &embedded, &environment(&directory.display().to_string())).unwrap();
    assert_eq!(Call::new(&POTRF, &replaced, &["L"], &[8, 8]).picks(), "cta");
    assert_eq!(replaced.check().map(|tables| tables.len()), Ok(1));

    std::fs::remove_dir_all(&directory).unwrap();
    let missing = Tables::from_environment(&ALL, &embedded, &environment(&directory.display().to_string()));
    assert!(matches!(missing, Err(SelectError::File { .. })), "a directory that is not there is an error");
}
