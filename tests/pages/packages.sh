#!/usr/bin/env bash
# Run a command where a browser and LaTeX are installed: Debian's packages, which root installs if they are missing.
#   tests/pages/packages.sh pytest tests/pages
# What cannot be installed is left out, and the tests that need it skip.
set -euo pipefail

missing=()
type chromium >/dev/null 2>&1 || missing+=(chromium)
type pdflatex >/dev/null 2>&1 || missing+=(texlive-latex-base texlive-latex-recommended texlive-latex-extra)
type pdftoppm >/dev/null 2>&1 || missing+=(poppler-utils)
if [ "${#missing[@]}" != 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
      >/dev/null 2>&1 || echo "Not installed, since apt-get failed: ${missing[*]}" >&2
  else
    echo "Not installed, since that needs root and apt-get: ${missing[*]}" >&2
  fi
fi
exec "$@"
