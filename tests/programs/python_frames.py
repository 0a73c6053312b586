"""Python frames in recorded stacks, from every kind of code with frames.

Each `bytearray(N)` allocates one block of N + 1 bytes for its contents, in every version; N is
different at each place. Known numbers of blocks by function, innermost after its caller:

    100001  nested inner          2        100010  by_key key_of         3
    100002  comprehend element    3        100011  recurse (1501 deep)   1
    100003  generate produce      4        100012  in_child (a fork)     1
    100004  work (coroutines)     5        100013  methods Shape.area    2
    100005  handle                1        100014  größe                 1
    100006  compiled made         1        100015  Body (a class body)   1
    100007  wrapper decorated     2        100016  f0 to f299, made and dropped one by one: 1 each
    100008  collect __del__       2        100017  by_function <lambda>  3
    100009  in_thread             3        100018  two_lines called      6, 3 from each line
    100019  either resumed        2        100019  either by_loop resumed 2

`100006` is at line 2 of `made.py`, those of `100016` at line 1 of `generated.py`. With the argument
`kill` the program ends with SIGKILL after `nested`.
"""
import asyncio
import functools
import gc
import os
import signal
import sys
import threading


def nested():
    def inner():
        return bytearray(100001)
    return inner(), inner()


def element():
    return bytearray(100002)


def comprehend():
    return [element() for _ in range(3)]


def produce():
    for _ in range(4):
        yield bytearray(100003)


def generate():
    return list(produce())


async def work():
    await asyncio.sleep(0)
    return bytearray(100004)


async def gather():
    return await asyncio.gather(*[work() for _ in range(5)])


def handle():
    try:
        raise ValueError("expected")
    except ValueError:
        return bytearray(100005)


def compiled():
    names = {}
    exec(compile("def made():\n    return bytearray(100006)\n", "made.py", "exec"), names)
    return names["made"]()


def around(function):
    @functools.wraps(function)
    def wrapper():
        return function()
    return wrapper


@around
def decorated():
    return bytearray(100007)


class Cycle:
    def __init__(self):
        self.me = self

    def __del__(self):
        bytearray(100008)


def collect():
    Cycle()
    Cycle()
    gc.collect()


def in_thread():
    return bytearray(100009)


def key_of(number):
    bytearray(100010)
    return number


def by_key():
    return sorted([3, 1, 2], key=key_of)


def recurse(depth):
    if depth:
        return recurse(depth - 1)
    return bytearray(100011)


def in_child():
    return bytearray(100012)


class Shape:
    def area(self):
        return bytearray(100013)


def methods():
    return Shape().area(), Shape().area()


def größe():
    return bytearray(100014)


def body():
    class Body:
        data = bytearray(100015)
    return Body


def generated():
    for number in range(300):
        names = {}
        source = "def f%d(): return bytearray(100016)" % number
        exec(compile(source, "generated.py", "exec"), names)
        names["f%d" % number]()


def by_function():
    return functools.reduce(lambda a, b: bytearray(100017), range(4))


def called():
    return bytearray(100018)


def two_lines():
    for _ in range(3):
        called()  # first
        called()  # second


def resumed():
    while True:
        yield bytearray(100019)


def by_loop(generator):
    for _ in generator:
        return


def either(resume, generator):
    resume(generator)


def main():
    nested()
    if sys.argv[1:] == ["kill"]:
        os.kill(os.getpid(), signal.SIGKILL)
    gc.disable()
    comprehend()
    generate()
    asyncio.run(gather())
    handle()
    compiled()
    decorated()
    decorated()
    collect()
    for _ in range(3):
        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()
    by_key()
    sys.setrecursionlimit(10000)
    recurse(1500)
    methods()
    größe()
    body()
    generated()
    by_function()
    two_lines()
    generator = resumed()
    for resume in [next, by_loop] * 2:
        either(resume, generator)
    child = os.fork()
    if child == 0:
        in_child()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


main()
