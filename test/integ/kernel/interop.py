#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernel's TCP and ours, over one kind of interface, in all that two ends can do to each other.

Our end is kernel_echo on a tap or on a packet socket of a veth pair, by DPDK's drivers or, with
frames of 9000 bytes, which these do not take, by a file (raw.h). In turn:

  bulk      a connection that the kernel dials, random bytes both ways at the same time
  in, out   many short connections, dialled by the kernel, dialled by us
  first     we end our direction first and read on; `last`: the kernel ends its own first
  pmtu      from a host behind the kernel as router, on whose path packets are smaller than it says

With --ecn both ends ask for it, and each hundredth packet is marked. Every byte is compared, every
connection has to end by FINs, and our end checks that nothing is left.

usage: interop.py --echo build/test/integ/kernel/kernel_echo --device tap|packet|raw:tap|raw:packet
Status 0, 1 (it failed), 77 (it cannot be run here).
"""
import argparse
import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

OURS, KERNELS, FAR = '192.0.2.1', '192.0.2.2', '10.9.0.9'
PORT, DIAL_PORT = 7, 8
NARROW = 1400
WAIT = 120


class Failed(Exception):
    pass


def require(holds, text):
    if not holds:
        raise Failed(text)


def sh(*words, ns=None):
    prefix = ('ip', 'netns', 'exec', ns) if ns else ()
    done = subprocess.run(prefix + words, check=False, capture_output=True, text=True)
    require(done.returncode == 0, '%s: %s' % (' '.join(words), (done.stdout + done.stderr).strip()))
    return done.stdout


# ---- the kernel's ends, in a namespace ----

async def echo_peer(reader, writer):
    """Echoes until the peer's FIN, then ends."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


def greeter(size, counts):
    async def greet(reader, writer):
        """Says its own first and ends its direction; then reads what the peer has to say."""
        writer.write(bytes(size))
        writer.write_eof()
        got = len(await reader.read())
        counts['whole' if got == size else 'short'] += 1
        writer.close()
    return greet


async def serve(kind, size):
    counts = {'whole': 0, 'short': 0}
    server = await asyncio.start_server(echo_peer if kind == 'echo' else greeter(size, counts),
                                        KERNELS, DIAL_PORT, backlog=256)
    print('ready', flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with server:
        await stop.wait()
    print('whole %d short %d' % (counts['whole'], counts['short']), flush=True)


async def one_client(gate, number, size):
    async with gate:
        data = random.Random(number).randbytes(size)
        reader, writer = await asyncio.open_connection(OURS, PORT)

        async def send():
            for at in range(0, size, 1 << 16):
                writer.write(data[at:at + (1 << 16)])
                await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        got = bytearray()
        while piece := await reader.read(1 << 18):
            got += piece
        await sending
        writer.close()
        require(bytes(got) == data, 'connection %d: %d of %d bytes came back, or others' %
                (number, len(got), size))


async def clients(count, at_once, size):
    gate = asyncio.Semaphore(at_once)
    await asyncio.gather(*(one_client(gate, i, size) for i in range(count)))


# ---- our end ----

class Ours:
    def __init__(self, args, world, folder, *more):
        self.log = os.path.join(folder, 'ours')
        device = {'tap': 'net_tap0,iface=data', 'packet': 'net_af_packet0,iface=data'}.get(
            args.device, args.device + ':data')
        words = [args.echo, '--device', device, '--addr', OURS + '/24', '--gateway', KERNELS,
                 '--port', str(PORT), '--mtu', str(args.mtu), '--seconds', '600', '--report-ms',
                 '200', *more]
        if args.ecn:
            words += ['--ecn', '--mark-every', '100']
        with open(self.log, 'w', encoding='utf-8') as log:
            self.process = subprocess.Popen(['ip', 'netns', 'exec', world.ours, *words],
                                            stdout=log, stderr=log)
        self.await_line('ready\n', 60)
        world.connect(args)

    def lines(self):
        with open(self.log, encoding='utf-8') as f:
            return f.readlines()

    def await_line(self, line, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            if line in self.lines():
                return
            time.sleep(0.05)
        raise Failed('our end does not say "%s":\n%s' % (line.strip(), ''.join(self.lines()[-3:])))

    def dial(self):
        self.process.send_signal(signal.SIGUSR1)
        self.await_line('dialled\n', WAIT)

    def stop(self):
        """Its last counters."""
        self.process.terminate()
        require(self.process.wait(timeout=30) == 0,
                'our end ended with %s:\n%s' % (self.process.returncode, ''.join(self.lines()[-6:])))
        last = [x for x in self.lines() if x.startswith('stat ')][-1]
        return {k: int(v) for k, v in (w.split('=') for w in last.split()[1:]) if v.isdigit()}

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class World:
    """The kernel's namespace, ours (the same with a tap), and a far host behind the kernel."""

    def __init__(self, args):
        base = 'rp-interop-%d' % os.getpid()
        self.kernel, self.far = base + '-k', base + '-f'
        self.packet = args.device.endswith('packet')
        self.ours = base + '-o' if self.packet else self.kernel

    def __enter__(self):
        for ns in {self.kernel, self.far, self.ours}:
            if subprocess.run(['ip', 'netns', 'add', ns], check=False,
                              capture_output=True).returncode != 0:
                print('skipped: no network namespace can be made')
                sys.exit(77)
            sh('ip', 'link', 'set', 'lo', 'up', ns=ns)
        sh('ip', 'link', 'add', 'side', 'netns', self.kernel, 'type', 'veth', 'peer', 'name',
           'side', 'netns', self.far)
        for ns, address in ((self.kernel, '10.9.0.1'), (self.far, FAR)):
            sh('ip', 'addr', 'add', address + '/24', 'dev', 'side', ns=ns)
            sh('ip', 'link', 'set', 'side', 'mtu', str(NARROW), 'up', ns=ns)
            # Who comes by the router may be told sums that are not made yet.
            sh('ethtool', '-K', 'side', 'tx', 'off', 'gro', 'off', ns=ns)
        sh('ip', 'route', 'add', 'default', 'via', '10.9.0.1', 'advmss', '1460', ns=self.far)
        sh('sysctl', '-qw', 'net.ipv4.ip_forward=1', ns=self.kernel)
        if self.packet:
            sh('ip', 'link', 'add', 'data', 'netns', self.ours, 'type', 'veth', 'peer', 'name',
               'data', 'netns', self.kernel)
        return self

    def prepare(self, args):
        """What has to be there before our end starts."""
        if not self.packet:
            return
        for ns in (self.ours, self.kernel):
            sh('ip', 'link', 'set', 'data', 'mtu', str(args.mtu), 'up', ns=ns)
            sh('ethtool', '-K', 'data', 'tx', 'off', ns=ns)

    def connect(self, args):
        """The kernel's end of the link, once our end is there."""
        if not self.packet:
            sh('ip', 'link', 'set', 'data', 'mtu', str(args.mtu), 'up', ns=self.kernel)
        sh('ip', 'addr', 'replace', KERNELS + '/24', 'dev', 'data', ns=self.kernel)
        sh('ip', 'route', 'replace', '192.0.2.0/24', 'dev', 'data', 'src', KERNELS,
           *(('features', 'ecn') if args.ecn else ()), ns=self.kernel)

    def __exit__(self, kind, value, trace):
        for ns in {self.kernel, self.far, self.ours}:
            subprocess.run(['ip', 'netns', 'del', ns], check=False)


def myself(ns, *words):
    return ['ip', 'netns', 'exec', ns, sys.executable, os.path.abspath(__file__), *words]


def run_clients(ns, count, at_once, size):
    done = subprocess.run(myself(ns, '--clients', str(count), str(at_once), str(size)), check=False,
                          capture_output=True, text=True, timeout=2 * WAIT)
    require(done.returncode == 0, 'the clients: ' + (done.stdout + done.stderr)[-500:])


# ---- the cases; each gives our counters ----

def kernel_dials(args, world, folder):
    ours = Ours(args, world, folder)
    try:
        begin = time.monotonic()
        run_clients(world.kernel, 1, 1, args.mib << 20)
        bulk = time.monotonic() - begin
        mss = {int(w.split('=')[1]) for x in ours.lines() if x.startswith('conn ')
               for w in x.split() if w.startswith('mss=')}
        begin = time.monotonic()
        run_clients(world.kernel, args.count, 32, 300)
        short = time.monotonic() - begin
        if args.mtu <= 1500:
            run_clients(world.far, 1, 1, 1 << 20)
        stat = ours.stop()
    finally:
        ours.kill()
    print('bulk %.1f MB/s each way, mss %s; in %d short ones, %.0f/s' %
          ((args.mib << 20) / bulk / 1e6, sorted(mss), args.count, args.count / short))
    total = 1 + args.count + (args.mtu <= 1500)
    require(stat['closed_0'] == total, '%d of %d ended by FINs' % (stat['closed_0'], total))
    # The options of a segment are 12 bytes; a fast run ends before the first report.
    require(not mss or mss == {args.mtu - 52}, 'an MSS of %s at an MTU of %d' % (mss, args.mtu))
    if args.mtu <= 1500:
        require(stat['tcp.icmp_too_big'] >= 1, 'nobody said that the path is narrow')
    return stat


def we_dial(args, world, folder, kind, count, at_once, size):
    peer = None
    ours = Ours(args, world, folder, '--dial', KERNELS, '--dial-port', str(DIAL_PORT), '--dials',
                str(count), '--at-once', str(at_once), '--bytes', str(size),
                *(['--peer-first'] if kind == 'greet' else []))
    try:
        peer = subprocess.Popen(myself(world.kernel, '--serve', kind, str(size)),
                                stdout=subprocess.PIPE, text=True)
        require(peer.stdout.readline() == 'ready\n', 'the kernel\'s server does not start')
        begin = time.monotonic()
        ours.dial()
        seconds = time.monotonic() - begin
        stat = ours.stop()
        peer.terminate()
        said = peer.stdout.read()
    finally:
        ours.kill()
        if peer:
            peer.kill()
            peer.wait()
    print('out %d of %d bytes, %s: %.0f/s' % (count, size, kind, count / seconds))
    require(stat['dial.good'] == count, '%d of %d were good: %d wrong bytes, %d too short, %s' %
            (stat['dial.good'], count, stat['dial.bad_bytes'], stat['dial.short'],
             {k: v for k, v in stat.items() if k.startswith('closed') and v}))
    require(stat['dial.bad_bytes'] == 0, '%d wrong bytes' % stat['dial.bad_bytes'])
    require(kind == 'echo' or said.startswith('whole %d short 0' % count),
            'the kernel\'s end had %s' % said.strip())
    return stat


def run(args, world, folder):
    world.prepare(args)
    stats = [kernel_dials(args, world, folder),
             we_dial(args, world, folder, 'echo', args.count, 32, 300),
             we_dial(args, world, folder, 'echo', 32, 8, 200000),
             we_dial(args, world, folder, 'greet', 32, 8, 200000)]
    for stat in stats:
        require(stat['net.drop_ip_csum'] == 0 and stat['net.drop_l4_csum'] == 0, 'bad checksums')
    marks = sum(s['tcp.ecn_ce_rx'] for s in stats)
    reductions = sum(s['tcp.ecn_reductions'] for s in stats)
    require((marks > 0 and reductions > 0) == args.ecn,
            '%d marks and %d reductions by them' % (marks, reductions))


def why_not():
    if os.geteuid() != 0:
        return 'not root, so no network namespace'
    if not os.path.exists('/dev/net/tun'):
        return 'no /dev/net/tun'
    for tool in ('ip', 'ethtool', 'sysctl'):
        if not shutil.which(tool):
            return '%s is not installed' % tool
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--echo')
    parser.add_argument('--device', choices=['tap', 'packet', 'raw:tap', 'raw:packet'],
                        default='tap')
    parser.add_argument('--mtu', type=int, default=1500)
    parser.add_argument('--ecn', action='store_true')
    parser.add_argument('--count', type=int, default=1000, help='short connections each way')
    parser.add_argument('--mib', type=int, default=16)
    parser.add_argument('--serve', nargs=2, help=argparse.SUPPRESS)
    parser.add_argument('--clients', nargs=3, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    try:
        if args.serve:
            asyncio.run(serve(args.serve[0], int(args.serve[1])))
            return 0
        if args.clients:
            asyncio.run(clients(*args.clients))
            return 0
        reason = why_not()
        if reason:
            print('skipped: %s' % reason)
            return 77
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
        with World(args) as world, tempfile.TemporaryDirectory(prefix='rp-interop') as folder:
            run(args, world, folder)
        return 0
    except (Failed, OSError) as e:
        print('FAILED %s' % e, flush=True)
        return 1


sys.exit(main())
