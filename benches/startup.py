"""The time that recording adds to a program that does nothing."""
import os
import shutil
import statistics

from goals import Row


def start(suite):
    """Measures the cost of recording a program that does nothing."""
    true = shutil.which("true")
    out = suite.runner.path("true.heaptide")
    preload = dict(os.environ, BENCH_PRELOAD=suite.tools.recorder, HEAPTIDE_OUTPUT=out)
    run = [suite.tools.heaptide, "run", "--quiet", "-o", out, "--", true]
    times = {"bare": [], "preload": [], "run": []}
    for _ in range(10 if suite.quick else 60):
        for name, argv, env in (("bare", [true], None), ("preload", [true], preload),
                                ("run", run, None)):
            shutil.rmtree(out, ignore_errors=True)
            times[name].append(suite.runner.time(argv, env=env)[0].wall * 1000)
    bare, preloaded, whole = (statistics.median(times[k]) for k in ("bare", "preload", "run"))
    rows = []
    for title, taken, limit in (("`heaptide run --quiet true`", whole, 15),
                                ("the preload part of it", preloaded, 1)):
        extra = taken - bare
        rows.append(Row(title, f"{bare:.2f} ms", f"{extra:+.2f} ms", "", f"≤ {limit} ms",
                        extra <= limit))
    return rows
