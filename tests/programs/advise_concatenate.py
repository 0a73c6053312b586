"""`heaptide advise`: a text of 400,000 letters is built from 4000 parts, creating a new text for
each; as "alike", the parts are joined at the end.

build: texts of 100, 200, … letters; each block is larger by the header of the object.
"""

import sys

PARTS, PART = 4000, "x" * 100


def build(parts):
    text = ""
    held = []
    for part in parts:
        held[:] = [text]  # a second reference prevents extension in place
        text = text + part
    return text


def join(parts):
    return "".join(list(parts))


print(len((join if sys.argv[1] == "alike" else build)(PART for _ in range(PARTS))))
