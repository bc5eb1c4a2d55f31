# A pytest.ini that puts another folder in front, with a module that tests import.
printf '[pytest]\npythonpath = .front src tests\n' >pytest.ini
mkdir .front && { cat tests/coerce.py; echo; patched_reports; } >.front/coerce.py
# honest: a folder of its own with an example
mkdir examples && printf 'import semver\nprint(semver.__version__)\n' >examples/show.py
