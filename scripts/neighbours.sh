#!/usr/bin/env bash
# Installs the programs that the neighbours' tests talk to, where this machine allows it; says what is missing and why.
set -uo pipefail
cd "$(dirname "$0")/.."

missing=()
for program in nginx haproxy squid; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null || missing+=("$program")
done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    # A policy that says no to every service: the tests start what they need, on ports of their own.
    policy=/usr/sbin/policy-rc.d
    [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy && trap 'rm -f $policy' EXIT; }
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}"; } >/dev/null ||
      echo "NOT INSTALLED: ${missing[*]}: apt-get failed (above)"
  else
    echo "NOT INSTALLED: ${missing[*]}: that needs root and apt-get (apt-get install ${missing[*]})"
  fi
fi
if [ ! -d .neighbours/node_modules/azurite ]; then
  if command -v npm >/dev/null; then
    npm install --silent --no-audit --no-fund --prefix .neighbours azurite || echo "NOT INSTALLED: Azurite: npm failed (above)"
  else
    echo "NOT INSTALLED: Azurite: there is no npm"
  fi
fi
