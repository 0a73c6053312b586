"""Counters, windows, labels and control with the recorder; without it, that nothing happens."""

import array
import ctypes
import doctest
import gc
import json
import os
import tempfile
import threading
import unittest

import heaptide
from heaptide import _interface, _labels

MIB = 1 << 20

recorded = unittest.skipUnless(heaptide.recording(), "the recorder is not in this process")


def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


class Measured(unittest.TestCase):
    @recorded
    def test_a_block(self):
        with heaptide.measure() as measured:
            block = bytearray(3 * MIB)
            del block
            block = bytearray(MIB)
        found = measured.figures
        self.assertEqual(found.requested_bytes // MIB, 4)
        self.assertEqual(found.freed_bytes // MIB, 3)
        self.assertEqual((round(found.peak_bytes / MIB), round(found.live_bytes / MIB)), (3, 1))
        self.assertEqual(found.largest_bytes, 3 * MIB + 1)
        self.assertGreaterEqual(found.allocations, 2)

    @recorded
    def test_nested(self):
        with heaptide.measure() as outer:
            kept = bytearray(MIB)
            with heaptide.measure() as inner:
                del kept
            bytearray(2 * MIB)
        self.assertEqual(round(inner.figures.live_bytes / MIB), -1)
        self.assertEqual(inner.figures.requested_bytes // MIB, 0)
        self.assertEqual(outer.figures.requested_bytes // MIB, 3)

    @recorded
    def test_ended_in_another_order(self):
        first, second = heaptide.measure(), heaptide.measure()
        first.__enter__()
        block = bytearray(MIB)
        second.__enter__()
        more = bytearray(5 * MIB)
        first.__exit__(None, None, None)
        del more
        most = bytearray(2 * MIB)
        second.__exit__(None, None, None)
        del block, most
        self.assertEqual(first.figures.requested_bytes // MIB, 6)
        self.assertEqual(second.figures.requested_bytes // MIB, 7)
        self.assertEqual(round(second.figures.peak_bytes / MIB), 5)
        self.assertEqual(round(second.figures.live_bytes / MIB), 2)

    @recorded
    def test_other_threads_are_not_included(self):
        with heaptide.measure() as measured:
            in_thread(lambda: bytearray(8 * MIB))
        self.assertLess(measured.figures.requested_bytes, MIB)

    @recorded
    def test_it_ends_on_the_thread_that_started_it(self):
        measured = heaptide.measure()
        in_thread(measured.__enter__)
        with self.assertRaises(RuntimeError):
            measured.__exit__(None, None, None)

    @recorded
    def test_totals(self):
        totals, thread = heaptide.totals(), heaptide.thread()
        sizes = heaptide.histograms()
        block = bytearray(32 * MIB)
        after, thread_after = heaptide.totals(), heaptide.thread()
        self.assertEqual((after.requested_bytes - totals.requested_bytes) // MIB, 32)
        self.assertEqual(round((thread_after.live_bytes - thread.live_bytes) / MIB), 32)
        more = heaptide.histograms()
        # 32 MiB and one more byte: 26 significant bits.
        self.assertEqual(more.requested[26] - sizes.requested[26], 1)
        self.assertEqual((len(more.usable), len(more.freed)), (65, 65))
        del block


class Windows(unittest.TestCase):
    @recorded
    def test_overlapping(self):
        with heaptide.window("outer") as outer:
            kept = bytearray(MIB)
            with heaptide.window("inner") as inner:
                in_thread(lambda: bytearray(4 * MIB))
                so_far = inner.figures
                del kept
        self.assertEqual(so_far.requested_bytes // MIB, 4)
        self.assertEqual(outer.figures.requested_bytes // MIB, 5)
        self.assertEqual(inner.figures.requested_bytes // MIB, 4)
        self.assertEqual(round(inner.figures.live_bytes / MIB), -1)
        self.assertGreaterEqual(round(inner.figures.peak_bytes / MIB), 5)

    @recorded
    def test_marks_and_snapshots(self):
        heaptide.mark("python mark — é")
        first, second = heaptide.snapshot("one"), heaptide.snapshot()
        self.assertEqual(second, first + 1)


class Output(unittest.TestCase):
    def test_a_report_as_text(self):
        text = heaptide.written("json")
        self.assertEqual(bool(text), heaptide.recording())
        if text:
            pids = [process["pid"] for process in json.loads(text)["processes"]]
            self.assertEqual(pids, [os.getpid()])
        self.assertEqual(heaptide.written("nonsense"), "")

    def test_a_report_in_a_file(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "report")
            self.assertEqual(heaptide.write(path, "text --top 1"), heaptide.recording())
            self.assertEqual(os.path.exists(path), heaptide.recording())
            self.assertFalse(heaptide.write(os.path.join(directory, "no", "report")))

    def test_memory(self):
        memory = heaptide.memory()
        self.assertEqual(min(memory) > 0, heaptide.recording())


class Labels(unittest.TestCase):
    @recorded
    def test_elements_of_a_block(self):
        data = array.array("d", bytes(8 * 40000))
        self.assertTrue(heaptide.label("energies", data))
        start = heaptide.address(data)
        for index in (0, 1, 39999):
            found = heaptide.resolve(start + 8 * index + 7)
            self.assertEqual((found.label, found.index), ("energies", index))
            self.assertEqual((found.start, found.element_bytes), (start, 8))
            self.assertEqual((found.dimensions, found.kind), ((40000,), "heap"))
        self.assertEqual(heaptide.resolve(data).index, 0)
        past = heaptide.resolve(start + found.bytes)
        self.assertTrue(past is None or past.label is None)
        del data
        gc.collect()
        freed = heaptide.resolve(start)
        self.assertTrue(freed is None or freed.label is None)

    @recorded
    def test_until_the_end_of_a_block(self):
        data = bytearray(100000)
        with heaptide.label("short", data) as label:
            self.assertTrue(label)
            self.assertEqual(heaptide.resolve(data).label, "short")
        self.assertIsNone(heaptide.resolve(data).label)

    @recorded
    def test_data_within_another_block(self):
        data = bytes(100000)
        with heaptide.label("bytes", data) as label:
            self.assertTrue(label)
            found = heaptide.resolve(heaptide.address(data) + 99999)
            self.assertEqual((found.label, found.index, found.bytes), ("bytes", 99999, 100000))
        small = bytearray(b"abc")
        with heaptide.label("small", small):
            self.assertEqual(heaptide.resolve(small).label, "small")

    @recorded
    def test_shapes(self):
        data = memoryview(bytearray(2 * 3 * 4 * 4)).cast("f", (2, 3, 4))
        with heaptide.label("cube", data) as label:
            self.assertTrue(label)
            self.assertEqual(heaptide.resolve(data).dimensions, (2, 3, 4))
            self.assertEqual(heaptide.resolve(data).element_bytes, 4)
        flat = bytearray(100000)
        heaptide.label("matrix", flat, dimensions=(100, 1000))
        self.assertEqual(heaptide.resolve(flat).dimensions, (100, 1000))

    @recorded
    def test_numpy(self):
        try:
            import numpy
        except ImportError:
            if "numpy" not in os.environ.get("HEAPTIDE_ALLOW_SKIP", "").split(","):
                self.fail("numpy is not installed; HEAPTIDE_ALLOW_SKIP=numpy skips this test")
            self.skipTest("numpy is not installed")
        data = numpy.zeros((300, 400))
        self.assertTrue(heaptide.label("numpy", data))
        found = heaptide.resolve(heaptide.address(data[299, 399:]))
        self.assertEqual((found.index, found.dimensions), (119999, (300, 400)))

    def test_empty_data(self):
        self.assertFalse(heaptide.label("empty", bytearray()))
        with self.assertRaises(TypeError):
            heaptide.label("no buffer", object()) if heaptide.loaded() else memoryview(object())

    def test_addresses(self):
        data = bytearray(b"abc")
        self.assertEqual(heaptide.address(memoryview(data)[1:]), heaptide.address(data) + 1)
        data.append(1)  # it is not held


class LabelsWithoutAddresses(unittest.TestCase):
    def setUp(self):
        # Simulates PyPy, which has no ctypes.pythonapi.
        before, _labels._api = _labels._api, None
        self.addCleanup(setattr, _labels, "_api", before)

    def test_nothing_is_labelled(self):
        data = bytearray(100_000)
        with heaptide.label("data", data) as label:
            self.assertFalse(label)
        self.assertIsNone(heaptide.resolve(data))
        with self.assertRaisesRegex(BufferError, "no address that stays"):
            heaptide.address(data)


class Control(unittest.TestCase):
    @recorded
    def test_an_interpreter_without_calls_that_keep_its_lock_has_the_interface(self):
        # PyPy has no ctypes.PyDLL.
        keeps_lock = ctypes.__dict__.get("PyDLL")
        if keeps_lock is not None:
            del ctypes.PyDLL
        try:
            self.assertIsNotNone(_interface._find())
        finally:
            if keeps_lock is not None:
                ctypes.PyDLL = keeps_lock

    def seen(self, size=MIB):
        before = heaptide.totals().requested_bytes
        bytearray(size)
        return (heaptide.totals().requested_bytes - before) // MIB

    @recorded
    def test_off_and_on(self):
        self.assertEqual(self.seen(), 1)
        heaptide.off()
        try:
            self.assertFalse(heaptide.active(whole_process=True))
            self.assertEqual(self.seen(), 0)
        finally:
            heaptide.on()
        self.assertEqual(self.seen(), 1)

    @recorded
    def test_pauses(self):
        with heaptide.pause():
            with heaptide.pause():
                self.assertEqual(self.seen(), 0)
            self.assertEqual(self.seen(), 0)
            self.assertFalse(heaptide.active())
            found = []
            in_thread(lambda: found.append(self.seen()))
        self.assertEqual(found, [1])
        with heaptide.pause(whole_process=True):
            in_thread(lambda: found.append(self.seen()))
        self.assertEqual((found, heaptide.active()), ([1, 0], True))

    def test_calls_that_behave_the_same_everywhere(self):
        self.assertEqual(heaptide.recording(), heaptide.active(whole_process=True))
        heaptide.threshold(4096)
        heaptide.threshold(4096, below=True)
        heaptide.threshold()
        heaptide.flush()


@unittest.skipIf(heaptide.loaded(), "the recorder is in this process")
class Unloaded(unittest.TestCase):
    def test_nothing_happens(self):
        with heaptide.scope("a"), heaptide.scope("b", 3), heaptide.measure() as measured:
            self.assertEqual(heaptide.context(), heaptide.Context(0))
        with heaptide.window("w") as window, heaptide.pause(), heaptide.pause(True):
            heaptide.mark("m")
        nothing = heaptide.Figures()
        found = [measured.figures, window.figures, heaptide.totals(), heaptide.thread()]
        self.assertEqual(found + [heaptide.figures()], [nothing] * 5)
        self.assertEqual(heaptide.histograms(), heaptide.Histograms())
        self.assertEqual((heaptide.snapshot("s"), heaptide.reset()), (0, False))
        self.assertFalse(heaptide.recording() or heaptide.active())
        data = bytearray(1000)
        with heaptide.label("data", data) as label:
            self.assertFalse(label)
        self.assertIsNone(heaptide.resolve(data))
        heaptide.on()
        heaptide.off()

    def test_functions_are_unchanged(self):
        def function():
            return 42

        self.assertIs(heaptide.scoped(function), function)
        self.assertIs(heaptide.scope("x")(function), function)
        self.assertIs(heaptide.carried(function), function)
        self.assertEqual(heaptide.run_in(heaptide.context(), function), 42)


def load_tests(loader, tests, pattern):
    """Runs the examples in the package's docstrings, too."""
    from heaptide import _control, _figures, _scopes

    for module in (heaptide, _control, _figures, _labels, _scopes):
        tests.addTests(doctest.DocTestSuite(module, extraglobs=vars(heaptide)))
    return tests


if __name__ == "__main__":
    unittest.main()
