"""`heaptide advise`: a function with a cache without a limit; as "alike", the cache has a limit.

render: 3,000 texts of 2,000 letters, all kept, or 100 of them.
"""

import functools
import sys

RENDERED, LIMIT = 3000, 100


@functools.lru_cache(maxsize=LIMIT if sys.argv[1] == "alike" else None)
def render(number):
    return "%04d" % number * 500


print(sum(len(render(number)) for number in range(RENDERED)))
