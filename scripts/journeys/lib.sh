# shellcheck shell=bash
# What the journeys share: a directory, commands that are counted, and what they have to say.
#
# A journey is what a new user types to reach what that user came for. `step` runs one command as
# a shell does and keeps what it said; `ends`, `says` and `says_not` hold that against what it has to
# mean. A journey that takes more commands than it states fails, and so does one whose outputs change
# their meaning. Everything happens in a directory of its own, which goes at the end.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
fail() {
    echo "journey $journey: $*" >&2
    [ -z "${said:-}" ] || printf '%s\n' "$said" | sed 's/^/    /' >&2
    exit 1
}

# journey NAME COMMANDS_MAX: begins.
journey() {
    journey=$1 steps_max=$2 steps=0 begun=$SECONDS
    bin=${WATTLE_BIN:-${CARGO_TARGET_DIR:-$repo/target}/debug}
    [ -x "$bin/wattle" ] || fail "no wattle in $bin: cargo build -p wattle-app, or WATTLE_BIN=DIR"
    export PATH="$bin:$PATH" NO_COLOR=1
    dir=$(mktemp -d "${TMPDIR:-/tmp}/journey-XXXXXX")
    export WATTLE_RUNTIME_DIR="$dir/run" WATTLE_STATE_DIR="$dir/state"
    trap arrive EXIT
    cd "$dir"
}

# What a journey leaves: nothing.
arrive() {
    local status=$?
    trap - EXIT
    # Only what this journey started.
    for pid in $(jobs -p); do kill "$pid" 2> /dev/null || true; done
    wait
    cd / && rm -rf "$dir"
    [ $status -eq 0 ] || exit $status
    echo "journey $journey: $steps commands of at most $steps_max, $((SECONDS - begun)) s"
}

# needs TOOL...: a journey that cannot be made here is skipped, loudly; in CI that is a failure.
needs() {
    local tool
    for tool in "$@"; do
        command -v "$tool" > /dev/null && continue
        [ "${CI:-}" = true ] && fail "$tool is not installed: scripts/deps"
        echo "SKIPPED: journey $journey: $tool is not installed; scripts/deps installs it" >&2
        exit 0
    done
}

# step COMMAND: what a user types. Sets $said (both outputs) and $ended (the status).
step() {
    steps=$((steps + 1))
    [ $steps -le "$steps_max" ] || fail "more than $steps_max commands: $1"
    typed=$1 ended=0
    said=$(eval "$1" 2>&1) || ended=$?
}

# serving COMMAND: a step that goes on in the background; waits until clients can connect.
serving() {
    steps=$((steps + 1))
    [ $steps -le "$steps_max" ] || fail "more than $steps_max commands: $1"
    typed=$1 ended=0
    eval "$1" > server.log 2>&1 &
    for _ in $(seq 600); do
        said=$(cat server.log)
        case $said in *"wattle: ready: "*) return ;; esac
        kill -0 $! 2> /dev/null || fail "\`$typed\` ended"
        sleep 0.05
    done
    fail "\`$typed\` is not ready after 30 s"
}

# ends STATUS: how the last step ended.
ends() { [ "$ended" -eq "$1" ] || fail "\`$typed\` ended with $ended, not $1"; }

# says TEXT...: what the last step said has all of these.
says() {
    local text
    for text in "$@"; do
        case $said in *"$text"*) ;; *) fail "\`$typed\` does not say: $text" ;; esac
    done
}

# says_not TEXT...: and none of these.
says_not() {
    local text
    for text in "$@"; do
        case $said in *"$text"*) fail "\`$typed\` says: $text" ;; esac
    done
}
