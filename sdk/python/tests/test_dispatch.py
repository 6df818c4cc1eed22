"""``longshore.dispatch`` with a real pool. ``cargo nextest`` runs this with LONGSHORE_PROGRAM."""

import operator
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from longshore.dispatch import DispatchError, DispatchExecutor, Pool

PROGRAM = os.environ.get("LONGSHORE_PROGRAM")


@unittest.skipUnless(PROGRAM, "LONGSHORE_PROGRAM is not set")
class DispatchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.home = tempfile.TemporaryDirectory()
        cls.old = os.getcwd()
        os.chdir(cls.home.name)
        start = [PROGRAM, "dispatch", "start", "--dir", "pool", "--nthr", "4"]
        # The pool ends with this process.
        subprocess.run(start, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        cls.pool = Pool(Path("pool").resolve(), PROGRAM)

    @classmethod
    def tearDownClass(cls):
        subprocess.run([PROGRAM, "dispatch", "stop", "--now", "--dir", "pool"], check=True, capture_output=True)
        os.chdir(cls.old)
        cls.home.cleanup()

    def test_a_command_is_run_with_its_words_as_they_are(self):
        result = self.pool.submit(["printf", "%s|", "a b", "$HOME", "--dir"], pin=True).wait(60)
        self.assertEqual((result.ok, result.exit_code, result.output), (True, 0, "a b|$HOME|--dir|"))
        failed = self.pool.submit(["sh", "-c", "echo oh; exit 7"], env={"X": "1"}, time=60).wait()
        self.assertEqual((failed.state, failed.exit_code, failed.output), ("failed", 7, "oh\n"))
        self.assertIn("exit-7", failed.failure)

    def test_dependencies_wait_and_a_cancelled_task_says_so(self):
        Path("dep.sh").write_text("until [ -e dep ]; do sleep 0.05; done\n")
        first = self.pool.submit_script("dep.sh")
        second = self.pool.submit(["true"], after=[first])
        self.assertEqual(second.state(), "blocked")
        self.assertEqual(second.explain()["reasons"], [{"reason": "dependencies"}])
        with self.assertRaises(TimeoutError):
            first.wait(0.2)
        Path("dep").touch()
        self.assertTrue(second.wait(60).ok)
        endless = self.pool.submit(["sleep", "1000"])
        endless.cancel()
        self.assertEqual(endless.wait(60).state, "cancelled")

    def test_arrays_have_results_per_task(self):
        array = self.pool.submit_array(["sh", "-c", "echo $LONGSHORE_ARRAY_INDEX; [ $LONGSHORE_ARRAY_INDEX != 2 ]"], "1-3")
        self.assertEqual(len(array), 3)
        result = array.wait(60)
        self.assertEqual((result.ok, result.total, result.done, result.failed), (False, 3, 2, 1))
        self.assertEqual(array.output(), b"1\n2\n3\n")
        self.assertEqual((array[2].wait().exit_code, array[3].output()), (1, b"3\n"))
        lines = self.pool.submit_array(["printenv", "LONGSHORE_LINE"], lines=["a b", "", "c\r"])
        self.assertTrue(lines.wait(60).ok)
        self.assertEqual(lines.output(), b"a b\n\nc\r\n")

    def test_wrong_use_is_an_error(self):
        with self.assertRaisesRegex(DispatchError, "cannot find script"):
            self.pool.submit_script("missing.sh")
        with self.assertRaises(TypeError):
            self.pool.submit("ls -l")
        with self.assertRaises(TypeError):
            self.pool.submit(["ls"], thread=4)

    def test_an_executor_returns_results_and_raises_errors(self):
        with DispatchExecutor(self.pool) as executor:
            self.assertEqual(list(executor.map(pow, [2, 3], [10, 2])), [1024, 9])
            with self.assertRaises(ZeroDivisionError):
                executor.submit(operator.truediv, 1, 0).result(60)
            # A call that ends its process has no result.
            with self.assertRaisesRegex(DispatchError, "without a result"):
                executor.submit(os._exit, 9).result(60)
        with self.assertRaises(RuntimeError):
            executor.submit(pow, 1, 1)


if __name__ == "__main__":
    unittest.main()
