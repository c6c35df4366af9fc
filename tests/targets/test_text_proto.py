"""Any table becomes protobuf text, whatever its fields are called."""

from __future__ import annotations

from datetime import date

import pytest

from assay.targets.devices import text_proto


def test_tables_are_messages_and_lists_are_repeated() -> None:
    message = {"size": 2**40, "rate": 1.98, "on": True, "name": 'a "b"', "m": {"n": [1, 2]}}
    assert text_proto(message) == (
        'size: 1099511627776\nrate: 1.98\non: true\nname: "a \\"b\\""\nm {\n  n: 1\n  n: 2\n}\n'
    )


def test_a_value_that_no_field_can_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="not JSON"):
        text_proto({"when": date(2026, 11, 24)})
