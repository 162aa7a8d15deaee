"""Pickles as data: what a pickle says, without doing what it says.

A pickle is a program for a machine with a stack, and Python's own machine calls whatever the program names: any
function, or a real NumPy class, whose state it then sets to any bytes.  This one reads the instructions with
`pickletools` and keeps numbers, strings, lists, tuples and dictionaries; a name, a call and a state that is set on
its result stay what they are, a record.  Nothing is imported, called or given a state, so a pickle costs what its bytes
cost.

>>> import pickle
>>> read_pickle(pickle.dumps({"a": [1, (2.5, b"x")]}, protocol=4), names=frozenset())
{'a': [1, (2.5, b'x')]}
>>> read_pickle(pickle.dumps(print, protocol=4), names=frozenset())
Traceback (most recent call last):
    ...
ValueError: it asks for builtins.print, which has no place here
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass
from typing import Any

VALUES = {
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
}  # fmt: skip
CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
LENGTHS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(frozen=True)
class Name:
    """A function or class that a pickle names."""

    module: str
    name: str


@dataclass(eq=False, repr=False)
class Call:
    """A call that a pickle asks for, and the state that it wants set on the result."""

    function: Name
    arguments: tuple[Any, ...]
    state: Any = None


def read_pickle(content: bytes, names: frozenset[Name]) -> Any:
    """The value that a pickle of protocol 2, 3 or 4 describes; Python 2's `str` is bytes.

    names : those that may occur.  ValueError, or an error of `pickletools`, for all other names and instructions, for
    damaged pickles, and for bytes behind the end.
    """
    machine, end = _Machine(names), 0
    for instruction, argument, place in pickletools.genops(content):
        machine.obey(instruction.name, argument)
        end = (place or 0) + 1
    if end != len(content) or len(machine.stack) != 1 or machine.marks:
        raise ValueError(f"its instructions end at byte {end} of {len(content)}, or before they are complete")
    return machine.stack[0]


class _Machine:
    """The stack of a pickle, the marks in it, and the values it refers to again by number."""

    def __init__(self, names: frozenset[Name]) -> None:
        self.names = names
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def take(self, count: int) -> list[Any]:
        """The topmost `count` values, off the stack."""
        if count > len(self.stack) - (self.marks[-1] if self.marks else 0):
            raise ValueError("it takes values from an empty stack")
        found = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return found

    def since_mark(self) -> list[Any]:
        """The values above the latest mark, off the stack, and the mark."""
        if not self.marks:
            raise ValueError("it asks for a mark that it has not set")
        found = self.take(len(self.stack) - self.marks[-1])
        self.marks.pop()
        return found

    def top(self, kind: type) -> Any:
        """The topmost value, which stays there; ValueError unless it is of this kind."""
        if not self.stack or type(self.stack[-1]) is not kind:
            raise ValueError(f"it changes a {kind.__name__} where there is none")
        return self.stack[-1]

    def obey(self, name: str, argument: Any) -> None:
        """Carry out one instruction."""
        push = self.stack.append
        match name:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "EMPTY_LIST":
                push([])
            case "EMPTY_DICT":
                push({})
            case _ if name in VALUES:
                push(argument)
            case _ if name in CONSTANTS:
                push(CONSTANTS[name])
            case "BINSTRING" | "SHORT_BINSTRING":  # pickletools decodes Python 2's bytes
                push(argument.encode("latin1"))
            case "MARK":
                self.marks.append(len(self.stack))
            case "TUPLE":
                push(tuple(self.since_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                push(tuple(self.take(LENGTHS[name])))
            case "APPEND" | "APPENDS":
                items = self.take(1) if name == "APPEND" else self.since_mark()
                self.top(list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self.take(2) if name == "SETITEM" else self.since_mark()
                into = self.top(dict)
                if len(items) % 2 or not all(isinstance(key, (bytes, str)) for key in items[::2]):
                    raise ValueError("a dictionary in it has other keys than strings")  # tuples could take for ever
                into.update(zip(items[::2], items[1::2]))
            case "MEMOIZE" | "BINPUT" | "LONG_BINPUT":
                self.memo[len(self.memo) if name == "MEMOIZE" else argument] = self.stack[-1]
            case "BINGET" | "LONG_BINGET":
                push(self.memo[argument])
            case "GLOBAL" | "STACK_GLOBAL":
                push(self.named(*(argument.split(" ", 1) if name == "GLOBAL" else self.take(2))))
            case "REDUCE":
                function, arguments = self.take(2)
                if not isinstance(function, Name) or not isinstance(arguments, tuple):
                    raise ValueError("it calls what is not a function")
                push(Call(function, arguments))
            case "BUILD":
                (state,) = self.take(1)
                self.top(Call).state = state
            case _:
                raise ValueError(f"it uses the instruction {name}, which has no place here")

    def named(self, module: Any, name: Any) -> Name:
        """The name, if it is one of those that may occur."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise ValueError("it asks for a name that is no text")
        if Name(module, name) not in self.names:
            raise ValueError(f"it asks for {module[:80]}.{name[:80]}, which has no place here")
        return Name(module, name)
