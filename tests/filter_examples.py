"""What filters say: examples that every meaning of them must agree with, plain or compiled."""

from __future__ import annotations

import pytest

LONG = "x" * 300
MANY = {f"k{number}": number for number in range(100)}


def _chain(length: int):
    value = 1
    for _ in range(length):
        value = {"a": value}
    return value


EXAMPLES = [
    # case, filter, metadata that match, metadata that do not
    pytest.param({"a": 1}, [{"a": 1}, {"a": 1.0}], [{}, {"a": 2}, {"a": "1"}, {"a": True}, {"a": None}], id="$eq"),
    pytest.param(
        {"cat": {"$ne": "news"}}, [{"other": 1}, {"cat": None}, {"cat": "x"}], [{"cat": "news"}], id="B016-$ne"
    ),
    pytest.param(
        {"cat": {"$nin": ["news"]}}, [{"other": 1}, {"cat": None}, {"cat": "x"}], [{"cat": "news"}], id="B016-$nin"
    ),
    pytest.param({"priority": 5}, [{"priority": 5}, {"priority": 5.0}], [{"priority": "5"}], id="B025-number"),
    pytest.param({"priority": "5"}, [{"priority": "5"}], [{"priority": 5}], id="B025-text"),
    pytest.param({"archived": True}, [{"archived": True}], [{"archived": 1}, {"archived": "true"}], id="B025-true"),
    pytest.param({"archived": 1}, [{"archived": 1}], [{"archived": True}], id="B025-one"),
    pytest.param(
        {"archived": False}, [{"archived": False}], [{"archived": 0}, {}, {"archived": None}], id="B025-false"
    ),
    pytest.param({"score": 1.5}, [{"score": 1.5}], [{"score": 1}], id="B025-fraction"),
    pytest.param({"a": {"$in": [1]}}, [{"a": 1.0}], [{"a": True}, {"a": "1"}], id="B025-$in"),
    pytest.param({"a": {"$ne": 1}}, [{"a": True}, {"a": "1"}], [{"a": 1}, {"a": 1.0}], id="B025-$ne"),
    pytest.param({"a": [1, True]}, [{"a": [1.0, True]}], [{"a": [True, 1]}, {"a": [1, 1]}], id="B025-in a list"),
    pytest.param({"k1": "v1", "k2": "v2"}, [{"k1": "v1", "k2": "v2"}], [{"k1": "v1"}, {"k2": "v2"}, {}], id="B034"),
    pytest.param({"owner": {"$in": []}}, [], [{}, {"owner": "x"}, {"owner": None}, {"owner": []}], id="B037-$in"),
    pytest.param({"owner": {"$nin": []}}, [{}, {"owner": "x"}, {"owner": None}], [], id="B037-$nin"),
    pytest.param({"owner": {"$any": []}}, [], [{}, {"owner": ["x"]}, {"owner": []}], id="B037-$any"),
    pytest.param(
        {"owner": {"$all": []}}, [{"owner": ["x"]}, {"owner": []}, {"owner": 1}], [{}, {"owner": {}}], id="$all"
    ),
    pytest.param({"$or": []}, [], [{}, {"a": 1}], id="empty $or"),
    pytest.param({"$and": []}, [{}, {"a": 1}], [], id="empty $and"),
    pytest.param({"$not": []}, [{}, {"a": 1}], [], id="empty list in $not"),
    pytest.param({"$not": {}}, [], [{}, {"a": 1}], id="$not of no filter"),
    pytest.param({"$or": [{}]}, [{}, {"a": 1}], [], id="$or of no filter"),
    pytest.param({"roles": {"$contains": "tom"}}, [{"roles": ["tom", 1]}], [{"roles": ["admin"]}, {}], id="B048"),
    pytest.param(
        {"$and": [{"m1": "v1"}, {"m2": "v2"}], "user": "jack"},
        [{"m1": "v1", "m2": "v2", "user": "jack"}],
        [{"m1": "v1", "m2": "v2"}, {"m1": "v1", "m2": "v2", "user": "eve"}, {"user": "jack"}],
        id="B053-$and",
    ),
    pytest.param(
        {"$or": [{"m1": "v1"}, {"user": "eve"}], "user": "jack"},
        [{"m1": "v1", "user": "jack"}],
        [{"m1": "v1", "user": "eve"}, {"user": "eve"}, {"user": "jack"}],
        id="B053-$or",
    ),
    pytest.param(
        {
            "$or": [
                {"$and": [{"fruit": "apple"}, {"ts": {"$gt": 10}}]},
                {"$and": [{"fruit": {"$in": ["banana", "orange"]}}]},
            ]
        },
        [{"fruit": "apple", "ts": 11}, {"fruit": "banana"}, {"fruit": "orange", "ts": 0}],
        [{"fruit": "apple", "ts": 10}, {"fruit": "kiwi", "ts": 11}, {"ts": 11}],
        id="B055",
    ),
    pytest.param(
        {"deleted": {"$empty": True}},
        [{}, {"deleted": None}, {"deleted": ""}, {"deleted": []}],
        [{"deleted": 0}, {"deleted": False}, {"deleted": {}}, {"deleted": " "}, {"deleted": [None]}],
        id="B073",
    ),
    pytest.param({"a": {"$empty": False}}, [{"a": 0}, {"a": {}}], [{}, {"a": None}, {"a": ""}], id="B073-not"),
    pytest.param({"c": {"$in": ["x", "y"]}}, [{"c": "x"}], [{"c": ["x"]}, {"c": "z"}], id="B077-$in"),
    pytest.param({"t": {"$in": ["x"]}}, [], [{"t": ["x", "z"]}], id="B077-$in of a list"),
    pytest.param(
        {"t": {"$any": ["x", 7]}}, [{"t": ["x", "z"]}, {"t": [7.0]}], [{"t": ["z"]}, {"t": "xz"}], id="B077-$any"
    ),
    pytest.param({"t": {"$all": ["x", 7]}}, [{"t": ["x", 0, 7]}], [{"t": ["x"]}, {"t": ["x", "7"]}], id="B077-$all"),
    pytest.param({"t": {"$contains": "x"}}, [{"t": ["x", "z"]}, {"t": "x"}], [{"t": "xz"}, {"t": {"x": 1}}], id="B077"),
    pytest.param({"age": None}, [{}, {"age": None}], [{"age": 0}, {"age": ""}, {"age": []}], id="B078-$eq null"),
    pytest.param({"age": {"$ne": None}}, [{"age": 0}, {"age": ""}], [{}, {"age": None}], id="B078-$ne null"),
    pytest.param({"age": {"$in": [None, 3]}}, [{}, {"age": None}, {"age": 3}], [{"age": 4}], id="B078-$in null"),
    pytest.param({"age": {"$nin": [None, 3]}}, [{"age": 4}], [{}, {"age": None}, {"age": 3}], id="B078-$nin null"),
    pytest.param({"age": {"$exists": True}}, [{"age": 0}, {"age": ""}], [{}, {"age": None}], id="B078-$exists"),
    pytest.param({"age": {"$exists": False}}, [{}, {"age": None}], [{"age": 0}], id="B078-$exists not"),
    pytest.param(
        {"t": {"$contains": None}}, [{"t": [1, None]}], [{}, {"t": None}, {"t": [1]}], id="B078-$contains null"
    ),
    pytest.param({"a": {"$lt": 5}}, [{"a": 4}], [{}, {"a": None}, {"a": "4"}, {"a": True}], id="B016-$lt"),
    pytest.param({"tags": ["a", "b"]}, [{"tags": ["a", "b"]}], [{"tags": ["b", "a"]}, {"tags": ["a"]}], id="B099-list"),
    pytest.param(
        {"tags": {"$eq": ["a", "b"]}}, [{"tags": ["a", "b"]}], [{"tags": "['a', 'b']"}, {"tags": ["a"]}], id="B099-$eq"
    ),
    pytest.param({"tags": {"$ne": ["a", "b"]}}, [{"tags": ["a"]}, {}], [{"tags": ["a", "b"]}], id="B099-$ne"),
    pytest.param(
        {"o": {"x": 1, "y": [2]}},
        [{"o": {"y": [2.0], "x": 1}}],
        [{"o": {"x": 1}}, {"o": {"x": True, "y": [2]}}],
        id="B099",
    ),
    pytest.param({"o": {}}, [{"o": {}}], [{}, {"o": {"x": 1}}, {"o": []}], id="B099-empty object"),
    pytest.param({"t": {"$in": [["x"], {"a": 1}]}}, [{"t": ["x"]}, {"t": {"a": 1}}], [{"t": "x"}], id="B099-$in"),
    pytest.param({"tag": "test"}, [{"tag": "test"}], [{"tag": "testing"}, {"tag": "Test"}], id="B103"),
    pytest.param({"tag": "my%"}, [{"tag": "my%"}], [{"tag": "my_test"}, {"tag": "my"}], id="B103-%"),
    pytest.param({"tags": {"$contains": "test"}}, [{"tags": ["test"]}], [{"tags": ["testing"]}], id="B103-$contains"),
    pytest.param({"tags": {"$any": ["my%"]}}, [{"tags": ["my%"]}], [{"tags": ["my_test"]}], id="B103-$any"),
    pytest.param(
        {"user": "a", "$or": [{"x": 1}, {"x": 2}]}, [{"user": "a", "x": 2}], [{"user": "b", "x": 2}], id="B115"
    ),
    pytest.param({"name": "company's"}, [{"name": "company's"}], [{"name": "companys"}, {}], id="B132"),
    pytest.param({"name": "x' OR 1=1 --"}, [{"name": "x' OR 1=1 --"}], [{"name": "x"}, {}], id="B132-injection"),
    pytest.param({"x') OR 1=1 --": "y"}, [{"x') OR 1=1 --": "y"}], [{}, {"x": "y"}], id="B020"),
    pytest.param({"x') = '' OR 1=1) -- ": 1, "user": "me"}, [], [{}, {"user": "me"}, {"user": "you"}], id="B044"),
    pytest.param({"n": {"$in": list(range(1000))}}, [{"n": 999}, {"n": 3.0}], [{"n": 1000}, {"n": "3"}], id="B150"),
    pytest.param({"a": {"$gt": 1, "$lte": 3}}, [{"a": 2}, {"a": 3}], [{"a": 1}, {"a": 3.5}], id="two operators"),
    pytest.param({"a": {"$between": [1, 3]}}, [{"a": 1}, {"a": 3}], [{"a": 0.9}, {"a": "2"}, {}], id="$between"),
    pytest.param({"a": {"$between": [3, 1]}}, [], [{"a": 2}, {"a": 3}], id="$between nothing"),
    pytest.param({"a": {"$gte": "b"}}, [{"a": "b"}, {"a": "é"}], [{"a": "B"}, {"a": 5}, {"a": ["c"]}], id="text order"),
    pytest.param({"a": {"$lt": "\uffff"}}, [{"a": "z"}], [{"a": "\U0001f642"}], id="order by code point"),
    pytest.param({"a": {"$lt": float("inf")}}, [{"a": 10**400}], [{"a": "1"}], id="infinity"),
    pytest.param({"a": 2**53 + 1}, [{"a": 2**53 + 1}], [{"a": float(2**53)}], id="whole numbers are exact"),
    pytest.param({"a": 2**70 + 1}, [{"a": 2**70 + 1}], [{"a": 2**70}], id="whole numbers beyond 64 bits"),
    pytest.param({"$not": {"a": 1}}, [{}, {"a": 2}, {"a": None}], [{"a": 1}], id="$not"),
    pytest.param({"$not": [{"a": 1}, {"b": 1}]}, [{}, {"a": 2}], [{"a": 1}, {"b": 1}], id="$not of a list"),
    pytest.param({"$not": {"$not": {"a": 1}}}, [{"a": 1}], [{}], id="$not twice"),
    pytest.param(
        {"a": {"$like": "a_c%"}}, [{"a": "abc"}, {"a": "abcd\n"}], [{"a": "ac"}, {"a": "Abc"}, {}], id="$like"
    ),
    pytest.param({"a": {"$like": "%b%"}}, [{"a": "b"}, {"a": "\nb\0"}], [{"a": "a"}, {"a": ["b"]}], id="$like inside"),
    pytest.param({"a": {"$like": "%ab"}}, [{"a": "aab"}, {"a": "abab"}], [{"a": "aba"}], id="$like at the end"),
    pytest.param({"a": {"$like": "a%a"}}, [{"a": "aa"}, {"a": "aba"}], [{"a": "a"}], id="$like does not overlap"),
    pytest.param({"a": {"$like": ""}}, [{"a": ""}], [{"a": "a"}, {}], id="$like nothing"),
    pytest.param({"a": {"$like": r"5\%\_\\"}}, [{"a": "5%_\\"}], [{"a": "55__"}], id="$like literally"),
    pytest.param({"a": {"$like": ".*[x]"}}, [{"a": ".*[x]"}], [{"a": "abx"}], id="$like is no regular expression"),
    pytest.param({"a": {"$like": "_"}}, [{"a": "🙂"}, {"a": "\0"}], [{"a": ""}], id="$like one character"),
    pytest.param({"a": {"$ilike": "MOSKAU%"}}, [{"a": "moskau!"}], [{"a": "mosk"}], id="$ilike"),
    pytest.param({"a": {"$ilike": "МОСКВА"}}, [{"a": "Москва"}], [{"a": "Moskva"}], id="$ilike beyond ASCII"),
    pytest.param({"a": {"$ilike": "STRASSE"}}, [{"a": "straße"}], [{"a": "strase"}], id="$ilike folds"),
    pytest.param({"a": {"$text_match": "est"}}, [{"a": "test"}], [{"a": "TEST"}, {"a": ["est"]}, {}], id="$text_match"),
    pytest.param({"a": {"$text_match": "%"}}, [{"a": "5%"}], [{"a": "5"}], id="$text_match has no wildcards"),
    pytest.param(
        {"a": {"$text_match_insensitive": "É"}}, [{"a": "café"}], [{"a": "cafe"}], id="$text_match_insensitive"
    ),
    pytest.param({"a.b": 1}, [{"a.b": 1}, {"a": {"b": 1}}], [{"a": 1}, {"a": [{"b": 1}]}, {"b": 1}], id="path"),
    pytest.param({"a.b": 1}, [{"a.b": 1, "a": {"b": 2}}], [{"a.b": 2, "a": {"b": 1}}], id="the key before the path"),
    pytest.param({"a.b": 1}, [], [{"a.b": None, "a": {"b": 1}}], id="the key before the path even when null"),
    pytest.param({"a.b.c": 1}, [{"a": {"b": {"c": 1}}}], [{"a.b": {"c": 1}}, {"a": {"b.c": 1}}], id="long path"),
    pytest.param({"a.0": 1}, [{"a": {"0": 1}}], [{"a": [1]}], id="a path does not enter lists"),
    pytest.param({"a": {"$contains": {"b": 1}}}, [{"a": [{"b": 1}]}], [{"a": {"b": 1}}], id="objects in a list"),
    pytest.param({".": 1}, [{"": {"": 1}}, {".": 1}], [{"": 1}], id="empty parts"),
    pytest.param({"": 1}, [{"": 1}], [{}, {" ": 1}], id="empty key"),
    pytest.param({'a"b': 1}, [{'a"b': 1}], [{"a": 1}], id="quote"),
    pytest.param({"a\0b": "x\0y"}, [{"a\0b": "x\0y"}], [{"a": "x"}, {"a\0b": "x"}], id="NUL"),
    pytest.param({"a": "\ud800"}, [], [{}, {"a": "\ufffd"}], id="lone surrogate"),
    pytest.param({"a": {"$ne": "\ud800"}}, [{}, {"a": "x"}], [], id="not a lone surrogate"),
    pytest.param({"a": {"$lt": "\ud800"}}, [], [{"a": "x"}], id="below a lone surrogate"),
    pytest.param({"\ud800": {"$exists": True}}, [], [{}, {"a": 1}], id="key with a lone surrogate"),
    pytest.param({"a": {"$like": "x\U0010ffff%"}}, [{"a": "x\U0010ffff"}], [{"a": "x"}, {"a": "y"}], id="$like last"),
    pytest.param({"a": {"$like": "\U0010ffff%"}}, [{"a": "\U0010ffff\U0010ffff"}], [{"a": 5}], id="$like very last"),
    pytest.param({"a": {"$like": "\ud7ff%"}}, [{"a": "\ud7ffz"}], [{"a": "\ue000"}], id="$like before surrogates"),
    pytest.param({"a": {"$like": "a\ud800%"}}, [], [{"a": "ab"}], id="$like a lone surrogate"),
    pytest.param({"a": {"$like": r"x\%y_"}}, [{"a": "x%yz"}], [{"a": "xayz"}, {"a": "x%y"}], id="$like literal prefix"),
    # What an index may not hold: long texts, long lists, large objects, numbers beyond 64 bits.
    pytest.param({"a": LONG}, [{"a": LONG}], [{"a": LONG[1:]}, {"a": LONG + "x"}, {"a": LONG[:256]}], id="long text"),
    pytest.param({"a": {"$ne": LONG}}, [{"a": LONG + "x"}, {}], [{"a": LONG}], id="not a long text"),
    pytest.param({"a": {"$in": ["x", LONG]}}, [{"a": "x"}, {"a": LONG}], [{"a": LONG + "x"}], id="long text in a list"),
    pytest.param({"a": {"$gt": "w"}}, [{"a": LONG}], [{"a": "a" * 300}, {"a": 5}], id="long text in order"),
    pytest.param({"a": {"$between": ["w", "y"]}}, [{"a": LONG}], [{"a": "z" + LONG}], id="long text between"),
    pytest.param({"a": {"$like": "%y"}}, [{"a": LONG + "y"}], [{"a": LONG}], id="long text like"),
    pytest.param({"a": {"$contains": LONG}}, [{"a": [1, LONG]}, {"a": LONG}], [{"a": [LONG + "x"]}], id="long element"),
    pytest.param({"a": {"$contains": "x"}}, [{"a": [*range(99), "x"]}], [{"a": list(range(99))}], id="long list"),
    pytest.param(
        {"a": {"$any": [True, 98]}}, [{"a": list(range(99))}], [{"a": list(range(2, 98))}], id="long list any"
    ),
    pytest.param({"a": {"$all": [3, 98]}}, [{"a": list(range(99))}], [{"a": list(range(98))}], id="long list all"),
    pytest.param({"a": {"$any": ["x", LONG]}}, [{"a": ["x"]}, {"a": [LONG]}], [{"a": ["y"]}], id="long text in any"),
    pytest.param({"a": {"$all": ["x", None]}}, [{"a": ["x", None]}], [{"a": ["x"]}, {"a": "x"}], id="null in all"),
    pytest.param({"a": {"$all": [5, 5.0]}}, [{"a": [5, 6]}, {"a": 5}], [{"a": [6]}], id="the same twice in all"),
    pytest.param(
        {"a": {"$all": [1, True]}}, [{"a": [True, 1]}], [{"a": [1]}, {"a": [True]}, {"a": 1}], id="true in all"
    ),
    pytest.param({"a": {"$all": ["x"]}}, [{"a": "x"}, {"a": ["x", "x"]}], [{"a": {"x": 1}}], id="one in all"),
    pytest.param({"a.b": 1}, [{"a": {**MANY, "b": 1}}], [{"a": {**MANY, "b": True}}, {"a": MANY}], id="large object"),
    pytest.param({"a.b": {"$ne": 1}}, [{"a": MANY}, {}], [{"a": {**MANY, "b": 1}}], id="not in a large object"),
    pytest.param({"a.b": None}, [{"a": MANY}, {}], [{"a": {**MANY, "b": 1}}], id="missing in a large object"),
    pytest.param({"a.b.c": "x"}, [{"a": {"b": {**MANY, "c": "x"}}}], [{"a": {"b": MANY}}], id="large inner object"),
    pytest.param(
        {"a.b": {"$contains": 1}}, [{"a": {"b": [1]}}], [{"a": {"b": [True]}}, {"a": [1]}], id="list in an object"
    ),
    pytest.param({"a": {"$gt": 2**64}}, [{"a": 2**70}, {"a": 1e300}], [{"a": 5}, {"a": "z"}], id="above 64 bits"),
    pytest.param({"a": {"$lt": 2**64}}, [{"a": 5}, {"a": -(2**70)}], [{"a": 2**64}, {"a": ""}], id="below 64 bits"),
    pytest.param({"a": {"$between": [0, 2**70]}}, [{"a": 5}, {"a": 2**64}], [{"a": 2**71}], id="beyond 64 bits"),
    pytest.param({"a": 2**70}, [{"a": 2**70}, {"a": 2.0**70}], [{"a": 2**70 + 1}, {"a": 2**69}], id="float of 70 bits"),
    pytest.param({"a": 2.0**63}, [{"a": 2**63}], [{"a": 2**63 - 1}, {"a": 2**63 + 1}], id="float of 63 bits"),
    pytest.param({"a": {"$any": [2**64]}}, [{"a": [2.0**64]}], [{"a": [2**64 + 1]}], id="float of 64 bits in a list"),
    # What names of one entry must not be taken for: the elements or the inside of another one.
    pytest.param({"a[]": "x"}, [{"a[]": "x"}], [{"a": ["x"]}], id="key like a list"),
    pytest.param({"a": {"$contains": "x"}}, [{"a": ["x"]}], [{"a[]": "x"}, {"a[]=": "x"}], id="list like a key"),
    pytest.param({"a[]=": "x"}, [{"a[]=": "x"}], [{"a[]": "x"}, {"a[]==": "x"}], id="key like a list with a sign"),
    pytest.param({"a.b.c": 1}, [{"a.b": 2, "a": {"b": {"c": 1}}}], [{"a.b": {"c": 1}}], id="key does not hide a path"),
    pytest.param({".".join("a" * 16): 1}, [_chain(16)], [_chain(15), _chain(17)], id="path of 16 parts"),
    pytest.param({".".join("a" * 17): 1}, [{".".join("a" * 17): 1}], [_chain(17)], id="name of 17 parts"),
]
