#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ringperf end to end, a second for each test: two processes on one kind of port, tcp and raw, or ktcp on
the loopback. Both ends must agree on what was sent and received, sums included; figures are not judged.

usage: ringperf_smoke.py --ringperf build/app/ringperf/ringperf --kind memif|vhost|vhost-offloads|ktcp
Status 0, 1 (it failed), 77 (it cannot be run here).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

DEVICES = {
    'memif': ('net_memif0,role=server,socket={}', 'net_memif0,role=client,socket={}'),
    'vhost': ('net_vhost0,iface={}', 'net_virtio_user0,path={}'),
    'vhost-offloads': ('net_vhost0,iface={}', 'net_virtio_user0,path={}'),
}
TESTS = ['rate', 'rr', 'bulk']


class Failed(Exception):
    pass


def start_server(args, transport, more):
    server = subprocess.Popen(
        [args.ringperf, 'server', '--transport', transport, '--sessions', '1', '--idle', 'adaptive',
         *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if server.stdout.readline() != 'ready\n':
        _, err = server.communicate(timeout=20)
        raise Failed('%s: the server ended with %s: %s' % (transport, server.returncode, err))
    return server


def exchange(args, transport, server_more, client_more):
    server = start_server(args, transport, server_more)
    try:
        client = subprocess.run(
            [args.ringperf, 'client', '--transport', transport, '--test', ','.join(TESTS),
             '--seconds', '1', '--warmup-ms', '50', '--idle', 'adaptive', '--json', '--connect-s',
             '20', *client_more], capture_output=True, text=True, timeout=60, check=False)
        status = server.wait(timeout=20) if client.returncode == 0 else 'stopped'
    finally:
        if server.poll() is None:
            server.kill()
        _, err = server.communicate()
    if client.returncode != 0:
        raise Failed('%s: the client ended with %d: %s%s; the server said: %s'
                     % (transport, client.returncode, client.stdout, client.stderr, err))
    if status != 0:
        raise Failed('%s: the server ended with %s: %s' % (transport, status, err))
    return json.loads(client.stdout)


def judge(transport, report):
    if [t['test'] for t in report['tests']] != TESTS:
        raise Failed('%s: not all tests are there: %s' % (transport, report))
    for t in report['tests']:
        if not t['good'] or t['messages_received'] == 0:
            raise Failed('%s: the ends do not agree: %s' % (transport, t))
        if t['messages_sent'] != t['messages_received']:
            raise Failed('%s: messages are missing: %s' % (transport, t))
        if t['test'] == 'rr' and not 0 < t['rtt_us']['p50'] <= t['rtt_us']['p99.9']:
            raise Failed('%s: percentiles out of order: %s' % (transport, t))
        if t['test'] == 'bulk' and (t['sum_sent'] != t['sum_received']
                                    or int(t['sum_sent'], 16) == 0):
            raise Failed('%s: the sums differ: %s' % (transport, t))
        print('%s %s: %d messages' % (transport, t['test'], t['messages_received']))


def run_ports(args):
    offloads = ['--checksum', 'hw', '--tso', 'on'] if args.kind == 'vhost-offloads' else []
    with tempfile.TemporaryDirectory(prefix='ringperf-') as folder:
        runs = (('tcp', offloads), ('raw', offloads), ('tcp', [*offloads, '--connections', '200']))
        for i, (transport, more) in enumerate(runs):
            ends = [d.format(os.path.join(folder, str(i))) for d in DEVICES[args.kind]]
            judge(' '.join([transport, *more]), exchange(
                args, transport, ['--device', ends[0], '--ipv4', '10.9.0.1/24', *more],
                ['--device', ends[1], '--ipv4', '10.9.0.2/24', '--peer', '10.9.0.1', *more]))


def run_ktcp(args):
    port = str(20000 + os.getpid() % 10000)
    judge('ktcp', exchange(args, 'ktcp', ['--ipv4', '127.0.0.1', '--port', port],
                           ['--peer', '127.0.0.1', '--port', port]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--ringperf', required=True)
    parser.add_argument('--kind', choices=[*DEVICES, 'ktcp'], required=True)
    args = parser.parse_args()
    if os.geteuid() != 0 and not os.environ.get('XDG_RUNTIME_DIR'):
        print('skipped: neither root nor XDG_RUNTIME_DIR: DPDK has no runtime folder')
        return 77
    try:
        if args.kind == 'ktcp':
            run_ktcp(args)
        else:
            run_ports(args)
    except (Failed, subprocess.TimeoutExpired) as e:
        print('FAILED %s' % e)
        return 1
    return 0


sys.exit(main())
