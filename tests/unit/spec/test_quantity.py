"""Kubernetes quantities and their maximum."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pydantic import ValidationError

from swe_rollout.spec.bounds import MAX_AMOUNTS, check_amount, parse_quantity
from swe_rollout.spec.sandbox import Resources


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("2", 2),
        ("500m", "0.5"),
        ("1.5", "1.5"),
        ("4Gi", 4 * 2**30),
        ("3k", 3000),
        ("2E", 2 * 10**18),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str, amount: str | int) -> None:
    assert parse_quantity(text) == Decimal(amount)


@pytest.mark.parametrize(
    "text", ["", "two", "-1", "1 Gi", "1gi", "1e3", "٣", "1\n", "0x1", "9" * 19]
)
def test_other_texts_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(text)


@pytest.mark.threat(point=26)
@pytest.mark.parametrize("resource", MAX_AMOUNTS)
def test_an_amount_is_above_zero_and_at_most_its_maximum(resource: str) -> None:
    most = MAX_AMOUNTS[resource]
    assert check_amount(resource, most) == most
    for wrong in ("0", "0m", f"{most}0" if most.isdecimal() else "1Ei"):
        with pytest.raises(ValueError, match=f"at most {most}"):
            check_amount(resource, wrong)


@pytest.mark.threat(point=26)
@pytest.mark.parametrize(
    "wrong", [{"cpu": "257"}, {"memory": "10Ei"}, {"ephemeralStorage": "x"}, {"cpuLimit": "0"}]
)
def test_resources_of_workers_and_sandboxes_have_the_same_bounds(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Resources.model_validate(wrong)
