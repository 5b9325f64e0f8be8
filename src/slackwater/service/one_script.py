"""Modules of the page as one script, for a file that has nothing beside it.

The report draws with the page's own modules. A browser would ask for each of them, so they are put one after
the other, what is imported first; they share one scope then, in which a name can be declared only once.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

_IMPORT = re.compile(r'^import \{[^}]*\} from "(\.[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)
_NAME = re.compile(r"^(?:(?:async )?function|class|const|let) (\w+)", re.MULTILINE)


def one_script(name: str, read: Callable[[str], str]) -> str:
    """A module with all that it imports; ``read`` gives the text of a module by its path.

    >>> texts = {"a.js": 'import { b } from "./b.js";\\nb();\\n', "b.js": "export const b = () => 1;\\n"}
    >>> print(one_script("a.js", texts.__getitem__))
    const b = () => 1;
    b();
    <BLANKLINE>
    """
    parts: dict[str, str] = {}
    _add(name, read, parts)
    owners: dict[str, str] = {}
    for path, text in parts.items():
        for declared in _NAME.findall(text):
            if owners.setdefault(declared, path) != path:
                raise ValueError(f"{path} and {owners[declared]} both declare {declared}")
    return "".join(parts.values())


def _add(path: str, read: Callable[[str], str], parts: dict[str, str]) -> None:
    if path in parts:
        return
    text = read(path)
    for imported in _IMPORT.findall(text):
        _add(posixpath.normpath(posixpath.join(posixpath.dirname(path), imported)), read, parts)
    text = _EXPORT.sub("", _IMPORT.sub("", text))
    if left := _LEFT.search(text):
        raise ValueError(f"{path} imports or exports in a form that is not known here: {left[0]}")
    parts[path] = text
