"""`heaptide advise`: a text of 400,000 letters is built of 4000 parts, each time as a new text; as
"alike" the parts are joined at the end.

  build  a text of 100, 200, … bytes; each is longer than its letters by what a text needs itself
"""

import sys

PARTS, PART = 4000, "x" * 100


def build(parts):
    text = ""
    held = []
    for part in parts:
        held[:] = [text]  # a second reference: the text cannot be extended where it is
        text = text + part
    return text


def join(parts):
    return "".join(list(parts))


print(len((join if sys.argv[1] == "alike" else build)(PART for _ in range(PARTS))))
