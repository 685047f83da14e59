#!/usr/bin/env bash
# Runs every fuzz target of the main module for the given time each.
set -euo pipefail
cd "$(dirname "$0")/.."
time="${1:-30s}"
for pkg in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
		echo "== $pkg $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x "$pkg"
	done
done
