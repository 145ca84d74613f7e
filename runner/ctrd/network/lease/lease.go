// Package lease hands out pod addresses and keeps them on disk in the format of the CNI plugin host-local, so that pods
// keep their address over an upgrade from, or a downgrade to, a monopod that runs that plugin.
//
// It owns the directory of one network: a file per address with the sandbox and the interface in it,
// last_reserved_ip.N per subnet, and the lock that host-local takes as well. It must not know what an address is used
// for. It has no goroutines.
package lease

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"monopod/internal/atomicfile"
)

// ErrExhausted says that a subnet has no free address.
var ErrExhausted = errors.New("no IP addresses available")

// Store is the leases of one network. Its methods may be called concurrently, also by several processes.
type Store struct {
	dir   string
	iface string

	mu sync.Mutex // guards byID, and serializes changes in this process
	// byID are the addresses of each sandbox; nil until the directory was read.
	byID map[string][]netip.Addr
}

// New returns a Store for the interface name of pods. It does no I/O.
func New(dir, iface string) *Store { return &Store{dir: dir, iface: iface} }

// separator is between the sandbox and the interface in a file.
const separator = "\r\n"

// Of returns the addresses of a sandbox, IPv4 first; none when it has no lease.
func (s *Store) Of(id string) ([]netip.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return nil, err
	}
	return slices.Clone(s.byID[id]), nil
}

// Acquire returns an address of each subnet for a sandbox: those it has already, else the next free ones. After an
// error it has no new ones.
func (s *Store) Acquire(id string, subnets []netip.Prefix) ([]netip.Prefix, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.load(); err != nil {
		return nil, err
	}
	var out []netip.Prefix
	var taken []netip.Addr
	for i, subnet := range subnets {
		addr, held := within(s.byID[id], subnet)
		if !held {
			if addr, err = s.reserve(id, i, subnet); err != nil {
				for _, a := range taken {
					err = errors.Join(err, s.drop(id, a))
				}
				return nil, err
			}
			taken = append(taken, addr)
			s.byID[id] = append(s.byID[id], addr)
		}
		out = append(out, netip.PrefixFrom(addr, subnet.Bits()))
	}
	slices.SortFunc(s.byID[id], netip.Addr.Compare)
	return out, nil
}

// Release drops all leases of a sandbox. It is idempotent.
func (s *Store) Release(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil || len(s.byID[id]) == 0 {
		return err
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	var errs []error
	for _, a := range slices.Clone(s.byID[id]) {
		errs = append(errs, s.drop(id, a))
	}
	return errors.Join(errs...)
}

// DropEmpty removes the files that were just being made when the power went: nothing would ever release them, as
// their owner is not in them. It also removes whatever is not a file: a directory in the place of the lock would keep
// every address from being leased.
func (s *Store) DropEmpty() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := s.dropIrregular(); err != nil {
		return err
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	var errs []error
	err = s.each(func(a netip.Addr, owner string) {
		if owner == "" {
			errs = append(errs, os.Remove(s.path(a)))
		}
	})
	return errors.Join(append(errs, err)...)
}

func (s *Store) dropIrregular() error {
	entries, err := os.ReadDir(s.dir)
	errs := []error{err}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			errs = append(errs, os.RemoveAll(filepath.Join(s.dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// load reads the directory unless that was done. The caller holds mu.
func (s *Store) load() error {
	if s.byID != nil {
		return nil
	}
	byID := map[string][]netip.Addr{}
	err := s.each(func(a netip.Addr, owner string) {
		id, iface, found := strings.Cut(owner, separator)
		if !found || iface == s.iface { // older versions of host-local wrote the sandbox only
			byID[id] = append(byID[id], a)
		}
	})
	if err != nil {
		return err
	}
	for _, all := range byID {
		slices.SortFunc(all, netip.Addr.Compare)
	}
	s.byID = byID
	return nil
}

// each calls f with every address that has a file, and the file's text. A file that goes meanwhile is none.
func (s *Store) each(f func(a netip.Addr, owner string)) error {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read IP leases: %w", err)
	}
	for _, e := range entries {
		a, err := netip.ParseAddr(e.Name())
		if err != nil || !e.Type().IsRegular() {
			continue
		}
		b, err := readSmall(s.path(a))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read IP lease: %w", err)
		}
		f(a, strings.TrimSpace(b))
	}
	return nil
}

// readSmall reads what fits into a page: no lease is longer, whatever a damaged file has become.
func readSmall(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 4096)
	n, err := f.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return string(b[:n]), nil
}

func (s *Store) path(a netip.Addr) string { return filepath.Join(s.dir, a.String()) }

// lock takes host-local's lock.
func (s *Store) lock() (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, fmt.Errorf("lock IP leases: %w", err)
	}
	if unlock, err = atomicfile.Lock(filepath.Join(s.dir, "lock"), 0o600); err != nil {
		return nil, fmt.Errorf("lock IP leases: %w", err)
	}
	return unlock, nil
}

// reserve takes the next free address behind the last one that was given out, so that an address is reused as late as
// possible.
func (s *Store) reserve(id string, index int, subnet netip.Prefix) (netip.Addr, error) {
	last := filepath.Join(s.dir, "last_reserved_ip."+strconv.Itoa(index))
	start := subnet.Addr()
	if b, err := readSmall(last); err == nil {
		if a, err := netip.ParseAddr(strings.TrimSpace(b)); err == nil && subnet.Contains(a) {
			start = a
		}
	}
	for a, first := following(start, subnet), true; first || a != following(start, subnet); a, first = following(a, subnet), false {
		ok, err := s.create(a, id)
		if err != nil {
			return netip.Addr{}, err
		}
		if ok {
			// As in host-local, not atomically: a damaged one costs the order only.
			return a, os.WriteFile(last, []byte(a.String()), 0o600)
		}
	}
	return netip.Addr{}, fmt.Errorf("%w in range set: %s", ErrExhausted, subnet)
}

// following returns the next address for a pod: neither the network's own, nor the gateway, nor IPv4's broadcast.
func following(a netip.Addr, subnet netip.Prefix) netip.Addr {
	first := subnet.Addr().Next().Next()
	next := a.Next()
	if !next.IsValid() || !subnet.Contains(next) || next.Less(first) || next.Is4() && !subnet.Contains(next.Next()) {
		return first
	}
	return next
}

// create writes a lease; false: the address is another's.
func (s *Store) create(a netip.Addr, id string) (bool, error) {
	f, err := os.OpenFile(s.path(a), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write IP lease: %w", err)
	}
	_, err = f.WriteString(id + separator + s.iface)
	if err = errors.Join(err, f.Close()); err != nil {
		return false, fmt.Errorf("write IP lease: %w", errors.Join(err, os.Remove(s.path(a))))
	}
	return true, nil
}

// drop removes a lease if it is still the sandbox's.
func (s *Store) drop(id string, a netip.Addr) error {
	b, err := readSmall(s.path(a))
	owner, _, _ := strings.Cut(strings.TrimSpace(b), separator)
	if err == nil && (owner == id || owner == "") {
		err = os.Remove(s.path(a))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("release IP lease: %w", err)
	}
	left := slices.DeleteFunc(s.byID[id], func(o netip.Addr) bool { return o == a })
	if len(left) == 0 {
		delete(s.byID, id)
	} else {
		s.byID[id] = left
	}
	return nil
}

// within returns the address of a subnet among several.
func within(all []netip.Addr, subnet netip.Prefix) (netip.Addr, bool) {
	for _, a := range all {
		if subnet.Contains(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}
