// SPDX-License-Identifier: Apache-2.0

// The cases with Node's etcd3: main.js HOST:PORT CLIENT CASE... (see ../cases.py)
'use strict';

const { randomUUID } = require('crypto');
const { Etcd3, EtcdPermissionDeniedError, EtcdLockFailedError } = require('etcd3');

const WAIT_MS = 15000;
const [address, client, ...names] = process.argv.slice(2);

class NotInLibrary extends Error {}

const dial = auth => new Etcd3({ hosts: `http://${address}`, auth });
const sleep = ms => new Promise(done => setTimeout(done, ms));

function need(good, what) {
  if (!good) throw new Error(what);
}

async function errorOf(promise) {
  try {
    await promise;
  } catch (e) {
    return `${e.constructor.name}: ${e.message}`;
  }
  throw new Error('no error');
}

// Some errors break the circuit of a client, which then rests: who is refused has a client of his own.
async function refused(call) {
  const other = dial();
  const error = await errorOf(call(other));
  other.close();
  return error;
}

// The events of a watcher, as they come.
class Events {
  constructor(watcher) {
    this.got = [];
    watcher.on('data', answer => this.got.push(...answer.events));
    watcher.on('error', e => { this.error = e; });
  }

  async take(count) {
    const end = Date.now() + WAIT_MS;
    while (this.got.length < count) {
      if (this.error) throw this.error;
      need(Date.now() < end, `${this.got.length} of ${count} events`);
      await sleep(10);
    }
    return this.got.splice(0, count);
  }
}

async function watched(builder) {
  const watcher = builder.watcher ? builder.watcher() : await builder.create();
  const events = new Events(watcher);
  if (builder.watcher) {
    await new Promise((done, failed) => watcher.once('connected', done).once('error', failed));
  }
  return { watcher, events };
}

const cases = {
  async put_get(c) {
    await c.put('put_get').value('one');
    const put = await c.put('put_get').value('two').getPrevious();
    const kv = (await c.get('put_get').exec()).kvs[0];
    const binary = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
    await c.put('binary').value(binary);
    need(binary.equals(await c.get('binary').buffer()), 'binary values');
    return [put.value.toString(), kv.value.toString(), kv.version, kv.mod_revision - kv.create_revision,
      await c.get('none').string()];
  },

  async range(c) {
    for (let i = 0; i < 5; i++) await c.put(`range/${i}`).value(i);
    const before = (await c.get('range/0').exec()).header.revision;
    await c.put('range/2').value('new');
    const all = () => c.getAll().prefix('range/');
    return [await all().strings(), await all().limit(2).keys(), await all().count(),
      await all().sort('Key', 'Descend').keys(), await all().sort('Mod', 'Ascend').keys(),
      await c.getAll().inRange({ start: 'range/1', end: 'range/3' }).keys(),
      await c.get('range/2').revision(before).string(),
      await errorOf(c.get('range/2').revision(Number(before) + 100000).string())];
  },

  async delete(c) {
    for (let i = 0; i < 4; i++) await c.put(`delete/${i}`).value(i);
    return [(await c.delete().key('delete/0').getPrevious()).map(kv => kv.value.toString()),
      (await c.delete().key('delete/0')).deleted, (await c.delete().prefix('delete/')).deleted,
      await c.getAll().prefix('delete/').count()];
  },

  async txn(c) {
    await c.put('txn/k').value('v');
    const good = await c.if('txn/k', 'Value', '==', 'v').and('txn/k', 'Version', '==', 1).and('txn/none', 'Create', '==', 0)
      .and('txn/k', 'Mod', '>', 0).then(c.put('txn/k2').value('x'), c.get('txn/k')).commit();
    const bad = await c.if('txn/k', 'Value', '==', 'other').then(c.put('txn/k2').value('y'))
      .else(c.get('txn/k2'), c.delete().key('txn/k2')).commit();
    const twice = await errorOf(c.if('txn/k', 'Version', '>', 0)
      .then(c.put('txn/k').value('x'), c.put('txn/k').value('y')).commit());
    return [good.succeeded, good.responses.map(r => r.response), bad.succeeded,
      bad.responses[0].response_range.kvs[0].value.toString(), bad.responses[1].response_delete_range.deleted, twice];
  },

  async compact(c) {
    const first = (await c.put('compact').value('1')).header.revision;
    const at = (await c.put('compact').value('2')).header.revision;
    await c.kv.compact({ revision: at, physical: true });
    return [await errorOf(c.get('compact').revision(first).string()), await errorOf(c.kv.compact({ revision: at })),
      await c.get('compact').revision(at).string()];
  },

  async watch_start(c) {
    const start = Number((await c.put('watch_start/a').value('0')).header.revision);
    await c.put('watch_start/a').value('1');
    await c.delete().key('watch_start/a');
    const { watcher, events } = await watched(c.watch().prefix('watch_start/').startRevision(String(start)).withPreviousKV());
    const got = await events.take(3);
    await c.put('watch_start/b').value('live');
    got.push(...await events.take(1));
    await watcher.cancel();
    return got.map(e => [e.type, e.kv.key.toString(), e.kv.value.toString(), e.prev_kv ? e.prev_kv.value.toString() : '',
      e.kv.mod_revision - start]);
  },

  async watch_progress() {
    throw new NotInLibrary('the library cannot ask for progress; by itself a server tells it after ten minutes');
  },

  async watch_cancel(c) {
    const first = await watched(c.watch().key('watch_cancel')), second = await watched(c.watch().key('watch_cancel'));
    await c.put('watch_cancel').value('1');
    const both = [...await first.events.take(1), ...await second.events.take(1)];
    await first.watcher.cancel();
    await c.put('watch_cancel').value('2');
    const rest = await second.events.take(1);
    need(first.events.got.length === 0, 'an event after the cancel');
    await second.watcher.cancel();
    return [...both, ...rest].map(e => e.kv.value.toString());
  },

  async watch_compacted(c) {
    const start = (await c.put('watch_compacted').value('1')).header.revision;
    const at = (await c.put('watch_compacted').value('2')).header.revision;
    await c.kv.compact({ revision: at });
    const { events } = await watched(c.watch().key('watch_compacted').startRevision(start));
    return errorOf(events.take(1));
  },

  async lease(c) {
    const lease = c.lease(60, { autoKeepAlive: false });
    await lease.put('lease/k').value('v');
    const id = await lease.grant();
    const left = await c.leaseClient.leaseTimeToLive({ ID: id, keys: true });
    need(left.TTL > 55 && left.TTL <= 60, `${left.TTL} s are left`);
    need((await c.leaseClient.leaseLeases()).leases.some(l => l.ID === id), 'the list has it not');
    const kept = await lease.keepaliveOnce();
    await lease.revoke();
    const lost = await errorOf(c.leaseClient.leaseRevoke({ ID: id }));
    return [left.grantedTTL, left.keys.map(String), kept.TTL, await c.get('lease/k').string(), lost];
  },

  async lease_expiry(c) {
    const { watcher, events } = await watched(c.watch().key('lease_expiry'));
    const lease = c.lease(2, { autoKeepAlive: false });
    await lease.put('lease_expiry').value('1');
    const got = await events.take(2);
    await watcher.cancel();
    return [got.map(e => e.type), await c.get('lease_expiry').string(), (await errorOf(lease.keepaliveOnce())).replace(/\d+/, 'ID')];
  },

  async lock(c) {
    const other = dial();
    const first = c.lock('mutex').ttl(10);
    await first.acquire();
    let held = false;
    try {
      await other.lock('mutex').ttl(10).acquire();
    } catch (e) {
      held = e instanceof EtcdLockFailedError;
    }
    await first.release();
    const done = await other.lock('mutex').ttl(10).do(() => 'done');
    other.close();
    return [held, done, await c.getAll().prefix('mutex').count()];
  },

  async election(c) {
    const other = dial();
    const one = c.election('vote', 10), two = other.election('vote', 10);
    const seen = [];
    const observer = await other.election('vote', 10).observe();
    observer.on('change', leader => seen.push(leader));
    const first = one.campaign('one');
    await first.wait();
    const second = two.campaign('two');
    let both = false;
    second.on('elected', () => { both = true; });
    second.on('error', () => {});
    await sleep(300);
    need(!both, 'two lead');
    const before = await one.leader();
    await first.resign();
    await second.wait();
    const after = await one.leader();
    for (let i = 0; i < 500 && !seen.includes('two'); i++) await sleep(10);
    await second.resign();
    await observer.cancel();
    other.close();
    return [before, after, seen.filter(s => s === 'two').length];
  },

  async stm(c) {
    // In one revision: the library's default isolation conflicts for ever when it writes what it read of two.
    await c.if('stm/a', 'Create', '==', 0).then(c.put('stm/a').value(100), c.put('stm/b').value(0)).commit();
    const move = () => c.stm({ retries: 20 }).transact(async tx => {
      const [a, b] = [await tx.get('stm/a').number(), await tx.get('stm/b').number()];
      await tx.put('stm/a').value(a - 1);
      await tx.put('stm/b').value(b + 1);
    });
    for (let i = 0; i < 5; i++) await Promise.all([move(), move()]);
    return [await c.get('stm/a').number(), await c.get('stm/b').number()];
  },

  async cluster(c) {
    const status = await c.maintenance.status(), members = (await c.cluster.memberList({})).members;
    need(status.leader === members[0].ID && status.header.member_id === status.leader, 'ids');
    return [members.length, (await c.maintenance.hash()).hash !== 0];
  },

  // Of a learner, so that an etcd of one node keeps its majority.
  async members(c) {
    const url = ['http://127.0.0.1:7'], moved = ['http://127.0.0.1:9'], m = c.cluster;
    const added = await m.memberAdd({ peerURLs: url, isLearner: true });
    const ID = added.member.ID;
    const own = added.members.find(one => one.ID !== ID).peerURLs;
    const again = await refused(other => other.cluster.memberAdd({ peerURLs: own, isLearner: true }));
    const updated = (await m.memberUpdate({ ID, peerURLs: moved })).members.find(one => one.ID === ID);
    const unknown = [await refused(other => other.cluster.memberUpdate({ ID: '1', peerURLs: url })),
      await refused(other => other.cluster.memberPromote({ ID: '1' }))];
    return [added.members.length, again, updated.peerURLs, unknown, (await m.memberRemove({ ID })).members.length];
  },

  async maintenance(c) {
    const m = c.maintenance, own = (await c.cluster.memberList({})).members[0].ID;
    const alarm = (action, what) => m.alarm({ action, memberID: own, alarm: what }).then(r => r.alarms.map(one => one.alarm));
    await c.put('maintenance').value('1');
    const raised = await alarm('Activate', 'Nospace');
    const full = await refused(other => other.put('maintenance').value('2'));
    const listed = await alarm('Get', 'None'), gone = await alarm('Deactivate', 'Nospace');
    await m.defragment();
    const same = (await m.hash()).hash === (await m.hash()).hash;
    const stream = await m.snapshot();
    let length = 0;
    stream.on('data', piece => { length += piece.blob.length; });
    await new Promise((done, failed) => stream.on('end', done).on('error', failed));
    await m.moveLeader({ targetID: own });
    return [raised, full, listed, gone, same, length % 512, await refused(other => other.maintenance.moveLeader({ targetID: '1' }))];
  },

  async newer(c) {
    const on = (await c.auth.authStatus()).enabled;
    return [on, await errorOf(c.maintenance.downgrade({ action: 'Cancel', version: '' }))];
  },

  async auth_admin(c) {
    const s = c.auth;
    for (const name of ['u1', 'u2']) await s.userAdd({ name, password: 'pw', options: { no_password: false } });
    for (const name of ['r1', 'r2']) {
      await s.roleAdd({ name });
      await s.userGrantRole({ user: 'u1', role: name });
    }
    const range = { key: Buffer.from('y'), range_end: Buffer.from('z') };
    await s.roleGrantPermission({ name: 'r1', perm: { permType: 'Readwrite', ...range } });
    const before = [(await s.userList()).users, (await s.roleList()).roles, (await s.userGet({ name: 'u1' })).roles,
      (await s.roleGet({ role: 'r1' })).perm.length];
    await s.userChangePassword({ name: 'u1', password: 'new' });
    await s.userRevokeRole({ name: 'u1', role: 'r2' });
    await s.roleRevokePermission({ role: 'r1', ...range });
    const refused = [await errorOf(s.roleRevokePermission({ role: 'r1', ...range })),
      await errorOf(s.userRevokeRole({ name: 'u1', role: 'r2' }))];
    for (const role of ['r1', 'r2']) await s.roleDelete({ role });
    for (const name of ['u1', 'u2']) await s.userDelete({ name });
    return [before, refused, await errorOf(s.userDelete({ name: 'u2' })), await errorOf(s.roleGet({ role: 'r1' }))];
  },

  async queue_deliver(c) {
    const [producer, consumer] = queueKeys('deliver');
    const { watcher, events } = await watched(c.watch().key(consumer));
    for (let i = 0; i < 3; i++) await c.put(`${producer}job-${i}`).value(`payload ${i}`);
    const got = await events.take(3);
    need(got.every((e, i) => e.kv.key.toString().startsWith(`${consumer}/`) && `${e.kv.value}` === `payload ${i}`), 'events');
    const acks = [];
    for (const e of [...got, ...got]) acks.push((await c.delete().key(e.kv.key)).deleted);
    need(acks.join() === '1,1,1,0,0,0', `acknowledged ${acks}`);
    await watcher.cancel();
    return got.map(e => e.kv.value.toString());
  },

  async queue_resume(c) {
    const [producer, consumer] = queueKeys('resume');
    const other = dial();
    const before = await watched(other.watch().key(consumer));
    await c.put(`${producer}job`).value('kept');
    const [event] = await before.events.take(1);
    other.close();
    const { watcher, events } = await watched(c.watch().key(consumer).startRevision(event.kv.mod_revision));
    const [again] = await events.take(1);
    need(JSON.stringify(again) === JSON.stringify(event), 'not the same message');
    need((await c.delete().key(event.kv.key)).deleted === '1', 'not acknowledged');
    await watcher.cancel();
    return 'the same message again, unchanged';
  },

  async queue_hand_on(c) {
    const [producer, consumer] = queueKeys('hand_on'), mine = queueKeys('hand_on')[1];
    const other = dial();
    const before = await watched(other.watch().key(consumer));
    await c.put(`${producer}job`).value('moves');
    const first = (await before.events.take(1))[0].kv.key.toString();
    await before.watcher.cancel(); // close() alone leaves the stream open while it has a watcher
    other.close();
    const { watcher, events } = await watched(c.watch().key(mine));
    const second = (await events.take(1))[0].kv.key.toString();
    need(second.startsWith(mine) && first.slice(consumer.length) === second.slice(mine.length), `${first} ${second}`);
    need((await c.delete().key(second)).deleted === '1', 'not acknowledged');
    await watcher.cancel();
    return "the same message under the other's key";
  },

  async auth(c) {
    await c.role('root').create().catch(() => {}); // 3.4 makes it by itself when auth is enabled
    await c.user('root').create('rootpw');
    await c.user('root').addRole('root');
    await c.role('rw').create();
    await c.role('rw').grant({ permission: 'Readwrite', range: prefix('auth/') });
    await c.user('alice').create('alicepw');
    await c.user('alice').addRole('rw');
    await c.auth.authEnable();
    const root = dial({ username: 'root', password: 'rootpw' });
    try {
      const alice = dial({ username: 'alice', password: 'alicepw' });
      const out = [await errorOf(c.put('auth/k').value('v').exec())];
      await alice.put('auth/k').value('v');
      out.push(await alice.get('auth/k').string());
      let denied = false;
      await alice.put('other').value('v').exec().catch(e => { denied = e instanceof EtcdPermissionDeniedError; });
      out.push(denied, await errorOf(alice.getUsers()), (await root.user('alice').roles()).map(r => r.name));
      const wrong = dial({ username: 'alice', password: 'wrong' });
      out.push(await errorOf(wrong.get('auth/k').string()));
      wrong.close();
      alice.close();
      return out;
    } finally {
      await root.auth.authDisable();
      root.close();
    }
  },
};

function queueKeys(what) {
  return [`/q/node-${what}/producer/`, `/q/node-${what}/consumer/${randomUUID()}`];
}

function prefix(text) {
  return require('etcd3').Range.prefix(text);
}

async function one(name) {
  if (!cases[name]) return [null, 'the program has no such case'];
  const c = dial();
  const timer = new Promise((_, failed) => setTimeout(() => failed(new Error('it takes too long')), WAIT_MS).unref());
  try {
    return [true, await Promise.race([cases[name](c), timer])];
  } catch (e) {
    if (e instanceof NotInLibrary) return [null, e.message];
    console.error(name, e);
    return [false, `${e.constructor.name}: ${e.message}`];
  } finally {
    c.close();
  }
}

async function main() {
  const say = (name, ok, detail) => console.log(JSON.stringify({ client, case: name, ok, detail }));
  say('version', true, require('etcd3/package.json').version);
  for (const name of names) say(name, ...await one(name));
  process.exit(0);
}

main();
