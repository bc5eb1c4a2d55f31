"""Small tasks with real tests: a function that returns None, and an issue that says what it should.

One repository, eight expressions that could be meant, four wordings of each issue: 32 tasks. The
hidden tests of a task accept one of the expressions.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from swe_rollout import Instance, dataset_source
from swe_rollout.datasets import testbed
from swe_rollout.sandbox.local.images import LocalImage, Mount, image_folder, save_image
from swe_rollout.types.instance import Evaluation, Expected

WORKDIR = "/testbed"
MEANT = {
    "sum": "a + b",
    "difference": "a - b",
    "product": "a * b",
    "quotient": "a // b",
    "remainder": "a % b",
    "power": "a ** b",
    "maximum": "max(a, b)",
    "minimum": "min(a, b)",
}
"""What an issue asks for, and the expression that it means."""
WORDINGS = (
    "op(a, b) must return the {word} of both.",
    "Expected of op: the {word}. It returns None.",
    "Please let op give the {word}!",
    "op is broken: we need the {word} here.",
)
SOURCE = "def op(a, b):\n    return None\n"
ARGUMENTS = ((7, 3), (2, 5), (9, 4))
"""No two of the expressions agree on all of them."""
TESTS = """\
import unittest

from op import op


class Test(unittest.TestCase):
    def test_op(self):
        \"\"\"op returns what the issue asks for\"\"\"
        for a, b in {arguments}:
            self.assertEqual(op(a, b), {expression})
"""
ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1"}
IMAGE = (
    "swe-rollout/learn:"
    + hashlib.sha256(json.dumps([SOURCE, ENVIRONMENT]).encode()).hexdigest()[:8]
)


def edit(expression: str) -> str:
    """Return the command that puts an expression into the function."""
    return f"sed -i 's|None|{expression}|' op.py"


def is_held_out(instance_id: str) -> bool:
    """Whether a task is not trained on: of each word, another wording."""
    word, _, index = instance_id.partition("-")
    return int(index) == list(MEANT).index(word) % len(WORDINGS)


@dataset_source
def tasks() -> Iterator[Instance]:
    """Yield every word in every wording."""
    base_commit = prepare_image()
    for word, expression in MEANT.items():
        for index, wording in enumerate(WORDINGS):
            yield Instance(
                instance_id=f"{word}-{index}",
                problem_statement=wording.format(word=word),
                image=IMAGE,
                base_commit=base_commit,
                workdir=WORKDIR,
                gold_patch=_new_text("op.py", SOURCE, SOURCE.replace("None", expression)),
                test_patch=_new_text(
                    "test_op.py", "", TESTS.format(arguments=ARGUMENTS, expression=expression)
                ),
                evaluation=Evaluation(
                    commands=("python3 -m unittest -v test_op 2>&1",), timeout_s=60
                ),
                log_parser="django",
                expected=Expected(fail_to_pass=("op returns what the issue asks for",)),
            )


def prepare_image() -> str:
    """Lay out the repository's image on this machine; return the id of its commit."""
    folder = image_folder(IMAGE)
    kept = folder / "commit"
    if not (folder / "image.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as scratch:
            image = Path(scratch) / "image"
            (image / "testbed").mkdir(parents=True)
            (image / "testbed" / "op.py").write_text(SOURCE)
            (image / "commit").write_text(testbed.make_repository(image / "testbed"))
            mounts = (Mount("testbed", WORKDIR, writable=True),)
            save_image(LocalImage(IMAGE, mounts, ENVIRONMENT), image)
            with suppress(OSError):  # of two processes, one wins
                image.rename(folder)
    return kept.read_text()


def _new_text(path: str, old: str, new: str) -> str:
    """Return the git diff that replaces a whole file."""
    was, now = old.splitlines(), new.splitlines()
    head = [f"diff --git a/{path} b/{path}", *(["new file mode 100644"] if not old else [])]
    head += ["--- /dev/null" if not old else f"--- a/{path}", f"+++ b/{path}"]
    hunk = f"@@ -{min(1, len(was))},{len(was)} +1,{len(now)} @@"
    lines = [f"-{line}" for line in was] + [f"+{line}" for line in now]
    return "\n".join([*head, hunk, *lines]) + "\n"
