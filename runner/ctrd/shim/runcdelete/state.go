package runcdelete

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// state is runc's state.json, with all fields that runc 1.1 to 1.5 write: an unknown field may be something that a newer runc must clean
// up.
type state struct {
	ID        string            `json:"id"`
	Pid       int               `json:"init_process_pid"`
	StartTime uint64            `json:"init_process_start"`
	Config    config            `json:"config"`
	Cgroups   map[string]string `json:"cgroup_paths"`
	Rootless  bool              `json:"rootless"`
	RDT       string            `json:"intel_rdt_path"`
	RDTMon    string            `json:"intel_rdt_mon_path"`

	Created     ignored `json:"created"`
	Namespaces  ignored `json:"namespace_paths"`
	Descriptors ignored `json:"external_descriptors"`
}

// ignored is a value that does not matter for deleting.
type ignored struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*ignored) UnmarshalJSON([]byte) error { return nil }

// config is the part of a container's configuration that matters for deleting.
type config struct {
	Namespaces []namespace `json:"namespaces"`
	Cgroups    struct {
		Path    string `json:"path"`
		Systemd bool   `json:"Systemd"`
	} `json:"cgroups"`
	Hooks struct {
		Poststop []json.RawMessage `json:"poststop"`
	} `json:"Hooks"`
	IntelRDT        *ignored `json:"intel_rdt"`
	RootlessEUID    bool     `json:"rootless_euid"`
	RootlessCgroups bool     `json:"rootless_cgroups"`
}

type namespace struct {
	Type string `json:"type"`
	Path string `json:"path"`
}

// UnmarshalJSON implements json.Unmarshaler. Unlike in the state, unknown fields are accepted: most of a configuration only concerns
// processes, which have exited.
func (c *config) UnmarshalJSON(text []byte) error {
	type plain config
	return json.Unmarshal(text, (*plain)(c))
}

// plan is what must be deleted in addition to the state directory, and the process that must have exited.
type plan struct {
	pid       int
	startTime uint64
	// cgroups are directories, each once.
	cgroups []string
}

// newPlan returns an error if a container must be deleted by runc, with the reason.
func newPlan(id string, text []byte) (plan, error) {
	var s state
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return plan{}, fmt.Errorf("state.json: %w", err)
	}
	c := &s.Config
	private := slices.Contains(c.Namespaces, namespace{Type: "NEWPID"})
	switch {
	case s.ID != id:
		return plan{}, fmt.Errorf("state.json is of container %q", s.ID)
	case s.Pid <= 0 || s.StartTime == 0:
		return plan{}, errors.New("no init process")
	case !private:
		return plan{}, errors.New("processes may outlive the init process")
	case c.Cgroups.Systemd:
		return plan{}, errors.New("cgroups are systemd's")
	case s.Rootless || c.RootlessEUID || c.RootlessCgroups:
		return plan{}, errors.New("rootless")
	case len(c.Hooks.Poststop) > 0:
		return plan{}, errors.New("poststop hooks")
	case c.IntelRDT != nil || s.RDT != "" || s.RDTMon != "":
		return plan{}, errors.New("intelRdt")
	}
	cgroups, err := cgroupsOf(s.Cgroups, c.Cgroups.Path)
	return plan{pid: s.Pid, startTime: s.StartTime, cgroups: cgroups}, err
}

// maxHierarchies is more than any kernel has.
const maxHierarchies = 64

// cgroupsOf returns the directories of a container's cgroups, which are at path in each hierarchy.
func cgroupsOf(paths map[string]string, path string) ([]string, error) {
	if !clean(path) || len(paths) == 0 || len(paths) > maxHierarchies {
		return nil, fmt.Errorf("unexpected cgroups: %d at %q", len(paths), path)
	}
	dirs := make([]string, 0, len(paths))
	for _, dir := range paths {
		if !clean(dir) || !strings.HasSuffix(dir, path) {
			return nil, fmt.Errorf("unexpected cgroup %q", dir)
		}
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}

// clean reports whether a path is absolute, normalized, and not the root.
func clean(path string) bool {
	return filepath.IsAbs(path) && path != "/" && filepath.Clean(path) == path
}
