"""`heaptide advise`: a copy of a table is live at peak, made by pandas or by a substitute for it.

The argument is `copied`, or `alike`: then the table is not copied, but read once more.
"""

import sys

import pandas.core.frame


def load():
    return pandas.core.frame.DataFrame(4_000_000)


def clean(table):
    return table.copy()


table = load()
other = clean(table) if sys.argv[1] == "copied" else load()
print(len(table.values), len(other.values))
