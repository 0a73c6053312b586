"""Scopes and contexts with the recorder; without it, that nothing happens."""

import asyncio
import contextvars
import gc
import inspect
import os
import threading
import unittest

import heaptide
import heaptide.asyncio

# A size that only these tests allocate, far above Python's own allocations.
MIB = 1 << 20

recorded = unittest.skipUnless(heaptide.recording(), "the recorder is not in this process")


def allocated(inclusive=False):
    """Returns how many MiB were allocated in the current scope path."""
    return heaptide.figures(inclusive=inclusive).requested_bytes // MIB


def path():
    """Returns the current scope path as a number; 0: none."""
    return heaptide.context().path


def native():
    """Returns the thread's native path in the recorder, which may be another task's."""
    from heaptide import _interface

    return _interface.library.context() if _interface.library else 0


def same(paths):
    """Converts paths of other threads to this thread's numbers."""
    return [heaptide.run_in(heaptide.Context(each), path) for each in paths]


class Paths(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(native(), 0, "a scope was left open")

    @recorded
    def test_blocks_are_counted_in_their_scope(self):
        with heaptide.scope("python load"):
            first = bytearray(3 * MIB)
            with heaptide.scope("iteration", 7):
                second = bytearray(2 * MIB)
                self.assertEqual(allocated(), 2)
            self.assertEqual((allocated(), allocated(inclusive=True)), (3, 5))
        with heaptide.scope("python use"):
            del first, second
            self.assertEqual(allocated(), 0)

    @recorded
    def test_names_of_any_kind(self):
        paths = set()
        values = [0, -1, 2**62, 2**70, True, "", "é — 名", "x" * 5000, "\udcff"]
        for value in values:
            with heaptide.scope("value", value):
                paths.add(path())
        # `True` equals 1; all others are distinct names.
        self.assertEqual(len(paths), len(values))
        with heaptide.scope("dummy1"):
            one = path()
        with heaptide.scope("dummy10"):
            self.assertNotEqual(path(), one)

    @recorded
    def test_a_child_of_a_fork(self):
        """A forked child has a recording of its own, and starts outside of all scopes."""
        with heaptide.scope("forked"):
            bytearray(2 * MIB)
        with heaptide.scope("forking"):
            child = os.fork()
            if child == 0:
                failed = 1
                try:
                    outside = path() == 0
                    with heaptide.scope("forked"):
                        bytearray(3 * MIB)
                        failed = int(not outside or allocated() != 3)
                finally:
                    os._exit(failed)
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    @recorded
    def test_one_object_entered_repeatedly(self):
        again = heaptide.scope("again")
        with again:
            outer = path()
            with again:
                self.assertNotEqual(path(), outer)
            self.assertEqual(path(), outer)
        self.assertEqual(path(), 0)

    @recorded
    def test_left_by_an_exception(self):
        with self.assertRaises(KeyError):
            with heaptide.scope("fails"):
                raise KeyError("x")
        self.assertEqual(path(), 0)

    @recorded
    def test_left_in_another_order(self):
        first, second = heaptide.scope("first"), heaptide.scope("second")
        first.__enter__()
        second.__enter__()
        inside = path()
        first.__exit__(None, None, None)
        self.assertEqual(path(), inside)
        second.__exit__(None, None, None)
        self.assertEqual(path(), 0)

    @recorded
    def test_scopes_of_native_code_are_kept(self):
        from heaptide._interface import library

        name = library.intern(None, 0, b"native", 6)
        with heaptide.scope("outer"):
            outer = path()
            library.scope_begin(name)
            with_native = path()
            self.assertNotEqual(with_native, outer)
            with heaptide.scope("inner"):
                pass
            self.assertEqual(path(), with_native)
        self.assertEqual(path(), 0)


class Decorated(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(native(), 0, "a scope was left open")

    def test_decorated_functions_keep_their_kind(self):
        @heaptide.scoped
        def plain(a, b=2):
            """Documented."""
            return a, b

        @heaptide.scope("named")
        async def coroutine():
            return 1

        @heaptide.scoped
        def generator():
            got = yield 1
            return got

        @heaptide.scoped
        async def asynchronous():
            yield 1

        self.assertEqual(plain(1, b=3), (1, 3))
        self.assertEqual((plain.__name__, plain.__doc__), ("plain", "Documented."))
        self.assertTrue(inspect.iscoroutinefunction(coroutine))
        self.assertTrue(inspect.isgeneratorfunction(generator))
        self.assertTrue(inspect.isasyncgenfunction(asynchronous))
        self.assertEqual(asyncio.run(coroutine()), 1)

    @recorded
    def test_plain(self):
        @heaptide.scoped
        def load():
            block = bytearray(4 * MIB)
            return block, allocated(), path()

        block, inside, own = load()
        self.assertEqual((inside, native()), (4, 0))
        self.assertNotEqual(own, 0)
        self.assertEqual(load()[2], own)

    @recorded
    def test_generators_in_turn(self):
        @heaptide.scope("generator")
        def numbers(of, size):
            with heaptide.scope("of", of):
                while True:
                    block = bytearray(size)
                    sent = yield native(), allocated()
                    del block
                    if sent == "stop":
                        return "stopped"

        first, second = numbers("first", MIB), numbers("second", 2 * MIB)
        for step in range(1, 4):
            with heaptide.scope("caller"):
                caller = native()
                one, two = next(first), next(second)
                self.assertEqual(native(), caller)
            self.assertNotEqual(one[0], two[0])
            self.assertEqual((one[1], two[1]), (step, 2 * step))
        with self.assertRaises(StopIteration) as stop:
            first.send("stop")
        self.assertEqual(stop.exception.value, "stopped")
        with self.assertRaises(ZeroDivisionError):
            second.throw(ZeroDivisionError())

    @recorded
    def test_generators_that_are_never_finished(self):
        @heaptide.scoped
        def endless():
            while True:
                with heaptide.scope("inside"):
                    yield

        def plain():
            with heaptide.scope("inside"):
                yield

        for function in (endless, plain):
            started = function()
            next(started)
            with heaptide.scope("meanwhile"):
                del started
                gc.collect()
            self.assertEqual(path(), 0)

    @recorded
    def test_asynchronous_generators(self):
        @heaptide.scope("asynchronous generator")
        async def numbers():
            sent = 0
            while True:
                await asyncio.sleep(0)
                try:
                    sent = yield sent, native()
                except KeyError:
                    sent = "caught"

        async def use():
            inner = numbers()
            first = await inner.asend(None)
            self.assertEqual(native(), 0)
            second = await inner.asend("sent")
            third = await inner.athrow(KeyError())
            await inner.aclose()
            self.assertEqual((first[0], second[0], third[0]), (0, "sent", "caught"))
            self.assertEqual(first[1], second[1])
            self.assertNotEqual(first[1], 0)

        asyncio.run(use())


class Tasks(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(native(), 0, "a scope was left open")

    @staticmethod
    async def task(name, size, after):
        """Allocates three times in its scope, interleaved with other tasks; returns the paths."""
        paths = []
        with heaptide.scope("task", name):
            for _ in range(3):
                block = bytearray(size)
                paths.append(after())
                await asyncio.sleep(0)
                del block
            total = allocated()
        return paths, total, path()

    async def both(self, after):
        return await asyncio.gather(
            self.task("first", MIB, after), self.task("second", 2 * MIB, after)
        )

    @recorded
    def test_scopes_of_tasks_do_not_mix(self):
        (one, _, one_end), (two, _, two_end) = asyncio.run(self.both(path))
        self.assertEqual((len(set(one)), len(set(two))), (1, 1))
        self.assertNotEqual(one[0], two[0])
        self.assertEqual((one_end, two_end), (0, 0))

    @recorded
    def test_scopes_are_exact_when_installed(self):
        before = self.totals_of_tasks()
        (one, _, _), (two, _, _) = heaptide.asyncio.run(self.both(native))
        self.assertEqual((len(set(one)), len(set(two))), (1, 1))
        after = self.totals_of_tasks()
        self.assertEqual([b - a for a, b in zip(before, after)], [3, 6])

    def totals_of_tasks(self):
        totals = []
        for name in ("first", "second"):
            with heaptide.scope("task", name):
                totals.append(allocated())
        return totals

    @recorded
    def test_tasks_start_in_the_scope_that_created_them(self):
        async def child():
            await asyncio.sleep(0)
            return native()

        async def parent():
            with heaptide.scope("parent"):
                here = path()
                tasks = [asyncio.ensure_future(child()) for _ in range(3)]
            return here, await asyncio.gather(*tasks)

        here, found = heaptide.asyncio.run(parent())
        self.assertEqual(found, [here] * 3)

    @recorded
    def test_work_in_threads(self):
        async def main():
            loop = asyncio.get_running_loop()
            loop.set_default_executor(heaptide.ThreadPoolExecutor(2))
            with heaptide.scope("request"):
                here = path()
                return here, await loop.run_in_executor(None, native)

        here, found = heaptide.asyncio.run(main())
        self.assertEqual(same([found]), [here])

    def test_tasks_look_unchanged(self):
        async def main():
            heaptide.asyncio.install()
            task = asyncio.ensure_future(asyncio.sleep(0, "done"))
            self.assertIn("sleep", repr(task))
            task.get_stack()
            cancelled = asyncio.ensure_future(asyncio.sleep(3600))
            await asyncio.sleep(0)
            cancelled.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await cancelled
            return await task

        self.assertEqual(asyncio.run(main()), "done")
        self.assertEqual(heaptide.asyncio.run(asyncio.sleep(0, "ran")), "ran")


class Threads(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(native(), 0, "a scope was left open")

    @recorded
    def test_a_context_is_carried(self):
        found = []

        def work(size):
            block = bytearray(size)
            found.append(native())
            del block

        with heaptide.scope("carried"):
            here = heaptide.context()
            for target in (heaptide.carried(work), lambda size: heaptide.run_in(here, work, size)):
                thread = threading.Thread(target=target, args=(2 * MIB,))
                thread.start()
                thread.join()
            plain = threading.Thread(target=work, args=(MIB,))
            plain.start()
            plain.join()
            self.assertEqual(allocated(), 4)
        self.assertEqual(same(found), [here.path, here.path, 0])

    @recorded
    def test_an_executor(self):
        with heaptide.ThreadPoolExecutor(1) as pool:
            with heaptide.scope("pool"):
                here = path()
                inside = pool.submit(native)
                mapped = list(pool.map(lambda _: native(), range(3)))
            outside = pool.submit(native)
        found = [inside.result(), *mapped, outside.result()]
        self.assertEqual(same(found), [here] * 4 + [0])

    @recorded
    def test_a_worker_in_a_copied_context(self):
        """Like `asyncio.to_thread`: the worker has its own path again afterwards."""
        found = []

        def work():
            with heaptide.scope("in the copy"):
                found.append(native())
            found.append(native())

        with heaptide.scope("copied"):
            copy = contextvars.copy_context()
            with heaptide.scope("in the copy"):
                expected = path()
        thread = threading.Thread(target=lambda: copy.run(work))
        thread.start()
        thread.join()
        self.assertEqual(same(found), [expected, 0])

    @recorded
    def test_contexts_of_threads_are_compared(self):
        found = []

        def work():
            with heaptide.scope("compared"):
                found.append(heaptide.context())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertNotEqual(heaptide.context(), found[0])
        with heaptide.scope("compared"):
            self.assertEqual(heaptide.context(), found[0])

    @recorded
    def test_many_threads_have_separate_paths(self):
        totals = {}

        def work(number):
            with heaptide.scope("worker", number):
                for _ in range(3):
                    bytearray(MIB)
                totals[number] = allocated()

        threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(totals, {number: 3 for number in range(20)})


if __name__ == "__main__":
    unittest.main()
