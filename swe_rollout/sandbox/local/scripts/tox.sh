#!/bin/sh
# Run a task's tests with the tox of the given environment, or with its pytest alone.
# An official command, `tox --current-env -epy39 -v -- FILES`, names the Python of its image, which
# also has `-rA` written into tox.ini. Both are adapted; anything else is tox's own matter.
# In a virtual environment, tox-current-env runs the installation below it, which lacks the packages.
set -u
here=$SWE_ROLLOUT_ENVIRONMENT
python=$here/python
has() { "$python" -c "import $1" >/dev/null 2>&1; }
if [ -z "${VIRTUAL_ENV:-}" ] && has tox && has tox_current_env; then
    tests=
    for word; do
        shift
        case $tests$word in
        -epy[0-9]*) set -- "$@" "-epy$(echo "$SWE_ROLLOUT_PYTHON" | tr -d .)" ;;
        --) tests=yes && set -- "$@" -- -rA ;;
        *) set -- "$@" "$word" ;;
        esac
    done
    exec "$python" -m tox "$@"
fi
if has pytest; then
    while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
    [ $# -eq 0 ] || shift
    echo "tox can't run in the environment $here: pytest runs the tests" >&2
    exec "$python" -m pytest -rA "$@"
fi
echo "tox: not in $here, nor is pytest: $python -m pip install tox tox-current-env pytest" >&2
exit 127
