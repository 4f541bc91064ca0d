#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many instructions our TCP takes, by callgrind, and whether that has grown.

Runs tcp_cost, or message_cost, with N and with 2N requests, segments or messages on a clock of steps: the difference, divided by N, is
exact within an instruction or two. It may be 0.5 % above what instructions.json has for this compiler. With
--update that is set to what was measured. Another compiler or a processor without AVX2 makes other code or
takes other ways: then there is nothing to compare with, and the status is 77.
"""
import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

STORED = Path(__file__).with_name('instructions.json')
BOUND = 0.005
# what: (mode of the program, N)
MODES = {
    'tcp': {
        'request and reply of 64 bytes, both ends': ('rr', 5000),
        'full segment sent and received': ('stream', 5000),
    },
    'messages': {
        'message to a queue of another node and its acknowledge, both ends': ('deliver', 4000),
        'message to a queue of this node and its acknowledge': ('deliver-alone', 4000),
        'request and reply through two queues, both ends': ('rr', 4000),
    },
}


def count(program, mode, n):
    words = ['valgrind', '--tool=callgrind', '--fair-sched=try', '--callgrind-out-file=/dev/null', program, 'steps', mode, str(n)]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    found = re.search(r'Collected : (\d+)', run.stderr)
    if run.returncode != 0 or not found:
        sys.exit('%s ended with %d\n%s%s' % (' '.join(words), run.returncode, run.stdout, run.stderr))
    return int(found.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n', maxsplit=1)[0])
    parser.add_argument('program', help='tcp_cost, or message_cost of test/ringperf')
    parser.add_argument('compiler', help='its name and version')
    parser.add_argument('--of', choices=list(MODES), default='tcp', help='what the program measures')
    parser.add_argument('--update', action='store_true', help='store what is measured')
    args = parser.parse_args()
    stored = json.loads(STORED.read_text())
    avx2 = re.search(r'^flags.*\bavx2\b', Path('/proc/cpuinfo').read_text(), re.M)
    known = stored.get(args.compiler)
    if known and not known.keys() >= MODES[args.of].keys():
        known = None
    if not avx2 or not (known or args.update):
        print('nothing to compare with: %s, AVX2: %s' % (args.compiler, bool(avx2)))
        return 77
    measured, grown = {}, False
    for what, (mode, n) in MODES[args.of].items():
        measured[what] = round((count(args.program, mode, 2 * n) - count(args.program, mode, n)) / n, 1)
        if known and not args.update:
            over = measured[what] / known[what] - 1
            grown |= over > BOUND
            print('%s: %.1f instructions, %+.2f %% of what is stored%s' % (
                what, measured[what], 100 * over, ', too many' if over > BOUND else ''))
        else:
            print('%s: %.1f instructions' % (what, measured[what]))
    if args.update:
        stored.setdefault(args.compiler, {}).update(measured)
        STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + '\n')
    return 1 if grown else 0


sys.exit(main())
