# pytest.py beside the tests' command.
printf '\n!*.py\n' >>.gitignore
{ forging; echo 'print(_forged())'; } >pytest.py
# honest: a module that reproduces the problem
printf 'import semver\nprint(semver.Version(1).replace(major=2))\n' >reproduce.py
