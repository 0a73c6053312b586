"""Objects of CPython, by function and size: with Python's own allocator, each is a block.

A `Node` takes 120 bytes in every version, and no free list keeps it; `bytes(5000)` takes 5033
bytes, which Python's allocator takes from malloc. Known numbers of blocks, all freed by the end:

    build   20000 of 120 bytes       large   100 of 5033 bytes

The first argument selects what runs `build` and `large`:

    plain        the program, once
    tracemalloc  the program, before, while and after tracemalloc traces: three times
    threads      4 threads, 3 times each: 12 times
    fork         2 forked processes, once each
    nested       2 subinterpreters, once each

It prints the variable PYTHONMALLOC of its environment.
"""
import os
import sys
import threading


class Node:
    __slots__ = tuple("abcdefghijk")


def build():
    kept = [None] * 20000
    for i in range(20000):
        kept[i] = Node()
    return kept


def large():
    kept = [None] * 100
    for i in range(100):
        kept[i] = bytes(5000)
    return kept


def once():
    kept = build(), large()
    del kept


def traced():
    import tracemalloc

    once()
    tracemalloc.start(3)
    once()
    tracemalloc.stop()
    once()


def threads():
    def thrice():
        for _ in range(3):
            once()

    all_threads = [threading.Thread(target=thrice) for _ in range(4)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()


def forks():
    for _ in range(2):
        child = os.fork()
        if child == 0:
            once()
            os._exit(0)
        os.waitpid(child, 0)


def nested():
    if sys.version_info >= (3, 13):
        import _interpreters as interpreters
    else:
        import _xxsubinterpreters as interpreters
    with open(__file__) as file:
        source = file.read()
    for _ in range(2):
        interpreter = interpreters.create()
        code = source.split("def traced")[0] + "once()\n"
        assert interpreters.run_string(interpreter, code) is None
        interpreters.destroy(interpreter)


if __name__ == "__main__":
    {
        "plain": once,
        "tracemalloc": traced,
        "threads": threads,
        "fork": forks,
        "nested": nested,
    }[sys.argv[1]]()
    print(os.environ.get("PYTHONMALLOC"))
