#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts what a measurement printed into its place on a page.

usage: MEASUREMENT | page.py PAGE PLACE [--command TEXT]

The place is what stands between <!-- PLACE: begin --> and <!-- PLACE: end -->. In front of it comes when
that was, and of which version.
"""
import argparse
import datetime
import subprocess
import sys
from pathlib import Path


def version():
    run = subprocess.run(['git', 'describe', '--always', '--dirty'], capture_output=True, text=True, check=False,
                         cwd=Path(__file__).parent)
    return run.stdout.strip() or 'unknown'


def put(page, place, text, command):
    """Replaces the place's text; False: the page has no such place."""
    page = Path(page)
    begin, end = '<!-- %s: begin -->' % place, '<!-- %s: end -->' % place
    whole = page.read_text(encoding='utf-8')
    if begin not in whole or end not in whole:
        return False
    head, _, rest = whole.partition(begin)
    _, _, tail = rest.partition(end)
    day = datetime.date.today().isoformat()
    page.write_text('%s%s\n\n%s, version %s: `%s`\n\n%s\n\n%s%s' % (
        head, begin, day, version(), command, text.strip(), end, tail), encoding='utf-8')
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n', maxsplit=1)[0])
    parser.add_argument('page')
    parser.add_argument('place')
    parser.add_argument('--command', default='', help='what was run')
    args = parser.parse_args()
    text = sys.stdin.read()
    if not text.strip():
        sys.exit('nothing was measured')
    if not put(args.page, args.place, text, args.command):
        sys.exit('%s has no place %s' % (args.page, args.place))


if __name__ == '__main__':
    main()
