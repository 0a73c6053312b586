"""`heaptide advise`: every 64th text of a list stays live, so that the memory between cannot be
returned; as "alike", all of them stay.

load: 40,000 texts of about 1,000 bytes, of which 625 stay for most of the run.
"""

import sys
import time

TEXTS, KEPT, TICKS, TICK_S = 40000, 64, 100, 0.02


def load():
    return ["%04d" % number * 250 for number in range(TEXTS)]


def serve():
    for _ in range(TICKS):
        bytearray(300000)  # samples are taken while the program allocates
        time.sleep(TICK_S)


texts = load()
if sys.argv[1] != "alike":
    texts = texts[::KEPT]
serve()
print(len(texts))
