"""Ends while a thread allocates in native code, without the interpreter lock.

Argument: the library of `python_exit.c`.

Known: prints `end` and exits with 0. The interpreter frees the states and frames of other threads
before it collects `last`. The finalizer of `last` therefore reuses their memory and overwrites
their references with 0x4141414141414141.
"""
import ctypes
import os
import sys
import threading
import time


class Last:
    def __del__(self, bytearray=bytearray, range=range, sleep=time.sleep, write=os.write):
        kept = []
        for size in range(100, 700, 8):
            for _ in range(40):
                kept.append(bytearray(b"A" * size))
        sleep(0.05)
        write(1, b"end\n")


last = Last()
library = ctypes.CDLL(sys.argv[1])
threading.Thread(target=library.churn, daemon=True).start()
time.sleep(0.05)
