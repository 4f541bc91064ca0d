// SPDX-License-Identifier: Apache-2.0

// A job and its worker: by ringpost.v1.Process, and by keys with etcd's client. The job is a line, and its
// answer each of its words in upper case.
//
//	job run|work native|keys HOST:PORT QUEUE LINE|COUNT
//
// In proto/ of Ringpost:
//
//	protoc --go_out=. --go_opt=paths=source_relative,Mringpost/v1/process.proto=ringpost/clients/ringpost/v1 \
//		ringpost/v1/process.proto
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "ringpost/clients/ringpost/v1"
)

var act, way, address, queue, what = os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]

// A stream both ways.
func call(method string) grpc.ClientStream {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := conn.NewStream(context.Background(), both, "/ringpost.v1.Process/"+method)
	check(err)
	return stream
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func runNative() {
	stream := call("Run")
	job := &pb.Job{Queue: queue, Data: []byte(what), TtlMs: 20000}
	check(stream.SendMsg(&pb.RunRequest{Act: &pb.RunRequest_Job{Job: job}}))
	check(stream.CloseSend()) // no more jobs; the answers come all the same
	for {
		var event pb.RunEvent
		err := stream.RecvMsg(&event)
		if err == io.EOF {
			return
		}
		check(err)
		if output := event.GetOutput(); output != nil {
			fmt.Println(string(output.Data))
		} else if failed := event.GetFailed(); failed != nil {
			log.Fatalf("%s: %s", failed.Code, failed.Reason)
		}
	}
}

func workNative(count int) {
	stream := call("Work")
	register := &pb.Register{Queue: queue}
	check(stream.SendMsg(&pb.WorkEvent{Event: &pb.WorkEvent_Register{Register: register}}))
	for {
		var item pb.WorkItem
		err := stream.RecvMsg(&item)
		if err == io.EOF {
			return
		}
		check(err)
		if assigned := item.GetAssigned(); assigned != nil {
			for _, word := range strings.Fields(string(assigned.Data)) {
				output := &pb.Output{Data: []byte(strings.ToUpper(word))}
				check(stream.SendMsg(&pb.WorkEvent{Job: item.Job, Event: &pb.WorkEvent_Output{Output: output}}))
			}
			check(stream.SendMsg(&pb.WorkEvent{Job: item.Job, Event: &pb.WorkEvent_End{End: &pb.End{}}}))
		} else if settled := item.GetSettled(); settled != nil && settled.Status == 0 {
			if count--; count == 0 {
				check(stream.CloseSend())
			}
		}
	}
}

// What by keys is the value of a job, and of an answer.
type message struct {
	V       int     `json:"v"`
	TtlMs   int     `json:"ttl_ms,omitempty"`
	ReplyTo string  `json:"reply_to,omitempty"`
	Data    *string `json:"data,omitempty"`
	Final   bool    `json:"final,omitempty"`
	Error   *struct{ Code, Reason string }
}

func etcd() *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}})
	check(err)
	return client
}

func put(client *clientv3.Client, key string, m message) {
	value, err := json.Marshal(m)
	check(err)
	_, err = client.Put(context.Background(), key, string(value))
	check(err)
}

func uuid() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	check(err)
	return strings.TrimSpace(string(text))
}

// Calls take for each message that comes to the consumer, until it says true.
func consume(client *clientv3.Client, queue string, ready func(), take func(key string, m message) bool) {
	ctx := clientv3.WithRequireLeader(context.Background())
	events := client.Watch(ctx, "/q/"+queue+"/consumer/"+uuid(), clientv3.WithCreatedNotify())
	for answer := range events {
		check(answer.Err())
		if answer.Created {
			ready()
		}
		for _, event := range answer.Events {
			if event.Type != clientv3.EventTypePut {
				continue // nobody waits for that job any more
			}
			var m message
			check(json.Unmarshal(event.Kv.Value, &m))
			if take(string(event.Kv.Key), m) {
				return
			}
		}
	}
}

func runKeys() {
	client, reply := etcd(), "reply-"+uuid()
	job := message{V: 1, TtlMs: 20000, ReplyTo: reply, Data: &what}
	consume(client, reply, func() { put(client, "/q/"+queue+"/producer/"+uuid(), job) },
		func(_ string, m message) bool {
			if m.Error != nil {
				log.Fatalf("%s: %s", m.Error.Code, m.Error.Reason)
			}
			if m.Data != nil {
				fmt.Println(*m.Data)
			}
			return m.Final
		})
}

func workKeys(count int) {
	client := etcd()
	consume(client, queue, func() {}, func(key string, m message) bool {
		answer := "/q/" + m.ReplyTo + "/producer/" + key[strings.LastIndex(key, "/")+1:]
		for _, word := range strings.Fields(*m.Data) {
			upper := strings.ToUpper(word)
			put(client, answer, message{V: 1, Data: &upper})
		}
		put(client, answer, message{V: 1, Final: true})
		count--
		return count == 0
	})
}

func main() {
	count, _ := strconv.Atoi(what)
	switch act + " " + way {
	case "run native":
		runNative()
	case "work native":
		workNative(count)
	case "run keys":
		runKeys()
	case "work keys":
		workKeys(count)
	}
}
