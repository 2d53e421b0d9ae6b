// Command emptyplugin is the least a device plugin can be, in Go: a fixed list of devices, one environment variable for
// each Allocate, and a new registration whenever kubelet.sock is made again. It is a yardstick, and a peer for clients.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	devices []*pluginapi.Device
	stop    chan struct{}
}

func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (p *plugin) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	select {
	case <-stream.Context().Done():
	case <-p.stop:
	}
	return nil
}

func (p *plugin) GetPreferredAllocation(
	_ context.Context, r *pluginapi.PreferredAllocationRequest,
) (*pluginapi.PreferredAllocationResponse, error) {
	response := &pluginapi.PreferredAllocationResponse{}
	for _, c := range r.ContainerRequests {
		ids := c.AvailableDeviceIDs[:min(int(c.AllocationSize), len(c.AvailableDeviceIDs))]
		response.ContainerResponses = append(response.ContainerResponses,
			&pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return response, nil
}

func (p *plugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{"VISIBLE_DEVICES": strings.Join(c.DevicesIds, ",")},
		})
	}
	return response, nil
}

// serve binds the plugin's socket, serves on it and registers. The returned function ends the serving.
func serve(dir, endpoint, resource string, devices []*pluginapi.Device) (func(), error) {
	socket := filepath.Join(dir, endpoint)
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	lis, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	p := &plugin{devices: devices, stop: make(chan struct{})}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(lis) }()
	end := func() {
		close(p.stop)
		server.Stop()
	}
	if err := register(dir, endpoint, resource); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

func register(dir, endpoint, resource string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: endpoint, ResourceName: resource,
	})
	return err
}

func run(dir, endpoint, resource string, count int) error {
	devices := make([]*pluginapi.Device, count)
	for i := range devices {
		devices[i] = &pluginapi.Device{ID: fmt.Sprintf("dev-%d", i), Health: pluginapi.Healthy}
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	if err := watcher.Add(dir); err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)

	kubelet := filepath.Join(dir, "kubelet.sock")
	end := func() {}
	defer func() { end() }()
	var retry <-chan time.Time
	start := func() {
		end()
		retry = nil
		stop, err := serve(dir, endpoint, resource, devices)
		if err != nil {
			// The socket's file is there an instant before it accepts; ask again soon.
			log.Printf("not registered: %v", err)
			end, retry = func() {}, time.After(2*time.Millisecond)
			return
		}
		end = stop
	}
	if _, err := os.Stat(kubelet); err == nil {
		start()
	}
	for {
		select {
		case <-signals:
			return nil
		case <-retry:
			start()
		case event := <-watcher.Events:
			if event.Name == kubelet && event.Has(fsnotify.Create) {
				start()
			}
		case err := <-watcher.Errors:
			return err
		}
	}
}

func main() {
	dir := flag.String("dir", pluginapi.DevicePluginPath, "the device-plugin directory")
	endpoint := flag.String("endpoint", "empty.sock", "the name of the plugin's socket in it")
	resource := flag.String("resource", "example.com/empty", "the resource to register")
	count := flag.Int("devices", 8, "how many devices to list")
	flag.Parse()
	if err := run(*dir, *endpoint, *resource, *count); err != nil {
		log.Fatal(err)
	}
}
