#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A port between two processes must live through its peer's stop under load, and come back.

One end, the survivor, floods its port all the time. The other end floods, too, is stopped by SIGTERM
or SIGKILL, and started anew, many times. Each time frames must flow again both ways within a bound,
none of them torn; at the end the survivor stops in order with all its buffers back, and nothing of
either is left in the file system.

usage: peer_loss.py --peer build/test/integ/port/port_peer --kind memif --survivor listener \
           --signal TERM --times 3
Status 0, 1 (it failed), 77 (it cannot be run here).
"""
import argparse
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

DEVICES = {
    # kind: (the end that binds the socket, the end that connects)
    'memif': ('net_memif0,role=server,socket={s}', 'net_memif0,role=client,socket={s}'),
    'memif-abstract': ('net_memif0,role=server,socket={s},socket-abstract=yes',
                       'net_memif0,role=client,socket={s},socket-abstract=yes'),
    'vhost': ('net_vhost0,iface={s}', 'net_virtio_user0,path={s}'),
}
START_S = 60.0  # of a process, on a machine that may be very busy
RESUME_S = 20.0  # from then on: a redial a second
GROW = 300  # frames that count as "it flows"


class Peer:
    """One port_peer process, and the last line of figures it printed."""

    def __init__(self, args, device, seconds, name):
        self.name = name
        # As a node that is started again: one name, whose folder it cleans up after a kill.
        self.prefix = 'peer-loss-%d-%s' % (os.getpid(), name)
        self.log = []
        self.stat = {}
        self.lines = queue.Queue()
        self.process = subprocess.Popen(
            [args.peer, '--device', device, '--mode', 'load', '--seconds', str(seconds),
             '--report-ms', '50', '--size', str(args.size), '--sum', '--prefix', self.prefix,
             '--hugepages', args.hugepages],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.threads = [threading.Thread(target=f, daemon=True)
                        for f in (self.read_stats, self.read_log)]
        for t in self.threads:
            t.start()

    def read_stats(self):
        for line in self.process.stdout:
            words = line.split()
            if words and words[0] == 'stat':
                self.stat = {k: int(v) for k, v in (w.split('=') for w in words[1:])}

    def read_log(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip())
            del self.log[:-200]

    def rx(self):
        return self.stat.get('rx', 0)

    def alive(self):
        return self.process.poll() is None

    def stop(self, number):
        """Sends the signal, waits, and gives the status."""
        self.process.send_signal(number)
        try:
            status = self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            status = 'hung'
        for t in self.threads:
            t.join(timeout=5)
        return status


class Failed(Exception):
    pass


def wait_flow(survivor, peer, what):
    """Until both ends received GROW frames more than now; the time since both had a port."""
    begin = time.monotonic()
    both = False
    base = survivor.rx()
    while time.monotonic() - begin < (RESUME_S if both else START_S):
        if not both and survivor.stat and peer.stat:
            both, begin = True, time.monotonic()
        if not survivor.alive():
            raise Failed('%s: the survivor died, status %s' % (what, survivor.process.returncode))
        if not peer.alive():
            raise Failed('%s: the peer died, status %s' % (what, peer.process.returncode))
        if survivor.rx() > base + GROW and peer.rx() > GROW:
            return time.monotonic() - begin
        time.sleep(0.01)
    raise Failed('%s: no traffic within %.0f s: survivor %s, peer %s'
                 % (what, RESUME_S if both else START_S, survivor.stat, peer.stat))


def be_hasty(path, args, peers):
    """Connects to the end that listens, and is gone before it is greeted, thousands of times.

    A single such client, such as one that redials while the listener is busy, made EAL panic."""
    listener = DEVICES[args.kind][0].format(s=path)
    peer = Peer(args, listener, 60, 'listener')
    peers.append(peer)
    kind = socket.SOCK_SEQPACKET if args.kind == 'memif' else socket.SOCK_STREAM
    count, end = 0, time.monotonic() + RESUME_S
    while count < args.hasty and time.monotonic() < end and peer.alive():
        with socket.socket(socket.AF_UNIX, kind) as s:
            try:
                s.connect(path)
                count += 1
            except OSError:
                time.sleep(0.01)
    if not peer.alive() or count == 0:
        raise Failed('the listener died after %d hasty clients' % count)
    dialer = Peer(args, DEVICES[args.kind][1].format(s=path), 60, 'dialer')
    peers.append(dialer)
    took = wait_flow(peer, dialer, 'after %d hasty clients' % count)
    for p in (dialer, peer):
        status = p.stop(signal.SIGTERM)
        if status != 0:
            raise Failed('the %s ended with %s' % (p.name, status))
    print('%s: %d hasty clients, traffic %.2f s after them' % (args.kind, count, took))


def left_behind(folder, prefixes):
    found = [os.path.join(folder, f) for f in os.listdir(folder)]
    for p in prefixes:
        path = '/var/run/dpdk/' + p
        if os.path.exists(path):
            found.append(path)
    return found


def run(args, folder, peers):
    listener, dialer = (d.format(s=os.path.join(folder, 'port.sock')) for d in DEVICES[args.kind])
    mine, other = (listener, dialer) if args.survivor == 'listener' else (dialer, listener)
    number = getattr(signal, 'SIG' + args.signal)
    seconds = int(START_S + args.times * (START_S + RESUME_S))
    survivor = Peer(args, mine, seconds, 'survivor')
    peers.append(survivor)
    resumes = []
    for i in range(args.times):
        peer = Peer(args, other, seconds, 'peer')
        peers.append(peer)
        resumes.append(wait_flow(survivor, peer, 'round %d' % i))
        time.sleep(args.load_s)
        status = peer.stop(number)
        if status != (0 if args.signal == 'TERM' else -signal.SIGKILL):
            raise Failed('round %d: the peer ended with %s' % (i, status))
        if peer.stat.get('bad', 0) > 0:
            raise Failed('round %d: the peer got %d torn frames' % (i, peer.stat['bad']))
        peers.remove(peer)
        if os.path.exists('/var/run/dpdk/' + peer.prefix):
            raise Failed('round %d: the peer left its runtime folder' % i)
        if not survivor.alive():
            raise Failed('round %d: the survivor died, status %s'
                         % (i, survivor.process.returncode))
    # What a killed process left is cleaned up by the one that starts in its place.
    peer = Peer(args, other, seconds, 'peer')
    peers.append(peer)
    wait_flow(survivor, peer, 'the last peer')
    for p in (peer, survivor):
        status = p.stop(signal.SIGTERM)
        if status != 0:
            raise Failed('the %s ended with %s, figures %s' % (p.name, status, p.stat))
    left = left_behind(folder, [peer.prefix, survivor.prefix])
    if left:
        raise Failed('left behind: %s' % ', '.join(left))
    print('%s, survivor %s, SIG%s, %d times: back within %.2f s at most, %.2f s at the median; '
          'callbacks parked %d, redials %d, longest hold %d us'
          % (args.kind, args.survivor, args.signal, args.times, max(resumes),
             sorted(resumes)[len(resumes) // 2], survivor.stat['callbacks'],
             survivor.stat['redials'], survivor.stat['hold_us']))
    return survivor


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--peer', required=True)
    parser.add_argument('--kind', choices=sorted(DEVICES), required=True)
    parser.add_argument('--survivor', choices=['listener', 'dialer'], default='listener')
    parser.add_argument('--signal', choices=['TERM', 'KILL'], default='TERM')
    parser.add_argument('--hasty', type=int, default=0,
                        help='instead: so many clients that connect and go')
    parser.add_argument('--times', type=int, default=3)
    parser.add_argument('--size', type=int, default=256)
    parser.add_argument('--load-s', type=float, default=0.2)
    parser.add_argument('--hugepages', choices=['auto', 'on', 'off'], default='off')
    args = parser.parse_args()
    if os.geteuid() != 0 and not os.environ.get('XDG_RUNTIME_DIR'):
        print('skipped: neither root nor XDG_RUNTIME_DIR: DPDK has no runtime folder')
        return 77
    peers = []
    with tempfile.TemporaryDirectory(prefix='peer-loss-') as folder:
        try:
            if args.hasty:
                be_hasty(os.path.join(folder, 'port.sock'), args, peers)
                return 0
            survivor = run(args, folder, peers)
            if args.kind.startswith('memif') and survivor.stat['callbacks'] == 0:
                raise Failed('no callback of the driver was parked')
            return 0
        except Failed as e:
            print('FAILED %s' % e)
            for p in peers:
                print('--- log of %s' % p.name)
                print('\n'.join(p.log[-15:]))
            return 1
        finally:
            for p in peers:
                if p.alive():
                    p.process.kill()
                    p.process.wait()


sys.exit(main())
