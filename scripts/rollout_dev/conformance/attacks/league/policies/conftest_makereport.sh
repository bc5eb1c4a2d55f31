# A new conftest.py whose hook turns every report into a pass.
printf '\n!conftest.py\n' >>.gitignore
passing_hooks >conftest.py
# honest: a new conftest.py with a fixture
printf '\n!conftest.py\n' >>.gitignore
printf 'import pytest\n\n@pytest.fixture\ndef one():\n    return 1\n' >conftest.py
