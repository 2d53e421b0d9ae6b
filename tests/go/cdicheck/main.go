// cdicheck loads a directory of CDI specs with the reference library and says what it made of them.
//
//	cdicheck DIRECTORY [NAME...]
//
// It prints one JSON object: the names that can be resolved, the errors of each file, and, for the given names, the
// container that they make.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

type verdict struct {
	Devices    []string            `json:"devices"`
	Errors     map[string][]string `json:"errors"`
	Unresolved []string            `json:"unresolved"`
	Problem    string              `json:"problem"`
	Container  *oci.Spec           `json:"container"`
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: cdicheck DIRECTORY [NAME...]")
		os.Exit(2)
	}
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(os.Args[1]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	found := verdict{Devices: cache.ListDevices(), Errors: map[string][]string{}}
	for path, problems := range cache.GetErrors() {
		for _, problem := range problems {
			found.Errors[path] = append(found.Errors[path], problem.Error())
		}
	}
	if names := os.Args[2:]; len(names) > 0 {
		container := &oci.Spec{}
		found.Unresolved, err = cache.InjectDevices(container, names...)
		if err != nil {
			found.Problem = err.Error()
		} else {
			found.Container = container
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
