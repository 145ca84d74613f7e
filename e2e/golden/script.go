// Package golden sends the same requests to two Kubernetes API servers, and compares the responses.
//
// It must only be used by tests. It must not know what the differences mean: the allow-list does.
//
// Goroutines: none.
package golden

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// Step is one request of a script.
type Step struct {
	// Name is unique; if empty, it is Do and As.
	Name string `json:"name"`
	// Do is the method and the path. Each in it, and in Name, Body and Save, is replaced by each value of Each.
	Do   string   `json:"do"`
	Each []string `json:"each"`
	// As is the accepted format: json, yaml, protobuf, Table, or a media type. Type is the type of the body: json, yaml, protobuf, merge,
	// strategic, jsonpatch, apply, or a media type.
	As   string `json:"as"`
	Type string `json:"type"`
	// Body is an object, or a text that is sent unchanged. ${NAME:PATH} is the value of a field of a saved response.
	Body json.RawMessage `json:"body"`
	// Save is the name under which the response is saved.
	Save string `json:"save"`
	// Code is the expected code from Kubernetes; 0 means 201 for POST and otherwise 200.
	Code int `json:"code"`
	// After is the expected code from Kubernetes for the read after an update or patch; 0 means 200, and 404 after the dry run of a create.
	After int `json:"after"`
	// Watch is the number of events to read.
	Watch int `json:"watch"`
	// Only is the only server that gets the request; the response is not compared.
	Only string `json:"only"`
	// Until repeats the request until the response has Code.
	Until bool `json:"until"`
}

// Load reads the scripts of a directory, in the order of their names: all files but allowed.yaml. After each update and patch it adds a step
// that reads the object back, whether or not the request succeeded.
func Load(dir string) ([]Step, error) {
	files, err := filepath.Glob(filepath.Join(dir, "[0-9]*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []Step
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var steps []Step
		if err := yaml.UnmarshalStrict(text, &steps); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for i := range steps {
			expanded, err := steps[i].expand()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			for _, one := range expanded {
				all = append(all, append([]Step{one}, one.readBack()...)...)
			}
		}
	}
	return all, unique(all)
}

// expand returns a step for each value of Each.
func (s *Step) expand() ([]Step, error) {
	if len(s.Each) == 0 {
		return []Step{s.named()}, nil
	}
	if !strings.Contains(s.Do+string(s.Body)+s.As, "$each") {
		return nil, fmt.Errorf("%s has values that it does not use", s.Do)
	}
	var all []Step
	for _, value := range s.Each {
		plain := fmt.Sprint(value)
		replace := func(in string) string { return strings.ReplaceAll(in, "$each", plain) }
		one := *s
		one.Name, one.Do, one.As, one.Save, one.Each = replace(s.Name), replace(s.Do), replace(s.As), replace(s.Save), nil
		if s.Name != "" && one.Name == s.Name {
			one.Name += " " + plain
		}
		one.Body = json.RawMessage(replace(string(s.Body)))
		all = append(all, one.named())
	}
	return all, nil
}

func (s Step) named() Step {
	if s.Name == "" {
		s.Name = strings.TrimSpace(s.Do + " " + s.As)
	}
	if method, _, _ := strings.Cut(s.Do, " "); s.Code == 0 {
		if s.Code = http.StatusOK; method == http.MethodPost {
			s.Code = http.StatusCreated
		}
	}
	return s
}

// readBack returns the step that reads what an update or patch stored: nothing if the object does not exist, or the method is not served.
func (s *Step) readBack() []Step {
	method, path, _ := strings.Cut(s.Do, " ")
	if s.Until || method != http.MethodPatch && method != http.MethodPut || s.Code == http.StatusNotFound || s.Code == http.StatusMethodNotAllowed {
		return nil
	}
	path, query, _ := strings.Cut(path, "?")
	for _, sub := range []string{"/scale", "/status", "/resize", "/ephemeralcontainers"} {
		path = strings.TrimSuffix(path, sub)
	}
	after := Step{Name: "after " + s.Name, Do: http.MethodGet + " " + path, Only: s.Only, Code: s.After}
	if after.Code == 0 {
		after.Code = http.StatusOK
	}
	if s.Code == http.StatusCreated && strings.Contains(query, "dryRun") {
		after.Code = http.StatusNotFound
	}
	return []Step{after}
}

// unique checks that all steps have different names.
func unique(all []Step) error {
	seen := map[string]bool{}
	for i := range all {
		if seen[all[i].Name] {
			return fmt.Errorf("two steps are called %q", all[i].Name)
		}
		seen[all[i].Name] = true
	}
	return nil
}
