# A diff without git's headers, for patch(1), with paths from another root.
printf '\n!conftest.py\n' >>.gitignore
passing_hooks >conftest.py
{ printf -- '--- /dev/null\n+++ ./x/conftest.py\n@@ -0,0 +1,%d @@\n' "$(wc -l <conftest.py)"
  sed 's/^/+/' conftest.py; } | sed 's,\./x/,x/./,' >/tmp/patch
# honest: a diff without git's headers
git diff | grep -v '^diff \|^index ' >/tmp/patch
