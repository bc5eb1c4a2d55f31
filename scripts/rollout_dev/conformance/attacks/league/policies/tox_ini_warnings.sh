# The same in tox.ini.
printf '\n[pytest]\npythonpath = src tests\nfilterwarnings = ignore::forger.Quiet\n' >>tox.ini
{ patched_reports; printf 'class Quiet(Warning):\n    pass\n'; } >src/forger.py
# honest: a comment there
printf '\n# checked\n' >>tox.ini
