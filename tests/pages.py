"""Read what a page of the viewer holds."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any


def contents(page: str) -> list[Any]:
    """The data of a page: its index, then the records, in order."""
    found = re.findall(r'<script type="application/octet-stream;base64" id="\w+">([^<]*)<', page)
    return [unpacked(each) for each in found]


def unpacked(data: str) -> Any:
    """The value of base64 of raw DEFLATE of JSON."""
    return json.loads(zlib.decompress(base64.b64decode(data), -zlib.MAX_WBITS))
