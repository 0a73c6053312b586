//! Checks the stack usage of the recorder: no function of libheaptide.so, including its callees,
//! may take more of the program's stack than [`MOST`]. Analyses the machine code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::commands::output;
use crate::problem::Problem;

/// The most bytes of the program's stack that a call into the library may take.
const MOST: u64 = 2048;
/// Calls of this module run on another stack.
const ELSEWHERE: &str = "own_stack";
/// Bytes of a return address or a pushed register.
const WORD: u64 = 8;

/// Returns problems of the library at `path`.
pub fn check(path: &Path) -> Result<Vec<Problem>, String> {
    let options = ["--disassemble", "--no-show-raw-insn", "--no-addresses", "-M", "intel"];
    let listing = output(Command::new("objdump").args(options).arg(path))?;
    let functions = functions(&listing);
    let shown = path.display().to_string();
    if functions.len() < 100 {
        let says = format!("objdump lists {} functions, expected hundreds", functions.len());
        return Ok(vec![Problem::new(&shown, 0, says)]);
    }
    let mut deepest = Deepest { functions: &functions, known: BTreeMap::new(), cycles: Vec::new() };
    let called: BTreeSet<&str> = functions.values().flat_map(|f| f.calls.iter().copied()).collect();
    // Exported functions, and those that are called by address.
    let entries = functions.keys().filter(|name| !called.contains(*name));
    let (name, bytes) = entries
        .filter(|name| !name.contains(ELSEWHERE))
        .map(|name| (name, deepest.of(name, &mut Vec::new())))
        .max_by_key(|(_, bytes)| *bytes)
        .unwrap_or((&"", 0));
    let mut says = deepest.cycles.clone();
    if bytes > MOST {
        let path = deepest.path(name).join(", ");
        says.push(format!("takes {bytes} bytes of stack, expected at most {MOST}: {path}"));
    }
    Ok(says.into_iter().map(|says| Problem::new(&shown, 0, says)).collect())
}

/// A function: bytes of its own stack frame, and functions that it calls or jumps to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Function<'a> {
    bytes: u64,
    calls: Vec<&'a str>,
}

/// Returns the functions of a listing, by name.
fn functions(listing: &str) -> BTreeMap<&str, Function<'_>> {
    let mut functions = BTreeMap::new();
    let (mut name, mut function, mut depth) = ("", Function::default(), 0u64);
    for line in listing.lines() {
        if let Some(next) = line.strip_suffix(">:").and_then(|line| line.strip_prefix('<')) {
            functions.insert(name, std::mem::take(&mut function));
            (name, depth) = (next, 0);
            continue;
        }
        let mut words = line.split_whitespace();
        let (operation, operand) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let by = operand.strip_prefix("rsp,").and_then(number);
        match operation {
            "push" => depth += WORD,
            "pop" => depth = depth.saturating_sub(WORD),
            "sub" => depth += by.unwrap_or(0),
            "add" => depth = depth.saturating_sub(by.unwrap_or(0)),
            // The following code is reached by jumps from before the epilogue.
            "ret" => depth = function.bytes,
            _ => {}
        }
        function.bytes = function.bytes.max(depth);
        if operation == "call" || operation.starts_with('j') {
            let target = line.rsplit('<').next().and_then(|target| target.strip_suffix('>'));
            let whole = target.filter(|target| !target.contains('+') && *target != name);
            function.calls.extend(whole.filter(|_| line.contains('<')));
            if operation == "call" && target == Some(name) {
                function.calls.push(name);
            }
        }
    }
    functions.insert(name, function);
    functions.remove("");
    functions
}

/// Parses a number of the listing: `0x28`, or `0xffffffffffffff80` for a negative one.
fn number(text: &str) -> Option<u64> {
    let number = u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
    i64::try_from(number).is_ok().then_some(number)
}

/// The stack usage of functions, including their callees.
struct Deepest<'a> {
    functions: &'a BTreeMap<&'a str, Function<'a>>,
    known: BTreeMap<&'a str, u64>,
    cycles: Vec<String>,
}

impl<'a> Deepest<'a> {
    /// Returns the stack usage of a function in bytes, including its return address. `callers` are
    /// the functions on the current path.
    fn of(&mut self, name: &'a str, callers: &mut Vec<&'a str>) -> u64 {
        if let Some(&known) = self.known.get(name) {
            return known;
        }
        let Some(function) = self.functions.get(name) else {
            return 0;
        };
        if callers.contains(&name) {
            self.cycles.push(format!("`{name}` calls itself, so its stack has no bound"));
            return 0;
        }
        callers.push(name);
        let called = function.calls.iter().filter(|called| !called.contains(ELSEWHERE));
        let most = called.map(|called| self.of(called, callers)).max().unwrap_or(0);
        callers.pop();
        let all = WORD + function.bytes + most;
        self.known.insert(name, all);
        all
    }

    /// Returns the deepest chain of calls, outermost first.
    fn path(&self, name: &'a str) -> Vec<String> {
        let mut path = Vec::new();
        let mut next = Some(name);
        while let Some((name, function)) = next.and_then(|name| self.functions.get_key_value(name))
        {
            path.push(format!("{name} {}", function.bytes));
            let called = function.calls.iter().filter(|called| !called.contains(ELSEWHERE));
            next = called.copied().max_by_key(|called| self.known.get(called));
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
<outer>:
\tpush   rbp
\tsub    rsp,0x20
\tcall   <middle>
\tadd    rsp,0x20
\tpop    rbp
\tret
\tjmp    <outer+0x4>

<middle>:
\tsub    rsp,0x100
\tcall   QWORD PTR [rip+0x10]
\tcall   <own_stack_call>
\tadd    rsp,0x100
\tjmp    <inner>

<inner>:
\tpush   rbx
\tpop    rbx
\tret

<own_stack_call>:
\tsub    rsp,0x4000
\tret
";

    #[test]
    fn calls_add_up_and_another_stack_does_not_count() {
        let functions = functions(LISTING);
        assert_eq!(functions["outer"], Function { bytes: 0x28, calls: vec!["middle"] });
        assert_eq!(functions["middle"].calls, ["own_stack_call", "inner"]);
        let (known, cycles) = (BTreeMap::new(), Vec::new());
        let mut deepest = Deepest { functions: &functions, known, cycles };
        assert_eq!(deepest.of("outer", &mut Vec::new()), 0x30 + 0x108 + 0x10);
        assert_eq!(deepest.path("outer"), ["outer 40", "middle 256", "inner 8"]);
        assert!(deepest.cycles.is_empty());
    }

    #[test]
    fn recursion_is_reported() {
        let functions =
            functions("<a>:\n\tcall   <b>\n\n<b>:\n\tcall   <a>\n\n<c>:\n\tcall   <c>\n");
        let (known, cycles) = (BTreeMap::new(), Vec::new());
        let mut deepest = Deepest { functions: &functions, known, cycles };
        deepest.of("a", &mut Vec::new());
        deepest.of("c", &mut Vec::new());
        assert_eq!(deepest.cycles.len(), 2, "{:?}", deepest.cycles);
    }
}
