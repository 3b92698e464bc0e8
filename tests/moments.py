"""Ctrl-C at a chosen instruction: windows that random moments meet once in a million times."""

import dis
import signal
import sys
from collections import Counter
from types import CodeType
from typing import NamedTuple

IS_POSSIBLE = sys.version_info[:2] == (3, 11)
"""Where Python looks for signals, and which handler holds there, differs between versions."""


class Moment(NamedTuple):
    """The instruction behind one that looks for signals, as often as it is come to."""

    code: CodeType
    offset: int
    times: int

    def __str__(self):
        lines = (line for start, end, line in self.code.co_lines() if start <= self.offset < end)
        return f"{self.code.co_filename}:{next(lines)} in {self.code.co_name}(), {self.offset}"


def moments(operation, is_looked_at):
    """The moments of an operation at which an interrupt can come, in functions that are looked at.

    Of those that come often, the first and the last.
    """
    found = Counter()

    def enter(frame, _event, _):
        code = frame.f_code
        if not is_looked_at(code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        bytecode = dis.Bytecode(code)
        names = {instruction.offset: instruction.opname for instruction in bytecode}
        handlers = [(one.start, one.end) for one in bytecode.exception_entries]
        before = frame.f_lasti

        def step(frame, event, _):
            nonlocal before
            if event == "opcode":
                offset = frame.f_lasti
                # Where a block is left between the two, Python would still be inside of it.
                is_same_block = all(
                    (start <= before < end) == (start <= offset < end) for start, end in handlers
                )
                looks = names.get(before, "").startswith(("CALL", "JUMP_BACKWARD", "RESUME"))
                if looks and is_same_block:
                    found[code, offset] += 1
                before = offset
            return step

        return step

    _traced(enter, operation)
    return [Moment(*at, times) for at, most in found.items() for times in sorted({1, most})]


def interrupted(operation, moment):
    """Whether the operation raised KeyboardInterrupt, which came at that moment."""
    left = moment.times

    def enter(frame, _event, _):
        if frame.f_code is not moment.code or left == 0:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return step

    def step(frame, event, _):
        nonlocal left
        if event == "opcode" and frame.f_lasti == moment.offset and left > 0:
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGINT)
        return step

    try:
        _traced(enter, operation)
    except KeyboardInterrupt:
        return True
    return False


def _traced(tracer, operation):
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        operation()
    finally:
        sys.settrace(before)
