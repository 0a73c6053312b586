"""What a module keeps until CPython ends, which then frees it.

    hold     10000 of 1033 bytes, kept by the module until the end: 10330000 bytes
    release  10000 of 1034 bytes, freed before

`bytes(n)` takes n + 33 bytes in every version.
"""


def hold():
    kept = [None] * 10000
    for i in range(10000):
        kept[i] = bytes(1000)
    return kept


def release():
    kept = [None] * 10000
    for i in range(10000):
        kept[i] = bytes(1001)
    return kept


release()
HELD = hold()

import sys  # here, since tests know the lines above

if sys.argv[1:] == ["interrupted"]:
    raise KeyboardInterrupt  # Python ends, and then kills itself
