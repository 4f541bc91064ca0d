#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernel's TCP against ours: an echo over a tap port, in a network namespace of its own.

The client is netcat (`nc -N`), which sends a file of random bytes, half-closes, and keeps what comes
back; size and SHA-256 have to be the same. With --stop-seconds the client is a socket that does not
read for so long while it sends: both ends have to close their windows and go on afterwards.

usage: echo.py --echo build/test/integ/kernel/kernel_echo --mib 20 --impair drop=0.02
Status 0, 1 (it failed), 77 (it cannot be run here).
"""
import argparse
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

DEVICE = 'vtap'
OURS, KERNELS, SUBNET = '192.0.2.1', '192.0.2.2', '192.0.2.0/24'
PORT = 7
CHUNK = 1 << 16


class Failed(Exception):
    pass


def sh(*words):
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed('%s: %s' % (' '.join(words), done.stderr.strip()))
    return done.stdout


def inside(ns, *words):
    return ('ip', 'netns', 'exec', ns) + words


def write_random(path, mib, seed):
    """A file of random bytes that a seed gives again, and its SHA-256."""
    import random
    rand, sha = random.Random(seed), hashlib.sha256()
    with open(path, 'wb') as f:
        for _ in range(mib):
            data = rand.randbytes(1 << 20)
            sha.update(data)
            f.write(data)
    return sha.hexdigest()


def sha_of(path):
    sha = hashlib.sha256()
    with open(path, 'rb') as f:
        while data := f.read(1 << 20):
            sha.update(data)
    return sha.hexdigest()


def pairs(line):
    return {k: int(v) if v.isdigit() else v for k, v in
            (w.split('=', 1) for w in line.split()[1:])}


def last_line(path, word):
    found = None
    with open(path, encoding='utf-8') as f:
        for line in f:
            if line.startswith(word + ' ') and line.endswith('\n'):
                found = line
    return found


class Server:
    """The echo server, and the namespace's end of its tap."""

    def __init__(self, args, ns, folder):
        self.log = os.path.join(folder, 'server')
        words = [args.echo, '--device', 'net_tap0,iface=%s' % DEVICE, '--addr', OURS, '--port',
                 str(PORT), '--report-ms', '500', '--seed', str(args.seed), '--seconds',
                 str(args.limit + 30)]
        if args.ecn:
            words += ['--mark-every', '100']
        if args.checksum:
            words += ['--checksum', args.checksum]
        if args.tso:
            words += ['--tso', args.tso]
        if args.impair:
            words += ['--impair', args.impair]
        with open(self.log, 'w', encoding='utf-8') as log:
            self.process = subprocess.Popen(inside(ns, *words), stdout=log, stderr=log)

    def wait_ready(self):
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            with open(self.log, encoding='utf-8') as f:
                if 'ready\n' in f.readlines():
                    return
            time.sleep(0.05)
        raise Failed('the server does not start (status %s)' % self.process.poll())

    def stop(self):
        """Its last counters. It checks by itself that nothing is left."""
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            raise Failed('the server does not stop') from None
        if self.process.returncode != 0:
            raise Failed('the server ended with %d' % self.process.returncode)
        return pairs(last_line(self.log, 'stat'))

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def tail(self):
        with open(self.log, encoding='utf-8') as f:
            lines = f.readlines()[-12:]
        return '\n'.join(' '.join(w for w in line.split() if not w.endswith('=0'))
                         for line in lines)


def kernel_counters(ns):
    """Of the namespace: Tcp and TcpExt."""
    text = sh(*inside(ns, 'cat', '/proc/net/snmp', '/proc/net/netstat')).splitlines()
    counters = {}
    for names, values in zip(text[::2], text[1::2]):
        prefix = names.split()[0]
        if prefix in ('Tcp:', 'TcpExt:', 'IpExt:'):
            counters.update(zip(names.split()[1:], map(int, values.split()[1:])))
    return counters


def configure(args, ns):
    """The kernel's end: address, offloads. Says what the kernel's TCP is set to."""
    offload = args.offload
    sh('ip', '-n', ns, 'addr', 'add', KERNELS + '/24', 'dev', DEVICE)
    sh('ip', '-n', ns, 'link', 'set', DEVICE, 'up')
    # By the route: not every machine lets a namespace set it, and the default may be another.
    sh('ip', '-n', ns, 'route', 'replace', SUBNET, 'dev', DEVICE, 'src', KERNELS, 'congctl',
       args.congestion, *(('features', 'ecn') if args.ecn else ()))
    for feature in ('gso', 'gro'):
        sh(*inside(ns, 'ethtool', '-K', DEVICE, feature, offload))
    names = ('tcp_sack', 'tcp_timestamps')
    values = sh(*inside(ns, 'cat', *('/proc/sys/net/ipv4/' + n for n in names))).split()
    return dict(zip(names, values)) | {'gso and gro': offload}


def wait_client(args, ns, client):
    """Its seconds, and the last that `ss` said of its connection."""
    begin, seen = time.monotonic(), ''
    while client.poll() is None:
        if time.monotonic() - begin > args.limit:
            raise Failed('no end after %d s' % args.limit)
        text = sh(*inside(ns, 'ss', '-Htin', 'dst', OURS)).splitlines()
        seen = text[-1].strip() if len(text) > 1 else seen
        try:
            client.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            pass
    if client.returncode != 0:
        raise Failed('the client ended with %d' % client.returncode)
    return time.monotonic() - begin, seen


def transfer(args, ns, source, target):
    """By netcat."""
    with open(source, 'rb') as i, open(target, 'wb') as o:
        client = subprocess.Popen(inside(ns, 'nc', '-N', OURS, str(PORT)), stdin=i, stdout=o)
        try:
            return wait_client(args, ns, client)
        finally:
            client.kill()
            client.wait()


def stopped_client(source, target, stop_seconds):
    """In the namespace: sends all, and reads nothing at first. Fails if that stopped nothing."""
    s = socket.create_connection((OURS, PORT), timeout=60)
    total, sent, errors = os.path.getsize(source), [0], []

    def send():
        try:
            with open(source, 'rb') as f:
                while data := f.read(CHUNK):
                    s.sendall(data)
                    sent[0] += len(data)
            s.shutdown(socket.SHUT_WR)
        except OSError as e:
            errors.append(e)

    s.settimeout(None)
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    time.sleep(stop_seconds * 0.8)
    before = sent[0]
    time.sleep(stop_seconds * 0.2)
    if errors:
        raise Failed('sending failed: %s' % errors[0])
    if before != sent[0] or before == total:
        raise Failed('it did not stop: %d, then %d of %d bytes were sent' %
                     (before, sent[0], total))
    with open(target, 'wb') as f:
        while data := s.recv(CHUNK):
            f.write(data)
    sender.join()
    if errors:
        raise Failed('sending failed: %s' % errors[0])
    print('stopped after %d of %d bytes' % (before, total), flush=True)


def transfer_stopped(args, ns, source, target):
    client = subprocess.Popen(inside(
        ns, sys.executable, os.path.abspath(__file__), '--echo', args.echo, '--stop-seconds',
        str(args.stop_seconds), '--client', source, target))
    try:
        seconds, seen = wait_client(args, ns, client)
        return seconds - args.stop_seconds, seen
    finally:
        client.kill()
        client.wait()


def require(holds, text):
    if not holds:
        raise Failed(text)


def check_counters(args, seen, connection, ours, kernels):
    """That the run was what it says: loss was made and repaired, windows were closed."""
    require(ours['net.drop_ip_csum'] == 0 and ours['net.drop_l4_csum'] == 0,
            'bad checksums were received')
    require(kernels['InCsumErrors'] == 0, 'the kernel found bad checksums')
    require(ours['closed_0'] == 1, 'the connection did not end by FINs')
    require(not seen or args.congestion in seen.split(), 'not by %s: %s' % (args.congestion, seen))
    if args.impair and 'drop' in args.impair:
        require(ours['port.impair_rx_drops'] > 0 and ours['port.impair_tx_drops'] > 0,
                'nothing was dropped')
        require(ours['tcp.rtx_segments'] > 0 and kernels['RetransSegs'] > 0,
                'nothing was repaired')
    if args.ecn:
        # The kernel asked, both ends marked and reacted, and nothing was lost for it.
        # A fast run ends before the first report of the connection.
        require(not connection or 'ecn=1' in connection, 'ECN was not agreed on')
        require(kernels['InECT0Pkts'] > 0 and kernels['InCEPkts'] > 0,
                'the kernel saw no marks of ours')
        require(ours['tcp.ecn_ce_rx'] > 0, 'we saw no marks of the kernel')
        require(ours['tcp.ecn_reductions'] > 0, 'the kernel echoed no marks')
        require(ours['tcp.rtx_segments'] <= ours['tcp.tlp'] and
                kernels['RetransSegs'] <= kernels['TCPLossProbes'],
                'something went again that was no probe')
    if args.stop_seconds:
        require(ours['tcp.probes'] > 0, 'the closed window of the kernel was not probed')
        require(kernels['TCPWinProbe'] > 0, 'the kernel did not find our window closed')


def report(args, seconds, setting, ours, kernels):
    size = args.mib << 20
    print('%d bytes there and back in %.2f s: %.1f MB/s each way; impairment: %s' %
          (size, seconds, size / seconds / 1e6, args.impair or 'none'))
    print('kernel: ' + ', '.join('%s %s' % kv for kv in setting.items()))
    print('kernel: ' + ' '.join('%s=%d' % (k, kernels[k]) for k in (
        'RetransSegs', 'TCPTimeouts', 'TCPLossProbes', 'TCPFastRetrans', 'TCPLostRetransmit',
        'TCPSackRecovery', 'TCPDSACKRecv', 'TCPWinProbe', 'TCPFromZeroWindowAdv', 'OutRsts')))
    print('ours: ' + ' '.join('%s=%s' % kv for kv in ours.items() if kv[1] != 0))


def run(args, ns, folder):
    source, target = os.path.join(folder, 'sent'), os.path.join(folder, 'echoed')
    sha = write_random(source, args.mib, args.seed)
    server = Server(args, ns, folder)
    try:
        server.wait_ready()
        setting = configure(args, ns)
        if args.stop_seconds:
            seconds, seen = transfer_stopped(args, ns, source, target)
        else:
            seconds, seen = transfer(args, ns, source, target)
        connection = last_line(server.log, 'conn')
        kernels = kernel_counters(ns)
        ours = server.stop()
        if connection:
            print(connection.strip())
        print('kernel: ' + seen)
        report(args, seconds, setting, ours, kernels)
        require(os.path.getsize(target) == os.path.getsize(source),
                '%d bytes came back' % os.path.getsize(target))
        require(sha_of(target) == sha, 'other bytes came back than were sent')
        check_counters(args, seen, connection or '', ours, kernels)
    except Failed:
        print(server.tail())
        raise
    finally:
        server.kill()


def why_not():
    if os.geteuid() != 0:
        return 'not root, so no network namespace'
    if not os.path.exists('/dev/net/tun'):
        return 'no /dev/net/tun'
    for tool in ('nc', 'ip', 'ss', 'ethtool'):
        if not shutil.which(tool):
            return '%s is not installed' % tool
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--echo', required=True)
    parser.add_argument('--mib', type=int, default=20)
    parser.add_argument('--impair', default='')
    parser.add_argument('--congestion', default='cubic', help="the kernel's congestion control")
    parser.add_argument('--offload', choices=['on', 'off'], default='on')
    parser.add_argument('--checksum', choices=['hw', 'sw'], help='who makes ours')
    parser.add_argument('--tso', choices=['on', 'off'], help='super-segments, cut by the port where the device cannot')
    parser.add_argument('--ecn', action='store_true',
                        help='the kernel asks for ECN, and each hundredth frame is marked')
    parser.add_argument('--stop-seconds', type=int, default=0)
    parser.add_argument('--limit', type=int, default=100, help='seconds a transfer may take')
    parser.add_argument('--seed', type=int, default=int.from_bytes(os.urandom(4), 'big'))
    parser.add_argument('--client', nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client:
        try:
            stopped_client(*args.client, args.stop_seconds)
        except (Failed, OSError) as e:
            print('the client: %s' % e, flush=True)
            return 1
        return 0
    reason = why_not()
    if reason:
        print('skipped: %s' % reason)
        return 77
    print('seed %d' % args.seed, flush=True)
    ns = 'rp-kernel-%d' % os.getpid()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    added = subprocess.run(['ip', 'netns', 'add', ns], check=False, capture_output=True, text=True)
    if added.returncode != 0:
        print('skipped: no network namespace can be made: %s' % added.stderr.strip())
        return 77
    try:
        with tempfile.TemporaryDirectory(prefix=ns) as folder:
            run(args, ns, folder)
        return 0
    except Failed as e:
        print('FAILED (seed %d) %s' % (args.seed, e))
        return 1
    finally:
        subprocess.run(['ip', 'netns', 'del', ns], check=False)


sys.exit(main())
