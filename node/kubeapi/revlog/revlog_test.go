package revlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/node/kubeapi/kinds"
)

var (
	pods    = kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	secrets = kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Secret"))
)

// store is a source.
type store struct {
	mu          sync.Mutex
	objects     map[*kinds.Kind]map[key]kinds.Object
	unseen      map[*kinds.Kind]error
	subscribers map[chan struct{}]bool
	reads       int
	// before is called by each Objects.
	before func(context.Context)
}

func newStore() *store {
	return &store{objects: map[*kinds.Kind]map[key]kinds.Object{}, unseen: map[*kinds.Kind]error{}, subscribers: map[chan struct{}]bool{}}
}

func (s *store) Objects(ctx context.Context) (map[*kinds.Kind][]kinds.Object, map[*kinds.Kind]error) {
	if s.before != nil {
		s.before(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	found := map[*kinds.Kind][]kinds.Object{}
	for k, of := range s.objects {
		if s.unseen[k] == nil {
			found[k] = slices.Collect(maps.Values(of))
		}
	}
	return found, maps.Clone(s.unseen)
}

func (s *store) Subscribe() (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers[c] = true
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers, c)
	}
}

func (s *store) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
	for c := range s.subscribers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (s *store) put(k *kinds.Kind, objects ...kinds.Object) {
	s.change(func() {
		for _, o := range objects {
			if s.objects[k] == nil {
				s.objects[k] = map[key]kinds.Object{}
			}
			s.objects[k][keyOf(o)] = o
		}
	})
}

func (s *store) remove(k *kinds.Kind, name string) {
	s.change(func() { delete(s.objects[k], key{"ns", name}) })
}

func (s *store) hide(k *kinds.Kind, err error) {
	s.change(func() {
		if s.unseen[k] = err; err == nil {
			delete(s.unseen, k)
		}
	})
}

func pod(name, uid, label string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), Labels: map[string]string{"v": label}}}
}

func list(t *testing.T, l *Log, k *kinds.Kind) ([]kinds.Object, uint64) {
	t.Helper()
	objects, revision, err := l.List(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	return objects, revision
}

// text returns objects as name=label@revision, revisions without the epoch.
func text(objects []kinds.Object) (found []string) {
	for _, o := range objects {
		version, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
		found = append(found, fmt.Sprintf("%s=%s@%d", o.GetName(), o.GetLabels()["v"], uint32(version)))
	}
	return found
}

func expect(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func eventText(e Event) string {
	kind, o := "ADDED", e.New
	switch {
	case e.New == nil:
		kind, o = "DELETED", e.Old
	case e.Old != nil:
		kind = "MODIFIED"
	}
	return fmt.Sprintf("%s %s@%d", kind, text([]kinds.Object{o})[0], uint32(e.Revision))
}

func next(t *testing.T, w *Watch) (found []string) {
	t.Helper()
	events, err := w.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		found = append(found, eventText(e))
	}
	return found
}

func watching(t *testing.T, l *Log, k *kinds.Kind, from uint64) *Watch {
	t.Helper()
	w, err := l.Watch(t.Context(), k, from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func TestChangesAreNumbered(t *testing.T) {
	s := newStore()
	s.put(pods, pod("b", "1", "x"), pod("a", "2", "x"))
	l := New(7, s)
	objects, start := list(t, l, pods)
	expect(t, "first list", text(objects), []string{"a=x@1", "b=x@1"})
	if start != 7<<32+1 {
		t.Errorf("revision %d", start)
	}
	w := watching(t, l, pods, start)
	s.put(pods, pod("b", "1", "y"))
	expect(t, "change", next(t, w), []string{"MODIFIED b=y@2@2"})
	s.put(pods, pod("b", "1", "y")) // equal, another pointer
	s.put(secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}})
	s.put(pods, pod("c", "3", "x"))
	expect(t, "create", next(t, w), []string{"ADDED c=x@3@3"})
	s.remove(pods, "a")
	expect(t, "delete", next(t, w), []string{"DELETED a=x@1@5"})
	s.put(pods, pod("c", "4", "z"))
	expect(t, "another uid", next(t, w), []string{"DELETED c=x@3@6", "ADDED c=z@7@7"})
	objects, revision := list(t, l, pods)
	expect(t, "list", text(objects), []string{"b=y@2", "c=z@7"})
	if w.Revision() != revision || revision != 7<<32+7 || l.Revision() != revision {
		t.Errorf("the watch is at %d, the list at %d", w.Revision(), revision)
	}
	expect(t, "an older watch", next(t, watching(t, l, pods, start+3)), []string{"DELETED a=x@1@5", "DELETED c=x@3@6", "ADDED c=z@7@7"})
	o, _, err := l.Get(t.Context(), pods, "ns", "c")
	if err != nil || text([]kinds.Object{o})[0] != "c=z@7" {
		t.Errorf("get: %v %v", o, err)
	}
	if o, _, err := l.Get(t.Context(), pods, "ns", "a"); o != nil || err != nil {
		t.Errorf("get of a removed one: %v %v", o, err)
	}
	if o, _, err := l.Get(t.Context(), kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Node")), "", "n"); o != nil || err != nil {
		t.Errorf("get of a kind without objects: %v %v", o, err)
	}
}

func TestObjectsOfTheSourceStayAsTheyAre(t *testing.T) {
	s := newStore()
	mine := pod("a", "1", "x")
	mine.ResourceVersion = "own"
	s.put(pods, mine)
	l := New(1, s)
	objects, _ := list(t, l, pods)
	if objects[0] == kinds.Object(mine) || mine.ResourceVersion != "own" {
		t.Error("the object of the source was changed")
	}
	again := pod("a", "1", "x")
	again.ResourceVersion = "another"
	s.put(pods, again)
	later, _ := list(t, l, pods)
	if later[0] != objects[0] {
		t.Error("its version alone made a change")
	}
}

func TestEachKindIsCompared(t *testing.T) {
	for _, k := range kinds.All() {
		if k.Virtual || k.Kind == "PodReport" { // package node serves reports
			continue
		}
		l := New(1, newStore())
		e := &entry{given: At(k.New(), 5)}
		other := k.New()
		other.SetFinalizers([]string{"x"})
		other.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1("{}")}})
		for range 2 { // without and with a digest
			if !l.sameLocked(e, k.New()) {
				t.Errorf("empty objects of %s differ", k.Kind)
			}
			if l.sameLocked(&entry{given: e.given, digest: e.digest}, other) {
				t.Errorf("different objects of %s are the same", k.Kind)
			}
		}
		if _, ok := l.digestLocked(other); !ok && k.Allows("watch") && !k.OnDemand { // those are few, and compared during requests
			t.Errorf("%s has no digest: comparing it takes long", k.Kind)
		}
	}
}

func TestEqualQuantitiesAreNoChanges(t *testing.T) {
	s := newStore()
	l := New(1, s)
	sized := func(cpu resource.Quantity) *corev1.Pod {
		p := pod("a", "1", "x")
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": cpu}}}}
		return p
	}
	s.put(pods, sized(resource.MustParse("1000m")))
	first, _ := list(t, l, pods)
	for range 2 {
		s.put(pods, sized(*resource.NewQuantity(1, resource.BinarySI)))
		if again, _ := list(t, l, pods); again[0] != first[0] {
			t.Error("the same quantity in other words is a change")
		}
	}
	s.put(pods, sized(resource.MustParse("2")))
	if again, _ := list(t, l, pods); again[0] == first[0] {
		t.Error("another quantity is no change")
	}
}

func TestDuplicatesAreNoChanges(t *testing.T) {
	l := New(1, newStore())
	twice := map[*kinds.Kind][]kinds.Object{pods: {pod("a", "1", "x"), pod("a", "2", "y")}}
	for range 3 {
		l.started++
		l.takeLocked(twice, nil)
		l.ended = l.started
	}
	if len(l.changes) != 0 || len(l.kinds[pods].byKey) != 1 {
		t.Errorf("changes: %v", l.changes)
	}
}

func TestWhatCannotBeSeenIsNotDeleted(t *testing.T) {
	s := newStore()
	s.put(pods, pod("a", "1", "x"))
	s.put(secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}})
	blind := errors.New("runtime is down")
	s.hide(pods, blind)
	l := New(1, s)
	if _, _, err := l.List(t.Context(), pods); !errors.Is(err, blind) {
		t.Errorf("a kind that was never seen was listed: %v", err)
	}
	if _, err := l.Watch(t.Context(), pods, 1<<32+1); !errors.Is(err, blind) {
		t.Errorf("a kind that was never seen was watched: %v", err)
	}
	if unseen, err := l.Unseen(t.Context()); err != nil || !errors.Is(unseen[pods], blind) {
		t.Errorf("unseen: %v, %v", unseen, err)
	}
	_, before := list(t, l, secrets)
	s.hide(pods, nil)
	objects, seen := list(t, l, pods)
	expect(t, "seen at last", text(objects), []string{"a=x@2"})
	// A list of another kind does not have what was added before pods were seen.
	if _, err := l.Watch(t.Context(), pods, before); !errors.Is(err, ErrExpired) {
		t.Errorf("a watch from before: %v", err)
	}
	w := watching(t, l, pods, seen)
	s.hide(pods, blind)
	s.remove(pods, "a")
	s.put(pods, pod("b", "2", "x"))
	objects, _ = list(t, l, pods)
	expect(t, "hidden", text(objects), []string{"a=x@2"})
	s.hide(pods, nil)
	expect(t, "changes while hidden", next(t, w), []string{"ADDED b=x@3@3", "DELETED a=x@2@4"})
}

func TestWatchesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		l := New(3, s)
		_, start := list(t, l, pods)
		slow := watching(t, l, pods, start)
		for _, c := range []struct {
			from uint64
			want error
		}{{2<<32 + 5, ErrExpired}, {start - 1, ErrExpired}, {0, ErrExpired}, {start + 1, ErrTooLarge}, {4 << 32, ErrTooLarge}} {
			if _, err := l.Watch(t.Context(), pods, c.from); !errors.Is(err, c.want) {
				t.Errorf("watch from %d: %v, want %v", c.from, err, c.want)
			}
		}
		s.put(pods, pod("a", "1", "x"))
		list(t, l, pods)
		time.Sleep(keepFor)
		list(t, l, pods)
		watching(t, l, pods, start)
		time.Sleep(time.Second)
		list(t, l, pods)
		if _, err := l.Watch(t.Context(), pods, start); !errors.Is(err, ErrExpired) || len(l.changes) != 0 {
			t.Errorf("after five minutes: %v", err)
		}
		if _, err := slow.Next(t.Context()); !errors.Is(err, ErrExpired) {
			t.Errorf("a watch that has missed it: %v", err)
		}
		_, now := list(t, l, pods)
		w := watching(t, l, pods, now)
		for i := range keepChanges + 1 {
			s.put(pods, pod("b", "2", strconv.Itoa(i)))
			list(t, l, pods)
		}
		if _, err := w.Next(t.Context()); !errors.Is(err, ErrExpired) || len(l.changes) != keepChanges {
			t.Errorf("after too many changes: %v, %d are kept", err, len(l.changes))
		}
		if len(next(t, watching(t, l, pods, now+1))) != keepChanges {
			t.Error("the kept changes are not complete")
		}
		if len(s.subscribers) != 4 {
			t.Errorf("%d subscriptions: those of failed watches are left", len(s.subscribers))
		}
	})
}

func TestWaitingEnds(t *testing.T) {
	s := newStore()
	l := New(1, s)
	ctx, cancel := context.WithCancel(t.Context())
	_, start := list(t, l, pods)
	w := watching(t, l, pods, start)
	cancel()
	if _, err := w.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("watch: %v", err)
	}
	s.before = func(context.Context) { s.put(pods, pod("half", "1", "x")) }
	if _, _, err := l.List(ctx, pods); !errors.Is(err, context.Canceled) {
		t.Errorf("list: %v", err)
	}
	if len(l.kinds[pods].byKey) != 0 {
		t.Error("what an interrupted read returned was taken")
	}
	// A source that hangs blocks no caller beyond its own deadline.
	hangs := make(chan struct{})
	entered := make(chan struct{})
	s.before = func(context.Context) { close(entered); <-hangs }
	done := make(chan error)
	go func() { _, _, err := l.List(t.Context(), pods); done <- err }()
	<-entered
	short, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if _, _, err := l.Get(short, pods, "ns", "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("get behind a hung one: %v", err)
	}
	close(hangs)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestOneComparisonServesAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		l := New(1, s)
		s.before = func(context.Context) { time.Sleep(time.Second) }
		var wait sync.WaitGroup
		for range 50 {
			wait.Go(func() { list(t, l, pods) })
		}
		wait.Wait()
		if s.reads > 2 {
			t.Errorf("50 lists at once read %d times", s.reads)
		}
		// A failed comparison serves no caller.
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		s.put(pods, pod("a", "1", "x"))
		wait.Go(func() { _, _, _ = l.List(ctx, pods) })
		synctest.Wait()
		wait.Go(func() {
			if objects, _ := list(t, l, pods); len(objects) != 1 {
				t.Error("a list is from before it was asked for")
			}
		})
		wait.Wait()
	})
}

func TestNothingIsReadWithoutChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		l := New(1, s)
		_, start := list(t, l, pods)
		w := watching(t, l, pods, start)
		before := s.reads
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		if _, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || s.reads != before {
			t.Errorf("%v, %d reads in a day", err, s.reads-before)
		}
	})
}

func TestOldChangesAreDroppedWhenNobodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		l := New(1, s)
		list(t, l, pods)
		for i := range 3 {
			s.put(pods, pod("a", "1", strconv.Itoa(i)))
			list(t, l, pods)
			time.Sleep(time.Minute)
		}
		reads := s.reads
		time.Sleep(3*time.Minute + time.Second)
		synctest.Wait()
		l.mu.Lock()
		kept := len(l.changes)
		l.mu.Unlock()
		if kept != 2 {
			t.Errorf("%d changes are left when one is too old", kept)
		}
		time.Sleep(2 * keepFor)
		synctest.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.changes != nil || l.trimScheduled || s.reads != reads {
			t.Errorf("%d changes are left, a timer is set: %v", len(l.changes), l.trimScheduled)
		}
	})
}

// follower applies events as a client does.
type follower struct {
	objects map[string]string
	watch   *Watch
}

func (f *follower) relist(t *testing.T, l *Log) {
	objects, revision := list(t, l, pods)
	f.objects = map[string]string{}
	for _, o := range objects {
		f.objects[o.GetName()] = text([]kinds.Object{o})[0]
	}
	if f.watch != nil {
		f.watch.Close()
	}
	f.watch = watching(t, l, pods, revision)
}

// read applies the changes so far.
func (f *follower) read(t *testing.T, l *Log) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	list(t, l, pods)
	events, err := f.watch.Next(ctx)
	if errors.Is(err, ErrExpired) {
		f.relist(t, l)
	}
	for _, e := range events {
		if e.New == nil {
			if f.objects[e.Old.GetName()] != text([]kinds.Object{e.Old})[0] {
				t.Errorf("deleted is %s, known %v", eventText(e), f.objects[e.Old.GetName()])
			}
			delete(f.objects, e.Old.GetName())
			continue
		}
		if _, known := f.objects[e.New.GetName()]; known != (e.Old != nil) {
			t.Errorf("%s of what is known: %v", eventText(e), known)
		}
		f.objects[e.New.GetName()] = text([]kinds.Object{e.New})[0]
	}
}

func TestWatchesEndWhereListsAre(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			s := newStore()
			l := New(uint32(seed), s)
			followers := []*follower{{}, {}, {}}
			for _, f := range followers {
				f.relist(t, l)
			}
			for step := range 600 {
				name := strconv.Itoa(random.IntN(8))
				switch random.IntN(12) {
				case 0, 1:
					s.remove(pods, name)
				case 2:
					s.hide(pods, errors.New("blind"))
				case 3, 4, 5:
					s.hide(pods, nil)
				case 6:
					time.Sleep(time.Duration(random.Int64N(int64(2 * time.Minute))))
				case 7:
					followers[0].read(t, l)
				case 8:
					if random.IntN(20) == 0 {
						followers[1].read(t, l)
					}
				default:
					s.put(pods, pod(name, strconv.Itoa(random.IntN(3)), strconv.Itoa(step)))
				}
			}
			s.hide(pods, nil)
			objects, _ := list(t, l, pods)
			for i, f := range followers {
				f.read(t, l)
				if got, want := slices.Sorted(maps.Values(f.objects)), text(objects); !slices.Equal(got, want) {
					t.Fatalf("seed %d, follower %d has %v, the list %v", seed, i, got, want)
				}
			}
		})
	}
}

func TestManyAtOnce(t *testing.T) {
	s := newStore()
	l := New(1, s)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			_, from := list(t, l, pods)
			w := watching(t, l, pods, from)
			for last := from; uint32(last) < 100; {
				events, err := w.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				for _, e := range events {
					if e.Revision <= last {
						t.Errorf("revision %d after %d", e.Revision, last)
					}
					last = e.Revision
				}
			}
		})
	}
	for i := range 120 {
		s.put(pods, pod("a", "1", strconv.Itoa(i)))
		list(t, l, pods)
	}
	wait.Wait()
}

func BenchmarkListOfUnchanged(b *testing.B) {
	s := newStore()
	for i := range 1000 {
		s.put(pods, pod(strconv.Itoa(i), "1", "x"))
	}
	l := New(1, s)
	for b.Loop() {
		if _, _, err := l.List(b.Context(), pods); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkListOfCopies is what a source costs that makes all objects each time.
func BenchmarkListOfCopies(b *testing.B) {
	s := newStore()
	for i := range 100 {
		p := pod(strconv.Itoa(i), "1", "x")
		p.Spec.Containers = []corev1.Container{{Name: "main", Env: make([]corev1.EnvVar, 20), VolumeMounts: make([]corev1.VolumeMount, 3)}}
		p.Status.ContainerStatuses, p.Status.Conditions = make([]corev1.ContainerStatus, 2), make([]corev1.PodCondition, 5)
		s.put(pods, p)
	}
	l := New(1, s)
	for b.Loop() {
		b.StopTimer()
		for at, o := range s.objects[pods] {
			s.objects[pods][at] = o.(*corev1.Pod).DeepCopy()
		}
		b.StartTimer()
		if _, _, err := l.List(b.Context(), pods); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAllKindsAtOnce(t *testing.T) {
	s := newStore()
	l := New(1, s)
	s.put(pods, pod("b", "1", ""), pod("a", "2", ""))
	s.hide(secrets, errors.New("why"))
	objects, unseen, err := l.All(t.Context())
	if err != nil || len(objects[pods]) != 2 || objects[pods][0].GetName() != "a" || objects[secrets] != nil || unseen[secrets] == nil || unseen[pods] != nil {
		t.Errorf("%v %v %v", objects, unseen, err)
	}
	s.hide(secrets, nil)
	if objects, unseen, err := l.All(t.Context()); err != nil || objects[secrets] == nil || len(unseen) > 0 {
		t.Errorf("a kind without objects is seen: %v %v %v", objects, unseen, err)
	}
	s.hide(pods, errors.New("why"))
	if objects, unseen, err := l.All(t.Context()); err != nil || len(objects[pods]) != 2 || unseen[pods] == nil {
		t.Errorf("the last objects: %v %v %v", objects, unseen, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.All(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("without a client: %v", err)
	}
}

// big returns a Secret of 1 MiB.
func big(name string, n int) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1", Labels: map[string]string{"n": strconv.Itoa(n)}}, Data: map[string][]byte{"a": make([]byte, 1<<20)},
	}
}

// TestLargeChangesAreDroppedBeforeMany: a client that patches the labels of a large object in a loop must not fill the memory.
func TestLargeChangesAreDroppedBeforeMany(t *testing.T) {
	s := newStore()
	l := New(1, s)
	s.put(secrets, big("a", 0))
	_, start := list(t, l, secrets)
	w := watching(t, l, secrets, start)
	for n := range 64 {
		s.put(secrets, big("a", n+1))
		list(t, l, secrets)
		sum := 0
		for _, c := range l.changes {
			sum += sizeOf(c.Old)
		}
		if sum > keepBytes || sum != l.bytes || len(l.changes) == 0 {
			t.Fatalf("%d changes hold %d bytes, %d are counted", len(l.changes), sum, l.bytes)
		}
	}
	if _, err := w.Next(t.Context()); !errors.Is(err, ErrExpired) {
		t.Errorf("a watch that has missed changes: %v", err)
	}
	for n := range 64 { // created and deleted ones count, too
		s.put(secrets, big("b", n))
		list(t, l, secrets)
		s.remove(secrets, "b")
		list(t, l, secrets)
	}
	if len(l.changes) > 2*keepBytes>>20 {
		t.Errorf("%d changes are kept", len(l.changes))
	}
}

// TestAWatchGetsLargeChangesOneByOne: while it sends one, it holds no others that the log drops.
func TestAWatchGetsLargeChangesOneByOne(t *testing.T) {
	s := newStore()
	l := New(1, s)
	s.put(secrets, big("a", 0))
	_, start := list(t, l, secrets)
	w := watching(t, l, secrets, start)
	for n := range 5 {
		s.put(secrets, big("a", n+1))
		list(t, l, secrets)
	}
	for n := range 5 {
		events, err := w.Next(t.Context())
		if err != nil || len(events) != 1 || events[0].New.GetLabels()["n"] != strconv.Itoa(n+1) || w.Revision() != events[0].Revision {
			t.Fatalf("%d events, %v", len(events), err)
		}
	}
}
