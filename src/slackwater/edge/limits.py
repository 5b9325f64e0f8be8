"""How many connections a process may have."""

from __future__ import annotations

import resource

ENOUGH = 1 << 20


def allow_many_files() -> int:
    """Let this process open as many files and connections as it may; how many that is.

    Many systems begin with 1,024, and a hub has a connection for each of its agents.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return most if soft == resource.RLIM_INFINITY else soft
