#!/usr/bin/env bash
# Installs programs whose Debian packages have the same names, if this machine allows it; prints what is missing and why.
# Usage: scripts/apt.sh PROGRAM...
set -uo pipefail

missing=()
for program in "$@"; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null || missing+=("$program")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  # Keeps apt from starting services: the tests start their own, on their own ports.
  policy=/usr/sbin/policy-rc.d
  [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy && trap 'rm -f $policy' EXIT; }
  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}"; } >/dev/null ||
    echo "NOT INSTALLED: ${missing[*]}: apt-get failed (above)"
else
  echo "NOT INSTALLED: ${missing[*]}: that needs root and apt-get (apt-get install ${missing[*]})"
fi
