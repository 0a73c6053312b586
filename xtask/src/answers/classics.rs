//! Programs that everybody has.

use super::program::Program;

/// Writes 200,000 rows of JSON.
const JSON: &str = r#"python3 - <<'END'
import json
json.dump([{"id": i, "name": f"row {i}"} for i in range(100000)], open("rows.json", "w"))
END
"#;

pub const PROGRAMS: [Program; 10] = [
    Program {
        name: "gcc",
        needs: &["gcc"],
        packages: "gcc",
        prepare: r#"python3 - > many.c <<'END'
for i in range(300):
    print(f"int f{i}(int a, int b) {{ int s = 0; while (a-- > b) s += a * {i}; return s; }}")
END
"#,
        command: "gcc -O2 -c many.c",
        load: None,
        right: "cc1, not the driver: most memory in GCC's own collector",
    },
    Program {
        name: "clang",
        needs: &["clang"],
        packages: "clang",
        prepare: r#"cat > h.cpp <<'END'
#include <map>
#include <regex>
int main() { std::regex r("a+"); return std::regex_match("aa", r); }
END
"#,
        command: "clang++ -O1 -c h.cpp",
        load: None,
        right: "clang's AST and modules, by clang's bump allocators, about 50 to 80 MiB",
    },
    Program {
        name: "git log",
        needs: &["git"],
        packages: "git",
        prepare: r#"rm -rf r; git init -q r; cd r
for i in 1 2 3 4 5 6; do seq $((i * 10000)) > f; git add f
git -c user.name=a -c user.email=a@b commit -qm $i; done
"#,
        command: "git -C r log -p --output=log.txt",
        load: None,
        right: "git's diff (xdiff) and the objects that it reads, about 20 MiB, freed before exit",
    },
    Program {
        name: "sqlite3",
        needs: &["sqlite3"],
        packages: "sqlite3",
        prepare: r#"cat > rows.sql <<'END'
create table t(a, b);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000)
insert into t select i, 'row number ' || i from n;
select count(*) from t;
END
"#,
        command: "sqlite3 :memory: '.read rows.sql'",
        load: None,
        right: "pages of the database in memory, about 6 MiB, by sqlite's page cache",
    },
    Program {
        name: "jq",
        needs: &["jq"],
        packages: "jq",
        prepare: JSON,
        command: "jq length rows.json",
        load: None,
        right: "values of the parsed document (jq's parser), about 35 MiB, freed before exit",
    },
    Program {
        name: "ffmpeg",
        needs: &["ffmpeg"],
        packages: "ffmpeg",
        prepare: "",
        command: "ffmpeg -v error -y -f lavfi -i testsrc=size=1280x720:rate=5:duration=2 \
                  -c:v mpeg4 v.mp4",
        load: None,
        right: "frames and encoder buffers of libavcodec and libavutil, tens of MiB",
    },
    Program {
        name: "xz",
        needs: &["xz"],
        packages: "xz-utils",
        prepare: "seq 500000 > n.txt",
        command: "xz -k -f -6 n.txt",
        load: None,
        right: "the encoder of liblzma, 94 MiB of which a small input touches a part",
    },
    Program {
        name: "tar | gzip",
        needs: &["tar", "gzip"],
        packages: "tar gzip",
        prepare: "seq 300000 > n.txt",
        command: "sh -c 'tar cf - n.txt | gzip > n.tgz'",
        load: None,
        right: "tar with its buffers, some tens of KiB; gzip has almost no heap",
    },
    Program {
        name: "pandas",
        needs: &["python3"],
        packages: "pip:pandas",
        prepare: r#"python3 -c 'import pandas' && cat > job.py <<'END'
import pandas as pd
def load():
    return pd.DataFrame({"a": range(1000000), "b": [i % 7 for i in range(1000000)]})
def summary(frame):
    return frame.groupby("b").a.sum()
print(summary(load()).sum())
END
"#,
        command: "python3 job.py",
        load: None,
        right: "`load` of job.py: lists and columns, about 45 to 80 MiB; imports of pandas come \
                after it",
    },
    Program {
        name: "sort",
        needs: &["sort"],
        packages: "coreutils",
        prepare: "seq 300000 | rev > n.txt",
        command: "sort -o s.txt n.txt",
        load: None,
        right: "sort's buffer of lines by `main` or `sort_files`, sized by the input, freed or \
                not before exit",
    },
];
