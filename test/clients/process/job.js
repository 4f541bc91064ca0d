// SPDX-License-Identifier: Apache-2.0

// A job and its worker: by ringpost.v1.Process, and by keys with etcd3. The job is a line, and its answer
// each of its words in upper case.
//
//     job.js run|work native|keys HOST:PORT QUEUE LINE|COUNT
//
// npm install @grpc/grpc-js @grpc/proto-loader etcd3; PROTO names the folder proto/ of Ringpost.
'use strict';

const { randomUUID } = require('crypto');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const { Etcd3 } = require('etcd3');

const [act, way, address, queue, what] = process.argv.slice(2);

function dial() {
  const options = { includeDirs: [process.env.PROTO], longs: String, defaults: true, oneofs: true };
  const proto = loader.loadSync('ringpost/v1/process.proto', options);
  const { Process } = grpc.loadPackageDefinition(proto).ringpost.v1;
  return new Process(address, grpc.credentials.createInsecure());
}

function runNative() {
  const call = dial().run();
  call.on('data', event => {
    if (event.event === 'output') console.log(event.output.data.toString());
    if (event.event === 'failed') throw new Error(`${event.failed.code}: ${event.failed.reason}`);
  });
  call.write({ job: { queue, data: Buffer.from(what), ttlMs: 20000 } });
  call.end(); // no more jobs; the answers come all the same
}

function workNative() {
  let left = Number(what);
  const call = dial().work();
  call.on('data', item => {
    if (item.item === 'assigned') {
      for (const word of item.assigned.data.toString().split(/\s+/)) {
        call.write({ job: item.job, output: { data: Buffer.from(word.toUpperCase()) } });
      }
      call.write({ job: item.job, end: {} });
    } else if (item.item === 'settled' && item.settled.status === 0 && --left === 0) {
      call.end();
    }
  });
  call.write({ register: { queue } });
}

async function runKeys() {
  const etcd = new Etcd3({ hosts: `http://${address}` });
  const reply = `reply-${randomUUID()}`;
  const watcher = await etcd.watch().key(`/q/${reply}/consumer/${randomUUID()}`).create();
  const done = new Promise((resolve, reject) => {
    watcher.on('put', event => {
      const answer = JSON.parse(event.value.toString());
      if (answer.error) reject(new Error(`${answer.error.code}: ${answer.error.reason}`));
      if ('data' in answer) console.log(answer.data);
      if (answer.final) resolve();
    });
  });
  const job = { v: 1, ttl_ms: 20000, reply_to: reply, data: what };
  await etcd.put(`/q/${queue}/producer/${randomUUID()}`).value(JSON.stringify(job));
  await done;
  await watcher.cancel();
  etcd.close();
}

async function workKeys() {
  const etcd = new Etcd3({ hosts: `http://${address}` });
  const watcher = await etcd.watch().key(`/q/${queue}/consumer/${randomUUID()}`).create();
  let left = Number(what);
  await new Promise(resolve => {
    // A 'delete' of the same key says that nobody waits for that job any more.
    watcher.on('put', async event => {
      const job = JSON.parse(event.value.toString());
      const answerKey = `/q/${job.reply_to}/producer/${event.key.toString().split('/').pop()}`;
      for (const word of job.data.split(/\s+/)) {
        await etcd.put(answerKey).value(JSON.stringify({ v: 1, data: word.toUpperCase() }));
      }
      await etcd.put(answerKey).value(JSON.stringify({ v: 1, final: true }));
      if (--left === 0) resolve();
    });
  });
  await watcher.cancel();
  etcd.close();
}

({ 'run native': runNative, 'work native': workNative, 'run keys': runKeys, 'work keys': workKeys })[`${act} ${way}`]();
