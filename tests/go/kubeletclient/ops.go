package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

var ops = map[string]op{
	"listen":     opListen,
	"die":        opDie,
	"drain":      opDrain,
	"restart":    opRestart,
	"connect":    opConnect,
	"drop":       opDrop,
	"registered": opRegistered,
	"listed":     opListed,
	"sickened":   opSickened,
	"ended":      opEnded,
	"devices":    opDevices,
	"options":    opOptions,
	"preferred":  opPreferred,
	"prefer":     opPrefer,
	"prestart":   opPreStart,
	"allocate":   opAllocate,
	"admit":      opAdmit,
	"flight":     opFlight,
	"watch":      opWatch,
	"invoke":     opInvoke,
}

type object = map[string]any

func opListen(_ context.Context, k *kubelet, _ *request) (any, error) {
	at, err := k.listen()
	return object{"listening_ns": at}, err
}

func opDie(_ context.Context, k *kubelet, _ *request) (any, error) {
	k.die()
	return object{"at_ns": monotonicNs()}, nil
}

// opDrain sends GOAWAY on every connection of kubelet.sock and lets what is under way finish.
func opDrain(_ context.Context, k *kubelet, _ *request) (any, error) {
	k.mu.Lock()
	server := k.server
	k.mu.Unlock()
	if server == nil {
		return nil, errors.New("kubelet.sock is not being served")
	}
	go server.GracefulStop()
	return nil, nil
}

// opRestart is a kubelet's restart as plugins see it: connections drop; later all sockets vanish and kubelet.sock is new.
func opRestart(_ context.Context, k *kubelet, r *request) (any, error) {
	k.die()
	time.Sleep(seconds(r.DownS))
	at, err := k.listen()
	return object{"listening_ns": at}, err
}

// opConnect goes to a plugin's socket without waiting for it to register.
func opConnect(ctx context.Context, k *kubelet, r *request) (any, error) {
	e, err := k.connect(ctx, r.Resource, r.Socket)
	return e, err
}

// opDrop closes one plugin's connection from our side.
func opDrop(_ context.Context, k *kubelet, r *request) (any, error) {
	e, err := k.find(r.Resource)
	if err != nil {
		return nil, err
	}
	return nil, e.conn.Close()
}

func opRegistered(ctx context.Context, k *kubelet, r *request) (any, error) {
	return k.wait(ctx, r.Resource, func(e *endpoint) (bool, error) { return e.Generation > r.After, nil })
}

// opListed waits for a number of list messages, one unless told, and describes the last.
func opListed(ctx context.Context, k *kubelet, r *request) (any, error) {
	e, err := k.wait(ctx, r.Resource, func(e *endpoint) (bool, error) {
		if e.Generation <= r.After {
			return false, nil
		}
		if e.frames >= max(1, r.Frames) {
			return true, nil
		}
		return false, e.watchErr
	})
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return object{
		"generation": e.Generation,
		"watch_ns":   e.watchNs,
		"frame_ns":   e.frameNs,
		"frames":     e.frames,
		"devices":    len(e.last.Devices),
		"healthy":    e.healthy(),
		"bytes":      proto.Size(e.last),
	}, nil
}

// opSickened waits for a list with no more than so many healthy devices and says when it came.
func opSickened(ctx context.Context, k *kubelet, r *request) (any, error) {
	e, err := k.wait(ctx, r.Resource, func(e *endpoint) (bool, error) {
		return e.frames > 0 && e.healthy() <= r.Healthy, e.watchErr
	})
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return object{"at_ns": e.lastNs, "healthy": e.healthy()}, nil
}

// opEnded waits until the list stream has ended and gives its status as the error.
func opEnded(ctx context.Context, k *kubelet, r *request) (any, error) {
	_, err := k.wait(ctx, r.Resource, func(e *endpoint) (bool, error) { return false, e.watchErr })
	return object{"at_ns": monotonicNs()}, err
}

func opDevices(_ context.Context, k *kubelet, r *request) (any, error) {
	e, err := k.find(r.Resource)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return plain(e.last)
}

func opOptions(ctx context.Context, k *kubelet, r *request) (any, error) {
	e, err := k.find(r.Resource)
	if err != nil {
		return nil, err
	}
	ctx, cancel := limit(ctx, r)
	defer cancel()
	options, err := e.client.GetDevicePluginOptions(ctx, &pluginapi.Empty{})
	if err != nil {
		return nil, err
	}
	return plain(options)
}

func preferredRequest(r *request) *pluginapi.PreferredAllocationRequest {
	return &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{
			{AvailableDeviceIDs: r.Available, MustIncludeDeviceIDs: r.Must, AllocationSize: r.Size},
		},
	}
}

func allocateRequest(ids []string) *pluginapi.AllocateRequest {
	return &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}},
	}
}

func opPreferred(ctx context.Context, k *kubelet, r *request) (any, error) {
	e, err := k.find(r.Resource)
	if err != nil {
		return nil, err
	}
	ctx, cancel := limit(ctx, r)
	defer cancel()
	response, err := e.client.GetPreferredAllocation(ctx, preferredRequest(r))
	if err != nil {
		return nil, err
	}
	return plain(response)
}

// opPrefer asks the same question count times, one after the other, and gives the spread of the answers.
func opPrefer(ctx context.Context, k *kubelet, r *request) (any, error) {
	e, err := k.find(r.Resource)
	if err != nil {
		return nil, err
	}
	ask := preferredRequest(r)
	call := func(ctx context.Context) error {
		response, err := e.client.GetPreferredAllocation(ctx, ask)
		if err == nil && (len(response.ContainerResponses) != 1 || len(response.ContainerResponses[0].DeviceIDs) != int(r.Size)) {
			err = fmt.Errorf("%d devices expected, the answer is %v", r.Size, response.ContainerResponses)
		}
		return err
	}
	if _, err := repeat(ctx, r.Warmup, call); err != nil {
		return nil, err
	}
	s, err := repeat(ctx, max(1, r.Count), call)
	return object{"spread": s}, err
}

func opPreStart(ctx context.Context, k *kubelet, r *request) (any, error) {
	e, err := k.find(r.Resource)
	if err != nil {
		return nil, err
	}
	ctx, cancel := limit(ctx, r)
	defer cancel()
	_, err = e.client.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: r.IDs})
	return nil, err
}

// opAllocate makes count calls, one after the other, and gives their spread and the last response.
func opAllocate(ctx context.Context, k *kubelet, r *request) (any, error) {
	e, err := k.find(r.Resource)
	if err != nil {
		return nil, err
	}
	var last *pluginapi.AllocateResponse
	ask := allocateRequest(r.IDs)
	call := func(ctx context.Context) error {
		ctx, cancel := limit(ctx, r)
		defer cancel()
		response, err := e.client.Allocate(ctx, ask)
		if err == nil {
			last = response
		}
		return err
	}
	if _, err := repeat(ctx, r.Warmup, call); err != nil {
		return nil, err
	}
	s, err := repeat(ctx, max(1, r.Count), call)
	response, plainErr := plain(last)
	if plainErr != nil {
		return nil, plainErr
	}
	return object{"spread": s, "response": response}, err
}

// opAdmit is what the kubelet does for a container: ask for a preference among the available, allocate that.
func opAdmit(ctx context.Context, k *kubelet, r *request) (any, error) {
	e, err := k.find(r.Resource)
	if err != nil {
		return nil, err
	}
	ask := preferredRequest(r)
	call := func(ctx context.Context) error {
		preferred, err := e.client.GetPreferredAllocation(ctx, ask)
		if err != nil {
			return err
		}
		if len(preferred.ContainerResponses) != 1 {
			return fmt.Errorf("%d container responses, 1 expected", len(preferred.ContainerResponses))
		}
		ids := preferred.ContainerResponses[0].DeviceIDs
		if len(ids) != int(r.Size) {
			return fmt.Errorf("%d devices preferred, %d expected", len(ids), r.Size)
		}
		_, err = e.client.Allocate(ctx, allocateRequest(ids))
		return err
	}
	if _, err := repeat(ctx, r.Warmup, call); err != nil {
		return nil, err
	}
	s, err := repeat(ctx, max(1, r.Count), call)
	return object{"spread": s}, err
}

func opFlight(ctx context.Context, k *kubelet, r *request) (any, error) {
	e, err := k.find(r.Resource)
	if err != nil {
		return nil, err
	}
	ask := allocateRequest(r.IDs)
	got, err := flight(ctx, max(1, r.InFlight), r.Count, seconds(r.DurationS), func(ctx context.Context) error {
		response, err := e.client.Allocate(ctx, ask)
		if err == nil && len(response.ContainerResponses) != 1 {
			err = fmt.Errorf("%d container responses, 1 expected", len(response.ContainerResponses))
		}
		return err
	})
	return got, err
}

// opWatch opens one more ListAndWatch, reads the wanted frames, then lets the deadline or the cancellation end it.
func opWatch(ctx context.Context, k *kubelet, r *request) (any, error) {
	e, err := k.find(r.Resource)
	if err != nil {
		return nil, err
	}
	ctx, cancel := limit(ctx, r)
	defer cancel()
	start := time.Now()
	stream, err := e.client.ListAndWatch(ctx, &pluginapi.Empty{})
	if err != nil {
		return nil, err
	}
	frames, devices, bytes, firstUs := 0, 0, 0, 0.0
	for frames < max(1, r.Frames) {
		list, err := stream.Recv()
		if err != nil {
			return object{"frames": frames}, err
		}
		if frames == 0 {
			firstUs = micros(time.Since(start))
		}
		frames++
		devices, bytes = len(list.Devices), proto.Size(list)
	}
	return object{"frames": frames, "devices": devices, "bytes": bytes, "first_us": firstUs}, nil
}

// opInvoke calls any method by its full path with an empty message, for methods that do not exist.
func opInvoke(ctx context.Context, k *kubelet, r *request) (any, error) {
	e, err := k.find(r.Resource)
	if err != nil {
		return nil, err
	}
	ctx, cancel := limit(ctx, r)
	defer cancel()
	return nil, e.conn.Invoke(ctx, r.Method, &emptypb.Empty{}, &emptypb.Empty{})
}

// limit puts the wanted deadline or cancellation on one call.
func limit(ctx context.Context, r *request) (context.Context, context.CancelFunc) {
	if r.DeadlineS > 0 {
		return context.WithTimeout(ctx, seconds(r.DeadlineS))
	}
	ctx, cancel := context.WithCancel(ctx)
	if r.CancelS > 0 {
		timer := time.AfterFunc(seconds(r.CancelS), cancel)
		return ctx, func() { timer.Stop(); cancel() }
	}
	return ctx, cancel
}

// plain turns a message into JSON by the official mapping.
func plain(m proto.Message) (json.RawMessage, error) {
	return protojson.Marshal(m)
}
