//! Programs of ten language runtimes.

use super::program::Program;

pub const PROGRAMS: [Program; 10] = [
    Program {
        name: "java",
        needs: &["java", "javac"],
        packages: "default-jdk-headless",
        prepare: r#"cat > Rows.java <<'END'
import java.util.*;
public class Rows {
    public static void main(String[] a) {
        Map<Integer, String> rows = new HashMap<>();
        for (int i = 0; i < 500000; i++) rows.put(i, "row " + i);
        System.out.println(rows.size());
    }
}
END
javac Rows.java
"#,
        command: "java -Xmx256m Rows",
        load: None,
        right: "the Java heap, by resident bytes (about 60 to 120 MiB), and how to see inside it; \
                the rest of the JVM is small",
    },
    Program {
        name: "node",
        needs: &["node"],
        packages: "nodejs",
        prepare: r#"cat > rows.js <<'END'
const rows = [];
for (let i = 0; i < 300000; i++) rows.push({ id: i, name: "row " + i });
const big = Buffer.alloc(30 << 20, 1);
console.log(rows.length, big.length);
END
"#,
        command: "node rows.js",
        load: None,
        right: "the Buffer of 30 MiB, and V8's heap with about as much, with a way to see inside",
    },
    Program {
        name: "python",
        needs: &["python3"],
        packages: "python3",
        prepare: r#"cat > lru.py <<'END'
def fill(cache, n):
    for i in range(n):
        key = ("user", i)
        value = {"id": i, "tags": [i]}
        cache[key] = value
cache = {}
fill(cache, 60000)
print(len(cache))
END
"#,
        command: "python3 lru.py",
        load: None,
        right: "`fill` of lru.py, about 22 MiB, most of it by lines 3 and 4",
    },
    Program {
        name: "ruby",
        needs: &["ruby"],
        packages: "ruby",
        prepare: r#"cat > rows.rb <<'END'
rows = (0...200000).map { |i| { id: i, name: "row number #{i} of the long table of rows" } }
puts rows.size
END
"#,
        command: "ruby rows.rb",
        load: None,
        right: "Ruby's own heap (pages of slots) and the strings and tables beside it, about \
                60 MiB, and how to see which Ruby code made them",
    },
    Program {
        name: "php",
        needs: &["php"],
        packages: "php-cli",
        prepare: r#"cat > rows.php <<'END'
<?php
$rows = [];
for ($i = 0; $i < 100000; $i++) $rows[] = ["id" => $i, "name" => "row $i"];
echo count($rows), "\n";
END
"#,
        command: "php rows.php",
        load: None,
        right: "Zend's own heap, which is mapped memory, about 42 MiB, and the variable \
                USE_ZEND_ALLOC=0 that shows its blocks",
    },
    Program {
        name: "luajit",
        needs: &["luajit"],
        packages: "luajit",
        prepare: r#"cat > rows.lua <<'END'
local rows = {}
for i = 1, 300000 do rows[i] = { id = i, name = "row " .. i } end
print(#rows)
END
"#,
        command: "luajit rows.lua",
        load: None,
        right: "LuaJIT's own heap, which is mapped memory, about 55 MiB",
    },
    Program {
        name: "R",
        needs: &["Rscript"],
        packages: "r-base-core",
        prepare: r#"cat > rows.R <<'END'
x <- matrix(runif(2e6), ncol = 100)
y <- x %*% t(x[1:1000, ])
cat(dim(y), "\n")
END
"#,
        command: "Rscript rows.R",
        load: None,
        right: "R's vectors: y with 152 MiB and x with 15 MiB, allocated for the script's \
                expressions; not Rscript or the shell",
    },
    Program {
        name: "ocaml",
        needs: &["ocamlfind", "ocamlopt"],
        packages: "ocaml-nox ocaml-findlib",
        prepare: r#"cat > rows.ml <<'END'
let rows = Hashtbl.create 16
let fill n = for i = 0 to n - 1 do Hashtbl.add rows i (string_of_int i) done
let () = fill 500000; print_int (Hashtbl.length rows)
END
ocamlfind ocamlopt -g rows.ml -o rows 2>&1
"#,
        command: "./rows",
        load: None,
        right: "OCaml's own heap, grown by `fill`, about 50 MiB",
    },
    Program {
        name: "gfortran",
        needs: &["gfortran"],
        packages: "gfortran",
        prepare: r#"cat > step.f90 <<'END'
module grid
contains
  subroutine step(a, b)
    real(8), intent(in) :: a(:, :)
    real(8), intent(out), allocatable :: b(:, :)
    b = matmul(transpose(a), a)
  end subroutine
end module
program main
  use grid
  real(8), allocatable :: a(:, :), b(:, :)
  allocate (a(1000, 1000))
  a = 1
  call step(a, b)
  print *, sum(b)
end program
END
gfortran -g -O1 step.f90 -o step
"#,
        command: "./step",
        load: None,
        right: "`step` of step.f90 with the result and its temporaries, 8 MB each, and the main \
                program with 8 MB; never a function of libgfortran",
    },
    Program {
        name: "go",
        needs: &["go"],
        packages: "golang-go",
        prepare: r#"cat > rows.go <<'END'
package main

// #include <stdlib.h>
// #include <string.h>
// static char *image(size_t n) { return memset(malloc(n), 1, n); }
import "C"
import "fmt"

func load() *C.char { return C.image(20 << 20) }

func main() {
	rows := map[int]string{}
	for i := 0; i < 300000; i++ {
		rows[i] = fmt.Sprint("row ", i)
	}
	p := load()
	fmt.Println(len(rows), p != nil)
}
END
go build -o rows rows.go
"#,
        command: "./rows",
        load: None,
        right: "C memory of 20 MiB by `main.load` through cgo, and Go's own heap, about 32 MiB, \
                with the way to profile it",
    },
];
