"""`heaptide advise`: exceptions that are kept with their tracebacks; as "alike", their texts are
kept.

parse: 2,000 errors, each with a buffer of 5,000 bytes in a local variable.
"""

import sys

ERRORS, BYTES = 2000, 5000


def parse(number):
    buffer = bytearray(BYTES)
    if len(buffer) == BYTES:
        raise ValueError("no number: %d" % number)
    return buffer


def parse_all():
    errors = []
    for number in range(ERRORS):
        try:
            parse(number)
        except ValueError as error:
            errors.append(str(error) if sys.argv[1] == "alike" else error)
    return errors


print(len(parse_all()))
