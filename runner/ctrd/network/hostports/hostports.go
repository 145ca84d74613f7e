// Package hostports keeps two monopods of one machine from opening the same port of it, and a pod from taking a port
// on which a process of the machine listens.
//
// It owns one file per sandbox in a directory that all monopods share. A claim is as good as the namespace that it
// names: when that is gone, however the pod or its monopod ended, so is the claim. It must not open ports. It has no
// goroutines.
package hostports

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/internal/atomicfile"
)

// Port is a port of the host.
type Port struct {
	// Protocol is tcp, udp or sctp.
	Protocol string `json:"protocol"`
	// IP is the address of the host; the zero Addr: all.
	IP   netip.Addr `json:"ip,omitzero"`
	Port uint16     `json:"port"`
}

// String is the port as the admission of pods writes it.
func (p Port) String() string {
	s := fmt.Sprintf("%d/%s", p.Port, strings.ToUpper(p.Protocol))
	if p.IP.IsValid() {
		return p.IP.String() + ":" + s
	}
	return s
}

// Overlaps reports whether the two cannot be open at the same time.
func (p Port) Overlaps(o Port) bool {
	return p.Protocol == o.Protocol && p.Port == o.Port && (p.IP == o.IP || everywhere(p.IP) || everywhere(o.IP))
}

func everywhere(a netip.Addr) bool { return !a.IsValid() || a.IsUnspecified() }

// Claim is the ports of one pod.
type Claim struct {
	// Owner names the monopod, by its directory.
	Owner string `json:"owner"`
	// Pod is NAMESPACE/NAME.
	Pod     string `json:"pod"`
	Sandbox string `json:"sandbox"`
	// Pin is the path of a namespace that exists as long as the pod does.
	Pin   string `json:"pin"`
	Ports []Port `json:"ports"`
}

// Process is a process of this machine that listens.
type Process struct {
	Port Port
	// Name and PID are empty when they are not known.
	Name string
	PID  int
}

// HeldError says that a port is another's.
type HeldError struct {
	Port Port
	// Pod and Owner are set when a pod of another monopod has it, Process otherwise.
	Pod, Owner string
	Process    Process
}

// Error implements error.
func (e *HeldError) Error() string {
	switch {
	case e.Pod != "":
		return fmt.Sprintf("host port %s is taken by pod %s of another monopod (%s)", e.Port, e.Pod, e.Owner)
	case e.Process.PID > 0:
		return fmt.Sprintf("host port %s is taken by process %s (pid %d) of this machine, which listens on %s", e.Port, e.Process.Name, e.Process.PID, e.Process.Port)
	}
	return fmt.Sprintf("host port %s is taken: something on this machine listens on %s", e.Port, e.Process.Port)
}

// Store is the claims of this machine, as one monopod sees them.
type Store struct {
	dir, owner string
	// listeners lists the processes that listen on the ports wanted.
	listeners func(wanted func(port int) bool) ([]Process, error)
}

// New returns a Store; without a directory it lets everything pass. It does no I/O.
func New(dir, owner string, listeners func(wanted func(port int) bool) ([]Process, error)) *Store {
	return &Store{dir: dir, owner: owner, listeners: listeners}
}

// maxClaim bounds a file: a pod has a hundred ports at most.
const maxClaim = 1 << 20

// Take claims ports, unless another monopod or, if listening says to look for it, a process has one of them; that is a
// *HeldError. Own claims of other pods are no obstacle: the admission of pods knows more about them.
func (s *Store) Take(c Claim, listening bool) error {
	if s.dir == "" || len(c.Ports) == 0 {
		return nil
	}
	c.Owner = s.owner
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	others, err := s.others()
	if err != nil {
		return err
	}
	for _, o := range others {
		for _, p := range o.Ports {
			if mine, ok := first(c.Ports, p); ok {
				return &HeldError{Port: mine, Pod: o.Pod, Owner: o.Owner}
			}
		}
	}
	if listening {
		if err := s.free(c.Ports); err != nil {
			return err
		}
	}
	return s.write(c)
}

// Keep claims ports that a pod has already, whatever others say.
func (s *Store) Keep(c Claim) error {
	if s.dir == "" || len(c.Ports) == 0 {
		return nil
	}
	c.Owner = s.owner
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return s.write(c)
}

func first(all []Port, p Port) (Port, bool) {
	for _, o := range all {
		if o.Overlaps(p) {
			return o, true
		}
	}
	return Port{}, false
}

// free looks for processes that listen.
func (s *Store) free(ports []Port) error {
	if s.listeners == nil {
		return nil
	}
	all, err := s.listeners(func(port int) bool {
		for _, p := range ports {
			if int(p.Port) == port {
				return true
			}
		}
		return false
	})
	if err != nil {
		return fmt.Errorf("look for processes on host ports: %w", err)
	}
	for _, l := range all {
		if mine, ok := first(ports, l.Port); ok {
			return &HeldError{Port: mine, Process: l}
		}
	}
	return nil
}

// write stores a claim; the directory is in memory, and the caller holds the lock.
func (s *Store) write(c Claim) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	path := s.path(c.Sandbox)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("claim host ports: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("claim host ports: %w", err)
	}
	return nil
}

// Drop gives the claim of a sandbox up. It is idempotent.
func (s *Store) Drop(sandbox string) error {
	if s.dir == "" {
		return nil
	}
	if err := os.Remove(s.path(sandbox)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("give up host ports: %w", err)
	}
	return nil
}

const suffix = ".json"

func (s *Store) path(sandbox string) string { return filepath.Join(s.dir, sandbox+suffix) }

func (s *Store) lock() (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("claim host ports: %w", err)
	}
	if unlock, err = atomicfile.Lock(filepath.Join(s.dir, "lock"), 0o600); err != nil {
		return nil, fmt.Errorf("claim host ports: %w", err)
	}
	return unlock, nil
}

// others are the claims of other monopods whose pods still exist. Files of pods that are gone are removed, whoever
// wrote them; damaged ones are no claims.
func (s *Store) others() ([]Claim, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("read claims of host ports: %w", err)
	}
	var out []Claim
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		path := filepath.Join(s.dir, e.Name())
		c, err := read(path)
		if err != nil || !isNamespace(c.Pin) {
			_ = os.Remove(path)
			continue
		}
		if c.Owner != s.owner {
			out = append(out, c)
		}
	}
	return out, nil
}

func read(path string) (c Claim, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return c, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxClaim))
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(b, &c)
}

// isNamespace says whether path is a live namespace file.
func isNamespace(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.NSFS_MAGIC
}
