// Package hostports prevents that two monopods of one machine open the same host port, and that a pod takes a port on which a process of the
// machine listens.
//
// It owns one file per sandbox in a directory that all monopods share. A claim is valid as long as the namespace that it names exists, however
// the pod or its monopod ended. It must not open ports.
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

// String returns the port in the format of the admission of pods.
func (p Port) String() string {
	s := fmt.Sprintf("%d/%s", p.Port, strings.ToUpper(p.Protocol))
	if p.IP.IsValid() {
		return p.IP.String() + ":" + s
	}
	return s
}

// Overlaps reports whether two ports cannot be open at the same time.
func (p Port) Overlaps(o Port) bool {
	return p.Protocol == o.Protocol && p.Port == o.Port && (p.IP == o.IP || everywhere(p.IP) || everywhere(o.IP))
}

func everywhere(a netip.Addr) bool { return !a.IsValid() || a.IsUnspecified() }

// Claim is the claim of the ports of a pod.
type Claim struct {
	// Owner identifies the monopod, by its directory.
	Owner string `json:"owner"`
	// Pod is NAMESPACE/NAME.
	Pod     string `json:"pod"`
	Sandbox string `json:"sandbox"`
	// Pin is the path of a namespace that exists as long as the pod.
	Pin   string `json:"pin"`
	Ports []Port `json:"ports"`
}

// Process is a listening process of this machine.
type Process struct {
	Port Port
	// Name and PID may be unknown.
	Name string
	PID  int
}

// HeldError reports a port that is in use.
type HeldError struct {
	Port Port
	// Pod and Owner are set if a pod of another monopod has the port, else Process is.
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
	return fmt.Sprintf("host port %s is taken: a process on this machine listens on %s", e.Port, e.Process.Port)
}

// Store is the claims of this machine, as seen by one monopod.
type Store struct {
	dir, owner string
	// listeners returns the processes that listen on wanted ports.
	listeners func(wanted func(port int) bool) ([]Process, error)
}

// New returns a Store. Without a directory it accepts all claims. It does no I/O.
func New(dir, owner string, listeners func(wanted func(port int) bool) ([]Process, error)) *Store {
	return &Store{dir: dir, owner: owner, listeners: listeners}
}

// maxClaim limits the size of a file. A pod has at most a hundred ports.
const maxClaim = 1 << 20

// Take claims ports. If another monopod, or with listening also a process, has one of them, it returns a *HeldError. Claims of other pods of
// this monopod do not count, because the admission of pods checks them.
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

// Keep claims ports that a pod has already, without a check.
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

// free returns a *HeldError if a process listens on one of the ports.
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

// write stores a claim in the directory, which is on a tmpfs. The caller holds the lock.
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

// Drop removes the claim of a sandbox. It is idempotent.
func (s *Store) Drop(sandbox string) error {
	if s.dir == "" {
		return nil
	}
	if err := os.Remove(s.path(sandbox)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("release host ports: %w", err)
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

// others returns the claims of other monopods whose pods still exist, and removes the files of all pods that do not. Damaged files are not
// claims.
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

// isNamespace reports whether path is a pinned namespace.
func isNamespace(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && uint32(st.Type) == unix.NSFS_MAGIC
}
