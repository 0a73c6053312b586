#!/usr/bin/env python3
"""Measures the page of `heaptide view` and `heaptide export --format html` in Chromium:

    benches/viewer.py [--heaptide FILE] [--stacks N[,N…]]

For each number of stacks it creates, exports and serves a synthetic recording. Prints a table: time
from navigation to the drawn page; processor time of the page's thread until then, and for a zoom, a
change of the metric, a search, and a pointer over a box; and frames per second while boxes are
pointed at and zoomed. It has no goals and no other command runs it, because Chromium may be
missing.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import scale
from chromium import Browser

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DRAWN = ("document.readyState === 'complete' && shown.model !== null && flame.panes.length > 0"
         " && flame.panes[0].boxes.length > 1 && document.querySelector('#tables tbody tr')")
ZOOM = """(() => {
  const wide = flame.panes[0].boxes.filter((box) => box.node > 0 && !box.above && box.width > 150
    && box.width < 1200);
  if (state.zoom !== "" || wide.length === 0) change({ zoom: "" });
  else zoomTo(wide[(window.turn = (window.turn ?? 0) + 1) % wide.length].node);
})()"""
MEASURE = """change({ measure: state.measure === "allocations" ? "usable_bytes" : "allocations" })"""
SEARCH = """change({ search: state.search === "" ? "visit" : "" })"""
POINT = """(() => {
  const canvas = byId("canvas"), { left, top, width, height } = canvas.getBoundingClientRect();
  const turn = window.at = (window.at ?? 0) + 1;
  canvas.dispatchEvent(new PointerEvent("pointermove", { bubbles: true,
    clientX: left + (turn * 37) % width, clientY: top + (turn * 13) % Math.min(500, height) }));
})()"""
FRAMES = """(async () => {
  const frame = () => new Promise(requestAnimationFrame);
  const start = await frame();
  let last = start;
  for (let i = 0; i < 120; i += 1) { ACT; last = await frame(); }
  return 120000 / (last - start);
})()"""


class Page:
    """An open page whose processor time can be read."""

    def __init__(self, address):
        self.browser = Browser()
        self.browser.window(1440, 900)
        self.browser.send("Performance.enable", timeDomain="threadTicks")
        begin = time.monotonic()
        self.browser.open(address)
        self.browser.until(DRAWN, 600)
        self.drawn, self.drawing = time.monotonic() - begin, self.thread()
        self.browser.value("byId('canvas').scrollIntoView({ block: 'center' })")

    def thread(self):
        """Returns the processor time of the page's thread in seconds."""
        metrics = self.browser.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "TaskDuration")

    def cost(self, act, times=12):
        """Returns the median processor time of an action including the redraw, in milliseconds. The
        first two, which fill caches, are not counted.
        """
        costs = []
        for _ in range(times + 2):
            before = self.thread()
            self.browser.value(f"(async () => {{ {act}; await new Promise(requestAnimationFrame);"
                               " await new Promise(requestAnimationFrame); })()")
            costs.append((self.thread() - before) * 1000)
        return statistics.median(costs[2:])

    def frames(self, act):
        return self.browser.value(FRAMES.replace("ACT", act))

    def row(self):
        row = [f"{self.drawn:.1f} s", f"{self.drawing:.1f} s", *(f"{self.cost(act):.0f} ms" for act in
                                        (ZOOM, MEASURE, SEARCH, POINT)),
               f"{self.frames(POINT):.0f}", f"{self.frames(ZOOM):.0f}"]
        self.browser.close()
        return row


def served(heaptide, recording):
    """Returns the row for the page of a server."""
    with subprocess.Popen([heaptide, "view", "--no-open", recording], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            return Page(server.stdout.readline().strip()).row()
        finally:
            server.terminate()


def exported(heaptide, recording, directory):
    page = os.path.join(directory, "page.html")
    subprocess.run([heaptide, "export", "--format", "html", "--force", "-o", page, recording],
                   check=True)
    return f"{os.path.getsize(page) / 1e6:.0f} MB", Page(f"file://{page}").row()


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heaptide", default=os.path.join(ROOT, "target/release/heaptide"),
                        help="the command to measure; heaptide-synthetic is beside it")
    parser.add_argument("--stacks", default="200000,2000000", help="stacks of the recordings")
    return parser.parse_args()


def main():
    o = options()
    print("| stacks | page | drawn after | thread | zoom | metric | search | pointer | frames/s, pointer "
          "| frames/s, zooms |\n|---|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        for stacks in map(int, o.stacks.split(",")):
            recording = scale.made(o.heaptide, stacks)
            size, row = exported(o.heaptide, recording, directory)
            for what, cells in ((f"file, {size}", row), ("server", served(o.heaptide, recording))):
                print(f"| {stacks:,} | {what} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
