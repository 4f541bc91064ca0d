#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ports on kernel interfaces, in a network namespace of their own: af_packet, af_xdp, tap.

A raw socket at the other end sends frames of all sizes, which the port echoes, and takes chains that
the port sends; each is compared byte for byte.

usage: kernel_devices.py --peer build/test/integ/port/port_peer --kind af_packet
Status 0, 1 (it failed), 77 (it cannot be run here).
"""
import argparse
import os
import socket
import struct
import subprocess
import sys
import time

ETHER_TYPE = 0x88b5
MAGIC = 0x52505054
HEADER = struct.Struct('=6s6sHHIIQQ')  # as struct test_header of port_peer.c
DEVICES = {
    'af_packet': 'net_af_packet0,iface=vb',
    'af_xdp': 'net_af_xdp0,iface=vb',
    'tap': 'net_tap0,iface=vtap',
}
MASK = (1 << 64) - 1


def sum_of(data):
    """The sum over 8-byte words that port_peer makes."""
    total = len(data)
    for i in range(0, len(data) - 7, 8):
        total = (total + struct.unpack_from('=Q', data, i)[0]) & MASK
        total = ((total << 1) | (total >> 63)) & MASK
    return (total ^ (total >> 32)) & 0xffffffff


def frame(size, seq):
    body = bytes((seq + i) & 0xff for i in range(size - HEADER.size))
    rest = struct.pack('=QQ', seq, 0) + body
    return HEADER.pack(b'\x02\0\0\0\0\x02', b'\x02\0\0\0\0\x01', socket.htons(ETHER_TYPE), 0, MAGIC,
                       sum_of(rest), seq, 0) + body


def is_good(data):
    head = HEADER.unpack_from(data)
    return head[4] == MAGIC and head[5] == sum_of(data[24:])


class Failed(Exception):
    pass


def open_raw(name):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHER_TYPE))
    s.bind((name, ETHER_TYPE))
    s.settimeout(0.2)
    return s


def receive(s):
    """The next frame that came in; what this host sent is seen, too, and is skipped."""
    while True:
        data, address = s.recvfrom(4096)
        if address[2] != socket.PACKET_OUTGOING:
            return data


def wait_link(s, until):
    """Until the port answers: it needs a moment to start."""
    while time.monotonic() < until:
        try:
            s.send(frame(64, 0))
            receive(s)
            break
        except (socket.timeout, OSError):
            continue
    else:
        raise Failed('the port does not answer')
    try:
        while True:
            receive(s)
    except socket.timeout:
        pass


def check_echo(name):
    s = open_raw(name)
    wait_link(s, time.monotonic() + 30)
    # A busy machine may be slow to answer; an answer to one of the first questions may still come.
    s.settimeout(10)
    for seq, size in enumerate(list(range(64, 1515, 37)) + [1514], 1):
        sent = frame(size, seq)
        s.send(sent)
        try:
            got = receive(s)
            while got == frame(64, 0):
                got = receive(s)
        except socket.timeout:
            raise Failed('no echo of %d bytes' % size) from None
        if got != sent:
            raise Failed('the echo of %d bytes differs' % size)
    s.close()


def check_load(name, frames):
    s = open_raw(name)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    print('listening', flush=True)
    s.settimeout(5)
    seen = set()
    while len(seen) < frames:
        try:
            data = receive(s)
        except socket.timeout:
            raise Failed('%d frames of %d came' % (len(seen), frames)) from None
        if not is_good(data):
            raise Failed('a frame of %d bytes is torn' % len(data))
        seen.add(HEADER.unpack_from(data)[6])
    s.close()


def sh(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def start_peer(args, ns, *more):
    return subprocess.Popen(
        ['ip', 'netns', 'exec', ns, args.peer, '--device', DEVICES[args.kind], '--seconds', '30',
         '--report-ms', '200', '--sum', *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def inside(args, ns, check, **kw):
    return subprocess.Popen(
        ['ip', 'netns', 'exec', ns, sys.executable, os.path.abspath(__file__), '--peer', args.peer,
         '--kind', args.kind, '--check', check], stdout=subprocess.PIPE, text=True, **kw)


def finish(peer, what):
    peer.terminate()
    out, err = peer.communicate(timeout=20)
    if peer.returncode != 0:
        raise Failed('%s: the port ended with %s\n%s' % (what, peer.returncode, err))
    last = [line for line in out.splitlines() if line.startswith('stat')][-1]
    return {k: int(v) for k, v in (w.split('=') for w in last.split()[1:])}, err


def run(args, ns):
    name = 'vtap' if args.kind == 'tap' else 'va'
    if args.kind == 'tap':
        sh('ip', 'netns', 'exec', ns, 'ip', 'link', 'set', 'lo', 'up')
    else:
        sh('ip', '-n', ns, 'link', 'add', 'va', 'type', 'veth', 'peer', 'name', 'vb')
        for end in ('va', 'vb'):
            sh('ip', '-n', ns, 'link', 'set', end, 'up')
    peer = start_peer(args, ns, '--mode', 'echo')
    try:
        for _ in range(100):  # a tap comes with its port
            if subprocess.run(['ip', '-n', ns, 'link', 'show', name], check=False,
                              capture_output=True).returncode == 0 or peer.poll() is not None:
                break
            time.sleep(0.05)
        if peer.poll() is not None:
            out, err = peer.communicate()
            if args.kind == 'af_xdp' and 'xsk' in err:
                print('skipped: the kernel gives no AF_XDP socket: %s' % err)
                return 77
            raise Failed('the port did not start: %s' % err)
        check = inside(args, ns, 'echo')
        out, _ = check.communicate(timeout=60)
        if check.returncode != 0:
            raise Failed('echo: %s' % out)
    finally:
        if peer.poll() is None:
            stat, _ = finish(peer, 'echo')
    if args.kind == 'tap':
        return 0  # the interface goes with the port, so nobody can listen before it starts
    check = inside(args, ns, 'load')
    check.stdout.readline()
    peer = start_peer(args, ns, '--mode', 'load', '--frames', '1000', '--segments', '2', '--size',
                      '700')
    out, _ = check.communicate(timeout=60)
    stat, _ = finish(peer, 'chains')
    if check.returncode != 0:
        raise Failed('chains: %s (%s)' % (out, stat))
    if (args.kind == 'af_xdp') != (stat['linearised'] == 1000):
        raise Failed('%d chains were copied' % stat['linearised'])
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--peer', required=True)
    parser.add_argument('--kind', choices=sorted(DEVICES), required=True)
    parser.add_argument('--check', choices=['echo', 'load'])
    args = parser.parse_args()
    try:
        if args.check == 'echo':
            return check_echo('vtap' if args.kind == 'tap' else 'va')
        if args.check == 'load':
            return check_load('va', 1000)
    except Failed as e:
        print(e)
        return 1
    if os.geteuid() != 0:
        print('skipped: not root, so no network namespace')
        return 77
    if args.kind == 'tap' and not os.path.exists('/dev/net/tun'):
        print('skipped: no /dev/net/tun')
        return 77
    ns = 'rp-port-%d' % os.getpid()
    if subprocess.run(['ip', 'netns', 'add', ns], check=False).returncode != 0:
        print('skipped: no network namespace can be made')
        return 77
    try:
        return run(args, ns)
    except Failed as e:
        print('FAILED %s' % e)
        return 1
    finally:
        subprocess.run(['ip', 'netns', 'del', ns], check=False)


sys.exit(main())
