package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// dialTimeout is the kubelet's own bound on dialling a plugin back during registration.
const dialTimeout = 10 * time.Second

// monotonicNs reads the clock that other processes on this machine can read too.
func monotonicNs() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // cannot happen on Linux
	}
	return ts.Nano()
}

// endpoint is one registration of one resource: a connection to a plugin and what it told us.
type endpoint struct {
	Resource   string `json:"resource"`
	Generation int    `json:"generation"`
	Socket     string `json:"socket"`
	// RegisteredNs is taken when the callbacks inside Register are done and it is about to answer.
	RegisteredNs int64                          `json:"registered_ns"`
	Options      *pluginapi.DevicePluginOptions `json:"-"`

	conn   *grpc.ClientConn
	client pluginapi.DevicePluginClient

	// What ListAndWatch brought; guarded by kubelet.mu.
	watchNs  int64
	frameNs  int64 // when the first list was here
	lastNs   int64 // and the last
	frames   int
	last     *pluginapi.ListAndWatchResponse
	watchErr error
}

// kubelet plays the device manager's part towards plugins: it serves Registration, dials back inside the call,
// asks for the options, and follows ListAndWatch from then on.
type kubelet struct {
	pluginapi.UnimplementedRegistrationServer

	dir string

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced at each change, so that any number of waiters wake
	server     *grpc.Server
	endpoints  map[string]*endpoint
	generation int
}

func newKubelet(dir string) *kubelet {
	return &kubelet{dir: dir, changed: make(chan struct{}), endpoints: map[string]*endpoint{}}
}

// notify wakes the waiters. The caller holds mu.
func (k *kubelet) notify() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// wait returns the first endpoint of the resource for which ready holds.
func (k *kubelet) wait(ctx context.Context, resource string, ready func(*endpoint) (bool, error)) (*endpoint, error) {
	for {
		k.mu.Lock()
		changed := k.changed
		e := k.endpoints[resource]
		if e != nil {
			if ok, err := ready(e); ok || err != nil {
				k.mu.Unlock()
				return e, err
			}
		}
		k.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %q: %w", resource, context.Cause(ctx))
		}
	}
}

// healthy counts the healthy devices of the last list. The caller holds mu.
func (e *endpoint) healthy() int {
	count := 0
	if e.last != nil {
		for _, d := range e.last.Devices {
			if d.Health == pluginapi.Healthy {
				count++
			}
		}
	}
	return count
}

func (k *kubelet) find(resource string) (*endpoint, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.endpoints[resource]; e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("no plugin is connected for %q", resource)
}

// listen does what a starting kubelet does: it clears the directory of sockets and serves kubelet.sock.
// It returns the instant at which the socket accepts connections.
func (k *kubelet) listen() (int64, error) {
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		if entry.Type()&os.ModeSocket != 0 {
			if err := os.Remove(filepath.Join(k.dir, entry.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
				return 0, err
			}
		}
	}
	lis, err := net.Listen("unix", filepath.Join(k.dir, "kubelet.sock"))
	if err != nil {
		return 0, err
	}
	at := monotonicNs()
	// A process that dies leaves its socket file behind; so does this one.
	lis.(*net.UnixListener).SetUnlinkOnClose(false)
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, k)
	k.mu.Lock()
	k.server = server
	k.mu.Unlock()
	go func() { _ = server.Serve(lis) }()
	return at, nil
}

// die closes everything at once, as the end of the process would, and leaves kubelet.sock behind.
func (k *kubelet) die() {
	k.mu.Lock()
	server, endpoints := k.server, k.endpoints
	k.server, k.endpoints = nil, map[string]*endpoint{}
	k.notify()
	k.mu.Unlock()
	if server != nil {
		server.Stop()
	}
	for _, e := range endpoints {
		_ = e.conn.Close()
	}
}

// Register answers as kubelet 1.36 does, with its error texts; each becomes UNKNOWN on the wire.
func (k *kubelet) Register(ctx context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	if r.Version != pluginapi.Version {
		return nil, fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q",
			r.Version, pluginapi.SupportedVersions)
	}
	if name := strings.Split(r.ResourceName, "/"); len(name) != 2 || name[0] == "" || name[1] == "" {
		return nil, fmt.Errorf("the ResourceName %q is invalid", r.ResourceName)
	}
	if _, err := k.connect(ctx, r.ResourceName, filepath.Join(k.dir, r.Endpoint)); err != nil {
		return nil, err
	}
	return &pluginapi.Empty{}, nil
}

// connect dials a plugin, asks for its options and starts to follow its list.
func (k *kubelet) connect(ctx context.Context, resource, socket string) (*endpoint, error) {
	conn, err := dial(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("failed to dial device plugin: %w", err)
	}
	client := pluginapi.NewDevicePluginClient(conn)
	options, err := client.GetDevicePluginOptions(ctx, &pluginapi.Empty{})
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("failed to get device plugin options: %w", err)
	}
	e := &endpoint{Resource: resource, Socket: socket, Options: options, conn: conn, client: client}
	k.mu.Lock()
	k.generation++
	e.Generation, e.RegisteredNs = k.generation, monotonicNs()
	k.endpoints[resource] = e
	k.notify()
	k.mu.Unlock()
	go k.follow(e)
	return e, nil
}

// follow reads ListAndWatch until it ends; the kubelet never opens it a second time.
func (k *kubelet) follow(e *endpoint) {
	fail := func(err error) {
		k.mu.Lock()
		e.watchErr = err
		k.notify()
		k.mu.Unlock()
		_ = e.conn.Close()
	}
	k.mu.Lock()
	e.watchNs = monotonicNs()
	k.mu.Unlock()
	stream, err := e.client.ListAndWatch(context.Background(), &pluginapi.Empty{})
	if err != nil {
		fail(err)
		return
	}
	for {
		list, err := stream.Recv()
		at := monotonicNs()
		if err != nil {
			fail(err)
			return
		}
		k.mu.Lock()
		if e.frames == 0 {
			e.frameNs = at
		}
		e.frames++
		e.last, e.lastNs = list, at
		k.notify()
		k.mu.Unlock()
	}
}

// dial connects like the kubelet: plaintext, authority localhost, blocking for at most ten seconds.
func dial(ctx context.Context, socket string) (*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	//nolint:staticcheck // the kubelet's own, deprecated call: its timing is part of what is measured
	return grpc.DialContext(ctx, socket,
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithBlock(),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", addr)
		}),
	)
}
