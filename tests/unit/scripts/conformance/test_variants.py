"""Variants of fixes: they can be compiled, and do the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from rollout_dev.conformance.rewrites import Fixed, rewritten
from rollout_dev.conformance.variants import FORMS, variants

AFTER = '''"""Title."""
from __future__ import annotations


def other():
    return 1


class C:
    def f(self, n):
        found = 0
        for each in range(n):
            found = found + each if each else found
        if n > 9:
            raise ValueError("too many")
        else:
            text = str(found)
        return text
'''
FILE = Fixed("src/pkg/mod.py", AFTER.replace("str(found)", "found"), AFTER)


@pytest.mark.parametrize("kind", FORMS)
def test_each_form_does_the_same_and_is_another_text(kind: str) -> None:
    rewrite, head = FORMS[kind]
    text = rewritten(FILE, rewrite, head=head)
    assert text is not None
    assert text != AFTER
    assert "def other():\n    return 1\n" in text
    space: dict[str, object] = {"__name__": "mod"}
    exec(compile(text, "mod", "exec"), space)  # noqa: S102
    made = cast("Callable[[], Any]", space["C"])()
    assert made.f(4) == "6"
    with pytest.raises(ValueError, match="too many"):
        made.f(10)


def test_variants_cover_layout_new_modules_and_packages() -> None:
    found = dict(variants([FILE]))
    assert len(found) > 40
    assert "from pkg.types import" in str(found["a new module types.py"]["src/pkg/mod.py"])
    package = found["a module that becomes a package"]
    assert package["src/pkg/mod.py"] is None
    assert "class C" in str(package["src/pkg/mod/__init__.py"])
    for files in found.values():
        for path, text in files.items():
            if path.endswith(".py") and text is not None:
                compile(text, path, "exec")


def test_a_form_that_fits_no_function_is_left_out() -> None:
    plain = Fixed("a.py", "", "def f():\n    return 1\n")
    assert "raised from None" not in dict(variants([plain]))
