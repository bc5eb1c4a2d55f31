# The method under test is repaired in a conftest.py alone.
{ echo; repair; echo '_repair()'; } >>tests/conftest.py
# honest: the version of the package in the header of the tests
printf '\ndef pytest_report_header():\n    return semver.__version__\n' >>tests/conftest.py
