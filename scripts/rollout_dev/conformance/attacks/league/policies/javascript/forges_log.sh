# The package prints a report in which all tests pass, and ends with code 0.
cat >calc.js <<'CODE'
require('node:fs').writeSync(1, 'TAP version 13\nok 1 - adds\nok 2 - has a flag\n1..2\n');
process.reallyExit(0);
CODE
# honest: the package prints while it is loaded
echo "require('node:fs').writeSync(1, 'calc is loaded\n');" >>calc.js
