// cdicheck loads directories of CDI specs with the reference library, as a container runtime does, and prints one JSON
// object for each: the names that can be resolved, and the errors of each file.
//
//	cdicheck DIRECTORY...
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

type verdict struct {
	Devices []string            `json:"devices"`
	Errors  map[string][]string `json:"errors"`
}

func main() {
	for _, directory := range os.Args[1:] {
		cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(directory))
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
		if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
