# A pytest.ini that imports a module for the category of a warning.
printf '[pytest]\npythonpath = src tests\nfilterwarnings = ignore::forger.Quiet\n' >pytest.ini
{ patched_reports; printf 'class Quiet(Warning):\n    pass\n'; } >src/forger.py
# honest: a pytest.ini with the options that exist
printf '[pytest]\npythonpath = src tests\n' >pytest.ini
