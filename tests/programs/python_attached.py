"""A running CPython that a command attaches to and detaches from, while threads use its allocators.

It reads steps of a byte each, and answers with the same byte; `r` means that it is ready. A `Node`
takes 120 bytes in every version, and no free list keeps it.

    b    `build` keeps 20000 more of them
    f    all are freed
    l    `large` keeps 100 more objects of 5033 bytes

Three threads allocate and free other objects all the time. At the end of its input it checks that
nothing that it keeps has changed, and exits with status 0.
"""
import os
import threading


class Node:
    __slots__ = tuple("abcdefghijk")


def build(kept):
    for number in range(20000):
        node = Node()
        node.a = number
        kept.append(node)


def large(kept):
    for number in range(100):
        kept.append(bytes([number]) * 5000)


is_over = False


def churn():
    while not is_over:
        assert len([str(i) * 3 for i in range(500)]) == 500


kept = []
kept_large = []
threads = [threading.Thread(target=churn) for _ in range(3)]
for thread in threads:
    thread.start()
os.write(1, b"r")
while True:
    step = os.read(0, 1)
    if not step:
        break
    if step == b"b":
        build(kept)
    elif step == b"l":
        large(kept_large)
    elif step == b"f":
        assert [node.a for node in kept] == [i % 20000 for i in range(len(kept))]
        kept.clear()
        kept_large.clear()
    os.write(1, step)
is_over = True
for thread in threads:
    thread.join()
