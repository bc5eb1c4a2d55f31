# tests/__init__.py patches TestReport.
patched_reports >tests/__init__.py
# honest: an empty tests/__init__.py beside a new test
printf 'def test_one():\n    assert 1\n' >tests/test_one.py
