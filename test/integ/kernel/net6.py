#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernel as neighbour, router and peer of our network layer: IPv6, VLAN, a gateway between.

Three network namespaces in a row: `ours` holds the echo server on a veth pair by net_af_packet,
`router` the other end of it, and `far` a host behind the router. In each of the settings (plain,
with a VLAN tag) the kernel pings us at sizes small and large, asks by TCP for an echo of random
bytes over both families, from the link and from behind the gateway, where one path is narrower than
the link; then its hardware address changes in the midst of a transfer. At last an address that the
kernel has already must not be used.

usage: net6.py --echo build/test/integ/kernel/kernel_echo
Status 0, 1 (it failed), 77 (it cannot be run here).
"""
import argparse
import hashlib
import ipaddress
import os
import random
import re
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

PORT = 7
VLAN = 100
OURS4, OURS6 = '10.8.0.1', 'fd08::1'
NEAR4, NEAR6 = '10.8.0.2', 'fd08::2'
FAR4, FAR6 = '10.9.0.9', 'fd09::9'
NARROW = 1400


class Failed(Exception):
    pass


def require(holds, text):
    if not holds:
        raise Failed(text)


def sh(*words, ns=None):
    prefix = ('ip', 'netns', 'exec', ns) if ns else ()
    done = subprocess.run(prefix + words, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed('%s: %s%s' % (' '.join(words), done.stdout, done.stderr.strip()))
    return done.stdout


def sysctl(ns, name, value):
    sh('sysctl', '-qw', '%s=%s' % (name, value), ns=ns)


class Net:
    """The namespaces, and what is in them."""

    def __init__(self):
        self.ours, self.router, self.far = ('rp-net-%d-%s' % (os.getpid(), x) for x in 'orf')
        self.made = []
        self.relay = None

    def __enter__(self):
        for ns in (self.ours, self.router, self.far):
            made = subprocess.run(['ip', 'netns', 'add', ns], check=False, capture_output=True)
            if made.returncode != 0:
                print('skipped: no network namespace can be made: %s' % made.stderr.decode())
                sys.exit(77)
            self.made.append(ns)
            sh('ip', 'link', 'set', 'lo', 'up', ns=ns)
        sh('ip', 'link', 'add', 'data', 'netns', self.ours, 'type', 'veth', 'peer', 'name', 'data',
           'netns', self.router)
        sh('ip', 'link', 'add', 'side', 'netns', self.router, 'type', 'veth', 'peer', 'name',
           'side', 'netns', self.far)
        sysctl(self.ours, 'net.ipv6.conf.data.disable_ipv6', 1)
        for ns, names in ((self.ours, ['data']), (self.router, ['data', 'side']),
                          (self.far, ['side'])):
            for name in names:
                sh('ethtool', '-K', name, 'tx', 'off', ns=ns)
                sh('ip', 'link', 'set', name, 'up', ns=ns)
        sysctl(self.router, 'net.ipv4.ip_forward', 1)
        sysctl(self.router, 'net.ipv6.conf.all.forwarding', 1)
        for ns, address, other in ((self.router, '1', None), (self.far, '9', '1')):
            sh('ip', 'addr', 'add', '10.9.0.%s/24' % address, 'dev', 'side', ns=ns)
            sh('ip', 'addr', 'add', 'fd09::%s/64' % address, 'dev', 'side', 'nodad', ns=ns)
            if other:
                sh('ip', 'route', 'add', 'default', 'via', '10.9.0.' + other, ns=ns)
                sh('ip', 'route', 'add', 'default', 'via', 'fd09::' + other, ns=ns)
        return self

    def __exit__(self, kind, value, trace):
        for ns in self.made:
            subprocess.run(['ip', 'netns', 'del', ns], check=False)

    def near(self, vlan):
        """The router's interface on our link; with a tag one of its own, behind a relay that
        takes tags off and puts them on, since not every kernel has VLAN devices."""
        dev = 'data'
        if vlan:
            dev = 'near'
            sh('ip', 'link', 'add', dev, 'type', 'veth', 'peer', 'name', 'relay', ns=self.router)
            for name in (dev, 'relay'):
                sh('ethtool', '-K', name, 'tx', 'off', ns=self.router)
                sh('ip', 'link', 'set', name, 'up', ns=self.router)
            self.relay = subprocess.Popen(
                ['ip', 'netns', 'exec', self.router, sys.executable, os.path.abspath(__file__),
                 '--echo', '-', '--relay', 'data', 'relay', str(vlan)], stdout=subprocess.PIPE)
            self.relay.stdout.readline()
        sh('ip', 'addr', 'add', NEAR4 + '/24', 'dev', dev, ns=self.router)
        sh('ip', 'addr', 'add', NEAR6 + '/64', 'dev', dev, 'nodad', ns=self.router)
        return dev

    def not_near(self, dev):
        sh('ip', 'addr', 'del', NEAR4 + '/24', 'dev', dev, ns=self.router)
        sh('ip', 'addr', 'del', NEAR6 + '/64', 'dev', dev, ns=self.router)
        if dev != 'data':
            self.relay.kill()
            self.relay.wait()
            sh('ip', 'link', 'del', dev, ns=self.router)


class Server:
    def __init__(self, echo, net, folder, *more):
        self.log = os.path.join(folder, 'server')
        words = [echo, '--device', 'net_af_packet0,iface=data', '--addr', OURS4 + '/24', '--addr',
                 OURS6 + '/64', '--gateway', NEAR4, '--gateway', NEAR6, '--seconds', '300',
                 '--port', str(PORT), *more]
        with open(self.log, 'w', encoding='utf-8') as log:
            self.process = subprocess.Popen(['ip', 'netns', 'exec', net.ours, *words], stdout=log,
                                            stderr=log)
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            if 'ready\n' in self.text():
                return
            time.sleep(0.05)
        raise Failed('the server does not start:\n' + self.text())

    def text(self):
        with open(self.log, encoding='utf-8') as f:
            return f.read()

    def stop(self):
        """Its last counters. It checks by itself that nothing is left."""
        self.process.terminate()
        require(self.process.wait(timeout=30) == 0, 'the server failed:\n' + self.text()[-3000:])
        line = [x for x in self.text().splitlines() if x.startswith('stat ')][-1]
        return {k: int(v) for k, v in (w.split('=') for w in line.split()[1:]) if v.isdigit()}

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def relay(wire, plain, vlan):
    """Frames of one VLAN on `wire` are the untagged ones of `plain`."""
    sol_packet, auxdata, ignore_outgoing, valid = 263, 8, 23, 0x10
    socks = []
    for name in (wire, plain):
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        s.bind((name, 0))
        s.setsockopt(sol_packet, auxdata, 1)
        s.setsockopt(sol_packet, ignore_outgoing, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        socks.append(s)
    print('ready', flush=True)
    while True:
        for s in select.select(socks, [], [])[0]:
            frame, ancillary, _, _ = s.recvmsg(4096, 256)
            # The kernel has taken the tag off.
            status, tci = 0, 0
            for level, kind, data in ancillary:
                if (level, kind) == (sol_packet, auxdata):
                    status, _, _, _, _, tci, _ = struct.unpack('=IIIHHHH', data[:20])
            try:
                if s is socks[1]:
                    socks[0].send(frame[:12] + struct.pack('!HH', 0x8100, vlan) + frame[12:])
                elif status & valid and tci & 0xfff == vlan:
                    socks[1].send(frame)
            except OSError:
                pass


def ping(ns, address, size, count=10):
    text = subprocess.run(['ip', 'netns', 'exec', ns, 'ping', '-c', str(count), '-i', '0.05', '-s',
                           str(size), '-W', '2', address], check=False, capture_output=True,
                          text=True).stdout
    got = int((re.search(r'(\d+) received', text) or [0, 0])[1])
    require(got == count, 'ping %s of %d bytes: %d of %d came back\n%s' %
            (address, size, got, count, text))


def client(address, mebibytes):
    """In a namespace: sends random bytes, half-closes, and compares what comes back."""
    data = random.Random(mebibytes).randbytes(mebibytes << 20)
    s = socket.create_connection((address, PORT), timeout=30)

    def send():
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    sha, got = hashlib.sha256(), 0
    while piece := s.recv(1 << 16):
        sha.update(piece)
        got += len(piece)
    sender.join()
    require(got == len(data) and sha.digest() == hashlib.sha256(data).digest(),
            'echo of %s: %d of %d bytes, or others' % (address, got, len(data)))


def echo(ns, address, mebibytes=4):
    sh(sys.executable, os.path.abspath(__file__), '--echo', '-', '--client', address,
       str(mebibytes), ns=ns)


def moves(net, dev):
    """The kernel's hardware address changes while bytes flow; it does not say so."""
    p = subprocess.Popen(['ip', 'netns', 'exec', net.router, sys.executable,
                          os.path.abspath(__file__), '--echo', '-', '--client', OURS6, '24'])
    time.sleep(0.2)
    running = p.poll() is None
    sh('ip', 'link', 'set', dev, 'address', '02:00:00:aa:bb:cc', ns=net.router)
    require(p.wait(timeout=90) == 0, 'the transfer did not survive a new hardware address')
    print('new hardware address in a transfer: %s' % ('yes' if running else 'too late'))


def setting(args, net, folder, vlan):
    dev = net.near(vlan)
    server = Server(args.echo, net, folder, '--vlan', str(vlan))
    try:
        for address in (OURS4, OURS6):
            for size in (56, 1400):
                ping(net.router, address, size)
                ping(net.far, address, size)
        neighbour = re.search(r'lladdr ([0-9a-f:]+)',
                              sh('ip', '-6', 'neigh', 'show', OURS6, ns=net.router))
        require(neighbour, 'the kernel has no neighbour for us')
        mac = bytes.fromhex(neighbour[1].replace(':', ''))
        host = bytes([mac[0] ^ 2]) + mac[1:3] + b'\xff\xfe' + mac[3:]
        eui64 = str(ipaddress.IPv6Address(b'\xfe\x80' + bytes(6) + host))
        ping(net.router, eui64 + '%' + dev, 56)
        ping(net.router, 'ff02::1%' + dev, 56, 3)
        echo(net.router, OURS4)
        echo(net.router, OURS6)
        echo(net.far, OURS6)
        # A narrow path behind the router, whose host claims to take more: the router says so,
        # and what was too large goes again.
        for ns in (net.router, net.far):
            sh('ip', 'link', 'set', 'side', 'mtu', str(NARROW), ns=ns)
        for via, mss in (('10.9.0.1', '1460'), ('fd09::1', '1440')):
            sh('ip', 'route', 'replace', 'default', 'via', via, 'advmss', mss, ns=net.far)
        for address in (OURS4, OURS6):
            echo(net.far, address, 1)
        for ns in (net.router, net.far):
            sh('ip', 'link', 'set', 'side', 'mtu', '1500', ns=ns)
        moves(net, dev)
        stat = server.stop()
    finally:
        server.kill()
        net.not_near(dev)
    require(stat['net.drop_l4_csum'] == 0 and stat['net.drop_ip_csum'] == 0, 'bad checksums')
    require(stat['tcp.icmp_too_big'] >= 1, 'nobody said that the path is narrow')
    require(stat['net.neigh_moved'] >= 1, 'the new hardware address was not learned')
    require(stat['net.drop_nd_malformed'] == 0, 'the kernel\'s messages were refused')
    print(' '.join('%s=%d' % (k, stat['net.' + k]) for k in (
        'icmp_echo_replies', 'nd_solicits', 'nd_answers', 'nd_unsolicited', 'neigh_learned',
        'neigh_moved', 'drop_vlan', 'drop_multicast', 'drop_nd_router')))


def duplicate(args, net, folder):
    """The kernel has our address already."""
    sh('ip', 'addr', 'add', OURS6 + '/64', 'dev', 'data', 'nodad', ns=net.router)
    server = Server(args.echo, net, folder, '--dad', '1')
    try:
        time.sleep(2)
        stat = server.stop()
    finally:
        server.kill()
        sh('ip', 'addr', 'del', OURS6 + '/64', 'dev', 'data', ns=net.router)
    require(stat['net.nd_duplicates'] == 1, 'an address of the kernel\'s was taken')
    require(stat['net.nd_unsolicited'] >= 1, 'the link-local address was not announced')


def why_not():
    if os.geteuid() != 0:
        return 'not root, so no network namespace'
    for tool in ('ip', 'ethtool', 'ping', 'sysctl'):
        if not shutil.which(tool):
            return '%s is not installed' % tool
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--echo', required=True)
    parser.add_argument('--client', nargs=2, help=argparse.SUPPRESS)
    parser.add_argument('--relay', nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    try:
        if args.client:
            client(args.client[0], int(args.client[1]))
            return 0
        if args.relay:
            relay(args.relay[0], args.relay[1], int(args.relay[2]))
        reason = why_not()
        if reason:
            print('skipped: %s' % reason)
            return 77
        with Net() as net, tempfile.TemporaryDirectory(prefix='rp-net6') as folder:
            for vlan in (0, VLAN):
                print('VLAN %d' % vlan, flush=True)
                setting(args, net, folder, vlan)
            net.near(0)
            duplicate(args, net, folder)
        print('the kernel is content with us over both families, tagged and by a gateway')
        return 0
    except (Failed, OSError) as e:
        print('FAILED %s' % str(e).strip(), flush=True)
        return 1


sys.exit(main())
