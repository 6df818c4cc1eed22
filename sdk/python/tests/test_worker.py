"""Whole workers, as processes."""

import json
import os
import unittest

from .support import BothForms, ready, start


class Answers(BothForms):
    def test_results_of_many_kinds(self) -> None:
        source = """
            @dataclass
            class Size:
                width: int
                inner: Any = None

            values = {"dataclass": Size(1, Size(2)), "tuple": (1, 2), "none": None, "big": 2**80,
                      "bytes": b"\\0\\xff", "view": memoryview(b"abc"), "array": bytearray(b"abc")}

            @worker.operation("make")
            def make(name: str):
                return values[name]
        """
        for worker in self.each(source):
            inner = {"width": 2, "inner": None}
            for name, value in [
                ("dataclass", {"width": 1, "inner": inner}), ("tuple", [1, 2]), ("none", None),
                ("big", 2**80), ("bytes", b"\0\xff"), ("view", b"abc"), ("array", b"abc"),
            ]:  # fmt: skip
                self.assertEqual(worker.result(worker.call("make", name)), value)

    def test_what_cannot_be_sent_is_an_error_and_the_worker_lives_on(self) -> None:
        source = """
            @worker.operation("make")
            def make(name: str):
                if name == "raise":
                    raise OperationError("\\ud800 half a pair", data={1, 2})
                if name == "huge":
                    raise OperationError("x" * 200_000)
                return {"nan": float("nan"), "set": {1}, "half": "\\ud800", "large": b"x" * 200_000}[name]
        """
        for worker in self.each(source, max_frame=100_000):
            for name, words in [
                ("nan", "Out of range"), ("set", "a set cannot be written"), ("half", "surrogates"),
                ("large", "of at most 100000"), ("raise", "half a pair"), ("huge", "xxx"),
            ]:  # fmt: skip
                self.assert_error(worker, worker.call("make", name), "handler", words)
            self.assertIsNone(worker.result(worker.call("noop")))

    def test_an_exception_without_words_is_an_error_and_the_worker_lives_on(self) -> None:
        source = """
            class Mute(Exception):
                def __str__(self):
                    raise ValueError("no words")

            @worker.operation("fail")
            def fail(cause: bool):
                if cause:
                    raise KeyError("x") from Mute()
                raise Mute()
        """
        for worker in self.each(source):
            self.assert_error(worker, worker.call("fail", False), "handler", "Mute")
            self.assert_error(worker, worker.call("fail", True), "handler", "KeyError")
            self.assertIsNone(worker.result(worker.call("noop")))

    def test_json_that_python_cannot_hold_is_bad_arguments(self) -> None:
        source = """
            @worker.operation("take")
            def take(given):
                return 0
        """
        many_digits, deep = "9" * 10_000, "[" * 200_000 + "]" * 200_000
        for worker in self.each(source):
            for id, text in ((1, many_digits), (2, deep)):
                if worker.binary:
                    body = text.encode()
                    header = (16 + 4 + len(body)).to_bytes(4, "little") + b"\x01\0\x04\0" + bytes(4)
                    worker._write(header + id.to_bytes(8, "little") + b"take" + body)
                else:
                    call = '{"type":"call","id":%d,"operation":"take","arguments":%s}\n'
                    worker._write((call % (id, text)).encode())
                answer = worker.answer(id)
                # Versions differ in what they can hold; then it is no error.
                self.assertEqual(answer.get("kind", "bad_arguments"), "bad_arguments", answer)
            self.assertIsNone(worker.result(worker.call("noop")))

    def test_bytes_and_json_are_not_mistaken_for_each_other(self) -> None:
        source = """
            @worker.operation("length", idempotent=True)
            def length(data: bytes) -> int:
                return len(data)

            @worker.operation("add")
            def add(a: int, b: int) -> int:
                return a + b
        """
        for worker in self.each(source):
            self.assertEqual(worker.result(worker.call("length", b"x" * 100_000)), 100_000)
            self.assertEqual(worker.result(worker.call("add", {"a": 1, "b": 2})), 3)
            self.assert_error(worker, worker.call("length", "text"), "bad_arguments", "bytes are needed")
            self.assert_error(worker, worker.call("add", b"bytes"), "bad_arguments", "bytes, where")
            self.assert_error(worker, worker.call("add", {"a": 1}), "bad_arguments", "b is missing")

    def test_an_exception_is_told_with_its_causes(self) -> None:
        source = """
            @worker.operation("fail")
            def fail():
                try:
                    {}["key"]
                except KeyError as cause:
                    raise ValueError("outer") from cause
        """
        for worker in self.each(source):
            answer = self.assert_error(worker, worker.call("fail"), "handler", "ValueError: outer")
            self.assertEqual(answer["chain"], ["KeyError: 'key'"])
            self.assertEqual(answer["data"]["type"], "ValueError")
            self.assertIn("in fail", answer["data"]["traceback"])


class Life(BothForms):
    def test_state_lives_from_init_to_cleanup(self) -> None:
        source = """
            @worker.init
            def open_it():
                return {"seen": 0}

            @worker.cleanup
            def close_it(state):
                print("closed after", state["seen"])

            @worker.operation("count")
            def count(state, step: int) -> int:
                state["seen"] += step
                return state["seen"]
        """
        for worker in self.each(source):
            self.assertEqual([worker.result(worker.call("count", 2)) for _ in range(3)], [2, 4, 6])
            worker.say("stop")
            self.assertEqual(worker.wait_end(), 0)
            self.assertEqual(worker.last_words(), "closed after 6")

    def test_an_init_that_fails_is_told(self) -> None:
        source = """
            @worker.init
            def open_it():
                raise RuntimeError("no database") from OSError("refused")
        """
        with start(source) as worker:
            said = worker.hear()
            self.assertEqual(said, {"type": "failed", "message": "RuntimeError: no database: OSError: refused"})
            self.assertEqual(worker.wait_end(), 1)
            self.assertIn("Traceback", worker.last_words())

    def test_sys_exit_in_a_call_ends_the_worker_as_asked(self) -> None:
        source = """
            @worker.operation("exit")
            def leave(code: int):
                sys.exit(code)
        """
        for head in ("worker = Worker()", "worker = Worker(concurrency=3)"):
            for worker in self.each(source, head=head):
                before = worker.call("echo", 1)
                self.assertEqual(worker.result(before), 1)
                worker.call("exit", 7)
                self.assertEqual(worker.wait_end(), 7)

    def test_an_answer_is_out_before_the_next_call_begins(self) -> None:
        source = """
            @worker.operation("die")
            def die():
                os._exit(9)
        """
        for worker in self.each(source):
            for _ in range(20):  # so that it has learnt that echo is quick
                worker.result(worker.call("echo"))
            first, second, _ = worker.call("echo", 1), worker.call("echo", 2), worker.call("die")
            self.assertEqual((worker.result(first), worker.result(second)), (1, 2))
            self.assertEqual(worker.wait_end(), 9)

    def test_who_prints_and_who_reads_does_no_harm(self) -> None:
        source = """
            print("at the start")

            @worker.operation("noise")
            def noise():
                print("a print")
                sys.stdout.write("half a line")
                subprocess.run(["sh", "-c", "echo from a child; cat"], check=True)
                os.write(1, b"from below\\n")
                return sys.stdin.read()
        """
        for worker in self.each(source):
            self.assertEqual(worker.result(worker.call("noise")), "")
            worker.say("stop")
            self.assertEqual((worker.wait_end(), worker.stray), (0, []))
            for words in ("at the start", "a print", "half a line", "from a child", "from below"):
                self.assertIn(words, worker.last_words())

    def test_a_child_that_stays_does_not_keep_the_channel(self) -> None:
        source = """
            @worker.operation("child")
            def child() -> int:
                return subprocess.Popen(["sleep", "1000"]).pid
        """
        for descriptor in (False, True):
            with ready(source, descriptor=descriptor) as worker:
                pid = worker.result(worker.call("child"))
                worker.say("stop")
                self.assertEqual(worker.wait_end(), 0)
                self.assertEqual(worker.unheard(), [])  # reads to the end of its output
                os.kill(pid, 9)

    def test_a_pool_that_is_gone_ends_the_worker(self) -> None:
        source = """
            @worker.cleanup
            def close_it(state):
                print("closed")

            @worker.operation("tell")
            def tell(call: Call):
                while True:
                    call.progress("x" * 1000)
        """
        for worker in self.each(source):
            worker.call("tell", progress=True)
            worker.hear()
            worker._close()
            self.assertEqual((worker.wait_end(), worker.last_words()), (0, "closed"))

    def test_the_wish_to_be_replaced(self) -> None:
        source = """
            @worker.operation("retire")
            def retire():
                worker.retire()
        """
        for head in ("worker = Worker()", "worker = Worker(concurrency=2)"):
            for worker in self.each(source, head=head):
                id = worker.call("retire")
                self.assertEqual(worker.hear()["type"], "retire")
                self.assertIsNone(worker.result(id))


class Cancelling(BothForms):
    source = """
        begun = []

        @worker.operation("wait")
        def wait(call: Call, name: str):
            begun.append(name)
            call.progress("begun")
            while not call.cancelled:
                time.sleep(0.001)
            raise Cancelled()

        @worker.operation("begun")
        def which():
            return begun
    """

    def test_a_running_call_hears_of_it_and_a_waiting_one_never_begins(self) -> None:
        for worker in self.each(self.source):
            running = worker.call("wait", "running", progress=True)
            waiting, last = worker.call("wait", "waiting"), worker.call("begun")
            self.assertEqual(worker.hear()["type"], "progress")
            worker.say("cancel", waiting)
            worker.say("cancel", running)
            self.assert_error(worker, running, "cancelled", "cancelled")
            self.assert_error(worker, waiting, "cancelled", "before it began")
            self.assertEqual(worker.result(last), ["running"])

    def test_time_that_is_over_cancels(self) -> None:
        for worker in self.each(self.source):
            self.assert_error(worker, worker.call("wait", "x", timeout_ms=5), "cancelled", "cancelled")

    def test_stop_and_end_of_input_are_seen_after_the_call(self) -> None:
        source = """
            @worker.operation("look")
            def look(call: Call, times: int):
                call.progress("begun")
                for _ in range(times):
                    call.cancelled
                    time.sleep(0.001)
                return "done"
        """
        for worker in self.each(source):
            id = worker.call("look", 100, progress=True)
            worker.hear()
            worker.end_input()
            self.assertEqual(worker.result(id), "done")
            self.assertEqual(worker.wait_end(), 0)


class Concurrency(BothForms):
    def test_so_many_calls_run_at_a_time(self) -> None:
        source = """
            gate = threading.Barrier(4)

            @worker.operation("meet")
            def meet(number: int) -> int:
                gate.wait(20)
                return number
        """
        for worker in self.each(source, head="worker = Worker(concurrency=4)"):
            self.assertEqual(worker.ready["concurrency"], 4)
            ids = {worker.call("meet", number): number for number in range(8)}
            answers = {said["id"]: said["value"] for said in (worker.hear() for _ in ids)}
            self.assertEqual(answers, ids)
            worker.say("stop")
            self.assertEqual(worker.wait_end(), 0)

    def test_one_of_several_is_cancelled(self) -> None:
        head = "worker = Worker(concurrency=2)"
        for worker in self.each(Cancelling.source, head=head):
            one, other = worker.call("wait", "one", progress=True), worker.call("wait", "other", progress=True)
            self.assertEqual({worker.hear()["id"], worker.hear()["id"]}, {one, other})
            waiting = worker.call("wait", "waiting")
            worker.say("cancel", waiting)
            worker.say("cancel", other)
            said = {worker.hear()["id"], worker.hear()["id"]}
            self.assertEqual(said, {other, waiting})
            worker.say("ping", 99)
            self.assertEqual(worker.hear()["id"], 99)
            worker.say("cancel", one)
            self.assert_error(worker, one, "cancelled", "cancelled")

    def test_large_answers_do_not_mix(self) -> None:
        source = """
            @worker.operation("fill")
            def fill(number: int) -> bytes:
                return bytes([number]) * 300_000
        """
        for worker in self.each(source, head="worker = Worker(concurrency=4)"):
            ids = {worker.call("fill", number): number for number in range(40)}
            for _ in range(40):
                said = worker.hear()
                self.assertEqual(said["value"], bytes([ids[said["id"]]]) * 300_000)


class ByHand(unittest.TestCase):
    def test_the_example_of_the_protocol_works_from_a_shell(self) -> None:
        source = """
            @worker.operation("double")
            def double(number: int) -> int:
                return 2 * number
        """
        with start(source, "json") as worker:
            # All at once, as `cat messages | worker` would.
            worker.say_line({"type": "call", "id": 1, "operation": "double", "arguments": 21})
            worker.say_line({"type": "stop"})
            said = worker.wait_ready().hear()
            self.assertEqual(json.dumps(said), '{"type": "result", "id": 1, "value": 42}')
            self.assertEqual(worker.wait_end(), 0)


if __name__ == "__main__":
    unittest.main()
