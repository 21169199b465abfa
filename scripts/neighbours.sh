#!/usr/bin/env bash
# Installs the programs that tests/wire/neighbours needs, if this machine allows it; prints what is missing and why.
set -uo pipefail
cd "$(dirname "$0")/.."

scripts/apt.sh nginx haproxy squid
if [ ! -d .neighbours/node_modules/azurite ]; then
  if command -v npm >/dev/null; then
    npm install --silent --no-audit --no-fund --prefix .neighbours azurite || echo "NOT INSTALLED: Azurite: npm failed (above)"
  else
    echo "NOT INSTALLED: Azurite: there is no npm"
  fi
fi
