// Package schedulerperf runs Kubernetes' own scheduler_perf, unchanged, on performance-config.yaml in the directory that
// it is started in. If EXTENDER names a command, it is started once the API server of the test is there, and the first
// node is created when it says that it is ready.
package schedulerperf

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/ktesting"
)

const (
	patience = time.Minute
	look     = 50 * time.Millisecond
)

func TestMain(m *testing.M) {
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func BenchmarkPerfScheduling(b *testing.B) {
	perf.RunBenchmarkPerfScheduling(b, "performance-config.yaml", "extender", nil, perf.WithPrepareFn(prepare))
}

func prepare(tCtx ktesting.TContext) error {
	told := os.Getenv("EXTENDER") // a JSON list of words
	if told == "" {
		return nil
	}
	var words []string
	if err := json.Unmarshal([]byte(told), &words); err != nil {
		return fmt.Errorf("EXTENDER is %q: %w", told, err)
	}
	if err := writeKubeconfig(tCtx.RESTConfig(), os.Getenv("KUBECONFIG")); err != nil {
		return err
	}
	log, err := os.Create("extender.log")
	if err != nil {
		return err
	}
	command := exec.Command(words[0], words[1:]...)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return err
	}
	tCtx.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
		_ = log.Close()
	})
	return untilReady(os.Getenv("EXTENDER_READY"))
}

// writeKubeconfig gives the extender the rights of the test itself. The certificate of the API server is made out to a
// name that only its own clients ask for.
func writeKubeconfig(config *rest.Config, path string) error {
	made := api.NewConfig()
	made.Clusters["c"] = &api.Cluster{Server: config.Host, InsecureSkipTLSVerify: true}
	made.AuthInfos["u"] = &api.AuthInfo{Token: config.BearerToken}
	made.Contexts["x"] = &api.Context{Cluster: "c", AuthInfo: "u"}
	made.CurrentContext = "x"
	return clientcmd.WriteToFile(*made, path)
}

func untilReady(url string) error {
	// A connection that is kept would be a leak in the eyes of scheduler_perf.
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(look) {
		if answer, err := client.Get(url); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
	return fmt.Errorf("the extender is not ready after %s; see extender.log", patience)
}
