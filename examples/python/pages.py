"""A worked example: alternating tasks fetch pages, and the recording attributes each block to a
page and a phase.

    pip install ./python
    heaptide run -o pages.heaptide -- python3 examples/python/pages.py
    heaptide report --by scope pages.heaptide
    heaptide tree --scopes pages.heaptide

Each of four pages is received in eight parts of 256 KiB, joined to a body of 2 MiB, and packed by a
thread; the index of 1 MiB stays live. Without the recorder the program does the same, and prints no
counters.
"""

import asyncio
import zlib

import heaptide
import heaptide.asyncio

PAGES = 4
PARTS = 8
PART_BYTES = 256 * 1024
INDEX_BYTES = 1024 * 1024


async def receive(page):
    """Yields the parts of a page one by one, as from a network."""
    parts = []
    for number in range(PARTS):
        with heaptide.scope("receive"):
            parts.append(bytearray(PART_BYTES))
            parts[-1][0] = page + number
        await asyncio.sleep(0)
    return parts


@heaptide.scope("join")
def join(parts):
    body = bytearray(b"".join(parts))
    heaptide.label("body", body)
    return body


def pack(body):
    """Runs on a thread of the pool, in the scope of the page that submitted it."""
    with heaptide.scope("pack"):
        return len(zlib.compress(bytes(body)))


async def page(number, pool):
    with heaptide.scope("page", number):
        body = join(await receive(number))
        packed = await asyncio.get_running_loop().run_in_executor(pool, pack, body)
        return len(body), packed


async def pages():
    with heaptide.ThreadPoolExecutor(2) as pool:
        return await asyncio.gather(*(page(number, pool) for number in range(PAGES)))


def main():
    with heaptide.scope("index"), heaptide.measure() as made:
        index = bytearray(INDEX_BYTES)
    if heaptide.recording():
        print("the index takes", made.figures.largest_bytes, "bytes")
    with heaptide.window("pages") as window:
        # Keeps the scopes of all tasks of this loop exact, regardless of when they run.
        done = heaptide.asyncio.run(pages())
    heaptide.mark("pages done")
    if heaptide.recording():
        print("pages took", window.figures.requested_bytes >> 20, "MiB in all")
    print("bytes of all pages:", sum(body for body, _ in done))
    return index


if __name__ == "__main__":
    KEPT = main()
