#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A stranger on the link, who makes any packet he likes, and a good connection that must not notice.

Two network namespaces: `ours` holds the echo server on a veth end by net_af_packet, the other one the
kernel with a good connection, and scapy. After each attack the good connection gets its echo, and a
new one does as well: a flood of SYNs, land, resets, SYNs and data that guess their numbers (RFC 5961),
ICMP errors (RFC 5927), fragments of a stream, options that cannot be, flags that make no sense. At the
end the server's counters say that each was seen for what it is.

usage: attacks.py --echo build/test/integ/kernel/kernel_echo
Status 0, 1 (it failed), 77 (it cannot be run here).
"""
import argparse
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

OURS, GOOD = '10.7.0.1', '10.7.0.2'
PORT = 7
ACK, RST, SYN = 0x10, 0x04, 0x02


class Failed(Exception):
    pass


def require(holds, text):
    if not holds:
        raise Failed(text)


def sh(*words, ns=None):
    prefix = ('ip', 'netns', 'exec', ns) if ns else ()
    done = subprocess.run(prefix + words, check=False, capture_output=True, text=True)
    require(done.returncode == 0, '%s: %s' % (' '.join(words), done.stderr.strip()))
    return done.stdout


# ---- inside the namespace of the kernel ----

class Good:
    """A connection whose numbers the attacker knows: the worst case."""

    def __init__(self):
        self.wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self.wire.bind(('va', 0))
        self.wire.setblocking(False)
        self.sock = socket.create_connection((OURS, PORT), timeout=10)
        self.sport = self.sock.getsockname()[1]
        self.seq = self.ack = 0
        self.echo('the first')

    def echo(self, after):
        data = os.urandom(1500)
        self.sock.sendall(data)
        got = b''
        while len(got) < len(data):
            try:
                part = self.sock.recv(len(data) - len(got))
            except OSError as e:
                raise Failed('no echo after %s: %s' % (after, e)) from None
            require(part, 'the good connection ended after %s' % after)
            got += part
        require(got == data, 'the echo differs after %s' % after)
        time.sleep(0.05)
        self.follow()

    def follow(self):
        """What the server's last segment said, is where it stands."""
        while True:
            try:
                f = self.wire.recv(4096)
            except BlockingIOError:
                return
            if len(f) < 54 or f[23] != 6 or f[26:30] != socket.inet_aton(OURS):
                continue
            sport, dport, seq, ack, off = struct.unpack('>HHIIB', f[34:47])
            length = struct.unpack('>H', f[16:18])[0] - 20 - (off >> 4) * 4
            if sport == PORT and dport == self.sport:
                self.seq, self.ack = ack, (seq + length) & 0xffffffff


def fresh(after):
    with socket.create_connection((OURS, PORT), timeout=10) as s:
        s.sendall(b'hello')
        require(s.recv(5) == b'hello', 'a new connection gets no echo after %s' % after)


def attacks(good, rand):
    from scapy.all import ICMP, IP, TCP, Raw, fragment

    def tcp(seq, flags, **more):
        payload = more.pop('payload', b'')
        ip = more.pop('ip', IP(src=GOOD, dst=OURS))
        p = ip / TCP(sport=more.pop('sport', good.sport), dport=PORT, seq=seq & 0xffffffff, flags=flags,
                     **more)
        return p / Raw(payload) if payload else p

    yield 'a flood of SYNs', [
        tcp(rand.getrandbits(32), 'S', ip=IP(src='10.7.0.%d' % rand.randrange(10, 250), dst=OURS),
            sport=rand.randrange(1024, 65536), window=1000) for _ in range(1500)]
    yield 'land', [IP(src=OURS, dst=OURS) / TCP(sport=PORT, dport=PORT, flags='S', seq=i)
                   for i in range(50)]
    yield 'resets that guess', [tcp(good.seq + d, 'R') for d in (1, 100, 5000, -1, 1 << 30)] + \
        [tcp(rand.getrandbits(32), 'R') for _ in range(200)]
    yield 'SYNs that guess', [tcp(good.seq + d, 'S') for d in (0, 1, 1000)] + \
        [tcp(rand.getrandbits(32), 'S') for _ in range(100)]
    yield 'data that guesses', [
        tcp(good.seq + d, 'A', ack=(good.ack + far) & 0xffffffff, payload=b'evil' * 50)
        for d in (0, 500) for far in (1 << 30, -(1 << 30), 100000)] + \
        [tcp(rand.getrandbits(32), 'PA', ack=good.ack, payload=b'evil') for _ in range(100)]
    quoted = [bytes(IP(src=OURS, dst=GOOD) / TCP(sport=PORT, dport=good.sport, seq=s & 0xffffffff))[:28]
              for s in (good.ack, good.ack - 100000, rand.getrandbits(32))]
    yield 'ICMP errors', [
        IP(src=src, dst=OURS) / ICMP(type=t, code=c, nexthopmtu=m) / Raw(q)
        for q in quoted for src in (GOOD, '10.7.0.77')
        for t, c, m in ((3, 3, 0), (3, 2, 0), (3, 4, 68), (3, 4, 1200), (11, 0, 0), (4, 0, 0))]
    # Whole, net_af_packet has them joined by the kernel; what lacks its end comes to nobody.
    yield 'fragments', [
        f for at in (0, 8, 16) for end in (-1, None)
        for f in fragment(tcp(good.seq + at, 'A', ack=(good.ack + (1 << 30)) & 0xffffffff,
                              payload=b'evil' * 100), fragsize=24)[:end]]
    whole = bytes(tcp(good.seq, 'A', ack=good.ack, payload=b'x' * 40))
    bad = []
    for options in (b'\x08\x00\0\0', b'\x02\x01\0\0', b'\x08\x0a\0\0', b'\x05\xff\0\0', b'\x03\x02\xff\x00'):
        p = IP(whole)
        raw = bytearray(bytes(p[TCP])[:20] + options + b'x' * 40)
        raw[12] = 6 << 4
        ip = IP(src=GOOD, dst=OURS, proto=6) / Raw(bytes(raw))
        raw[16:18] = b'\0\0'
        pseudo = socket.inet_aton(GOOD) + socket.inet_aton(OURS) + struct.pack('>HH', 6, len(raw))
        total = sum(struct.unpack('>%dH' % ((len(pseudo) + len(raw)) // 2), pseudo + bytes(raw)))
        while total >> 16:
            total = (total & 0xffff) + (total >> 16)
        raw[16:18] = struct.pack('>H', ~total & 0xffff)
        ip = IP(src=GOOD, dst=OURS, proto=6) / Raw(bytes(raw))
        bad.append(ip)
    yield 'options that cannot be', bad
    yield 'a Christmas tree', [tcp(good.seq + d, f, ack=good.ack + 7, urgptr=9)
                               for d in (50, 9999) for f in ('FSRPAU', 'SF', 'SR', 'FPU', '')]


def inside(seed):
    from scapy.all import Ether, conf
    rand = random.Random(seed)
    good = Good()
    mac = [w for w in sh('ip', 'neigh', 'show', OURS).split() if w.count(':') == 5][0]
    out = conf.L2socket(iface='va')
    for name, packets in attacks(good, rand):
        for p in packets:
            out.send(Ether(src='02:00:00:00:00:66', dst=mac) / p)
        good.echo(name)
        fresh(name)
        print('unharmed by %s (%d packets)' % (name, len(packets)), flush=True)


# ---- outside ----

EXPECTED = ['tcp.cookies_sent', 'tcp.challenge_acks', 'tcp.drop_reset_invalid', 'tcp.drop_malformed',
            'tcp.drop_icmp_invalid', 'net.drop_ip_source']


def run(args, ns, folder):
    log = os.path.join(folder, 'server')
    for n in ns:
        sh('ip', 'link', 'set', 'lo', 'up', ns=n)
    sh('ip', 'link', 'add', 'vb', 'netns', ns[0], 'type', 'veth', 'peer', 'name', 'va', 'netns', ns[1])
    sh('ip', 'link', 'set', 'vb', 'up', ns=ns[0])
    sh('ethtool', '-K', 'va', 'tx', 'off', ns=ns[1])
    sh('ip', 'addr', 'add', GOOD + '/24', 'dev', 'va', ns=ns[1])
    sh('ip', 'link', 'set', 'va', 'up', ns=ns[1])
    with open(log, 'w', encoding='utf-8') as out:
        server = subprocess.Popen(
            ['ip', 'netns', 'exec', ns[0], args.echo, '--device', 'net_af_packet0,iface=vb', '--addr',
             OURS + '/24', '--port', str(PORT), '--seconds', '200'], stdout=out, stderr=out)
    try:
        until = time.monotonic() + 60
        while 'ready\n' not in open(log, encoding='utf-8').readlines():
            require(time.monotonic() < until and server.poll() is None, 'the server does not start')
            time.sleep(0.1)
        done = subprocess.run(['ip', 'netns', 'exec', ns[1], '/usr/bin/python3', __file__, '--inside',
                               '--seed', str(args.seed)], check=False, timeout=150)
        require(done.returncode == 0, 'the good connection was harmed')
        server.terminate()
        # 1: the half-open ones of the flood are still there, as they should be for a while.
        require(server.wait(30) in (0, 1), 'the server ended with %s' % server.returncode)
    except Failed:
        server.terminate()
        server.wait(30)
        print(open(log, encoding='utf-8').read()[-3000:])
        raise
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    stat = [line for line in open(log, encoding='utf-8') if line.startswith('stat ')][-1]
    counters = dict(w.split('=') for w in stat.split()[1:])
    for name in EXPECTED:
        print('%s %s' % (name, counters.get(name, '0')))
        require(int(counters.get(name, '0')) > 0, 'nothing counted in %s' % name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--echo')
    parser.add_argument('--seed', type=int, default=int.from_bytes(os.urandom(4), 'big'))
    parser.add_argument('--inside', action='store_true')
    args = parser.parse_args()
    if args.inside:
        try:
            inside(args.seed)
        except (Failed, OSError) as e:
            print('FAILED %s' % e, flush=True)
            return 1
        return 0
    if os.geteuid() != 0 or not shutil.which('ip') or not shutil.which('ethtool'):
        print('skipped: not root, or no ip or ethtool')
        return 77
    if subprocess.run(['/usr/bin/python3', '-c', 'import scapy'], check=False,
                      capture_output=True).returncode != 0:
        print('skipped: python3-scapy is not installed')
        return 77
    print('seed %d' % args.seed, flush=True)
    ns = ['rp-attack-%s-%d' % (n, os.getpid()) for n in ('ours', 'good')]
    try:
        for n in ns:
            if subprocess.run(['ip', 'netns', 'add', n], check=False).returncode != 0:
                print('skipped: no network namespace can be made')
                return 77
        with tempfile.TemporaryDirectory(prefix='rp-attack-') as folder:
            run(args, ns, folder)
        return 0
    except Failed as e:
        print('FAILED (seed %d) %s' % (args.seed, e))
        return 1
    finally:
        for n in ns:
            subprocess.run(['ip', 'netns', 'del', n], check=False, capture_output=True)


sys.exit(main())
