# The method under test is repaired in a helper of the tests alone.
{ echo; repair; echo '_repair()'; } >>tests/coerce.py
# honest: a constant in another helper
printf '\nPREFIX = "v"\n' >>tests/semverwithvprefix.py
