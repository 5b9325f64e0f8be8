#!/usr/bin/env bash
# Sees to it that there is a Chromium for the browser tests; without one they are skipped, and say so.
# SLACKWATER_BROWSER names one that is somewhere else.
set -euo pipefail

[[ -n ${SLACKWATER_BROWSER:-} ]] && exit 0
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" >/dev/null && exit 0
done
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "setup: no Chromium: installing one for the browser tests"
    export DEBIAN_FRONTEND=noninteractive
    for _ in 1 2 3; do
        apt-get -qq update || true
        apt-get -qq -y --no-install-recommends install chromium >/dev/null 2>&1 && break
    done
fi
command -v chromium >/dev/null ||
    echo "setup: going on without Chromium: the browser tests are skipped; install one, or name it in SLACKWATER_BROWSER"
