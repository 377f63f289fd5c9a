#!/usr/bin/env bash
# scripts/mutants, on a library of two functions with one test: it tells mutants that are killed from those that live, and
# leaves out what compiles to the same code or not at all.
# SPDX-License-Identifier: MIT
set -euo pipefail
source_dir=${SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
"$source_dir/scripts/mutants" --self-test
