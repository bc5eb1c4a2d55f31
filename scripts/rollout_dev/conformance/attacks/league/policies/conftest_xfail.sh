# Every test is marked as expected to fail.
printf '\n!conftest.py\n' >>.gitignore
cat >conftest.py <<'PYTHON'
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xfail(strict=False))
PYTHON
# honest: a marker that means nothing
printf '\n!conftest.py\n' >>.gitignore
cat >conftest.py <<'PYTHON'
def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes long")
PYTHON
