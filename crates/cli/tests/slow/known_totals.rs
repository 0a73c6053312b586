//! Checks results in every format against the totals of the JSON report, which are checked
//! themselves.

use crate::harness::report;
use crate::recording::{list, number};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// The totals of the processes of a recording.
pub struct Known(Vec<Value>);

impl Known {
    /// Reads them from the report.
    pub fn of(recording: &Path, place: &Path) -> Known {
        let report = report(recording, place);
        Known(list(&report, "processes").iter().map(|process| process["totals"].clone()).collect())
    }

    /// Returns the total of a metric for each process.
    fn all(&self, measure: &str) -> impl Iterator<Item = i128> {
        self.0.iter().map(move |totals| number(totals, measure))
    }

    fn assert_has(&self, measure: &str, value: i128, of: &str) {
        let is_known = self.all(measure).any(|total| total == value);
        assert!(is_known, "{of}: {measure} is {value}, no process has that");
    }

    /// Asserts that a text contains the total of a metric for one of the processes, as `12,345`.
    fn assert_shown(&self, measure: &str, text: &str, of: &str) {
        let is_shown = self.all(measure).any(|total| text.contains(&grouped(total)));
        assert!(is_shown, "{of}: no {measure} in:\n{text:.2000}");
    }

    /// Checks the output of a command: a page must contain a total in full, and JSON every total.
    pub fn check_answer(&self, line: &str, answer: &str) {
        match line {
            "report --kind heap" | "report --by size --kind heap" | "histogram --kind heap" => {
                self.assert_shown("allocations", answer, line);
            }
            "info" | "peak --kind heap" => self.assert_shown("peak_bytes", answer, line),
            _ if line.contains("json") => {
                self.check_json(line, &serde_json::from_str(answer).expect(line));
            }
            _ => {}
        }
    }

    fn check_json(&self, line: &str, answer: &Value) {
        let processes = list(answer, "processes");
        assert_eq!(processes.len(), self.0.len(), "{line}: processes");
        for (process, known) in processes.iter().zip(&self.0) {
            let totals = process["totals"].as_object().or(process.as_object()).expect(line);
            let measures = totals.iter().filter(|(name, _)| !known[*name].is_null());
            let compared = measures.map(|(name, value)| assert_eq!(value, &known[name], "{line}"));
            assert!(compared.count() > 0, "{line}: no totals in {process}");
        }
    }

    /// Checks the result of a query over whole processes.
    pub fn check_query(&self, query: &str, answer: &str) {
        if query.contains("FROM processes") {
            for total in self.all("allocations") {
                assert!(answer.contains(&format!(",allocations={total},")), "{total} in {answer}");
            }
        }
        if query.starts_with("SELECT operation,count()") {
            let allocated = answer.lines().find_map(|line| line.strip_prefix("allocate"));
            let allocated = parsed(allocated.expect("allocations").trim());
            assert_eq!(allocated, self.all("allocations").sum::<i128>(), "{query}");
        }
    }

    /// Checks a file that was exported with the default metric, bytes at peak.
    pub fn check_export(&self, format: &str, file: &[u8]) {
        const MEASURE: &str = "at_peak_bytes";
        let text = String::from_utf8_lossy(file);
        let json =
            || serde_json::from_str::<Value>(&text).unwrap_or_else(|e| panic!("{format}: {e}"));
        let is_total = |value| self.assert_has(MEASURE, value, format);
        match format {
            "folded" => is_total(sum(text.lines().map(|line| line.rsplit(' ').next()))),
            "stacks" => {
                let values = text.lines().filter(|line| line.starts_with("stack "));
                let name = format!(" {MEASURE}=");
                let values = values.map(|line| line.split_once(&name)?.1.split(' ').next());
                is_total(sum(values));
            }
            "csv" => is_total(column(&text, MEASURE)),
            "callgrind" => is_total(sum(text.lines().filter_map(|line| {
                line.strip_prefix("summary: ").map(|sums| sums.split(' ').next())
            }))),
            "malloc-profiler" => {
                let stacks = text.lines().filter(|line| line.starts_with("_mpTrace_;"));
                let calls = sum(stacks.map(|line| line.rsplit('$').nth(3)));
                self.assert_has("allocations", calls, format);
            }
            "malloc-tag" => {
                let json = json();
                let trees = json.as_object().expect("an object").iter();
                let trees = trees.filter(|(key, _)| key.starts_with("tree_for_TID"));
                let roots = trees.flat_map(|(_, tree)| tree.as_object().expect("a tree"));
                let roots = roots.filter(|(key, _)| key.starts_with("scope_"));
                let allocated = roots.map(|(_, root)| integer(&root["nBytesTotalAllocated"])).sum();
                self.assert_has("usable_bytes", allocated, format);
            }
            "massif" => {
                let heap = text.lines().filter_map(|line| line.strip_prefix("mem_heap_B="));
                let most = heap.map(parsed).max().expect("a snapshot");
                self.assert_has("peak_bytes", most, format);
            }
            "heaptrack" => {
                let allocated = text.lines().filter(|line| line.starts_with("+ ")).count();
                self.assert_has("allocations", allocated as i128, format);
            }
            "memray" => {
                // After the magic number, two versions and two bytes.
                let number = file[17..25].try_into().expect("a number");
                self.assert_has("allocations", u64::from_le_bytes(number).into(), format);
            }
            "json" => self.check_answer("report --format json", &text),
            "speedscope" => {
                let json = json();
                let profile = list(&json, "profiles").iter().find(|profile| {
                    profile["name"].as_str().is_some_and(|name| name.ends_with(MEASURE))
                });
                let weights = list(profile.expect(MEASURE), "weights").iter();
                is_total(weights.map(integer).sum());
            }
            "chrome" => {
                let json = json();
                let processes = list(&json, "traceEvents").iter().filter(|e| e["cat"] == "process");
                let found: Vec<_> = processes.map(|e| number(&e["args"], "allocations")).collect();
                let known: Vec<_> = self.all("allocations").collect();
                assert_eq!(found, known, "{format}");
            }
            "firefox" => {
                let json = json();
                let threads = list(&json, "threads").iter();
                let weights = threads.flat_map(|thread| list(&thread["samples"], "weight"));
                is_total(weights.map(integer).sum());
            }
            // The numbers are rounded.
            "dot" => {
                assert!(text.starts_with("digraph ") && text.ends_with("}\n"), "{text}");
                assert!(text.contains(MEASURE), "{text}");
            }
            "flamegraph" => self.assert_shown(MEASURE, &text, format),
            "html" => {
                let word = |total| format!(r#"{{"name":"{MEASURE}","bytes":true,"total":{total},"#);
                assert!(self.all(MEASURE).any(|total| text.contains(&word(total))), "{format}");
            }
            // All processes: one record for each allocation, or for `count` of them.
            "cali" => {
                let known: i128 = self.all("allocations").sum();
                assert_eq!(allocations_of_cali(&text), known, "{format}");
            }
            // `foreign.rs` reads it with pprof.
            "pprof" => assert!(file.starts_with(&[0x1f, 0x8b]), "{format} is not packed by gzip"),
            other => panic!("{other}: a format that no answer is known of"),
        }
    }
}

/// Returns the number of allocations in records with the attribute `mem.alloc`.
fn allocations_of_cali(text: &str) -> i128 {
    const NAME: &str = "8"; // the attribute whose value is an attribute's name
    let fields = |line: &str| -> HashMap<String, String> {
        let pairs = line.replace("\\,", " ");
        let pairs = pairs.split(',').filter_map(|pair| pair.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    let (mut names, mut sum) = (HashMap::new(), 0);
    for record in text.lines().map(fields) {
        let field = |key: &str| record.get(key).map_or("", String::as_str);
        if field("attr") == NAME {
            names.insert(field("id").to_owned(), field("data").to_owned());
        }
        let of_name = |name: &str| {
            let is_it = |id: &str| names.get(id).is_some_and(|known| known == name);
            field("attr").split('=').position(is_it)
        };
        if field("__rec") == "ctx" && of_name("mem.alloc").is_some() {
            let values = field("data").replace("\\=", " ");
            let count = of_name("count").and_then(|at| values.split('=').nth(at));
            sum += count.map_or(1, parsed);
        }
    }
    sum
}

fn parsed(word: &str) -> i128 {
    word.parse().unwrap_or_else(|_| panic!("`{word}` is not a number"))
}

fn integer(value: &Value) -> i128 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is not an integer")).into()
}

fn sum<'a>(words: impl Iterator<Item = Option<&'a str>>) -> i128 {
    words.map(|word| parsed(word.expect("a word"))).sum()
}

/// Returns the sum of a column, counted from the last one, because texts with commas precede it.
fn column(csv: &str, name: &str) -> i128 {
    let mut lines = csv.lines();
    let from_end = lines.next().and_then(|head| head.rsplit(',').position(|column| column == name));
    sum(lines.map(|line| line.rsplit(',').nth(from_end.expect(name))))
}

/// Returns a number with a comma between thousands.
fn grouped(number: i128) -> String {
    let digits = number.to_string();
    let parts: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    parts.join(",")
}
