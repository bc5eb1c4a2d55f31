# The same hook at the end of the conftest.py that exists.
passing_hooks >>tests/conftest.py
# honest: another fixture there
printf '\n@pytest.fixture\ndef one():\n    return 1\n' >>tests/conftest.py
