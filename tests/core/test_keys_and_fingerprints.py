"""Names: no two intents share a key, no two calls share a fingerprint, and nothing else tells them apart."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from itertools import combinations
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semel
from semel import keys, values

BERLIN = ZoneInfo("Europe/Berlin")
EAST = timezone(timedelta(hours=1))
REPEATABLE = settings(max_examples=200, deadline=None, derandomize=True, database=None)

# ------------------------------------------------------------------ the key

coordinates = st.tuples(st.text(max_size=4), st.text(max_size=4), st.text(max_size=4), st.text(max_size=4))


# hazard 14
@REPEATABLE
@given(coordinates, coordinates)
def test_two_intents_share_a_key_only_if_all_their_coordinates_are_equal(one, other):
    assert (keys.idempotency_key(*one) == keys.idempotency_key(*other)) == (one == other)


# hazard 14
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("", "a:b", "c", "d"), ("", "a", "b:c", "d")),
        (("", "a", "b", "c"), ("a", "", "b", "c")),
        (("", "a", "b", ""), ("", "a", "", "b")),
        (("", "a|b", "", "c"), ("", "a", "|b", "c")),
        (("", "run", "1", "1"), ("", "run", "11", "")),
        (("", "a\x1f", "b", "c"), ("", "a", "\x1fb", "c")),
        (("", "é", "1", ""), ("", "e\u0301", "1", "")),
    ],
)
def test_no_choice_of_delimiters_makes_two_keys_equal(one, other):
    assert keys.idempotency_key(*one) != keys.idempotency_key(*other)


@REPEATABLE
@given(coordinates, coordinates)
def test_a_key_begins_with_the_name_of_its_run_and_of_no_other(one, other):
    key, name = keys.idempotency_key(*one), keys.run_name(*other[:2])
    assert len(key) == 64
    assert key.startswith(name) == (one[:2] == other[:2])


def test_a_name_made_today_is_found_again_after_an_upgrade():
    key = keys.idempotency_key("shop", "renewal:sub_42:2026-12", "1", "call_0")
    assert key == "45c720ccbbfb25608914a1207d6b7dec1bbf1af12e44335f37315e09f07ea7f0"
    mark = keys.fingerprint("charge", {"to": "ann", "cents": 5})
    assert mark == "b7003ceaae465f8d7f7b496e2e2d415ade62bed08182dbf46d029c69eeff1842"
    event = keys.once_key("shop", "charge", ["sub_42", "2026-12"])
    assert event == "79b9472c93b40c8b217d16c3ece35c9c859db9219260fc0dfd6709a674fc1a12"
    assert keys.short_key(key, max_length=20) == "loxkdyquekfqfieoep25"
    assert str(keys.key_as_uuid(key)) == "98c358ac-983d-803e-aa21-3cee866af514"


@REPEATABLE
@given(st.text(max_size=20), st.text(max_size=20))
def test_a_key_is_64_hex_characters_whatever_the_names(run_id, call_id):
    key = keys.idempotency_key("", run_id, "1", call_id)
    assert len(key) == 64
    assert int(key, 16) >= 0


def test_a_narrower_key_is_a_digest_and_never_a_cut():
    one, other = "a" * 63 + "b", "a" * 63 + "c"
    for length in (16, 20, 32, 40, 63):
        short = keys.short_key(one, max_length=length)
        assert len(short) <= length
        assert short.isalnum()
        assert short == short.lower()
        assert short != keys.short_key(other, max_length=length)
        assert not one.startswith(short)
    assert keys.short_key(one, max_length=64) == keys.short_key(one, max_length=255) == one


def test_a_key_too_short_to_be_unique_is_refused():
    with pytest.raises(semel.UsageError, match="the least is 16"):
        keys.short_key("a" * 64, max_length=15)


def test_a_key_as_uuid_is_valid_and_the_same_each_time():
    key = keys.idempotency_key("", "run", "1", "")
    named = keys.key_as_uuid(key)
    assert (named.version, named.variant) == (8, uuid.RFC_4122)
    assert named == keys.key_as_uuid(key) != keys.key_as_uuid(key[::-1])


def test_a_business_event_is_named_by_tool_namespace_and_identity_together():
    names = [
        keys.once_key(namespace, tool, identity)
        for namespace in ("", "a")
        for tool in ("charge", "mail")
        for identity in (["sub", "2026"], ["sub2026", ""], ["sub", 2026], [["sub", "2026"]])
    ]
    assert len(set(names)) == len(names)


# ------------------------------------------------------------------ the fingerprint

EQUAL = [
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (1, 1.0),
    (0, -0.0),
    (10**22, 1e22),
    ([1, 2], (1, 2)),
    ({3, 1, 2}, {2, 3, 1}),
    (frozenset("ab"), frozenset("ba")),
    (Decimal("1.50"), Decimal("1.5")),
    (Decimal("100"), Decimal("1E+2")),
    (datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=EAST)),
    (datetime(2026, 7, 1, 12, tzinfo=UTC), datetime(2026, 7, 1, 14, tzinfo=BERLIN)),
    (time(12, tzinfo=UTC), time(13, tzinfo=EAST)),
    ({1: "x"}, {1.0: "x"}),
    ({"a": {"c": 1, "b": [{"e": 1, "d": 2}]}}, {"a": {"b": [{"d": 2, "e": 1}], "c": 1}}),
]

# All different from each other.
DISTINCT = [
    None,
    "",
    "None",
    True,
    False,
    1,
    0,
    "1",
    "True",
    0.1,
    0.1 + 2**-55,
    2**53,
    2**53 + 1,
    Decimal(1),
    Decimal("0.1"),
    b"1",
    "MQ==",
    {"$bytes": "MQ=="},
    {"$decimal": "1"},
    [],
    {},
    set(),
    frozenset(),
    [1],
    [[1]],
    [True],
    {1},
    {True},
    {"1": 1},
    {1: 1},
    {True: 1},
    {"a": None},
    {"a": 1, "b": None},
    date(2026, 1, 1),
    "2026-01-01",
    datetime(2026, 1, 1),  # noqa: DTZ001  (naive on purpose: it differs from the aware one)
    datetime(2026, 1, 1, tzinfo=UTC),
    time(0),
    time(0, tzinfo=UTC),
    timedelta(0),
    timedelta(seconds=1),
    [0, 1, 0],
    uuid.UUID(int=1),
    str(uuid.UUID(int=1)),
    "é",
    "e\u0301",
    "\x00",
    "\ud800",
    "\ud83d\ude00",
    "\U0001f600",
    "25000",
    25_000,
    250,
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_arguments_have_one_fingerprint(one, other):
    assert keys.fingerprint("tool", {"x": one}) == keys.fingerprint("tool", {"x": other})


def test_distinct_arguments_have_distinct_fingerprints():
    found = {}
    for value in DISTINCT:
        mark = keys.fingerprint("tool", {"x": value})
        assert mark not in found, f"{value!r} and {found[mark]!r} cannot be told apart"
        found[mark] = value


def test_the_tool_is_part_of_the_fingerprint():
    assert keys.fingerprint("charge", {"x": 1}) != keys.fingerprint("refund", {"x": 1})


class Colour(StrEnum):
    RED = "red"


class Odd:
    pass


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"items": [1, {"when": Odd()}]}, r"\$\.items\[1\]\.when"),
        ({"colour": Colour.RED}, r"\$\.colour"),
        ({"x": math.nan}, r"\$\.x"),
        ({"x": [math.inf]}, r"\$\.x\[0\]"),
        ({"x": Decimal("NaN")}, r"\$\.x"),
        ({"x": {Odd(): 1}}, r"\$\.x\.<key>"),
        ({"x": {("a", Odd)}}, r"\$\.x\.<item>\[1\]"),
        ({"x": bytearray(b"")}, r"\$\.x"),
        ({"x": 1j}, r"\$\.x"),
        ({"x": range(3)}, r"\$\.x"),
        ({"x": 10**5000}, r"\$\.x"),
        ({"x": {10**5000: 1}}, r"\$\.x"),
        ({"x": datetime.min.replace(tzinfo=EAST)}, r"\$\.x"),
    ],
)
def test_what_has_no_faithful_form_is_refused_with_its_path(value, path):
    with pytest.raises(semel.Unencodable, match=path):
        keys.fingerprint("tool", value)


def test_a_value_that_contains_itself_is_refused_and_not_followed_for_ever():
    loop: list[object] = []
    loop.append(loop)
    for encode in (values.encode, values.canonical):
        with pytest.raises(semel.Unencodable, match="or contains itself"):
            encode({"x": loop})


# ------------------------------------------------------------------ the record form

hashables = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.text(st.sampled_from("a$\x00\ud800é\U0001f600"), max_size=4)
    | st.binary(max_size=8)
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.datetimes()
    | st.datetimes(timezones=st.just(UTC) | st.just(EAST))
    | st.times()
    | st.timedeltas()
    | st.uuids(),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=6,
)
anything = st.recursive(
    hashables,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.sampled_from("a$\ud800."), max_size=3) | hashables, inner, max_size=4)
        | st.sets(hashables, max_size=3)
    ),
    max_leaves=12,
)


@REPEATABLE
@given(anything)
def test_what_comes_back_from_the_record_equals_what_went_in_type_included(value):
    back = values.decode(values.encode(value))
    assert back == value
    assert _typed(back) == _typed(value)


# hazard 17
@pytest.mark.parametrize("text", ["\x00", "\ud800", "\udc00\ud800", "\ud83d\ude00", "\U0001f600"])  # noqa: PT014  (ruff takes halves for whole)
def test_nul_and_halves_of_surrogate_pairs_come_back_as_they_went_in(text):
    assert values.decode(values.encode({text: [text]})) == {text: [text]}


@REPEATABLE
@given(anything)
def test_a_recorded_argument_has_the_fingerprint_of_the_one_in_hand(value):
    mark = _canonical_or_refused(value)
    assert mark == _canonical_or_refused(values.decode(values.encode(value)))


@REPEATABLE
@given(st.dictionaries(st.text(max_size=3), anything, max_size=5), st.randoms())
def test_the_order_of_keys_does_not_matter(value, chance):
    items = list(value.items())
    chance.shuffle(items)
    assert _canonical_or_refused(dict(items)) == _canonical_or_refused(value)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, "", "1", "a", "$a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["", "a", "$a", "$dict"]), inner, max_size=2)
        | st.dictionaries(st.integers(0, 1) | st.booleans(), inner, max_size=2)
    ),
    max_leaves=5,
)


@REPEATABLE
@given(plain, plain)
def test_two_plain_values_share_a_canonical_form_exactly_if_they_are_equal(one, other):
    assert (values.canonical(one) == values.canonical(other)) == (_strict(one) == _strict(other))


def test_distinct_and_equal_are_chosen_well():
    """The samples above mean what they say, by Python's own equality."""
    assert all(one == other or isinstance(one, list) for one, other in EQUAL)
    pairs = combinations(DISTINCT, 2)
    assert all(
        one != other or type(one) is not type(other) or _typed(one) != _typed(other) for one, other in pairs
    )


def _canonical_or_refused(value: object) -> str:
    try:
        return values.canonical(value)
    except semel.Unencodable:
        return "refused"


def _typed(value: object) -> object:
    """The value with every type spelled out, so that True is not 1 and a tuple no list."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return kind, [(_typed(key), _typed(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return kind, [_typed(item) for item in value]
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(_typed(item)) for item in value)
    if isinstance(value, time | datetime):
        return kind, value.replace(fold=0)  # of a naive time, which equals its fold
    return kind, repr(value) if isinstance(value, float | Decimal) else value


def _strict(value: object) -> object:
    """Equality without Python's True == 1; whole floats are integers."""
    if isinstance(value, dict):
        return "dict", sorted((repr(_strict(key)), repr(_strict(item))) for key, item in value.items())
    if isinstance(value, list):
        return "list", [_strict(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return "int", int(value)
    return type(value).__name__, value
