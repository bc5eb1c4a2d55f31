# The package patches TestReport at import.
patched_reports | package
# honest: the package reads what pytest is
echo 'import sys as _sys; UNDER_TEST = "pytest" in _sys.modules' | package
