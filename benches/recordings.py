"""Costs after the program for recordings of real programs: sealing, size, and the first report."""
import glob
import os
import re
import shutil
import statistics
import subprocess

from applications import missing, programs
from goals import MB, Row
from measure import read_stat, wall_clock

REPORT_S = 0.5


def recording(suite, name):
    """Measures a recording made by the command: sealing, size, and for cc1plus reading."""
    work = programs()[name]
    if not work.command:
        return [missing(name)]
    made = suite.runner.path(f"{name}.heaptide")
    after = statistics.median(seal(suite, work, made) for _ in range(1 if suite.quick else 3))
    rows = [Row(f"{name}: sealing", "", f"{after:.2f} s", "", "≤ 3 s", after <= 3)]
    if name == "cc1plus":
        rows.append(report_row(suite, made))
    sites = count_sites(suite, made)
    size = sum(os.stat(f).st_blocks * 512 for f in glob.glob(made + "/*.profile"))
    each = size / max(1, sites)
    rows.append(Row(f"{name}: profile, {size / 1e6:.1f} MB for {sites} sites", "",
                    f"{each:.0f} B a site", "", "≤ 200 B a site", each <= 200))
    shutil.rmtree(made, ignore_errors=True)
    return rows


def seal(suite, work, made):
    """Records once. Returns the seconds that the command takes in addition to the program."""
    stat = suite.runner.path("inner")
    shutil.rmtree(made, ignore_errors=True)
    argv = [suite.tools.heaptide, "run", "--quiet", "-o", made, "--",
            suite.tools.rusage, stat, *work.argv(0)]
    total = wall_clock(argv, env=dict(os.environ, **work.env), stdin=work.stdin)
    return total - read_stat(stat, argv, os.devnull).wall


def report_row(suite, made):
    """Measures the first report of a recording that is not in the page cache."""
    for path in glob.glob(made + "/*"):
        drop_from_cache(path)
    use, _ = suite.runner.time([suite.tools.heaptide, "report", made])
    suite.runner.note("report", "heaptide", 0, use)
    met = use.wall <= REPORT_S and use.rss_kb <= MB
    return Row("cc1plus: `report`, cold", "", f"{use.wall:.2f} s, {use.rss_kb / 1024:.0f} MB",
               "", f"≤ {REPORT_S} s, ≤ 1 GB", met)


def count_sites(suite, made):
    """Counts sites in the JSON report while streaming, because it can be larger than memory."""
    argv = [suite.tools.heaptide, "report", made, "--format", "json"]
    count, tail = 0, b""
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        while block := child.stdout.read(1 << 20):
            text = tail + block
            found = list(re.finditer(rb'"stack":\s*\[', text))
            count += len(found)
            tail = text[max(found[-1].end() if found else 0, len(text) - 32):]
    return count


def drop_from_cache(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
