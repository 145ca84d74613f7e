// Package nodemeta keeps the labels and annotations that clients of the API of this machine have set on its Node.
//
// It owns the file with them, and decides which of them a client may change. It must not know the consumers of labels: they read them, or
// follow them. It has no goroutines.
package nodemeta

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/atomicfile"
)

// Limits of all labels and annotations together, so that a client cannot fill the disk or the memory.
const (
	MaxKeys  = 200
	MaxBytes = 64 << 10
)

// ownPrefix begins the keys of annotations that only monopod sets.
const ownPrefix = "monopod.dev/"

// Metadata is what clients have set. Its maps and lists are never modified.
type Metadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// ManagedFields record which client has set what.
	ManagedFields []metav1.ManagedFieldsEntry `json:"managedFields,omitempty"`
	// LabelsLost reports that the file was damaged and that no client has set labels since: Labels is empty, which does not mean that the
	// Node has none.
	LabelsLost bool `json:"labelsLost,omitempty"`
}

// ErrTooLarge reports more than the limits allow.
var ErrTooLarge = fmt.Errorf("the Node can have at most %d labels and annotations that clients set, with %d KiB including managed fields", MaxKeys, MaxBytes>>10)

// FixedError reports a label or annotation that clients cannot change.
type FixedError struct {
	// What is "label" or "annotation".
	What, Key string
	// Configured reports that nodeLabels sets it; otherwise monopod does.
	Configured bool
}

// Error says where the value is defined.
func (e *FixedError) Error() string {
	if e.Configured {
		return fmt.Sprintf("label %s is defined in nodeLabels in the monopod configuration; change it there", e.Key)
	}
	return fmt.Sprintf("%s %s is set by monopod; it cannot be changed", e.What, e.Key)
}

// Wanted returns the metadata that makes the Node the wanted one. m is the present one, shown is the Node that clients see, and configured
// are the labels of the configuration. The error is a FixedError. It is pure, and does not check the limits: see Check.
func (m Metadata) Wanted(shown, wanted *corev1.Node, configured map[string]string) (Metadata, error) {
	labels, key := split(m.Labels, shown.Labels, wanted.Labels, func(key string) bool { _, is := configured[key]; return is })
	if key != "" {
		_, is := configured[key]
		return m, &FixedError{What: "label", Key: key, Configured: is}
	}
	annotations, key := split(m.Annotations, shown.Annotations, wanted.Annotations, func(key string) bool { return strings.HasPrefix(key, ownPrefix) })
	if key != "" {
		return m, &FixedError{What: "annotation", Key: key}
	}
	return Metadata{
		Labels: labels, Annotations: annotations, ManagedFields: wanted.ManagedFields,
		LabelsLost: m.LabelsLost && maps.Equal(labels, m.Labels),
	}, nil
}

// Check returns ErrTooLarge if the limits do not allow so much.
func (m Metadata) Check() error {
	if len(m.Labels)+len(m.Annotations) > MaxKeys {
		return ErrTooLarge
	}
	if b, err := json.Marshal(m); err != nil || len(b) > MaxBytes {
		return errors.Join(ErrTooLarge, err)
	}
	return nil
}

// split returns the values to store, or the first key of a fixed value that would change. A shown value is fixed if clients have not set it.
// A value that is not shown is kept. If a fixed one hides it, it counts again once that is gone.
func split(own, shown, wanted map[string]string, reserved func(key string) bool) (set map[string]string, changed string) {
	fixed := func(key string) bool {
		value, is := shown[key]
		mine, set := own[key]
		return reserved(key) || is && (!set || mine != value)
	}
	all := slices.Concat(slices.Collect(maps.Keys(shown)), slices.Collect(maps.Keys(wanted)), slices.Collect(maps.Keys(own)))
	slices.Sort(all)
	for _, key := range slices.Compact(all) {
		was, is := shown[key]
		value, stays := wanted[key]
		switch {
		case fixed(key) && (is != stays || was != value):
			return nil, key
		case fixed(key), !is && !stays:
			value, stays = own[key]
		}
		if !stays {
			continue
		}
		if set == nil {
			set = map[string]string{}
		}
		set[key] = value
	}
	return set, ""
}

// Equal reports whether two are the same, apart from the times at which clients have set them.
func (m Metadata) Equal(o Metadata) bool {
	return m.SameValues(o) && equality.Semantic.DeepEqual(untimed(m.ManagedFields), untimed(o.ManagedFields))
}

// SameValues reports whether labels and annotations are the same.
func (m Metadata) SameValues(o Metadata) bool {
	return maps.Equal(m.Labels, o.Labels) && maps.Equal(m.Annotations, o.Annotations)
}

func untimed(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	out := slices.Clone(entries)
	for i := range out {
		out[i].Time = nil
	}
	return out
}

// Store keeps the Metadata in a file. Create it with NewStore.
type Store struct {
	path    string
	changed func()

	mu sync.Mutex // guards what follows; it is held while followers and changed are called
	// now is the present Metadata.
	now Metadata
	// followers are called after each change.
	followers map[*func(Metadata)]struct{}
}

// NewStore returns the Store of a file. changed, which may be nil, is called after each change. It does no I/O.
func NewStore(file string, changed func()) *Store {
	return &Store{path: file, changed: changed, followers: map[*func(Metadata)]struct{}{}}
}

// ErrLost reports that the labels were lost, and that no client has set any since.
var ErrLost = errors.New("the labels that clients have set on the Node are lost")

// Load reads what an earlier run has stored. A damaged file is set aside, and LabelsLost is set until a client sets labels, also after the next
// restart. The error is ErrLost with the reason.
func (s *Store) Load() error {
	m, err := s.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = m
	return err
}

func (s *Store) read() (m Metadata, err error) {
	aside := s.path + ".damaged"
	b, err := atomicfile.Read(s.path, atomicfile.MaxState)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			return Metadata{}, nil
		}
		err = fmt.Errorf("%s was damaged", s.path) // and nothing has been stored since
	case err == nil:
		if err = json.Unmarshal(b, &m); err == nil && !m.LabelsLost {
			return m, nil
		}
		if err == nil {
			return m, fmt.Errorf("%w: %s was damaged", ErrLost, s.path)
		}
		err = errors.Join(fmt.Errorf("%s: %w", s.path, err), atomicfile.SetAside(s.path, aside))
	case errors.Is(err, atomicfile.ErrDamaged):
		err = errors.Join(err, atomicfile.SetAside(s.path, aside))
	}
	return Metadata{LabelsLost: true}, fmt.Errorf("%w: %w", ErrLost, err)
}

// Current returns the present Metadata.
func (s *Store) Current() Metadata {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Set stores other Metadata durably, and notifies the followers.
func (s *Store) Set(m Metadata) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.save(m); err != nil {
		return err
	}
	s.now = m
	for f := range s.followers {
		(*f)(m)
	}
	if s.changed != nil {
		s.changed()
	}
	return nil
}

// save also stores that nothing is set: a file that is missing beside a damaged one means that labels are lost.
func (s *Store) save(m Metadata) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return atomicfile.Write(s.path, append(b, '\n'), 0o600)
}

// Follow calls f with the present Metadata, and after each change until stop is called. f must not call the Store.
func (s *Store) Follow(f func(Metadata)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers[&f] = struct{}{}
	f(s.now)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.followers, &f)
	}
}
