// Package lease allocates pod addresses and stores them on disk in the format of the CNI plugin host-local, which CNI tools can read.
//
// It owns the directory of one network: a file per address with the sandbox and the interface, last_reserved_ip.N per subnet, and the lock of
// host-local. It must not know what an address is used for.
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

// ErrExhausted reports that a subnet has no free address.
var ErrExhausted = errors.New("no IP addresses available")

// Store is the leases of one network. It is safe for concurrent use, also by several processes.
type Store struct {
	dir   string
	iface string

	mu sync.Mutex // guards byID, and serializes changes in this process
	// byID are the addresses by sandbox; nil until the directory was read.
	byID map[string][]netip.Addr
}

// New returns a Store. iface is the interface name in pods. It does no I/O.
func New(dir, iface string) *Store { return &Store{dir: dir, iface: iface} }

// separator separates sandbox and interface in a file.
const separator = "\r\n"

// Of returns the addresses of a sandbox, IPv4 first, or none.
func (s *Store) Of(id string) ([]netip.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return nil, err
	}
	return slices.Clone(s.byID[id]), nil
}

// Acquire returns an address of each subnet for a sandbox: existing leases, or the next free addresses. After an error it has no new leases.
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

// Release removes all leases of a sandbox. It is idempotent.
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

// DropEmpty removes files that a power loss left empty, which would never be released, because they do not name a sandbox. It also removes
// everything that is not a file: a directory in place of the lock would prevent all leases.
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

// load reads the directory once. The caller holds mu.
func (s *Store) load() error {
	if s.byID != nil {
		return nil
	}
	byID := map[string][]netip.Addr{}
	err := s.each(func(a netip.Addr, owner string) {
		id, iface, found := strings.Cut(owner, separator)
		if !found || iface == s.iface { // older versions of host-local write only the sandbox
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

// each calls f with every leased address and the text of its file. Files that disappear meanwhile are skipped.
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

// readSmall reads at most a page: leases are shorter, but damaged files may not be.
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

// lock acquires the lock of host-local.
func (s *Store) lock() (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o750); err != nil {
		return nil, fmt.Errorf("lock IP leases: %w", err)
	}
	if unlock, err = atomicfile.Lock(filepath.Join(s.dir, "lock"), 0o600); err != nil {
		return nil, fmt.Errorf("lock IP leases: %w", err)
	}
	return unlock, nil
}

// reserve leases the next free address after the last one, so that addresses are reused as late as possible.
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
			// Not atomic, as in host-local: a damaged file costs only the order.
			return a, os.WriteFile(last, []byte(a.String()), 0o600)
		}
	}
	return netip.Addr{}, fmt.Errorf("%w in range set: %s", ErrExhausted, subnet)
}

// following returns the next address for a pod. It skips the network address, the gateway and the IPv4 broadcast address.
func following(a netip.Addr, subnet netip.Prefix) netip.Addr {
	first := subnet.Addr().Next().Next()
	next := a.Next()
	if !next.IsValid() || !subnet.Contains(next) || next.Less(first) || next.Is4() && !subnet.Contains(next.Next()) {
		return first
	}
	return next
}

// create writes a lease, and returns false if the address is leased to another sandbox.
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

// drop removes the lease of an address if it still belongs to the sandbox.
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

// within returns the address that is in a subnet.
func within(all []netip.Addr, subnet netip.Prefix) (netip.Addr, bool) {
	for _, a := range all {
		if subnet.Contains(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}
