"""Pickles as data: what a pickle says, without doing what it says.

A pickle is a program that calls whatever it names: any function, or a NumPy class, whose state it then sets to any
bytes.  Here Python's reader is left the instructions that make numbers, strings, lists, tuples and dictionaries; a
name, a call and a state that is set on its result become a record.  Nothing is imported, called or given a state.

>>> read_pickle(pickle.dumps({"a": [1, (2.5, b"x")]}, protocol=4), names=frozenset())
{'a': [1, (2.5, b'x')]}
>>> read_pickle(pickle.dumps(print, protocol=4), names=frozenset())
Traceback (most recent call last):
    ...
ValueError: it asks for builtins.print, which has no place here
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from io import BytesIO
from typing import Any, ClassVar, NamedTuple

MOST = 10**6
"""Instructions that are carried out, each for about 100 bytes of memory; a batch of CIFAR-10 has some 50,000."""


class Name(NamedTuple):
    """A function or class that a pickle names."""

    module: str
    name: str

    def __call__(self, *arguments: Any) -> Call:
        if len(arguments) > 3:  # a copy: one tuple could be called again and again
            raise ValueError(f"a call in it has {len(arguments)} arguments")
        return Call(self, arguments)


@dataclass(eq=False, repr=False)
class Call:
    """A call that a pickle asks for, and the state that it wants set on the result."""

    function: Name
    arguments: tuple[Any, ...]
    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Texts(dict[Any, Any]):
    """A dictionary with strings as keys: to hash a tuple of tuples, a key as well, could take for ever."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, (bytes, str)):
            raise ValueError("a dictionary in it has other keys than strings")
        super().__setitem__(key, value)


OBEYED = """
PROTO FRAME STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT BINUNICODE SHORT_BINUNICODE
BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 BINSTRING SHORT_BINSTRING EMPTY_LIST APPEND APPENDS SETITEM SETITEMS MARK
EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD
"""
"""The instructions that are carried out."""


class _Counted(dict[int, Any]):
    """Instructions, of which no more than MOST are carried out."""

    left = MOST

    def __getitem__(self, code: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise ValueError(f"it has more than {MOST} instructions")
        return super().__getitem__(code)


class _Reader(pickle._Unpickler):
    """Python's reader as written in Python: that in C reserves memory for a place which a pickle only names."""

    dispatch: ClassVar = {
        code: pickle._Unpickler.dispatch[code] for code in (getattr(pickle, name)[0] for name in OBEYED.split())
    } | {pickle.EMPTY_DICT[0]: lambda reader: reader.append(_Texts())}
    names: frozenset[Name]

    def find_class(self, module: str, name: str) -> Name:
        """The name itself, if it is one of those that may occur."""
        if (found := Name(module, name)) not in self.names:
            raise ValueError(f"it asks for {module[:80]}.{name[:80]}, which has no place here")
        return found


def read_pickle(content: bytes, names: frozenset[Name]) -> Any:
    """The value that a pickle of protocol 2, 3 or 4 describes; Python 2's `str` is bytes.   names : may occur.

    Some Exception for all other names and instructions, for damaged pickles, and for bytes behind the end.
    """
    file = BytesIO(content)
    reader = _Reader(file, fix_imports=False, encoding="bytes")
    reader.names = names
    vars(reader)["dispatch"] = _Counted(_Reader.dispatch)  # counts for this pickle alone
    found = reader.load()
    if file.read(1):
        raise ValueError("it holds more bytes than one value")
    return found
