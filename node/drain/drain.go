// Package drain decides which pods a drain or a cordon keeps from running, and in which order pods are stopped.
//
// It owns the file with the last request. It must not stop anything itself. It has no goroutines.
package drain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"time"

	"monopod/internal/atomicfile"
	"monopod/manifests"
)

// State is the last request of a user. The zero State: every pod may run.
type State struct {
	// Cordoned keeps pods out that are not there yet.
	Cordoned bool `json:"cordoned,omitempty"`
	// Drain stops those that are; nil: none. It has Cordoned set.
	Drain *Drain `json:"drain,omitempty"`
	// Since is when it was requested, by a clock that may have been wrong. It is only shown.
	Since time.Time `json:"since,omitzero"`
	// Boot is the boot of the machine that it counts for; empty: all.
	Boot string `json:"boot,omitempty"`
}

// Drain says which pods are stopped.
type Drain struct {
	// PriorityBelow spares pods of that priority and above; nil: none.
	PriorityBelow *int32 `json:"priorityBelow,omitempty"`
	// Ignore spares pods by patterns of their names, NAME or NAMESPACE/NAME with * and ?.
	Ignore []string `json:"ignore,omitempty"`
}

// Check finds patterns that are none.
func (d *Drain) Check() error {
	for _, p := range d.Ignore {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("%q is not a pattern; write NAME or NAMESPACE/NAME, with * and ? for any characters and any one", p)
		}
	}
	return nil
}

// Stops reports whether a drain stops a pod of a priority.
func (s *State) Stops(key manifests.Key, priority int32) bool {
	d := s.Drain
	if d == nil || d.PriorityBelow != nil && priority >= *d.PriorityBelow {
		return false
	}
	return !slices.ContainsFunc(d.Ignore, func(pattern string) bool { return matches(pattern, key) })
}

func matches(pattern string, key manifests.Key) bool {
	for _, name := range []string{key.Name, key.String()} {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}

// Store keeps a State in a file.
type Store struct {
	path string
	boot string
}

// NewStore returns the Store of a file for a boot of the machine. It does no I/O.
func NewStore(file, boot string) *Store { return &Store{path: file, boot: boot} }

// Load returns the last request that still applies. A file that cannot be read counts as none, so that a damaged file does not stop pods.
func (s *Store) Load() (State, error) {
	b, err := atomicfile.Read(s.path, atomicfile.MaxState)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	var st State
	if err == nil {
		err = json.Unmarshal(b, &st)
	}
	if err != nil {
		return State{}, fmt.Errorf("read the drain state: %w", err)
	}
	if st.Boot != "" && st.Boot != s.boot {
		return State{}, nil
	}
	return st, nil
}

// Save keeps a State, also over a power cut.
func (s *Store) Save(st State) error {
	if !st.Cordoned && st.Drain == nil {
		if err := atomicfile.Remove(s.path); err != nil {
			return err
		}
		return atomicfile.SyncDir(filepath.Dir(s.path))
	}
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return atomicfile.Write(s.path, append(b, '\n'), 0o600)
}

// Boot is the boot that this Store is used in.
func (s *Store) Boot() string { return s.boot }
