#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our TCP against the kernel's as senders over the same emulated links, in real time.

One process (links.c) is the link: a rate, a buffer, a round trip, and the impairment model. The
receiver is the kernel's TCP behind a tap, for both; the sender is the kernel's TCP behind another
tap, or our stack. They take turns with the same seeds. A figure is what the receiver's application
read from --warm seconds on; a cell is the median of its runs.

usage: links.py --links build/test/integ/kernel/kernel_links [--runs 9] [--only TEXT] [--write docs/results/tcp_links.md]
Status 0; 1: a cell is below --least times the kernel's; 77: it cannot be run here.
"""
import argparse
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / 'perf'))
import page  # noqa: E402

PORT = 9000
SENDER, RECEIVER = '192.0.2.1', '192.0.2.2'

RECEIVE = r'''
import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('%s', %d))
s.listen(1)
print('listening', flush=True)
s.settimeout(30)
c, _ = s.accept()
warm, seconds = float(sys.argv[1]), float(sys.argv[2])
buf, total, mark = bytearray(1 << 18), 0, None
begin = time.monotonic()
c.settimeout(0.05)
while (now := time.monotonic()) < begin + seconds:
    if mark is None and now >= begin + warm:
        mark = (now, total)
    try:
        n = c.recv_into(buf)
    except TimeoutError:
        continue
    if n == 0:
        break
    total += n
end = time.monotonic()
print((total - mark[1]) / (end - mark[0]) if mark else 0, flush=True)
''' % (RECEIVER, PORT)

SEND = r'''
import socket, sys, time
s = socket.create_connection(('%s', %d), timeout=30)
end, data = time.monotonic() + float(sys.argv[1]), bytes(1 << 16)
s.settimeout(0.2)
while time.monotonic() < end:
    try:
        s.send(data)
    except TimeoutError:
        pass
    except OSError:
        break
''' % (RECEIVER, PORT)


class Failed(Exception):
    pass


def sh(*words):
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed('%s: %s' % (' '.join(words), done.stderr.strip()))
    return done.stdout


class Namespaces:
    def __init__(self):
        self.names = ['rp-links-%s-%d' % (x, os.getpid()) for x in 'ab']

    def __enter__(self):
        for n in self.names:
            sh('ip', 'netns', 'add', n)
            sh('ip', 'netns', 'exec', n, 'sysctl', '-q', '-w',
               'net.ipv6.conf.default.disable_ipv6=1', 'net.ipv6.conf.all.disable_ipv6=1')
        return self.names

    def __exit__(self, *_):
        for n in self.names:
            subprocess.run(['ip', 'netns', 'del', n], check=False, stderr=subprocess.DEVNULL)


def inside(ns, *words):
    return ['ip', 'netns', 'exec', ns, *words]


def configure(ns, device, address):
    sh('ip', '-n', ns, 'addr', 'add', address + '/24', 'dev', device)
    sh('ip', '-n', ns, 'link', 'set', device, 'up')
    # By the route, so that the default of the machine does not matter; and nothing is remembered
    # of the connection before.
    sh('ip', '-n', ns, 'route', 'replace', '192.0.2.0/24', 'dev', device, 'src', address,
       'congctl', 'cubic')
    sh(*inside(ns, 'sysctl', '-q', '-w', 'net.ipv4.tcp_no_metrics_save=1'))


def one(args, cell, sender, seed):
    """Bytes a second that the receiver read, and what the link counted."""
    with Namespaces() as (a, b):
        link = receiver = client = None
        try:
            link = subprocess.Popen(
                inside(a, args.links, '--sender', sender, '--rtt-us', str(cell['rtt_us']),
                       '--mbps', str(cell['mbps']), '--buffer', str(cell['buffer']), '--impair',
                       cell['impair'], '--seconds', str(args.seconds + 60), '--seed', str(seed),
                       '--port', str(PORT)),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if link.stdout.readline() != 'ready\n':
                raise Failed('the link does not start')
            sh('ip', '-n', a, 'link', 'set', 'lkb', 'netns', b)
            configure(b, 'lkb', RECEIVER)
            if sender == 'linux':
                configure(a, 'lka', SENDER)
            receiver = subprocess.Popen(
                inside(b, sys.executable, '-c', RECEIVE, str(args.warm), str(args.seconds)),
                stdout=subprocess.PIPE, text=True)
            receiver.stdout.readline()
            link.stdin.write('go\n')
            link.stdin.flush()
            if sender == 'linux':
                client = subprocess.Popen(
                    inside(a, sys.executable, '-c', SEND, str(args.seconds + 1)),
                    stderr=subprocess.DEVNULL)
            text, _ = receiver.communicate(timeout=args.seconds + 60)
            counted, _ = link.communicate(timeout=30)
            return float(text or 0), counted.strip()
        finally:
            for p in (client, receiver, link):
                if p and p.poll() is None:
                    p.kill()
                if p:
                    p.wait()


def cells():
    for rtt_us, mbps in ((1000, 200), (10000, 100), (50000, 50)):
        product = int(rtt_us * 1e-6 * mbps * 1e6 / 8 / 1514)
        for loss, share in ((0.0001, 0), (0.001, 0), (0.01, 0), (0.05, 0), (0.01, 0.1),
                            (0.01, 0.5), (0, 0.1), (0, 0.5)):
            impair = 'drop=%g' % loss
            if share:
                impair += ',reorder=%g,reorder_us=%d' % (share, rtt_us / 2)
            yield {'rtt_us': rtt_us, 'mbps': mbps, 'buffer': max(product, 100), 'loss': loss,
                   'share': share, 'impair': impair,
                   'name': 'rtt=%gms loss=%g%% reorder=%g%%' % (
                       rtt_us / 1000, loss * 100, share * 100)}


def measure(args, cell):
    figures = {'linux': [], 'ours': []}
    for i in range(args.runs):
        order = ('linux', 'ours') if i % 2 == 0 else ('ours', 'linux')
        for sender in order:
            rate, counted = one(args, cell, sender, args.seed + i)
            figures[sender].append(rate)
            if args.verbose:
                print('   ', sender, '%.3f MB/s' % (rate / 1e6), counted, flush=True)
    return figures


def text_of(values):
    return '%.2f (%.2f–%.2f)' % tuple(
        x / 1e6 for x in (statistics.median(values), min(values), max(values)))


def why_not():
    if os.geteuid() != 0:
        return 'not root, so no network namespace'
    if not os.path.exists('/dev/net/tun'):
        return 'no /dev/net/tun'
    if not shutil.which('ip'):
        return 'ip is not installed'
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--links', required=True)
    parser.add_argument('--runs', type=int, default=9)
    parser.add_argument('--seconds', type=float, default=4)
    parser.add_argument('--warm', type=float, default=1)
    parser.add_argument('--least', type=float, default=0.95)
    parser.add_argument('--only', default='')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--write', help='the page whose table it is')
    parser.add_argument('--verbose', action='store_true')
    args = parser.parse_args()
    reason = why_not()
    if reason:
        print('skipped: ' + reason)
        return 77
    args.seconds = int(args.seconds)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    print('seed %d' % args.seed, flush=True)
    rows, bad = [], 0
    for cell in cells():
        if args.only not in cell['name']:
            continue
        f = measure(args, cell)
        ratio = statistics.median(f['ours']) / max(statistics.median(f['linux']), 1)
        bad += ratio < args.least
        row = '| %g ms | %d | %g %% | %g %% | %s | %s | %.2f |' % (
            cell['rtt_us'] / 1000, cell['mbps'], cell['loss'] * 100, cell['share'] * 100,
            text_of(f['ours']), text_of(f['linux']), ratio)
        rows.append(row)
        print(row, flush=True)
    if args.write:
        text = ('Linux %s, load %.1f when it ended; %d of %d cells below %g.\n\n'
                '| round trip | Mbit/s | loss | reordered | ours, MB/s | Linux, MB/s | ratio |\n'
                '|---|---|---|---|---|---|---|\n' % (
                    platform.release(), os.getloadavg()[2], bad, len(rows), args.least) + '\n'.join(rows))
        command = 'test/integ/kernel/links.py --runs %d' % args.runs
        if not page.put(args.write, 'real', text, command + (' --only "%s"' % args.only if args.only else '')):
            print('%s has no place for the table' % args.write)
            return 2
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
