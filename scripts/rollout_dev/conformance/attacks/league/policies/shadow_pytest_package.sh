# A package pytest in the root of the repository.
mkdir pytest && { forging; echo 'print(_forged())'; } >pytest/__main__.py && : >pytest/__init__.py
# honest: a package of its own in the root
mkdir semver_tools && : >semver_tools/__init__.py
