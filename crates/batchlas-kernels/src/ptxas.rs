//! Reads what `ptxas -v` says about each kernel of a compile.
//!
//! Per kernel the log holds, in this order: a line that opens the entry, a line that names the function whose
//! properties follow, the frame and spill line, and the line of registers, barriers and shared memory, which closes
//! it. A device function that was not inlined has a properties pair of its own, after the entries that call it:
//! which ones those are is not said, so its frame and spills count against every kernel of the same compile.
//!
//! Nothing is skipped: an entry that is not closed, a number that cannot be read, a kernel that was asked for and is
//! not reported, each is an error. A gate that reads a silent zero instead passes everything.

use crate::Error;

/// What a kernel uses, as the compiler counted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// 32-bit registers per thread.
    pub registers: u32,
    /// Stack frame per thread in bytes, callees included.
    pub frame: u32,
    /// Bytes of spill stores per thread, in the code.
    pub spill_stores: u32,
    /// Bytes of spill loads per thread, in the code.
    pub spill_loads: u32,
    /// Static shared memory per block in bytes.
    pub shared: u32,
    /// Barriers.
    pub barriers: u32,
}

/// An entry being read.
struct Open {
    name: String,
    properties: bool,
    usage: Usage,
}

impl Open {
    fn truncated(self) -> Error {
        let missing = if self.properties { "Used .. registers" } else { "bytes stack frame" };
        Error::LogTruncated { entry: self.name, missing }
    }
}

/// The kernels of a log with their usage, in the order of the log.
///
/// # Errors
/// [`Error::LogTruncated`] for an entry that is not complete, [`Error::LogLine`] for a line that belongs to a report
/// and cannot be read.
pub fn parse(log: &str) -> Result<Vec<(String, Usage)>, Error> {
    let mut kernels: Vec<(String, Usage)> = Vec::new();
    let mut callees = Usage::default();
    let mut open: Option<Open> = None;
    let mut function: Option<String> = None;
    for (number, whole) in log.split_inclusive('\n').enumerate() {
        let line = whole.trim_end();
        let bad = |why| Error::LogLine { line: number + 1, why, text: line.to_owned() };
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            if let Some(previous) = open.take() {
                return Err(previous.truncated());
            }
            let (name, _) = rest.split_once('\'').ok_or_else(|| bad("the entry's name is not closed"))?;
            if kernels.iter().any(|(known, _)| known == name) {
                return Err(bad("this entry was reported before"));
            }
            open = Some(Open { name: name.to_owned(), properties: false, usage: Usage::default() });
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            function = Some(name.trim().to_owned());
        } else if line.contains(" bytes stack frame") {
            let owner = function.take().ok_or_else(|| bad("it belongs to no function"))?;
            let value = |label| count_before(line, label).ok_or_else(|| bad("a count is missing"));
            let (frame, stores, loads) =
                (value(" bytes stack frame")?, value(" bytes spill stores")?, value(" bytes spill loads")?);
            match &mut open {
                Some(entry) if entry.name == owner => {
                    entry.properties = true;
                    entry.usage.frame = frame;
                    entry.usage.spill_stores = stores;
                    entry.usage.spill_loads = loads;
                }
                _ => {
                    callees.frame = callees.frame.max(frame);
                    callees.spill_stores += stores;
                    callees.spill_loads += loads;
                }
            }
        } else if line.contains(": Used ") {
            let mut entry = open.take().ok_or_else(|| bad("it belongs to no entry"))?;
            // A cut between two counts leaves a line that reads well; only its end shows that it is whole.
            if !entry.properties || !whole.ends_with('\n') {
                return Err(entry.truncated());
            }
            read_used(line, &mut entry.usage).map_err(bad)?;
            kernels.push((entry.name, entry.usage));
        }
    }
    if let Some(entry) = open {
        return Err(entry.truncated());
    }
    if let Some(function) = function {
        return Err(Error::LogTruncated { entry: function, missing: "bytes stack frame" });
    }
    for (_, usage) in &mut kernels {
        usage.frame = usage.frame.max(callees.frame);
        usage.spill_stores += callees.spill_stores;
        usage.spill_loads += callees.spill_loads;
    }
    Ok(kernels)
}

/// The usage of exactly the kernels `expected` (lowered names), in that order.
///
/// # Errors
/// Those of [`parse`], and [`Error::EntriesUnmatched`] where the log reports another set of kernels.
pub fn parse_expecting(log: &str, expected: &[String]) -> Result<Vec<Usage>, Error> {
    let kernels = parse(log)?;
    let usage = |name: &String| kernels.iter().find(|(known, _)| known == name).map(|(_, usage)| *usage);
    let found: Vec<Usage> = expected.iter().filter_map(usage).collect();
    let missing: Vec<String> = expected.iter().filter(|name| usage(name).is_none()).cloned().collect();
    let unexpected: Vec<String> =
        kernels.iter().map(|(name, _)| name).filter(|name| !expected.contains(name)).cloned().collect();
    if missing.is_empty() && unexpected.is_empty() {
        Ok(found)
    } else {
        Err(Error::EntriesUnmatched { missing, unexpected })
    }
}

/// Reads the parts of a line `Used 10 registers, used 1 barriers, 128 bytes smem, ..`. A part that is not known is an
/// error: it may be a known one cut short.
fn read_used(line: &str, usage: &mut Usage) -> Result<(), &'static str> {
    let (_, parts) = line.split_once(": Used ").ok_or("there is no count")?;
    let (mut registers, mut barriers) = (None, None);
    for part in parts.split(", ") {
        let (count, what) = part.trim_start_matches("used ").split_once(' ').ok_or("a part is cut short")?;
        let count: u32 = count.parse().map_err(|_| "a count is not a number")?;
        match what.trim_end() {
            "registers" => registers = Some(count),
            "barriers" => barriers = Some(count),
            "bytes smem" => usage.shared = count,
            "bytes cumulative stack size" => usage.frame = usage.frame.max(count),
            what if what.starts_with("bytes cmem[") => {}
            _ => return Err("a part is unknown or cut short"),
        }
    }
    usage.registers = registers.ok_or("the register count is missing")?;
    usage.barriers = barriers.ok_or("the barrier count is missing")?;
    Ok(())
}

/// The number that ends where `label` begins.
fn count_before(line: &str, label: &str) -> Option<u32> {
    let (before, _) = line.split_once(label)?;
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = include_str!("../tests/logs/clean.log");
    const FRAME: &str = include_str!("../tests/logs/frame.log");
    const SPILL: &str = include_str!("../tests/logs/spill.log");
    const CALLEE: &str = include_str!("../tests/logs/callee.log");

    fn only(log: &str) -> Usage {
        let kernels = parse(log).unwrap();
        assert_eq!(kernels.len(), 1, "{kernels:?}");
        kernels[0].1
    }

    #[test]
    fn a_clean_kernel() {
        let expected = Usage { registers: 10, shared: 128, barriers: 1, ..Usage::default() };
        assert_eq!(only(CLEAN), expected);
    }

    #[test]
    fn a_frame_without_spills_is_seen() {
        assert_eq!(only(FRAME), Usage { registers: 30, frame: 256, ..Usage::default() });
    }

    #[test]
    fn the_frame_is_the_larger_of_its_two_reports() {
        let own_only = FRAME.replace(", 256 bytes cumulative stack size", "");
        assert_eq!(only(&own_only).frame, 256);
        let callee_only = FRAME.replace("256 bytes stack frame", "0 bytes stack frame");
        assert_eq!(only(&callee_only).frame, 256);
    }

    #[test]
    fn spills_are_seen() {
        let expected =
            Usage { registers: 64, frame: 280, spill_stores: 536, spill_loads: 560, ..Usage::default() };
        assert_eq!(only(SPILL), expected);
    }

    #[test]
    fn a_callee_counts_against_every_kernel() {
        let kernels = parse(CALLEE).unwrap();
        assert_eq!(kernels.len(), 2);
        for (name, usage) in kernels {
            assert_eq!((usage.frame, usage.spill_stores, usage.spill_loads), (32, 8, 12), "{name}");
        }
    }

    #[test]
    fn many_kernels_keep_their_own_counts() {
        let log = format!("{SPILL}{CLEAN}{FRAME}");
        let frames: Vec<u32> = parse(&log).unwrap().iter().map(|(_, usage)| usage.frame).collect();
        assert_eq!(frames, [280, 0, 256]);
    }

    #[test]
    fn a_log_cut_after_any_line_is_an_error() {
        for log in [CLEAN, FRAME, SPILL] {
            let lines: Vec<&str> = log.lines().collect();
            let first = lines.iter().position(|line| line.contains("Compiling")).unwrap() + 1;
            let last = lines.iter().position(|line| line.contains("Used")).unwrap();
            for end in first..=last {
                let error = parse(&lines[..end].join("\n")).unwrap_err();
                assert!(matches!(error, Error::LogTruncated { .. }), "{end} lines: {error}");
            }
        }
    }

    #[test]
    fn a_log_cut_inside_the_last_line_is_an_error() {
        for log in [CLEAN, FRAME] {
            let used = log.find("Used").unwrap();
            let end = used + log[used..].find('\n').unwrap();
            for cut in used..=end {
                assert!(parse(&log[..cut]).is_err(), "{:?}", &log[used..cut]);
            }
            assert!(parse(&log[..=end]).is_ok());
        }
    }

    #[test]
    fn an_entry_cut_short_by_the_next_is_an_error() {
        let cut: String =
            SPILL.lines().filter(|line| !line.contains("Used")).map(|l| format!("{l}\n")).collect();
        assert!(matches!(parse(&format!("{cut}{CLEAN}")), Err(Error::LogTruncated { .. })));
        let cut: String =
            SPILL.lines().filter(|line| !line.contains("stack frame")).map(|l| format!("{l}\n")).collect();
        assert!(matches!(parse(&cut), Err(Error::LogTruncated { missing: "bytes stack frame", .. })));
    }

    #[test]
    fn unmatched_names_are_an_error_both_ways() {
        let name = parse(CLEAN).unwrap()[0].0.clone();
        assert_eq!(parse_expecting(CLEAN, std::slice::from_ref(&name)).unwrap()[0].registers, 10);
        match parse_expecting(CLEAN, &[name, "absent".into()]) {
            Err(Error::EntriesUnmatched { missing, unexpected }) => {
                assert_eq!((missing, unexpected), (vec!["absent".to_owned()], vec![]));
            }
            other => panic!("{other:?}"),
        }
        match parse_expecting(CLEAN, &[]) {
            Err(Error::EntriesUnmatched { unexpected, .. }) => assert_eq!(unexpected.len(), 1),
            other => panic!("{other:?}"),
        }
        assert!(matches!(parse_expecting("", &["k".into()]), Err(Error::EntriesUnmatched { .. })));
    }

    #[test]
    fn unreadable_and_orphaned_lines_are_errors() {
        let garbled = CLEAN.replace("0 bytes spill stores", "some spill stores");
        assert!(matches!(parse(&garbled), Err(Error::LogLine { .. })), "{:?}", parse(&garbled));
        let unknown = CLEAN.replace("128 bytes smem", "128 bytes of something new");
        assert!(matches!(parse(&unknown), Err(Error::LogLine { line: 5, .. })), "{:?}", parse(&unknown));
        let orphan: String = CLEAN.lines().filter(|line| line.contains("Used")).collect();
        assert!(matches!(parse(&orphan), Err(Error::LogLine { line: 1, .. })));
        assert!(matches!(parse(&format!("{CLEAN}{CLEAN}")), Err(Error::LogLine { .. })));
    }
}
