#!/usr/bin/env bash
# Installs packages of Node.js, each into .npm/NAME, if this machine allows it; prints what is missing and why.
# Usage: scripts/npm.sh NAME@VERSION...
set -uo pipefail
cd "$(dirname "$0")/.."

for package in "$@"; do
  folder=.npm/${package%@*}
  stamp=$folder/${package##*/}
  [ ! -e "$stamp" ] || continue
  if ! command -v npm >/dev/null; then
    echo "NOT INSTALLED: $package: there is no npm"
  elif npm install --silent --no-audit --no-fund --prefix "$folder" "$package"; then
    touch "$stamp"
  else
    echo "NOT INSTALLED: $package: npm failed (above)"
  fi
done
