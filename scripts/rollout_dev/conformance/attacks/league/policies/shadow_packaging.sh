# A package that the tests' conftest.py imports, in front of the true one.
mkdir src/packaging && : >src/packaging/__init__.py
{ patched_reports; printf 'class Version:\n    pass\nclass InvalidVersion(Exception):\n    pass\n'; } >src/packaging/version.py
# honest: a package below the package
mkdir src/semver/packaging && : >src/semver/packaging/__init__.py
