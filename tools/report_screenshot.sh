#!/usr/bin/env bash
# Takes pictures of a page of smoe-report with Chromium: OUT-WIDTH-light.png and OUT-WIDTH-dark.png for each width.
#   tools/report_screenshot.sh report.html OUT [HEIGHT [WIDTH...]]      (in CSS pixels)
#   SECTIONS="loss masks" tools/report_screenshot.sh ...                (only these sections of the page)
set -euo pipefail
if [ $# -lt 2 ]; then
  sed -n '2,4s/^# *//p' "$0" >&2
  exit 2
fi
page=$1 out=$2 height=${3:-1600}
shift $(($# < 3 ? $# : 3))
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
  echo "no Chromium found; install it with: apt-get install chromium" >&2
  exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$page" "$work/page.html"
if [ -n "${SECTIONS:-}" ]; then
  printf '<style>section{display:none}%s</style>' "$(printf '#%s{display:block}' $SECTIONS)" >>"$work/page.html"
fi
for width in "${@:-1280}"; do
  for scheme in light dark; do
    # The sandbox of the browser does not work for root, as in containers; the page is our own file.
    if ! "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size="$width,$height" \
      --blink-settings=preferredColorScheme=$([ $scheme = dark ] && echo 0 || echo 1) \
      --screenshot="$work/picture.png" "file://$work/page.html" >"$work/log" 2>&1; then
      cat "$work/log" >&2
      exit 1
    fi
    mv "$work/picture.png" "$out-$width-$scheme.png"
    echo "wrote $out-$width-$scheme.png"
  done
done
