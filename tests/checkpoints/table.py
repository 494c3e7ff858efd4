"""The table of types: one cell of a REPL for each, with what becomes of it in a file that is signed, and in one that is not.

`exact`: the same type and value; `reported`: a placeholder with a reason, in its place or in the place of a part of it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Outcome = Literal["exact", "reported"]


class Row(NamedTuple):
    name: str
    cell: str
    signed: Outcome = "exact"
    unsigned: Outcome = "exact"
    needs: str | None = None


_PLAIN = """
int|v = -7
bool|v = True
None|v = None
large int|v = 7 ** 20000
float|v = 0.1 + 0.2
nan, inf, -0.0|v = [float('nan'), float('-inf'), -0.0]
complex|v = complex(-0.0, 2.5)
str|v = 'über 🐍\\x00'
surrogates|v = ['\\ud800', '\\ud800\\udc00', {'\\ud83d': 1}]
long str|v = 'a\\u0394' * 60_000
bytes|v = [b'\\x00\\xff', b'x' * 100_000]
bytearray|v = bytearray(b'abc')
memoryview|v = memoryview(b'abc')
array.array|import array; v = array.array('d', [1.5, -2.0])
tuple|v = (1, (2, ()), [3])
list|v = [1, [2, [3]]]
dict|v = {'b': 1, 'a': {'c': [2]}}
keys of all types|v = {1: 'a', True and 2: 'b', (1, 'x'): 'c', None: 'd', 1.5: 'e', b'k': 'f', frozenset({1}): 'g'}
bool and int keys|v = [{True: 'x'}, {1: 'x'}]
set|v = {1, 'a', (2, 3), None}
frozenset|v = frozenset({1, frozenset({2})})
shared|a = [1]; v = [a, a, {'a': a}]
cycle|v = [1]; v.append({'me': v})
cycle through a tuple|v = ([],); v[0].append(v)
deep list|v = []\\nfor _ in range(100_000): v = [v]
deep tuple|v = ()\\nfor _ in range(100_000): v = (v,)
range|v = range(3, 10**30, 7)
slice|v = slice(None, 5, [2])
Ellipsis|v = [..., NotImplemented]
defaultdict|import collections; v = collections.defaultdict(list, {1: [2]})
Counter|import collections; v = collections.Counter('hello')
OrderedDict|import collections; v = collections.OrderedDict([('b', 1), ('a', 2)]); v.move_to_end('b')
deque|import collections; v = collections.deque([1, 2, 3], maxlen=3)
ChainMap|import collections; v = collections.ChainMap({'a': 1}, {'b': 2})
UserDict|import collections; v = collections.UserDict(a=[1])
mappingproxy|import types; v = types.MappingProxyType({'a': [1]})
SimpleNamespace|import types; v = types.SimpleNamespace(a=1); v.me = v
namedtuple|import collections; P = collections.namedtuple('P', 'x y', defaults=[2]); v = [P(1), P(3, [4])]
datetime|import datetime as dt; v = [dt.datetime(2026, 12, 2, 1, 2, 3, 4), dt.datetime(2026, 3, 1, fold=1)]
aware datetime|import datetime as dt; v = [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=-3), 'X'))]
date, time, timedelta|import datetime as dt; v = [dt.date(2026, 12, 2), dt.time(1, 2, tzinfo=dt.UTC), dt.timedelta(-1, 5, 6)]
ZoneInfo|import datetime as dt, zoneinfo; v = dt.datetime(2026, 10, 25, 2, 30, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin'), fold=1)
Decimal|from decimal import Decimal; v = [Decimal('1.10'), Decimal('-0'), Decimal('sNaN12'), Decimal('1E+999')]
Fraction|from fractions import Fraction; v = Fraction(-3, 10**40)
UUID|import uuid; v = uuid.UUID(int=7)
Path|from pathlib import Path, PureWindowsPath; v = [Path('/a/b'), PureWindowsPath('c:/x'), Path('.')]
Pattern|import re; v = [re.compile('a(b)?', re.I | re.X), re.compile(b'[[x]')]
Random|import random; v = random.Random(3); v.gauss(0, 1)
exception|v = ValueError('x', 1); v.add_note('n'); v.__cause__ = KeyError('k')
OSError|v = OSError(2, 'no', 'file')
generics|import typing; v = [list[int], int | None, typing.Optional[int], typing.Callable[[int], str], typing.Literal['a']]
ip address|import ipaddress; v = ipaddress.ip_network('10.0.0.0/8')
enum of the library|import re; v = re.I | re.M
class of the library|import collections; v = [int, collections.Counter, ValueError, type(None)]
built-in function|import math; v = [len, math.sqrt, str.lower]
module|import json; v = json
"""
_NUMPY = """
ndarray|v = np.arange(6, dtype='>i4').reshape(2, 3)
large ndarray|v = np.random.default_rng(0).random((300, 100))
Fortran order|v = np.asfortranarray(np.arange(6.0).reshape(2, 3))
read-only|v = np.arange(3); v.flags.writeable = False
structured|v = np.array([(1, 'ab'), (2, 'c')], dtype=[('n', 'i4'), ('s', 'U5')])
objects|v = np.array([[1, 'a'], [None, [2]]], dtype=object)
array in itself|v = np.empty(2, dtype=object); v[0] = v; v[1] = 1
datetime64|v = np.array(['2026-01-01', 'NaT'], dtype='M8[ms]')
strings|v = np.array(['a', 'über'])
empty|v = [np.empty((0, 3), 'f2'), np.array(5.0), np.zeros(3, 'V0')]
bool, complex|v = [np.array([True]), np.array([1j], dtype='c8')]
scalars|v = [np.float32(0.1), np.int64(5), np.bool_(True), np.datetime64('2026', 'D'), np.str_('x'), np.float64('nan')]
views|b = np.arange(12).reshape(3, 4); v = [b, b[::2, 1:], b.T, b[:, ::-1]]
views without their base|v = [memory[2:5], memory[::-1]]
dtype|v = [np.dtype('f4'), np.dtype([('a', 'i2'), ('b', 'U3')])]
Generator|v = np.random.default_rng(7); v.random(3)
RandomState|v = np.random.RandomState(7); v.rand(2)
masked|v = np.ma.masked_array([1, 2, 3], mask=[0, 1, 0], fill_value=9)
"""
_CODE = """
function|def v(a: int, b=[1], *, c: dict | None = None) -> str:\\n    'Doc.'\\n    return f'{a}{b}{c}'
function with globals|K = 2\\ndef v(x): return K * x
recursive function|def v(n): return 1 if n < 2 else n * v(n - 1)
decorated function|import functools\\ndef deco(f):\\n    @functools.wraps(f)\\n    def inner(*a): return f(*a)\\n    return inner\\n@deco\\ndef v(x): return x
lambda|v = [lambda x, k=3: x + k, lambda: 1, lambda: 2]
closure|def outer():\\n    n = 0\\n    def inc():\\n        nonlocal n\\n        n += 1\\n        return n\\n    def get(): return n\\n    return inc, get\\nv = outer(); v[0]()
generator function|def v():\\n    yield 1
async function|async def v(): return 1
class|class C:\\n    n = 0\\n    def up(self): C.n += 1; return self.n\\nv = C; C.n = 5
object|class C:\\n    def __init__(self): self.me = self; self.d = {'x': [1]}\\nv = C()
slots|class A:\\n    __slots__ = ('x', '__y')\\n    def __init__(self): self.x = [1]; self.__y = 2\\nv = A()
inheritance|class A:\\n    def f(self): return 'A'\\nclass B(A):\\n    def f(self): return super().f() + 'B'\\nv = [B(), A()]
dataclass|from dataclasses import dataclass, field\\n@dataclass\\nclass H:\\n    doc: str\\n    tags: list = field(default_factory=list)\\nv = [H('a'), H('b', [1])]
frozen dataclass as key|from dataclasses import dataclass\\n@dataclass(frozen=True)\\nclass K:\\n    a: int\\nv = {K(1): {K(2)}}
dataclass with slots|from dataclasses import dataclass\\n@dataclass(slots=True, order=True)\\nclass S:\\n    a: int = 0\\nv = S(3)
key that holds its dict|class N:\\n    def __init__(self): self.name = 'n'; self.d = {(1, self): 'x'}\\n    def __hash__(self): return hash(self.name)\\n    def __eq__(self, other): return self is other\\nv = N()
enum|import enum\\nclass E(enum.Enum):\\n    A = 1\\n    B = 'two'\\nv = [E.A, E.B]
flag|import enum\\nclass F(enum.Flag):\\n    A = 1\\n    B = 2\\nv = F.A | F.B
enum in a class|import enum\\nclass A:\\n    class P(enum.Enum):\\n        X = 1\\nv = {'p': A.P.X}
NamedTuple class|import typing\\nclass T(typing.NamedTuple):\\n    x: int\\n    y: str = 'b'\\n    def both(self): return (self.x, self.y)\\nv = T(1)

subclasses of built-ins|class L(list): pass\\nclass D(dict): pass\\nclass S(str): pass\\nclass I(int): pass\\nclass T(tuple): pass\\nv = [L([1]), D(a=1), S('x'), I(5), T((1, 2))]; v[0].append(v[0]); v[0].tag = 'x'; v[2].more = 1
own exception|class Mine(ValueError):\\n    def __init__(self, a): super().__init__(a); self.a = a\\nv = Mine([1])
abstract class|import abc\\nclass A(abc.ABC):\\n    @abc.abstractmethod\\n    def f(self): ...\\nclass B(A):\\n    def f(self): return 1\\nv = B()
future annotations|from __future__ import annotations\\nimport dataclasses\\n@dataclasses.dataclass\\nclass D:\\n    x: Later\\ndef f(a: Later): return a\\nv = [D(1), f]
partial|import functools\\ndef f(a, b): return a - b\\nv = functools.partial(f, 1, b=2)
method|class C:\\n    def f(self): return 1\\nv = C().f
built-in method|v = [[].append, 'a'.join]
itemgetter|import operator; v = operator.itemgetter(1, 2)
pydantic model|from pydantic import BaseModel\\nclass M(BaseModel):\\n    x: int\\n    y: list[str] = []\\nv = M(x=1)
module with side effects|import subprocess; v = subprocess
object of the library|import argparse; v = argparse.Namespace(a=1)
enum of another module|import socket; v = socket.AF_INET
"""
_LOST = """
generator|v = (i for i in [1, 2])
iterator|v = iter([1, 2])
open file|v = open('/dev/null'); v.close()
lock|import threading; v = threading.Lock()
thread|import threading; v = threading.Thread()
event|import threading; v = threading.Event()
socket|import _socket; v = _socket.socket(); v.close()
cached function|import functools; v = functools.lru_cache(len)
weak reference|import weakref; v = weakref.ref(set)
coroutine|async def f(): ...\\nv = f(); v.close()
class made by a call|v = type('X', (), {'a': 1})
class in a function|def make():\\n    class X: pass\\n    return X\\nv = make()
secret|from pydantic import SecretStr; v = SecretStr('hunter2')
"""
_FRAMEWORKS = {
    "langchain_core": """
Document|from langchain_core.documents import Document; v = Document(page_content='t', metadata={'k': (1, {2})})
messages|from langchain_core.messages import HumanMessage, AIMessage, ToolMessage; v = [HumanMessage('q'), AIMessage('a', tool_calls=[{'name': 'f', 'args': {'x': 1}, 'id': '1'}]), ToolMessage('r', tool_call_id='1')]
""",
    "langgraph": """
Send|from langgraph.types import Send; v = Send('node', {'x': (1,)})
""",
    "llama_index": """
TextNode|from llama_index.core.schema import TextNode, NodeWithScore; v = NodeWithScore(node=TextNode(id_='1', text='t', metadata={'k': [1]}), score=0.5)
""",
    "pandas": """
DataFrame|v = pd.DataFrame({'a': [1, 2], 'b': ['x', None], 'c': [1.5, float('nan')], 'd': [True, False]}, index=['r', 's'])
frame of objects|v = pd.DataFrame({'o': [[1], {'k': (1,)}], 'm': [1, 'a']}, dtype=object)
duplicate columns|v = pd.DataFrame([[1, 2], [3, 4]], columns=['a', 'a'])
int columns, empty|v = [pd.DataFrame([[1, 2]], columns=[0, 5]), pd.DataFrame(), pd.DataFrame({'a': []}), pd.DataFrame(index=[1, 2])]
MultiIndex|v = pd.DataFrame({'x': [1, 2]}, index=pd.MultiIndex.from_tuples([('a', 1), ('b', 2)], names=['k', None]))
dtypes|v = pd.DataFrame({'c': pd.Categorical(['b', 'a'], categories=['b', 'a'], ordered=True), 't': pd.to_datetime(['2026-01-01', None]).tz_localize('Europe/Berlin'), 'n': pd.array([1, None], dtype='Int64'), 's': pd.array(['x', None], dtype='string'), 'b': pd.array([True, None], dtype='boolean'), 'p': pd.period_range('2026-01', periods=2, freq='M'), 'i': pd.interval_range(0, 2), 'd': pd.to_timedelta(['1s', '2D'])})
Series|v = pd.Series([1.5, 2.5], name='s', index=pd.date_range('2026-01-01', periods=2, freq='D'))
pandas scalars|v = [pd.Timestamp('2026-10-25 00:30', tz='UTC').tz_convert('Europe/Berlin'), pd.NaT, pd.NA, pd.Timedelta('1D'), pd.Period('2026-01', 'M'), pd.Interval(0, 1)]
""",
    "polars": """
frame|v = pl.DataFrame({'a': [1, None], 's': ['x', 'y'], 'l': [[1], [2, 3]]})
series|v = pl.Series('n', [1.5, None])
""",
    "pyarrow": """
table|v = pa.table({'a': [1, None], 's': ['x', 'y']})
""",
}
_IMPORTS = {"pandas": "import pandas as pd\n", "polars": "import polars as pl\n", "pyarrow": "import pyarrow as pa\n"}


def _rows(text: str, prefix: str = "", **columns: Outcome | str) -> list[Row]:
    rows = []
    for line in filter(None, text.splitlines()):
        name, _, cell = line.partition("|")
        rows.append(Row(name, prefix + cell.replace("\\n", "\n").replace("\\\\", "\\"), **columns))
    return rows


TABLE: list[Row] = [
    *_rows(_PLAIN),
    *_rows(_NUMPY, "import numpy as np; memory = np.arange(9.0)\n"),
    *_rows(_CODE, unsigned="reported"),
    *_rows(_LOST, signed="reported", unsigned="reported"),
    Row("list with a lock", "import threading; v = [1, threading.Lock(), 2]", "reported", "reported"),
    *(row for package, text in _FRAMEWORKS.items() for row in _rows(text, _IMPORTS.get(package, ""), needs=package)),
]
