// SPDX-License-Identifier: Apache-2.0

//! The cases with Rust's etcd-client: ringpost-clients HOST:PORT CLIENT CASE... (see ../../cases.py)

use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions, Compare, CompareOp, ConnectOptions, DeleteOptions,
    Event, EventType, GetOptions, LeaseTimeToLiveOptions, LockOptions, MemberAddOptions, Permission, ProclaimOptions,
    PutOptions, ResignOptions, RoleRevokePermissionOptions, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
    WatchOptions, WatchStream,
};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const WAIT: Duration = Duration::from_secs(15);

type Error = Box<dyn std::error::Error>;
type Outcome = Result<String, Error>;

/// What the library cannot do at all.
#[derive(Debug)]
struct NotInLibrary(&'static str);

impl std::fmt::Display for NotInLibrary {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for NotInLibrary {}

fn need(good: bool, what: impl Into<String>) -> Result<(), Error> {
    if good {
        Ok(())
    } else {
        Err(what.into().into())
    }
}

fn error_of<T>(result: Result<T, etcd_client::Error>) -> String {
    match result {
        Ok(_) => "no error".into(),
        Err(etcd_client::Error::GRpcStatus(s)) => format!("{:?}: {}", s.code(), s.message()),
        Err(e) => e.to_string(),
    }
}

async fn dial(address: &str) -> Result<Client, Error> {
    Ok(Client::connect([address], None).await?)
}

async fn dial_as(address: &str, user: &str, password: &str) -> Result<Client, etcd_client::Error> {
    Client::connect([address], Some(ConnectOptions::new().with_user(user, password))).await
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

async fn value(c: &mut Client, key: &str) -> Result<Option<String>, Error> {
    Ok(c.get(key, None).await?.kvs().first().map(|kv| text(kv.value())))
}

async fn put(c: &mut Client, key: &str, value: &str) -> Result<i64, Error> {
    Ok(c.put(key, value, None).await?.header().ok_or("no header")?.revision())
}

/// A watch whose created answer has come.
async fn watched(c: &mut Client, key: &str, options: WatchOptions) -> Result<(i64, WatchStream), Error> {
    let mut stream = c.watch(key, Some(options)).await?;
    let first = timeout(WAIT, stream.message()).await??.ok_or("the stream has ended")?;
    need(first.created() && !first.canceled(), format!("{first:?}"))?;
    Ok((first.watch_id(), stream))
}

async fn events(stream: &mut WatchStream, count: usize) -> Result<Vec<Event>, Error> {
    let mut got = Vec::new();
    while got.len() < count {
        let answer = timeout(WAIT, stream.message()).await??.ok_or("the stream has ended")?;
        need(!answer.canceled(), format!("cancelled: {}", answer.cancel_reason()))?;
        got.extend_from_slice(answer.events());
    }
    Ok(got)
}

fn keys(kvs: &[etcd_client::KeyValue]) -> Vec<String> {
    kvs.iter().map(|kv| format!("{}={}", text(kv.key()), text(kv.value()))).collect()
}

async fn put_get(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    c.put("put_get", "one", None).await?;
    let put = c.put("put_get", "two", Some(PutOptions::new().with_prev_key())).await?;
    let got = c.get("put_get", None).await?;
    let kv = &got.kvs()[0];
    Ok(format!(
        "{} {} version {} mod +{} {:?} {}",
        text(put.prev_key().ok_or("no previous")?.value()),
        text(kv.value()),
        kv.version(),
        kv.mod_revision() - kv.create_revision(),
        value(&mut c, "none").await?,
        error_of(c.put("", "x", None).await)
    ))
}

async fn range(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    let mut before = 0;
    for i in 0..5 {
        before = put(&mut c, &format!("range/{i}"), &i.to_string()).await?;
    }
    put(&mut c, "range/2", "new").await?;
    let all = || GetOptions::new().with_prefix();
    let page = c.get("range/", Some(all().with_limit(2))).await?;
    let down = c.get("range/", Some(all().with_sort(SortTarget::Key, SortOrder::Descend))).await?;
    let by_mod = c.get("range/", Some(all().with_sort(SortTarget::Mod, SortOrder::Ascend).with_keys_only())).await?;
    let part = c.get("range/1", Some(GetOptions::new().with_range("range/3"))).await?;
    let old = c.get("range/2", Some(GetOptions::new().with_revision(before))).await?;
    let count = c.get("range/", Some(all().with_count_only())).await?.count();
    let future = c.get("range/2", Some(GetOptions::new().with_revision(before + 1000))).await;
    Ok(format!(
        "{:?} {} {} {:?} {:?} {:?} {:?} {count} {}",
        keys(page.kvs()),
        page.count(),
        page.more(),
        keys(down.kvs()),
        keys(by_mod.kvs()),
        keys(part.kvs()),
        keys(old.kvs()),
        error_of(future)
    ))
}

async fn delete(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    for i in 0..4 {
        put(&mut c, &format!("delete/{i}"), &i.to_string()).await?;
    }
    let one = c.delete("delete/0", Some(DeleteOptions::new().with_prev_key())).await?;
    let again = c.delete("delete/0", None).await?.deleted();
    let rest = c.delete("delete/", Some(DeleteOptions::new().with_prefix())).await?.deleted();
    Ok(format!("{} {:?} {again} {rest}", one.deleted(), keys(one.prev_kvs())))
}

async fn txn(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    put(&mut c, "txn/k", "v").await?;
    let good = c
        .txn(
            Txn::new()
                .when([
                    Compare::value("txn/k", CompareOp::Equal, "v"),
                    Compare::version("txn/k", CompareOp::Equal, 1),
                    Compare::create_revision("txn/none", CompareOp::Equal, 0),
                    Compare::mod_revision("txn/k", CompareOp::Greater, 0),
                    Compare::lease("txn/k", CompareOp::Equal, 0),
                ])
                .and_then([TxnOp::put("txn/k2", "x", None), TxnOp::get("txn/k2", None)]),
        )
        .await?;
    let read = match &good.op_responses()[1] {
        TxnOpResponse::Get(got) => keys(got.kvs()),
        other => return Err(format!("{other:?}").into()),
    };
    let bad = c
        .txn(
            Txn::new()
                .when([Compare::value("txn/k", CompareOp::Equal, "other")])
                .or_else([TxnOp::get("txn/k2", None), TxnOp::delete("txn/k2", None)]),
        )
        .await?;
    let deleted = match &bad.op_responses()[1] {
        TxnOpResponse::Delete(gone) => gone.deleted(),
        other => return Err(format!("{other:?}").into()),
    };
    let twice = c.txn(Txn::new().and_then([TxnOp::put("txn/k", "x", None), TxnOp::put("txn/k", "y", None)])).await;
    Ok(format!("{} {read:?} {} {deleted} {}", good.succeeded(), bad.succeeded(), error_of(twice)))
}

async fn compact(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    let first = put(&mut c, "compact", "1").await?;
    let at = put(&mut c, "compact", "2").await?;
    c.compact(at, Some(CompactionOptions::new().with_physical())).await?;
    let below = c.get("compact", Some(GetOptions::new().with_revision(first))).await;
    let again = c.compact(at, None).await;
    let there = c.get("compact", Some(GetOptions::new().with_revision(at))).await?;
    Ok(format!("{} {} {:?}", error_of(below), error_of(again), keys(there.kvs())))
}

async fn watch_start(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    let start = put(&mut c, "watch_start/a", "0").await?;
    put(&mut c, "watch_start/a", "1").await?;
    c.delete("watch_start/a", None).await?;
    let options = WatchOptions::new().with_prefix().with_start_revision(start).with_prev_key();
    let (_, mut stream) = watched(&mut c, "watch_start/", options).await?;
    let mut got = events(&mut stream, 3).await?;
    put(&mut c, "watch_start/b", "live").await?;
    got.extend(events(&mut stream, 1).await?);
    let mut out = Vec::new();
    for e in got {
        let kv = e.kv().ok_or("no kv")?;
        out.push(format!(
            "{:?} {} {} {:?} +{}",
            e.event_type(),
            text(kv.key()),
            text(kv.value()),
            e.prev_kv().map(|kv| text(kv.value())),
            kv.mod_revision() - start
        ));
    }
    Ok(format!("{out:?}"))
}

async fn watch_progress(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    let now = put(&mut c, "watch_progress", "1").await?;
    let (_, mut stream) = watched(&mut c, "watch_progress", WatchOptions::new()).await?;
    stream.request_progress().await?;
    let answer = timeout(WAIT, stream.message()).await??.ok_or("the stream has ended")?;
    let revision = answer.header().ok_or("no header")?.revision();
    Ok(format!("{} events, {} {} {}", answer.events().len(), answer.canceled(), answer.watch_id(), revision >= now))
}

async fn watch_cancel(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    let (id, mut stream) = watched(&mut c, "watch_cancel/a", WatchOptions::new()).await?;
    stream.watch("watch_cancel/b", None).await?;
    let second = timeout(WAIT, stream.message()).await??.ok_or("the stream has ended")?;
    need(second.created() && second.watch_id() != id, format!("{second:?}"))?;
    put(&mut c, "watch_cancel/a", "1").await?;
    let first = events(&mut stream, 1).await?;
    stream.cancel(id).await?;
    let end = timeout(WAIT, stream.message()).await??.ok_or("the stream has ended")?;
    need(end.canceled() && end.watch_id() == id, format!("{end:?}"))?;
    put(&mut c, "watch_cancel/a", "2").await?;
    put(&mut c, "watch_cancel/b", "3").await?;
    let rest = events(&mut stream, 1).await?;
    let words: Vec<_> = first.iter().chain(&rest).filter_map(|e| e.kv()).map(|kv| text(kv.value())).collect();
    Ok(format!("{words:?} {:?}", end.cancel_reason()))
}

async fn watch_compacted(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    let start = put(&mut c, "watch_compacted", "1").await?;
    let at = put(&mut c, "watch_compacted", "2").await?;
    c.compact(at, None).await?;
    let (id, mut stream) = watched(&mut c, "watch_compacted", WatchOptions::new().with_start_revision(start)).await?;
    let end = timeout(WAIT, stream.message()).await??.ok_or("the stream has ended")?;
    Ok(format!(
        "{} {} {} {:?}",
        end.canceled(),
        end.watch_id() == id,
        end.compact_revision() == at,
        end.cancel_reason()
    ))
}

async fn lease(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    let granted = c.lease_grant(60, None).await?;
    let id = granted.id();
    c.put("lease/k", "v", Some(PutOptions::new().with_lease(id))).await?;
    let left = c.lease_time_to_live(id, Some(LeaseTimeToLiveOptions::new().with_keys())).await?;
    need(left.ttl() > 55 && left.ttl() <= 60, format!("{} s are left", left.ttl()))?;
    let (mut keeper, mut kept) = c.lease_keep_alive(id).await?;
    keeper.keep_alive().await?;
    let ttl = timeout(WAIT, kept.message()).await??.ok_or("the stream has ended")?.ttl();
    let listed = c.leases().await?.leases().iter().any(|l| l.id() == id);
    c.lease_revoke(id).await?;
    let gone = value(&mut c, "lease/k").await?;
    Ok(format!(
        "{} {} {} {ttl} {listed} {gone:?} {}",
        granted.ttl(),
        left.granted_ttl(),
        left.keys().len(),
        error_of(c.lease_revoke(id).await)
    ))
}

async fn lease_expiry(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    let (_, mut stream) = watched(&mut c, "lease_expiry", WatchOptions::new()).await?;
    let id = c.lease_grant(2, None).await?.id();
    c.put("lease_expiry", "1", Some(PutOptions::new().with_lease(id))).await?;
    let kinds: Vec<EventType> = events(&mut stream, 2).await?.iter().map(|e| e.event_type()).collect();
    let left = c.lease_time_to_live(id, None).await?.ttl();
    Ok(format!("{kinds:?} {:?} {left}", value(&mut c, "lease_expiry").await?))
}

async fn lock(a: &str) -> Outcome {
    let (mut one, mut two) = (dial(a).await?, dial(a).await?);
    let mut leases = Vec::new();
    for c in [&mut one, &mut two] {
        leases.push(c.lease_grant(10, None).await?.id());
    }
    let first = one.lock("mutex", Some(LockOptions::new().with_lease(leases[0]))).await?;
    let lease = leases[1];
    let waiting =
        tokio::spawn(async move { two.lock("mutex", Some(LockOptions::new().with_lease(lease))).await.map(|r| (two, r)) });
    sleep(Duration::from_millis(300)).await;
    need(!waiting.is_finished(), "two hold it")?;
    one.unlock(first.key()).await?;
    let (mut two, second) = timeout(WAIT, waiting).await???;
    let ours = second.key().starts_with(b"mutex/");
    // The lock goes with its lease.
    two.lease_revoke(lease).await?;
    let third = timeout(WAIT, one.lock("mutex", Some(LockOptions::new().with_lease(leases[0])))).await??;
    one.unlock(third.key()).await?;
    let left = one.get("mutex/", Some(GetOptions::new().with_prefix())).await?.count();
    Ok(format!("{ours} {left} {}", error_of(one.lock("mutex", Some(LockOptions::new().with_lease(99))).await)))
}

async fn election(a: &str) -> Outcome {
    let (mut one, mut two, mut see) = (dial(a).await?, dial(a).await?, dial(a).await?);
    let nobody = error_of(one.leader("vote").await);
    let (lease_one, lease_two) = (one.lease_grant(10, None).await?.id(), two.lease_grant(10, None).await?.id());
    let first = one.campaign("vote", "one", lease_one).await?.leader().cloned().ok_or("no leader key")?;
    let mut seen = see.observe("vote").await?;
    let mut words = Vec::new();
    let waiting = tokio::spawn(async move { two.campaign("vote", "two", lease_two).await.map(|r| (two, r)) });
    words.push(observed(&mut seen).await?);
    one.proclaim("still one", Some(ProclaimOptions::new().with_leader(first.clone()))).await?;
    words.push(observed(&mut seen).await?);
    sleep(Duration::from_millis(300)).await;
    need(!waiting.is_finished(), "two lead")?;
    one.resign(Some(ResignOptions::new().with_leader(first))).await?;
    let (mut two, second) = timeout(WAIT, waiting).await???;
    words.push(observed(&mut seen).await?);
    let leader = text(one.leader("vote").await?.kv().ok_or("no leader")?.value());
    let second = second.leader().cloned().ok_or("no leader key")?;
    two.resign(Some(ResignOptions::new().with_leader(second))).await?;
    Ok(format!("{nobody} {words:?} {leader}"))
}

async fn observed(stream: &mut etcd_client::ObserveStream) -> Outcome {
    let answer = timeout(WAIT, stream.message()).await??.ok_or("the stream has ended")?;
    Ok(text(answer.kv().ok_or("no leader")?.value()))
}

async fn cluster(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    let status = c.status().await?;
    let members = c.member_list().await?;
    let member = members.members().first().ok_or("no member")?;
    need(status.leader() == member.id() && status.db_size() > 0, format!("{status:?} {member:?}"))?;
    let mut snapshot = c.snapshot().await?;
    let blob = snapshot.message().await?.ok_or("no snapshot")?;
    c.defragment().await?;
    Ok(format!(
        "{} {} {} {}",
        members.members().len(),
        !blob.blob().is_empty(),
        c.hash_kv(0).await?.hash() != 0,
        error_of(c.move_leader(1).await)
    ))
}

async fn members(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    let learner = || Some(MemberAddOptions::new().with_is_learner());
    let added = c.member_add(["http://127.0.0.1:7"], learner()).await?;
    let id = added.member().ok_or("no member")?.id();
    let own: Vec<_> =
        added.member_list().iter().filter(|m| m.id() != id).flat_map(|m| m.peer_urls().to_vec()).collect();
    let again = error_of(c.member_add(own, learner()).await);
    let moved = c.member_update(id, ["http://127.0.0.1:9".to_string()]).await?;
    let urls: Vec<_> = moved.members().iter().filter(|m| m.id() == id).map(|m| m.peer_urls().to_vec()).collect();
    let unknown = [
        error_of(c.member_update(1, ["http://127.0.0.1:7".to_string()]).await),
        error_of(c.member_promote(1).await),
    ];
    let left = c.member_remove(id).await?.members().len();
    Ok(format!("{} {again} {urls:?} {unknown:?} {left}", added.member_list().len()))
}

async fn maintenance(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    let own = c.member_list().await?.members().first().ok_or("no member")?.id();
    let of_own = || {
        let mut o = AlarmOptions::new();
        o.with_member(own);
        Some(o)
    };
    put(&mut c, "maintenance", "1").await?;
    let raised = c.alarm(AlarmAction::Activate, AlarmType::Nospace, of_own()).await?.alarms().len();
    let full = error_of(c.put("maintenance", "2", None).await);
    let listed = c.alarm(AlarmAction::Get, AlarmType::None, None).await?;
    let listed: Vec<_> = listed.alarms().iter().map(|m| (m.member_id() == own, m.alarm())).collect();
    let gone = c.alarm(AlarmAction::Deactivate, AlarmType::Nospace, of_own()).await?.alarms().len();
    c.defragment().await?;
    let same = c.hash().await?.hash() == c.hash().await?.hash() && c.hash_kv(0).await?.hash() == c.hash_kv(0).await?.hash();
    let mut snapshot = c.snapshot().await?;
    let mut length = 0;
    while let Some(piece) = timeout(WAIT, snapshot.message()).await?? {
        length += piece.blob().len();
    }
    c.move_leader(own).await?;
    let nobody = error_of(c.move_leader(1).await);
    let ahead = error_of(c.hash_kv(1 << 50).await);
    Ok(format!("{raised} {full} {listed:?} {gone} {same} {} {nobody} {ahead}", length % 512))
}

async fn auth_admin(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    for name in ["u1", "u2"] {
        c.user_add(name, "pw", None).await?;
    }
    for name in ["r1", "r2"] {
        c.role_add(name).await?;
        c.user_grant_role("u1", name).await?;
    }
    c.role_grant_permission("r1", Permission::read_write("y").with_range_end("z")).await?;
    let before = format!(
        "{:?} {:?} {:?} {}",
        c.user_list().await?.users(),
        c.role_list().await?.roles(),
        c.user_get("u1").await?.roles(),
        c.role_get("r1").await?.permissions().len()
    );
    c.user_change_password("u1", "new").await?;
    c.user_revoke_role("u1", "r2").await?;
    let range = || Some(RoleRevokePermissionOptions::new().with_range_end("z"));
    c.role_revoke_permission("r1", "y", range()).await?;
    let refused =
        [error_of(c.role_revoke_permission("r1", "y", range()).await), error_of(c.user_revoke_role("u1", "r2").await)];
    for name in ["r1", "r2"] {
        c.role_delete(name).await?;
    }
    for name in ["u1", "u2"] {
        c.user_delete(name).await?;
    }
    Ok(format!("{before} {refused:?} {} {}", error_of(c.user_delete("u2").await), error_of(c.role_get("r1").await)))
}

fn queue_keys(what: &str) -> Result<(String, String), Error> {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok((format!("/q/rust-{what}/producer/"), format!("/q/rust-{what}/consumer/{}", uuid.trim())))
}

fn key_of(e: &Event) -> String {
    e.kv().map(|kv| text(kv.key())).unwrap_or_default()
}

async fn queue_deliver(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    let (producer, consumer) = queue_keys("deliver")?;
    let (_, mut stream) = watched(&mut c, &consumer, WatchOptions::new()).await?;
    for i in 0..3 {
        put(&mut c, &format!("{producer}job-{i}"), &format!("payload {i}")).await?;
    }
    for (i, e) in events(&mut stream, 3).await?.iter().enumerate() {
        let key = key_of(e);
        need(key.starts_with(&format!("{consumer}/")), key.clone())?;
        need(e.kv().is_some_and(|kv| text(kv.value()) == format!("payload {i}")), format!("{e:?}"))?;
        need(c.delete(key.as_str(), None).await?.deleted() == 1, "not acknowledged")?;
        need(c.delete(key.as_str(), None).await?.deleted() == 0, "acknowledged twice")?;
    }
    Ok("three messages, each acknowledged once".into())
}

async fn queue_resume(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    let (producer, consumer) = queue_keys("resume")?;
    let event = {
        let mut other = dial(a).await?;
        let (_, mut stream) = watched(&mut other, &consumer, WatchOptions::new()).await?;
        put(&mut c, &format!("{producer}job"), "kept").await?;
        events(&mut stream, 1).await?.remove(0)
    };
    let revision = event.kv().ok_or("no kv")?.mod_revision();
    let (_, mut stream) = watched(&mut c, &consumer, WatchOptions::new().with_start_revision(revision)).await?;
    let again = events(&mut stream, 1).await?.remove(0);
    need(format!("{again:?}") == format!("{event:?}"), format!("{event:?} {again:?}"))?;
    need(c.delete(key_of(&event), None).await?.deleted() == 1, "not acknowledged")?;
    Ok("the same message again, unchanged".into())
}

async fn queue_hand_on(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    let (producer, consumer) = queue_keys("hand_on")?;
    let (_, mine) = queue_keys("hand_on")?;
    let first = {
        let mut other = dial(a).await?;
        let (_, mut stream) = watched(&mut other, &consumer, WatchOptions::new()).await?;
        put(&mut c, &format!("{producer}job"), "moves").await?;
        key_of(&events(&mut stream, 1).await?[0])
    };
    let (_, mut stream) = watched(&mut c, &mine, WatchOptions::new()).await?;
    let second = key_of(&events(&mut stream, 1).await?[0]);
    need(second.starts_with(&mine) && first[consumer.len()..] == second[mine.len()..], format!("{first} {second}"))?;
    need(c.delete(second, None).await?.deleted() == 1, "not acknowledged")?;
    Ok("the same message under the other's key".into())
}

async fn auth(a: &str) -> Outcome {
    let mut c = dial(a).await?;
    c.user_add("root", "rootpw", None).await?;
    let _ = c.role_add("root").await; // 3.4 makes it by itself when auth is enabled
    c.user_grant_role("root", "root").await?;
    c.role_add("rw").await?;
    c.role_grant_permission("rw", Permission::read_write("auth/").with_prefix()).await?;
    c.user_add("alice", "alicepw", None).await?;
    c.user_grant_role("alice", "rw").await?;
    c.auth_enable().await?;
    let mut root = dial_as(a, "root", "rootpw").await?;
    let out = auth_on(a, &mut c).await;
    root.auth_disable().await?;
    out
}

async fn auth_on(a: &str, c: &mut Client) -> Outcome {
    let mut alice = dial_as(a, "alice", "alicepw").await?;
    let without = error_of(c.put("auth/k", "v", None).await);
    put(&mut alice, "auth/k", "v").await?;
    let denied = error_of(alice.put("other", "v", None).await);
    let list = error_of(alice.user_list().await);
    let wrong = error_of(dial_as(a, "alice", "wrong").await);
    Ok(format!("{without} {denied} {list} {wrong} {:?}", value(&mut alice, "auth/k").await?))
}

async fn run(a: &str, name: &str) -> Outcome {
    match name {
        "put_get" => put_get(a).await,
        "range" => range(a).await,
        "delete" => delete(a).await,
        "txn" => txn(a).await,
        "compact" => compact(a).await,
        "watch_start" => watch_start(a).await,
        "watch_progress" => watch_progress(a).await,
        "watch_cancel" => watch_cancel(a).await,
        "watch_compacted" => watch_compacted(a).await,
        "lease" => lease(a).await,
        "lease_expiry" => lease_expiry(a).await,
        "lock" => lock(a).await,
        "election" => election(a).await,
        "stm" => Err(Box::new(NotInLibrary("the library has none"))),
        "cluster" => cluster(a).await,
        "members" => members(a).await,
        "maintenance" => maintenance(a).await,
        "newer" => Err(Box::new(NotInLibrary("the library has no such calls"))),
        "auth_admin" => auth_admin(a).await,
        "queue_deliver" => queue_deliver(a).await,
        "queue_resume" => queue_resume(a).await,
        "queue_hand_on" => queue_hand_on(a).await,
        "auth" => auth(a).await,
        _ => Err(Box::new(NotInLibrary("the program has no such case"))),
    }
}

fn say(client: &str, case: &str, ok: Option<bool>, detail: String) {
    println!("{}", serde_json::json!({"client": client, "case": case, "ok": ok, "detail": detail}));
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (address, client) = (&arguments[0], &arguments[1]);
    say(client, "version", Some(true), env!("ETCD_CLIENT_VERSION").into());
    for name in &arguments[2..] {
        match timeout(2 * WAIT, run(address, name)).await {
            Ok(Ok(detail)) => say(client, name, Some(true), detail),
            Ok(Err(e)) if e.is::<NotInLibrary>() => say(client, name, None, e.to_string()),
            Ok(Err(e)) => say(client, name, Some(false), e.to_string()),
            Err(_) => say(client, name, Some(false), "it takes too long".into()),
        }
    }
}
