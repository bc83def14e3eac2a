#!/usr/bin/env bash
# Bundle the part of Apache ECharts that `tune report` uses into tuner/report/html/assets/echarts.min.js, with the
# licences of what is in it. Needs node 20 and npm. package.json names exact versions, and so do these packages of what they
# need: run it again only to change the version or the charts (in echarts.js).
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
assets="$here/../../tuner/report/html/assets"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cp "$here"/package.json "$here"/echarts.js "$work"
cd "$work"
npm install --no-package-lock --no-audit --no-fund --ignore-scripts --silent
echarts=$(node -p 'require("echarts/package.json").version')
zrender=$(node -p 'require("zrender/package.json").version')

{
    echo "Apache ECharts $echarts with zrender $zrender, bundled by scripts/report/build_echarts.sh with the charts named in"
    echo "scripts/report/echarts.js. Its NOTICE and licence, then those of zrender and tslib."
    for file in echarts/NOTICE echarts/LICENSE zrender/LICENSE tslib/LICENSE.txt; do
        printf '\n==== %s ====\n\n' "$file"
        sed 's/[[:space:]]*$//' "node_modules/$file"
    done
} >"$assets/echarts.LICENSE.txt"

# The report is a file that people pass on, so the notices stay in the bundle itself, too.
{
    echo "/*! Apache ECharts $echarts, Apache License 2.0: https://www.apache.org/licenses/LICENSE-2.0"
    cat node_modules/echarts/NOTICE
    printf '\nIt contains zrender %s:\n\n' "$zrender"
    cat node_modules/zrender/LICENSE
    printf '\nand code of d3 and tslib; the full texts come with kernel-tune, in tuner/report/html/assets/echarts.LICENSE.txt\n*/\n'
} >banner.js
npx --no-install esbuild echarts.js --bundle --minify --format=iife --global-name=echarts --target=es2020 \
    --legal-comments=none --define:process.env.NODE_ENV='"production"' --log-level=warning --outfile=bundle.js
cat banner.js bundle.js >"$assets/echarts.min.js"
wc -c "$assets/echarts.min.js"
