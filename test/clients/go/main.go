// SPDX-License-Identifier: Apache-2.0

// The cases with Go's clientv3: clients HOST:PORT CLIENT CASE... (see ../cases.py). One source for the
// versions that go.mod and go-3.5.mod name.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

const wait = 15 * time.Second

// run is one case under way: its client, its bound, and the words that are compared.
type run struct {
	ctx     context.Context
	cli     *clientv3.Client
	address string
	words   []string
}

// Errors end a case: must and need panic with them, and main tells.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func need(good bool, format string, args ...any) {
	if !good {
		panic(fmt.Errorf(format, args...))
	}
}

func (r *run) say(args ...any) { r.words = append(r.words, fmt.Sprint(args...)) }

func dial(address, user, password string) *clientv3.Client {
	return must(clientv3.New(clientv3.Config{
		Endpoints: []string{address}, DialTimeout: wait, Username: user, Password: password,
		Logger: zap.NewNop(),
	}))
}

func (r *run) put(key, value string, opts ...clientv3.OpOption) *clientv3.PutResponse {
	return must(r.cli.Put(r.ctx, key, value, opts...))
}

func (r *run) get(key string, opts ...clientv3.OpOption) *clientv3.GetResponse {
	return must(r.cli.Get(r.ctx, key, opts...))
}

func (r *run) del(key string, opts ...clientv3.OpOption) *clientv3.DeleteResponse {
	return must(r.cli.Delete(r.ctx, key, opts...))
}

// next gives the next answer of a watch that has events.
func (r *run) next(ch clientv3.WatchChan) clientv3.WatchResponse {
	for {
		select {
		case answer, open := <-ch:
			need(open, "the watch has ended")
			if answer.Err() != nil {
				panic(answer.Err())
			}
			if len(answer.Events) > 0 {
				return answer
			}
		case <-r.ctx.Done():
			panic(r.ctx.Err())
		}
	}
}

func (r *run) events(ch clientv3.WatchChan, count int) (got []*clientv3.Event) {
	for len(got) < count {
		got = append(got, r.next(ch).Events...)
	}
	return got
}

func putGet(r *run) {
	r.put("put_get", "one")
	r.say(string(r.put("put_get", "two", clientv3.WithPrevKV()).PrevKv.Value))
	kv := r.get("put_get").Kvs[0]
	r.say(string(kv.Value), " version ", kv.Version, " mod +", kv.ModRevision-kv.CreateRevision)
	r.put("put_get", "", clientv3.WithIgnoreValue())
	r.say(string(r.get("put_get").Kvs[0].Value), r.get("put_get/none").Count)
	_, err := r.cli.Put(r.ctx, "", "x")
	r.say(err)
}

func keys(got *clientv3.GetResponse) (out []string) {
	for _, kv := range got.Kvs {
		out = append(out, string(kv.Key)+"="+string(kv.Value))
	}
	return out
}

func ranges(r *run) {
	for i := 0; i < 5; i++ {
		r.put(fmt.Sprintf("range/%d", i), fmt.Sprint(i))
	}
	before := r.get("range/0").Header.Revision
	r.put("range/2", "new")
	page := r.get("range/", clientv3.WithPrefix(), clientv3.WithLimit(2))
	r.say(keys(page), page.Count, page.More)
	r.say(keys(r.get("range/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))))
	r.say(keys(r.get("range/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))))
	r.say(keys(r.get("range/1", clientv3.WithRange("range/3"))), keys(r.get("range/4", clientv3.WithFromKey(), clientv3.WithLimit(1))))
	r.say(keys(r.get("range/2", clientv3.WithRev(before))), r.get("range/", clientv3.WithPrefix(), clientv3.WithCountOnly()).Count)
	r.say(keys(r.get("range/", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithMinModRev(before+1))))
	r.say(keys(r.get("range/", clientv3.WithLastRev()...)), keys(r.get("range/0", clientv3.WithSerializable())))
	_, err := r.cli.Get(r.ctx, "range/2", clientv3.WithRev(before+1000))
	r.say(err, errors.Is(err, rpctypes.ErrFutureRev))
}

func deletes(r *run) {
	for i := 0; i < 4; i++ {
		r.put(fmt.Sprintf("delete/%d", i), fmt.Sprint(i))
	}
	one := r.del("delete/0", clientv3.WithPrevKV())
	r.say(one.Deleted, string(one.PrevKvs[0].Value), r.del("delete/0").Deleted)
	rest := r.del("delete/", clientv3.WithPrefix())
	r.say(rest.Deleted, rest.Header.Revision-one.Header.Revision, r.get("delete/", clientv3.WithPrefix()).Count)
}

func txn(r *run) {
	r.put("txn/k", "v")
	good := must(r.cli.Txn(r.ctx).If(
		clientv3.Compare(clientv3.Value("txn/k"), "=", "v"), clientv3.Compare(clientv3.Version("txn/k"), "=", 1),
		clientv3.Compare(clientv3.CreateRevision("txn/none"), "=", 0), clientv3.Compare(clientv3.ModRevision("txn/k"), ">", 0),
		clientv3.Compare(clientv3.LeaseValue("txn/k"), "=", 0), clientv3.Compare(clientv3.Version("txn/"), ">", 0).WithPrefix(),
	).Then(clientv3.OpPut("txn/k2", "x"), clientv3.OpGet("txn/k2"),
		clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Version("txn/k"), "!=", 0)},
			[]clientv3.Op{clientv3.OpDelete("txn/k")}, nil)).Commit())
	r.say(good.Succeeded, len(good.Responses), string(good.Responses[1].GetResponseRange().Kvs[0].Value),
		good.Responses[2].GetResponseTxn().Responses[0].GetResponseDeleteRange().Deleted)
	bad := must(r.cli.Txn(r.ctx).If(clientv3.Compare(clientv3.Value("txn/k2"), "=", "other")).Else(
		clientv3.OpGet("txn/k2"), clientv3.OpDelete("txn/k2")).Commit())
	r.say(bad.Succeeded, len(bad.Responses))
	_, err := r.cli.Txn(r.ctx).Then(clientv3.OpPut("txn/k", "x"), clientv3.OpPut("txn/k", "y")).Commit()
	r.say(err, errors.Is(err, rpctypes.ErrDuplicateKey))
}

func compact(r *run) {
	first := r.put("compact", "1").Header.Revision
	at := r.put("compact", "2").Header.Revision
	must(r.cli.Compact(r.ctx, at, clientv3.WithCompactPhysical()))
	_, err := r.cli.Get(r.ctx, "compact", clientv3.WithRev(first))
	r.say(err, errors.Is(err, rpctypes.ErrCompacted))
	_, err = r.cli.Compact(r.ctx, at)
	r.say(err, keys(r.get("compact", clientv3.WithRev(at))))
}

func watchStart(r *run) {
	start := r.put("watch_start/a", "0").Header.Revision
	r.put("watch_start/a", "1")
	r.del("watch_start/a")
	ch := r.cli.Watch(r.ctx, "watch_start/", clientv3.WithPrefix(), clientv3.WithRev(start), clientv3.WithPrevKV())
	got := r.events(ch, 3)
	r.put("watch_start/b", "live")
	got = append(got, r.events(ch, 1)...)
	for _, e := range got {
		previous := ""
		if e.PrevKv != nil {
			previous = string(e.PrevKv.Value)
		}
		r.say(e.Type, string(e.Kv.Key), string(e.Kv.Value), previous, e.Kv.ModRevision-start, e.IsCreate())
	}
	only := r.cli.Watch(r.ctx, "watch_start/", clientv3.WithPrefix(), clientv3.WithRev(start), clientv3.WithFilterPut())
	r.say(r.events(only, 1)[0].Type)
}

func watchProgress(r *run) {
	now := r.put("watch_progress", "1").Header.Revision
	ch := r.cli.Watch(r.ctx, "watch_progress", clientv3.WithCreatedNotify())
	created := <-ch
	r.say(created.Created, created.Header.Revision >= now)
	must(0, r.cli.RequestProgress(r.ctx))
	select {
	case answer := <-ch:
		r.say(answer.IsProgressNotify(), answer.Header.Revision >= now)
	case <-r.ctx.Done():
		panic(r.ctx.Err())
	}
}

func watchCancel(r *run) {
	cancelled, cancel := context.WithCancel(r.ctx)
	first, second := r.cli.Watch(cancelled, "watch_cancel"), r.cli.Watch(r.ctx, "watch_cancel")
	r.put("watch_cancel", "1")
	r.say(string(r.next(first).Events[0].Kv.Value), string(r.next(second).Events[0].Kv.Value))
	cancel()
	for range first {
	}
	r.put("watch_cancel", "2")
	r.say(string(r.next(second).Events[0].Kv.Value))
}

func watchCompacted(r *run) {
	start := r.put("watch_compacted", "1").Header.Revision
	at := r.put("watch_compacted", "2").Header.Revision
	must(r.cli.Compact(r.ctx, at))
	for answer := range r.cli.Watch(r.ctx, "watch_compacted", clientv3.WithRev(start)) {
		r.say(answer.Canceled, answer.CompactRevision-at, answer.Err(), errors.Is(answer.Err(), rpctypes.ErrCompacted))
	}
}

func lease(r *run) {
	granted := must(r.cli.Grant(r.ctx, 60))
	r.put("lease/k", "v", clientv3.WithLease(granted.ID))
	left := must(r.cli.TimeToLive(r.ctx, granted.ID, clientv3.WithAttachedKeys()))
	need(left.TTL > 55 && left.TTL <= 60, "%d s are left", left.TTL)
	kept := <-must(r.cli.KeepAlive(r.ctx, granted.ID))
	once := must(r.cli.KeepAliveOnce(r.ctx, granted.ID))
	r.say(granted.TTL, left.GrantedTTL, len(left.Keys), kept.TTL, once.TTL, len(must(r.cli.Leases(r.ctx)).Leases) > 0)
	must(r.cli.Revoke(r.ctx, granted.ID))
	_, err := r.cli.Revoke(r.ctx, granted.ID)
	_, lost := r.cli.KeepAliveOnce(r.ctx, granted.ID)
	r.say(r.get("lease/k").Count, err, lost, errors.Is(err, rpctypes.ErrLeaseNotFound))
}

func leaseExpiry(r *run) {
	ch := r.cli.Watch(r.ctx, "lease_expiry", clientv3.WithCreatedNotify())
	<-ch
	granted := must(r.cli.Grant(r.ctx, 2))
	r.put("lease_expiry", "1", clientv3.WithLease(granted.ID))
	got := r.events(ch, 2)
	r.say(got[0].Type, got[1].Type, r.get("lease_expiry").Count, must(r.cli.TimeToLive(r.ctx, granted.ID)).TTL)
}

func lock(r *run) {
	one, two := must(concurrency.NewSession(r.cli, concurrency.WithTTL(10))), must(concurrency.NewSession(r.cli, concurrency.WithTTL(10)))
	first, second := concurrency.NewMutex(one, "mutex"), concurrency.NewMutex(two, "mutex")
	must(0, first.Lock(r.ctx))
	r.say(second.TryLock(r.ctx))
	done := make(chan error, 1)
	go func() { done <- second.Lock(r.ctx) }()
	select {
	case err := <-done:
		panic(fmt.Errorf("two hold it: %v", err))
	case <-time.After(300 * time.Millisecond):
	}
	must(0, first.Unlock(r.ctx))
	must(0, <-done)
	// The lock goes with the session of its holder.
	third := concurrency.NewMutex(one, "mutex")
	go func() { done <- third.Lock(r.ctx) }()
	must(0, two.Close())
	must(0, <-done)
	must(0, one.Close())
	r.say(r.get("mutex/", clientv3.WithPrefix()).Count)
}

func election(r *run) {
	one, two := must(concurrency.NewSession(r.cli)), must(concurrency.NewSession(r.cli))
	first, second := concurrency.NewElection(one, "vote"), concurrency.NewElection(two, "vote")
	_, err := first.Leader(r.ctx)
	r.say(err)
	must(0, first.Campaign(r.ctx, "one"))
	seen := second.Observe(r.ctx)
	r.say(string((<-seen).Kvs[0].Value), string(must(first.Leader(r.ctx)).Kvs[0].Value))
	must(0, first.Proclaim(r.ctx, "still one"))
	r.say(string((<-seen).Kvs[0].Value))
	done := make(chan error, 1)
	go func() { done <- second.Campaign(r.ctx, "two") }()
	select {
	case err := <-done:
		panic(fmt.Errorf("two lead: %v", err))
	case <-time.After(300 * time.Millisecond):
	}
	must(0, first.Resign(r.ctx))
	must(0, <-done)
	r.say(string((<-seen).Kvs[0].Value))
	must(0, one.Close())
	must(0, two.Close())
}

func stm(r *run) {
	r.put("stm/a", "100")
	r.put("stm/b", "0")
	done := make(chan error, 4)
	for n := 0; n < 4; n++ {
		go func() {
			for n := 0; n < 5; n++ {
				_, err := concurrency.NewSTM(r.cli, func(s concurrency.STM) error {
					var a, b int
					fmt.Sscan(s.Get("stm/a"), &a)
					fmt.Sscan(s.Get("stm/b"), &b)
					s.Put("stm/a", fmt.Sprint(a-1))
					s.Put("stm/b", fmt.Sprint(b+1))
					return nil
				}, concurrency.WithAbortContext(r.ctx), concurrency.WithPrefetch("stm/a", "stm/b"))
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for n := 0; n < 4; n++ {
		must(0, <-done)
	}
	r.say(keys(r.get("stm/", clientv3.WithPrefix())))
}

func cluster(r *run) {
	status, members := must(r.cli.Status(r.ctx, r.address)), must(r.cli.MemberList(r.ctx))
	need(status.Leader == members.Members[0].ID && status.Header.MemberId == status.Leader, "%v %v", status, members)
	r.say(len(members.Members), len(must(r.cli.AlarmList(r.ctx)).Alarms), must(r.cli.HashKV(r.ctx, r.address, 0)).Hash != 0)
	must(0, r.cli.Sync(r.ctx))
	must(r.cli.Defragment(r.ctx, r.cli.Endpoints()[0]))
	snapshot := must(r.cli.Snapshot(r.ctx))
	buffer := make([]byte, 4096)
	n := must(snapshot.Read(buffer))
	snapshot.Close()
	r.say(n > 0)
}

// members adds a learner, so that an etcd of one node keeps its majority.
func members(r *run) {
	url, moved := []string{"http://127.0.0.1:7"}, []string{"http://127.0.0.1:9"}
	own := must(r.cli.MemberList(r.ctx)).Members[0]
	added := must(r.cli.MemberAddAsLearner(r.ctx, url))
	r.say(added.Member.PeerURLs, len(added.Members))
	_, err := r.cli.MemberAddAsLearner(r.ctx, own.PeerURLs)
	r.say(err, errors.Is(err, rpctypes.ErrPeerURLExist))
	_, err = r.cli.MemberAddAsLearner(r.ctx, []string{"127.0.0.1:7"})
	r.say(err)
	for _, m := range must(r.cli.MemberUpdate(r.ctx, added.Member.ID, moved)).Members {
		if m.ID == added.Member.ID {
			r.say(m.PeerURLs)
		}
	}
	_, err = r.cli.MemberUpdate(r.ctx, 1, url)
	r.say(err, errors.Is(err, rpctypes.ErrMemberNotFound))
	_, err = r.cli.MemberPromote(r.ctx, 1)
	r.say(err, len(must(r.cli.MemberRemove(r.ctx, added.Member.ID)).Members))
}

func maintenance(r *run) {
	own := must(r.cli.MemberList(r.ctx)).Members[0].ID
	at := r.put("maintenance", "1").Header.Revision
	r.say(len(must(r.cli.AlarmList(r.ctx)).Alarms), len(must(r.cli.AlarmDisarm(r.ctx, &clientv3.AlarmMember{})).Alarms))
	one, two := must(r.cli.HashKV(r.ctx, r.address, at)), must(r.cli.HashKV(r.ctx, r.address, 0))
	r.say(one.Hash == two.Hash, one.CompactRevision == two.CompactRevision)
	_, err := r.cli.HashKV(r.ctx, r.address, at+1000)
	r.say(err, errors.Is(err, rpctypes.ErrFutureRev))
	must(r.cli.Defragment(r.ctx, r.address))
	snapshot := must(r.cli.Snapshot(r.ctx))
	length := must(io.Copy(io.Discard, snapshot))
	snapshot.Close()
	must(r.cli.MoveLeader(r.ctx, own))
	_, err = r.cli.MoveLeader(r.ctx, 1)
	r.say(length%512, err)
}

// newer asks what etcd 3.4 does not have; Downgrade only where the library has it.
func newer(r *run) {
	status := must(r.cli.AuthStatus(r.ctx))
	r.say(status.Enabled, downgrade(r))
}

func authAdmin(r *run) {
	for _, name := range []string{"u1", "u2"} {
		must(r.cli.UserAdd(r.ctx, name, "pw"))
	}
	for _, name := range []string{"r1", "r2"} {
		must(r.cli.RoleAdd(r.ctx, name))
		must(r.cli.UserGrantRole(r.ctx, "u1", name))
	}
	must(r.cli.RoleGrantPermission(r.ctx, "r1", "y", "z", clientv3.PermissionType(clientv3.PermReadWrite)))
	r.say(must(r.cli.UserList(r.ctx)).Users, must(r.cli.RoleList(r.ctx)).Roles, must(r.cli.UserGet(r.ctx, "u1")).Roles,
		len(must(r.cli.RoleGet(r.ctx, "r1")).Perm))
	must(r.cli.UserChangePassword(r.ctx, "u1", "new"))
	must(r.cli.UserRevokeRole(r.ctx, "u1", "r2"))
	must(r.cli.RoleRevokePermission(r.ctx, "r1", "y", "z"))
	_, err := r.cli.RoleRevokePermission(r.ctx, "r1", "y", "z")
	r.say(err, errors.Is(err, rpctypes.ErrPermissionNotGranted))
	_, err = r.cli.UserRevokeRole(r.ctx, "u1", "r2")
	r.say(err, errors.Is(err, rpctypes.ErrRoleNotGranted))
	_, err = r.cli.AuthEnable(r.ctx)
	r.say(err)
	for _, name := range []string{"r1", "r2"} {
		must(r.cli.RoleDelete(r.ctx, name))
	}
	for _, name := range []string{"u1", "u2"} {
		must(r.cli.UserDelete(r.ctx, name))
	}
	_, err = r.cli.UserDelete(r.ctx, "u2")
	r.say(err, errors.Is(err, rpctypes.ErrUserNotFound))
}

func queueKeys(r *run, what string) (string, string) {
	uuid := strings.TrimSpace(string(must(os.ReadFile("/proc/sys/kernel/random/uuid"))))
	return "/q/go-" + what + "/producer/", "/q/go-" + what + "/consumer/" + uuid
}

func queueDeliver(r *run) {
	producer, consumer := queueKeys(r, "deliver")
	ch := r.cli.Watch(r.ctx, consumer)
	for i := 0; i < 3; i++ {
		r.put(fmt.Sprintf("%sjob-%d", producer, i), fmt.Sprintf("payload %d", i))
	}
	for i, e := range r.events(ch, 3) {
		key := string(e.Kv.Key)
		need(strings.HasPrefix(key, consumer+"/") && string(e.Kv.Value) == fmt.Sprintf("payload %d", i), "%v", e)
		need(r.del(key).Deleted == 1 && r.del(key).Deleted == 0, "acknowledge of %s", key)
		r.say(string(e.Kv.Value))
	}
}

func queueResume(r *run) {
	producer, consumer := queueKeys(r, "resume")
	other := dial(r.address, "", "")
	ch := other.Watch(r.ctx, consumer)
	r.put(producer+"job", "kept")
	event := r.events(ch, 1)[0]
	must(0, other.Close())
	again := r.events(r.cli.Watch(r.ctx, consumer, clientv3.WithRev(event.Kv.ModRevision)), 1)[0]
	need(again.Kv.String() == event.Kv.String(), "%v %v", event, again)
	need(r.del(string(event.Kv.Key)).Deleted == 1, "not acknowledged")
	r.say("the same message again, unchanged")
}

func queueHandOn(r *run) {
	producer, consumer := queueKeys(r, "hand_on")
	_, mine := queueKeys(r, "hand_on")
	other := dial(r.address, "", "")
	ch := other.Watch(r.ctx, consumer)
	r.put(producer+"job", "moves")
	first := string(r.events(ch, 1)[0].Kv.Key)
	must(0, other.Close())
	second := string(r.events(r.cli.Watch(r.ctx, mine), 1)[0].Kv.Key)
	need(strings.HasPrefix(second, mine) && strings.TrimPrefix(first, consumer) == strings.TrimPrefix(second, mine),
		"%s %s", first, second)
	need(r.del(second).Deleted == 1, "not acknowledged")
	r.say("the same message under the other's key")
}

func auth(r *run) {
	must(r.cli.UserAdd(r.ctx, "root", "rootpw"))
	must(r.cli.UserGrantRole(r.ctx, "root", "root"))
	must(r.cli.RoleAdd(r.ctx, "rw"))
	must(r.cli.RoleGrantPermission(r.ctx, "rw", "auth/", clientv3.GetPrefixRangeEnd("auth/"),
		clientv3.PermissionType(clientv3.PermReadWrite)))
	must(r.cli.UserAdd(r.ctx, "alice", "alicepw"))
	must(r.cli.UserGrantRole(r.ctx, "alice", "rw"))
	must(r.cli.AuthEnable(r.ctx))
	root, alice := dial(r.address, "root", "rootpw"), dial(r.address, "alice", "alicepw")
	defer root.Close()
	defer alice.Close()
	defer func() { must(root.AuthDisable(r.ctx)) }()
	_, err := r.cli.Put(r.ctx, "auth/k", "v")
	r.say(err)
	must(alice.Put(r.ctx, "auth/k", "v"))
	_, err = alice.Put(r.ctx, "other", "v")
	r.say(err, errors.Is(err, rpctypes.ErrPermissionDenied))
	_, err = alice.UserList(r.ctx)
	r.say(err, keys(must(alice.Get(r.ctx, "auth/k"))), must(root.UserGet(r.ctx, "alice")).Roles)
	for answer := range alice.Watch(r.ctx, "other") {
		r.say(answer.Canceled, answer.Err())
	}
	_, err = clientv3.New(clientv3.Config{Endpoints: []string{r.address}, DialTimeout: wait, Username: "alice",
		Password: "wrong", Logger: zap.NewNop()})
	r.say(err)
}

var all = map[string]func(*run){
	"put_get": putGet, "range": ranges, "delete": deletes, "txn": txn, "compact": compact,
	"watch_start": watchStart, "watch_progress": watchProgress, "watch_cancel": watchCancel,
	"watch_compacted": watchCompacted, "lease": lease, "lease_expiry": leaseExpiry, "lock": lock,
	"election": election, "stm": stm, "cluster": cluster, "members": members, "maintenance": maintenance,
	"newer": newer, "queue_deliver": queueDeliver, "queue_resume": queueResume, "queue_hand_on": queueHandOn,
	"auth_admin": authAdmin, "auth": auth,
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == "go.etcd.io/etcd/client/v3" {
			return strings.TrimPrefix(dep.Version, "v")
		}
	}
	return "unknown"
}

// one does a case; an error or a panic of it is its outcome.
func one(address, name string) (ok any, detail any) {
	f, found := all[name]
	if !found {
		return nil, "the program has no such case"
	}
	r := &run{address: address, cli: dial(address, "", "")}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), wait)
	defer r.cli.Close()
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n%s", name, p, debug.Stack())
			ok, detail = false, fmt.Sprint(p)
		}
	}()
	f(r)
	return true, r.words
}

func main() {
	address, client := os.Args[1], os.Args[2]
	out := json.NewEncoder(os.Stdout)
	out.Encode(map[string]any{"client": client, "case": "version", "ok": true, "detail": version()})
	for _, name := range os.Args[3:] {
		ok, detail := one(address, name)
		out.Encode(map[string]any{"client": client, "case": name, "ok": ok, "detail": detail})
	}
}
