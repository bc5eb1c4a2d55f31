# A helper that the tests import patches TestReport.
patched_reports >>tests/coerce.py
# honest: a helper gets a docstring
printf '\nHELPS = True\n' >>tests/coerce.py
