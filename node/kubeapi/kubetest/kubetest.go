// Package kubetest has an in-memory State and Writer of the Kubernetes API, for tests, and a contract test for Writers.
//
// It must not be used outside of tests: it validates nothing, and runs no pods.
//
// Goroutines: none.
package kubetest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/kubeapi"
	"monopod/node/kubeapi/kinds"
)

// Store holds objects in memory. Make it with New.
type Store struct {
	// Validate checks the objects of each write; nil: all are valid.
	Validate func(kinds.Object) error
	// Fail is returned by the next writes instead of storing, one each.
	Fail []error

	writing sync.Mutex

	mu sync.Mutex
	// objects, elsewhere and what follows are guarded by mu.
	objects   map[kubeapi.Ref]kinds.Object
	elsewhere map[kubeapi.Ref]kubeapi.Definition
	unseen    map[*kinds.Kind]error
	writes    int
	watchers  map[chan struct{}]bool
}

// New returns a store with the namespace default and the objects given.
func New(objects ...kinds.Object) *Store {
	s := &Store{objects: map[kubeapi.Ref]kinds.Object{}, elsewhere: map[kubeapi.Ref]kubeapi.Definition{}, watchers: map[chan struct{}]bool{}}
	s.Put(&corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "uid-default"},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	})
	s.Put(objects...)
	return s
}

// RefOf names an object, whose kind need not be set.
func RefOf(o kinds.Object) kubeapi.Ref {
	all, _, err := kinds.Scheme().ObjectKinds(o)
	if err != nil {
		panic(err) // a test with a wrong type
	}
	return kubeapi.Ref{Kind: kinds.ByKind(all[0]), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Put stores objects without going through the API.
func (s *Store) Put(objects ...kinds.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		s.objects[RefOf(o)] = o
	}
	s.changedLocked()
}

// Elsewhere makes objects defined at a place that the API cannot write. Derived ones are made by it, and may be deleted.
func (s *Store) Elsewhere(place string, derived bool, objects ...kinds.Object) {
	s.Put(objects...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		s.elsewhere[RefOf(o)] = kubeapi.Definition{Place: place, Derived: derived, Deletable: derived}
	}
}

// Get returns an object, nil if it does not exist.
func (s *Store) Get(r kubeapi.Ref) kinds.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[r]
}

// Writes returns how many changes were stored.
func (s *Store) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Objects implements kubeapi.State.
func (s *Store) Objects(context.Context) (objects map[*kinds.Kind][]kinds.Object, unseen map[*kinds.Kind]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects = map[*kinds.Kind][]kinds.Object{}
	for r, o := range s.objects {
		objects[r.Kind] = append(objects[r.Kind], o)
	}
	for _, list := range objects {
		slices.SortFunc(list, kinds.Compare)
	}
	return objects, maps.Clone(s.unseen)
}

// Hide makes a kind one that cannot be seen completely; nil: it can be seen.
func (s *Store) Hide(k *kinds.Kind, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unseen == nil {
		s.unseen = map[*kinds.Kind]error{}
	}
	if s.unseen[k] = why; why == nil {
		delete(s.unseen, k)
	}
	s.changedLocked()
}

// Computed implements kubeapi.State.
func (s *Store) Computed(context.Context, *kinds.Kind) (objects []kinds.Object, ok bool, err error) {
	return nil, false, nil
}

// Subscribe implements kubeapi.State.
func (s *Store) Subscribe() (changed <-chan struct{}, cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan struct{}, 1)
	s.watchers[c] = true
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, c)
	}
}

func (s *Store) changedLocked() {
	for c := range maps.Keys(s.watchers) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Definition implements kubeapi.Writer.
func (s *Store) Definition(r kubeapi.Ref) kubeapi.Definition {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.elsewhere[r]; ok {
		return d
	}
	_, ok := s.objects[r]
	return kubeapi.Definition{Applied: ok}
}

// Write implements kubeapi.Writer.
func (s *Store) Write(_ context.Context, dryRun bool, decide func() (kubeapi.Change, error)) (warnings []string, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	change, err := decide()
	if err != nil {
		return nil, err
	}
	for _, o := range change.Put {
		if s.Validate == nil {
			break
		}
		if err := s.Validate(o); err != nil {
			return nil, err
		}
	}
	if len(s.Fail) > 0 {
		err, s.Fail = s.Fail[0], s.Fail[1:]
		return nil, err
	}
	if e := change.Ephemeral; e != nil {
		change.Put = append(change.Put, e.Pod)
	}
	if dryRun || len(change.Put)+len(change.Remove) == 0 {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range change.Put {
		s.objects[RefOf(o)] = o
	}
	for _, r := range change.Remove {
		s.removeLocked(r)
	}
	s.writes++
	s.changedLocked()
	return nil, nil
}

// removeLocked removes an object. A pod with a grace period stays until End.
func (s *Store) removeLocked(r kubeapi.Removal) {
	o := s.objects[r.Ref]
	if o == nil || r.UID != "" && o.GetUID() != r.UID {
		return
	}
	pod, ok := o.(*corev1.Pod)
	if !ok || r.GraceSeconds != nil && *r.GraceSeconds == 0 {
		delete(s.objects, r.Ref)
		return
	}
	pod = pod.DeepCopy()
	pod.DeletionGracePeriodSeconds = r.GraceSeconds
	if r.GraceSeconds == nil {
		pod.DeletionGracePeriodSeconds = pod.Spec.TerminationGracePeriodSeconds
	}
	pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(time.Minute).Truncate(time.Second)}
	s.objects[r.Ref] = pod
}

// End removes an object whose grace period is over.
func (s *Store) End(r kubeapi.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, r)
	s.changedLocked()
}
