//! Programs that start the program which the user wants to measure.

use super::program::Program;

/// Holds about 21 MiB of dicts in one function.
const SCRIPT: &str = r#"cat > a.py <<'END'
def build():
    return [{"a": i} for i in range(100000)]
x = build()
print(len(x))
END
"#;

const BUILD: &str = "the list of dicts that `build` of a.py returns, about 22 MiB of heap";

pub const PROGRAMS: [Program; 10] = [
    Program {
        name: "sh -c",
        needs: &["python3"],
        packages: "python3",
        prepare: SCRIPT,
        command: "sh -c 'python3 a.py; true'",
        load: None,
        right: BUILD,
    },
    Program {
        name: "make",
        needs: &["make", "python3"],
        packages: "make",
        prepare: r#"cat > a.py <<'END'
def build():
    return [{"a": i} for i in range(100000)]
x = build()
print(len(x))
END
printf 'all:\n\t@python3 a.py\n' > Makefile
"#,
        command: "make",
        load: None,
        right: BUILD,
    },
    Program {
        name: "env -i",
        needs: &["python3"],
        packages: "python3",
        prepare: SCRIPT,
        command: r#"env -i PATH="$PATH" python3 a.py"#,
        load: None,
        right: BUILD,
    },
    Program {
        name: "ninja",
        needs: &["ninja", "g++"],
        packages: "ninja-build g++",
        prepare: r#"cat > m.cc <<'END'
#include <map>
#include <regex>
#include <string>
int main() { std::map<std::string, std::regex> m; return int(m.size()); }
END
printf 'rule cc\n  command = g++ -O1 -c $in -o $out\nbuild m.o: cc m.cc\n' > build.ninja
rm -f m.o
"#,
        command: "ninja",
        load: None,
        right: "the compiler proper, cc1plus: about 120 MiB resident, most of them in GCC's own \
                collector, which is mapped memory",
    },
    Program {
        name: "npm test",
        needs: &["npm", "node"],
        packages: "npm",
        prepare: r#"cat > test.js <<'END'
const rows = [];
for (let i = 0; i < 200000; i++) rows.push({ id: i, name: "row " + i });
console.log(rows.length);
END
printf '{"name": "a", "version": "1.0.0", "scripts": {"test": "node test.js"}}\n' > package.json
"#,
        command: "npm test --silent",
        load: None,
        right: "node test.js, not npm: V8's heap with the array `rows`, about 20 MiB, which is \
                mapped memory without stacks of JavaScript",
    },
    Program {
        name: "cargo test",
        needs: &["cargo"],
        packages: "cargo",
        prepare: r#"mkdir -p src
printf '[package]\nname = "words"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n' > Cargo.toml
cat > src/lib.rs <<'END'
pub fn table(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("word number {i}")).collect()
}
#[test]
fn builds_a_table() {
    assert_eq!(table(200_000).len(), 200_000);
}
END
"#,
        command: "cargo test --quiet --offline",
        load: None,
        right: "the test binary, not cargo or rustc: the strings of `words::table`, about 9 MiB",
    },
    Program {
        name: "mpirun",
        needs: &["mpirun", "mpicc"],
        packages: "openmpi-bin libopenmpi-dev",
        prepare: r#"cat > ranks.c <<'END'
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
static char *make_grid(size_t size) { return memset(malloc(size), 1, size); }
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    char *grid = make_grid(32 << 20);
    MPI_Barrier(MPI_COMM_WORLD);
    free(grid);
    MPI_Finalize();
}
END
mpicc -g -O1 -fno-inline ranks.c -o ranks
"#,
        command: "mpirun -n 2 ./ranks",
        load: None,
        right: "the two ranks, 32 MiB by `make_grid` in each; not mpirun",
    },
    Program {
        name: "timeout and nice",
        needs: &["python3"],
        packages: "python3",
        prepare: SCRIPT,
        command: "timeout 60 nice python3 a.py",
        load: None,
        right: BUILD,
    },
    Program {
        name: "uv run",
        needs: &["uv"],
        packages: "pip:uv",
        prepare: SCRIPT,
        command: "uv run --no-project --offline a.py",
        load: None,
        right: BUILD,
    },
    Program {
        name: "g++",
        needs: &["g++"],
        packages: "g++",
        prepare: r#"cat > h.cpp <<'END'
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <thread>
int main() { std::regex r("a+"); std::cout << std::regex_match("aa", r); }
END
"#,
        command: "g++ -O1 -c h.cpp",
        load: None,
        right: "cc1plus, not the driver: about 200 MiB resident, most of them in GCC's own \
                collector",
    },
];
