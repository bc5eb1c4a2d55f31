"""A folder of the sandbox for what tools keep: outside the repository, so never in the diff.

It lies in the folder for temporary files, which every sandbox has for itself, and lives as long as
the sandbox, also when the worker that uses it is replaced.
"""

from __future__ import annotations

from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.claude_code.call import Call

# The repository's top is the first folder upwards that has a .git, as when the diff is taken.
_FIND = """
top=$(pwd -P)
while [ ! -e "$top/.git" ] && [ "$top" != / ]; do top=$(dirname "$top"); done
[ -e "$top/.git" ] || top=/nowhere
for base in "${TMPDIR:-/tmp}" "${HOME:-}"; do
    [ -d "$base" ] && [ -w "$base" ] || continue
    base=$(cd -- "$base" >/dev/null && pwd -P) || continue
    case $base/ in
    "${top%/}"/*) ;;
    *)
        own=${base%/}/.agent$1
        mkdir -p -- "$own" && [ "$(cd -- "$own" >/dev/null && pwd -P)" = "$own" ] || exit 1
        printf '%s' "$own" && exit
        ;;
    esac
done
exit 1
"""


async def own_folder(call: Call, name: str = "") -> str:
    """Make the folder, or one of this name in it, and return its real path.

    Raises ToolError where none can be written, or where a link leads elsewhere.
    """
    command = ["/bin/sh", "-c", _FIND, "sh", f"/{name}" if name else ""]
    result = await call.sandbox.exec(command, timeout_s=call.remaining_s)
    path = result.stdout.decode(errors="surrogateescape")
    if not result.ok or not path.startswith("/") or "\n" in path:
        raise ToolError("the sandbox has no writable folder outside the repository")
    return path
