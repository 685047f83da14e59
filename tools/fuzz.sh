#!/usr/bin/env bash
# Runs every fuzz target of every module for the given time each, also after a failure. With --list,
# it only prints their names.
set -euo pipefail
export GOWORK=off
cd "$(dirname "$0")/.."
time="${1:-30s}"
failed=()
# No package of a module without fuzz targets is built.
for dir in $(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u); do
	pkg=$(go -C "$dir" list .)
	for target in $(cat "$dir"/*_test.go | sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' | sort); do
		echo "== $pkg $target"
		[ "$time" = --list ] && continue
		rc=0
		out=$(go -C "$dir" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x . 2>&1) || rc=$?
		echo "$out"
		# On a busy machine go test fails if an input still runs at the end of the time. That is no
		# failure of the target: a failing input is written to a file, which the output names.
		[ "$rc" = 0 ] || { grep -q 'context deadline exceeded' <<<"$out" && ! grep -q 'Failing input' <<<"$out"; } || failed+=("$pkg $target")
	done
done
[ ${#failed[@]} = 0 ] || { printf 'FAILED: %s\n' "${failed[@]}"; exit 1; }
