// Command kubeletclient plays the kubelet's part towards device plugins, on the kubelet's own stubs and gRPC library.
// It obeys requests, one JSON object per line on stdin, and answers each with one line on stdout. Requests run side by
// side; the answer carries the request's id. It ends when stdin does.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

// request is the union of what the operations take; each reads the fields it needs.
type request struct {
	ID        int      `json:"id"`
	Op        string   `json:"op"`
	Resource  string   `json:"resource"`
	Socket    string   `json:"socket"`
	IDs       []string `json:"ids"`
	Available []string `json:"available"`
	Must      []string `json:"must"`
	Size      int32    `json:"size"`
	Count     int      `json:"count"`
	Warmup    int      `json:"warmup"`
	InFlight  int      `json:"in_flight"`
	Method    string   `json:"method"`
	After     int      `json:"after"`  // a generation: only a newer registration counts
	Frames    int      `json:"frames"` // how many list messages to see
	Healthy   int      `json:"healthy"`
	// TimeoutS bounds the whole operation; DeadlineS is the gRPC deadline put on a call; CancelS cancels it.
	TimeoutS  float64 `json:"timeout_s"`
	DeadlineS float64 `json:"deadline_s"`
	CancelS   float64 `json:"cancel_s"`
	DurationS float64 `json:"duration_s"`
	DownS     float64 `json:"down_s"`
}

// answer is one line on stdout.
type answer struct {
	ID      int    `json:"id"`
	Result  any    `json:"result,omitempty"`
	Error   string `json:"error,omitempty"`
	Code    string `json:"code,omitempty"`    // the gRPC status, where the error is one
	Message string `json:"message,omitempty"` // and its message
}

type op func(ctx context.Context, k *kubelet, r *request) (any, error)

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func main() {
	dir := flag.String("dir", "", "the device-plugin directory; kubelet.sock is made in it by the listen operation")
	flag.Parse()
	if *dir == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: kubeletclient --dir DIR  (requests on stdin, answers on stdout)")
		os.Exit(2)
	}
	k := newKubelet(*dir)
	var (
		out   sync.Mutex
		group sync.WaitGroup
	)
	encoder := json.NewEncoder(os.Stdout)
	send := func(a answer) {
		out.Lock()
		defer out.Unlock()
		if err := encoder.Encode(a); err != nil {
			os.Exit(1) // the driver is gone
		}
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		r := new(request)
		if err := json.Unmarshal(lines.Bytes(), r); err != nil {
			send(answer{ID: r.ID, Error: "malformed request: " + err.Error()})
			continue
		}
		group.Go(func() { send(run(k, r)) })
	}
	k.die()
	group.Wait()
}

func run(k *kubelet, r *request) answer {
	do, known := ops[r.Op]
	if !known {
		return answer{ID: r.ID, Error: fmt.Sprintf("unknown operation %q", r.Op)}
	}
	// Cancelled, not given a deadline: a deadline would travel with every call, and the kubelet sets none.
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if r.TimeoutS > 0 {
		timer := time.AfterFunc(seconds(r.TimeoutS), func() {
			cancel(fmt.Errorf("%s took longer than %g s", r.Op, r.TimeoutS))
		})
		defer timer.Stop()
	}
	result, err := do(ctx, k, r)
	a := answer{ID: r.ID, Result: result}
	if err != nil {
		a.Error = err.Error()
		if s, ok := status.FromError(err); ok {
			a.Code, a.Message = s.Code().String(), s.Message()
		}
	}
	return a
}
