#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A job and its worker: by ringpost.v1.Process, and by keys with python-etcd3. The job is a line, and its
answer each of its words in upper case.

    job.py run|work native|keys HOST:PORT QUEUE LINE|COUNT

    protoc --python_out=. ringpost/v1/process.proto      (in proto/; then PYTHONPATH says where that is)
"""
import json
import sys
import uuid

import etcd3
import grpc
from ringpost.v1 import process_pb2 as pb

act, way, address, queue, what = sys.argv[1:]
host, port = address.split(":")


def call(method, requests, answer):
    """A stream both ways: what is sent is what `requests` yields."""
    channel = grpc.insecure_channel(address)
    return channel.stream_stream(f"/ringpost.v1.Process/{method}", request_serializer=lambda m: m.SerializeToString(),
                                 response_deserializer=answer.FromString)(requests)


def run_native():
    job = pb.Job(queue=queue, data=what.encode(), ttl_ms=20000)
    for event in call("Run", iter([pb.RunRequest(job=job)]), pb.RunEvent):
        if event.HasField("output"):
            print(event.output.data.decode(), flush=True)
        elif event.HasField("failed"):
            sys.exit(f"{event.failed.code}: {event.failed.reason}")


def work_native():
    import queue as queues
    say = queues.Queue()
    say.put(pb.WorkEvent(register=pb.Register(queue=queue)))
    left = int(what)
    for item in call("Work", iter(say.get, None), pb.WorkItem):  # None: no more
        if item.HasField("assigned"):
            for word in item.assigned.data.decode().split():
                say.put(pb.WorkEvent(job=item.job, output=pb.Output(data=word.upper().encode())))
            say.put(pb.WorkEvent(job=item.job, end=pb.End()))
        elif item.HasField("settled") and item.settled.status == 0:
            left -= 1
            if left == 0:
                say.put(None)


def run_keys():
    etcd = etcd3.client(host=host, port=int(port))
    reply = f"reply-{uuid.uuid4()}"
    events, cancel = etcd.watch(f"/q/{reply}/consumer/{uuid.uuid4()}")
    job = {"v": 1, "ttl_ms": 20000, "reply_to": reply, "data": what}
    etcd.put(f"/q/{queue}/producer/{uuid.uuid4()}", json.dumps(job))
    for event in events:
        answer = json.loads(event.value)
        if "error" in answer:
            sys.exit(f"{answer['error']['code']}: {answer['error']['reason']}")
        if "data" in answer:
            print(answer["data"], flush=True)
        if answer.get("final"):
            break
    cancel()


def work_keys():
    etcd = etcd3.client(host=host, port=int(port))
    events, cancel = etcd.watch(f"/q/{queue}/consumer/{uuid.uuid4()}")
    left = int(what)
    for event in events:
        if not isinstance(event, etcd3.events.PutEvent):
            continue  # nobody waits for that job any more
        job = json.loads(event.value)
        answer_key = f"/q/{job['reply_to']}/producer/{event.key.decode().rsplit('/', 1)[1]}"
        for word in job["data"].split():
            etcd.put(answer_key, json.dumps({"v": 1, "data": word.upper()}))
        etcd.put(answer_key, json.dumps({"v": 1, "final": True}))
        left -= 1
        if left == 0:
            break
    cancel()


{"run native": run_native, "work native": work_native, "run keys": run_keys, "work keys": work_keys}[f"{act} {way}"]()
