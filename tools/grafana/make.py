#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tools/grafana/ringpost.json, a dashboard for Grafana 9 and later, from the rows below, and in alerts.yml the sum
of what becomes of messages, from lib/stats/message_fate.def.

usage: tools/grafana/make.py [--check]     status 1 with --check where the file is not what would be written
"""
import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FATES = HERE.parent.parent / 'lib' / 'stats' / 'message_fate.def'

R = '[$__rate_interval]'
I = 'instance=~"$instance"'


def rate(name, by='instance', labels=I):
    return f'sum by ({by}) (rate({name}{{{labels}}}{R}))'


def total(name, by='instance'):
    return f'sum by ({by}) ({name}{{{I}}})'


def quantile(q, name):
    return f'histogram_quantile({q}, sum by (instance, le) (rate({name}_bucket{{{I}}}{R})))'


def fates(which):
    return re.findall(rf'^X\((\w+),\s*{which},', FATES.read_text(), re.M)


# (title, unit of Grafana, [(expression, legend)])
ROWS = [
    ('Overview', [
        ('Nodes up', 'short', [('up{job="ringpost"}', '{{instance}}')]),
        ('Takes writes', 'short', [(f'etcd_server_has_leader{{{I}}}', '{{instance}}')]),
        ('Links and peers', 'short', [(total('ringpost_link_bundles_up'), '{{instance}} links'),
                                      (total('ringpost_repl_peers_online'), '{{instance}} peers')]),
        ('Memory', 'bytes', [(f'process_resident_memory_bytes{{{I}}}', '{{instance}}')]),
    ]),
    ('Messages', [
        ('In', 'ops', [(rate('ringpost_queue_puts_total'), '{{instance}} puts'),
                       (rate('ringpost_queue_forwards_received_total'), '{{instance}} forwards')]),
        ('Acknowledged', 'ops', [(rate('ringpost_queue_acks_total'), '{{instance}}')]),
        ('Held', 'short', [(total('ringpost_queue_messages'), '{{instance}}')]),
        ('Oldest waiting, by queue', 's',
         [(f'topk(10, max by (instance, queue) (ringpost_queue_waiting_oldest_seconds{{{I}}}))', '{{instance}} {{queue}}')]),
        ('From put to consumer', 's', [(quantile(0.5, 'ringpost_queue_wait_seconds'), '{{instance}} p50'),
                                       (quantile(0.99, 'ringpost_queue_wait_seconds'), '{{instance}} p99')]),
        ('Not delivered, by reason', 'ops',
         [(rate(f'ringpost_queue_{name}_total'), '{{instance}} ' + name) for name in fates('REASON')]),
        ('Dead letters', 'ops', [(rate('ringpost_queue_dead_letters_total'), '{{instance}}')]),
        ('Redelivered', 'ops', [(rate('ringpost_queue_redeliveries_total'), '{{instance}}')]),
    ]),
    ('Shards', [
        ('Busy', 'percentunit', [(f'ringpost_shard_busy_ratio{{{I}}}', '{{instance}} {{shard}}')]),
        ('Cycles a message', 'short', [(f'ringpost_shard_message_cycles{{{I}}}', '{{instance}} {{shard}}')]),
        ('Frames a burst', 'short',
         [(f'{rate("ringpost_shard_rx_burst_frames_sum", "instance, shard")} / '
           f'{rate("ringpost_shard_rx_burst_frames_count", "instance, shard")}', '{{instance}} {{shard}}')]),
        ('Rings, fullest', 'percentunit',
         [(f'max by (instance) (ringpost_ring_used{{{I}}} / ringpost_ring_size{{{I}}})', '{{instance}}')]),
        ('Slow turns', 'ops', [(rate('ringpost_shard_slow_loops_total', 'instance, shard'), '{{instance}} {{shard}}')]),
        ('Longest turn', 's', [(f'ringpost_shard_loop_gap_max_seconds{{{I}}}', '{{instance}} {{shard}}')]),
        ('Buffers free', 'percentunit',
         [(f'ringpost_pool_free{{{I}}} / ringpost_pool_size{{{I}}}', '{{instance}} {{pool}}')]),
    ]),
    ('Network', [
        ('Frames of ports', 'pps', [(rate('ringpost_port_rx_packets_total'), '{{instance}} in'),
                                    (rate('ringpost_port_tx_packets_total'), '{{instance}} out')]),
        ('Sent again', 'percentunit',
         [(f'{rate("ringpost_tcp_rtx_segments_total")} / {rate("ringpost_tcp_tx_segments_total")}', '{{instance}}')]),
        ('Links that went down', 'short',
         [(f'sum by (instance, reason) (increase(ringpost_link_downs_total{{{I}}}{R})) > 0', '{{instance}} {{reason}}')]),
        ('From stream to unary', 'ops',
         [(rate('ringpost_deliver_fallbacks_total', 'instance, reason') + ' > 0', '{{instance}} {{reason}}')]),
    ]),
    ('Clients', [
        ('Calls', 'ops', [(f'sum by (instance, grpc_method) (rate(grpc_server_handled_total{{{I}}}{R}))',
                           '{{instance}} {{grpc_method}}')]),
        ('Calls that failed', 'ops',
         [(f'sum by (instance, grpc_method, grpc_code) (rate(grpc_server_handled_total{{{I},grpc_code!="OK"}}{R}))',
           '{{instance}} {{grpc_method}} {{grpc_code}}')]),
        ('Connections', 'short', [(f'ringpost_grpc_conns_open{{{I}}}', '{{instance}}')]),
        ('Keys', 'short', [(f'ringpost_kv_keys{{{I}}}', '{{instance}}')]),
        ('Watchers', 'short', [(f'etcd_debugging_mvcc_watcher_total{{{I}}}', '{{instance}}')]),
        ('Events', 'ops', [(rate('etcd_debugging_mvcc_events_total'), '{{instance}}')]),
    ]),
]


def panels():
    out, y = [], 0
    for title, row in ROWS:
        out.append({'type': 'row', 'title': title, 'collapsed': False, 'panels': [], 'id': len(out) + 1,
                    'gridPos': {'h': 1, 'w': 24, 'x': 0, 'y': y}})
        y += 1
        for i, (name, unit, targets) in enumerate(row):
            out.append({
                'type': 'timeseries', 'title': name, 'id': len(out) + 1,
                'datasource': {'type': 'prometheus', 'uid': '${datasource}'},
                'gridPos': {'h': 7, 'w': 6, 'x': i % 4 * 6, 'y': y + i // 4 * 7},
                'fieldConfig': {'defaults': {'unit': unit, 'min': 0}, 'overrides': []},
                'options': {'legend': {'displayMode': 'list', 'placement': 'bottom'}},
                'targets': [{'refId': chr(ord('A') + k), 'expr': e, 'legendFormat': legend}
                            for k, (e, legend) in enumerate(targets)]})
        y += (len(row) + 3) // 4 * 7
    return out


def dashboard():
    return {
        'uid': 'ringpost', 'title': 'Ringpost', 'tags': ['ringpost'], 'schemaVersion': 37, 'version': 1,
        'editable': True, 'refresh': '10s', 'time': {'from': 'now-1h', 'to': 'now'}, 'timezone': '',
        'annotations': {'list': []}, 'links': [], 'panels': panels(),
        'templating': {'list': [
            {'name': 'datasource', 'type': 'datasource', 'query': 'prometheus', 'label': 'Data source'},
            {'name': 'instance', 'type': 'query', 'label': 'Node', 'multi': True, 'includeAll': True,
             'allValue': '.*', 'datasource': {'type': 'prometheus', 'uid': '${datasource}'}, 'refresh': 2,
             'query': {'query': 'label_values(ringpost_shard_loops_total, instance)', 'refId': 'instance'}}]},
    }


def balance():
    """in - delivered - passed on - reasons - held, a line for each."""
    words = [('+', n) for n in fates('IN')] + [('-', n) for f in ('DELIVERED', 'PASSED', 'REASON') for n in fates(f)]
    lines = [f'{" " * 12}{sign} ringpost_queue_{name}_total' for sign, name in words]
    lines[0] = lines[0].replace('+ ', '  ', 1)
    return ('abs(sum by (instance) (\n' + '\n'.join(lines) + '\n'
            + ' ' * 12 + '- ringpost_queue_messages + ringpost_queue_handing)) > 0\n')


def alerts(text):
    return re.sub(r'abs\(sum by \(instance\) \(\n.*?\)\) > 0\n', lambda m: balance(), text, count=1, flags=re.S)


def main():
    rules = HERE / 'alerts.yml'
    files = {HERE / 'ringpost.json': json.dumps(dashboard(), indent='\t') + '\n', rules: alerts(rules.read_text())}
    old = [path for path, text in files.items() if path.read_text() != text]
    if '--check' in sys.argv[1:]:
        for path in old:
            print(f'{path} is old; write it again: {sys.argv[0]}')
        return 1 if old else 0
    for path in old:
        path.write_text(files[path])
    return 0


sys.exit(main())
