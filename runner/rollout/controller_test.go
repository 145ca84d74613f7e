package rollout

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/boottime"
	"monopod/internal/model"
	"monopod/manifests"
)

// agent is a running Controller with a runner that applies everything at once.
type agent struct {
	t    *testing.T
	c    *Controller
	stop func()
	pods []*manifests.Pod
	gone bool
	// disconnected disconnects the runner.
	disconnected atomic.Bool

	mu    sync.Mutex
	hands int              // guarded by mu
	last  []*manifests.Pod // guarded by mu
}

// handed returns the pods that were handed out last.
func (a *agent) handed() []*manifests.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// times returns how often pods were handed out.
func (a *agent) times() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hands
}

func (a *agent) hand(run model.Desired) {
	if a.disconnected.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hands++
	a.last = run.Pods
}

// first returns the first of the pods that were handed out last.
func (a *agent) first() *manifests.Pod { return a.handed()[0] }

// newAgent starts an agent whose clock is that of the bubble.
func newAgent(t *testing.T, dir string, o Options) *agent { return newAgentOn(t, NewStore(dir), o) }

func newAgentOn(t *testing.T, store *Store, o Options) *agent {
	a := &agent{t: t}
	began := time.Now()
	a.c = New(Config{
		Store: store, Options: o, Log: slog.New(slog.DiscardHandler),
		Clock: func() boottime.Moment {
			return boottime.Moment{Boot: "b", Since: time.Hour + time.Since(began), Wall: time.Now()}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.c.Run(ctx) }()
	a.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return a
}

// want makes the actors of a the desired pods.
func (a *agent) want(pods ...*actor) {
	a.pods = nil
	for _, p := range pods {
		a.pods = append(a.pods, p.wanted)
	}
	d := model.Desired{Pods: a.pods}
	if a.gone {
		d.Reported = map[string]bool{"": true, "file": true}
	}
	a.c.Update(d, a.hand)
	synctest.Wait()
}

// carry reports that the pods that were handed out run, and are Ready if they are good.
func (a *agent) carry() {
	for _, p := range a.handed() {
		a.c.Observe(p.Key(), &Observed{Recorded: p, Seen: Seen{Ready: p.Object.Spec.Containers[0].Image == string(good), Images: map[string]string{"c": "sha256:1"}}})
	}
	synctest.Wait()
}

func (a *agent) runs(want ...*manifests.Pod) {
	a.t.Helper()
	if !slices.EqualFunc(a.handed(), want, func(x, y *manifests.Pod) bool { return Hash(x.Object) == Hash(y.Object) }) {
		a.t.Errorf("other pods are to run than %v", want)
	}
}

func files(t *testing.T, dir string) map[string]time.Time {
	t.Helper()
	all := map[string]time.Time{}
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, err := d.Info()
			if err != nil {
				t.Error(err)
			}
			all[strings.TrimPrefix(path, dir)] = info.ModTime()
		}
		return nil
	})
	return all
}

func TestFirstRevisionIsHandedOutBeforeItIsStored(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, dir, Options{})
		defer a.stop()
		p := &actor{name: "a"}
		p.write(good)
		a.want(p)
		if a.times() != 1 || a.first() != p.wanted {
			t.Fatalf("handed out %d times", a.times())
		}
		a.carry()
		if got := files(t, dir); len(got) != 0 {
			t.Errorf("written already: %v", got)
		}
		time.Sleep(2 * saveAfter)
		synctest.Wait()
		all, err := NewStore(dir).Load()
		if s := all[p.wanted.Key()]; err != nil || s == nil || s.Revision(1).Outcome != Ready || s.Revision(1).Images["c"] != "sha256:1" {
			t.Errorf("%v, %v", all, err)
		}
	})
}

// slowDisk returns a store some of whose syncs wait for an answer of the test, as long as the channel is open.
func slowDisk(dir string) (store *Store, answer chan<- error) {
	store = NewStore(dir)
	answers := make(chan error)
	store.fsync = func(f *os.File) error {
		if err, ok := <-answers; ok {
			return err
		}
		return f.Sync()
	}
	return store, answers
}

func TestHangingDiskDelaysNoPod(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store, disk := slowDisk(dir)
		a := newAgentOn(t, store, Options{})
		x, y := &actor{name: "x"}, &actor{name: "y"}
		x.write(good)
		y.write(good)
		a.want(x)
		time.Sleep(2 * saveAfter)
		synctest.Wait() // the first revision is being written
		a.want(x, y)
		a.runs(x.wanted, y.wanted)
		a.carry()
		if s := a.c.State(y.wanted.Key()); s == nil || s.Revision(1).Outcome != Ready {
			t.Errorf("it is not decided on: %+v", s)
		}
		if _, err := os.Stat(filepath.Join(store.path(x.wanted.Key()), stateFile)); !os.IsNotExist(err) {
			t.Errorf("the disk did not hang: %v", err)
		}
		close(disk)
		time.Sleep(2 * saveAfter)
		synctest.Wait()
		all, err := NewStore(dir).Load()
		if err != nil || len(all) != 2 {
			t.Fatalf("%v, %v", all, err)
		}
		for key, s := range all {
			if s.Revision(1).Outcome != Ready {
				t.Errorf("what came of %s while the disk hung is lost", key)
			}
		}
		a.stop()
	})
}

// TestLateWriteDoesNotRevertEdit edits the pod while the write of its first revision hangs.
func TestLateWriteDoesNotRevertEdit(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store := NewStore(dir)
		first, release := true, make(chan struct{})
		store.fsync = func(f *os.File) error {
			if first {
				first = false
				<-release
			}
			return f.Sync()
		}
		a := newAgentOn(t, store, Options{})
		p := &actor{name: "a"}
		p.write(good)
		a.want(p)
		time.Sleep(2 * saveAfter)
		synctest.Wait()
		p.write(good)
		a.want(p)
		a.runs(p.wanted)
		close(release)
		synctest.Wait()
		a.stop()
		all, err := NewStore(dir).Load()
		if s := all[p.wanted.Key()]; err != nil || s == nil || s.Active != 2 || len(s.Revisions) != 2 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// TestUngroupedPodsAreStoredConcurrently edits several pods on a disk where no sync ends before all have begun.
func TestUngroupedPodsAreStoredConcurrently(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store := NewStore(dir)
		a := newAgentOn(t, store, Options{})
		pods := []*actor{{name: "a"}, {name: "b"}, {name: "c"}}
		write := func() {
			for _, p := range pods {
				p.write(good)
			}
			a.want(pods...)
		}
		write()
		time.Sleep(2 * saveAfter)
		synctest.Wait()
		var begun sync.WaitGroup
		begun.Add(len(pods))
		store.fsync = func(f *os.File) error {
			begun.Done()
			begun.Wait()
			return f.Sync()
		}
		write()
		a.stop()
		all, err := NewStore(dir).Load()
		if err != nil || len(all) != len(pods) {
			t.Fatalf("%v, %v", all, err)
		}
		for key, s := range all {
			if s.Active != 2 {
				t.Errorf("%s is at %d", key, s.Active)
			}
		}
	})
}

func TestFailedWriteIsRetried(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store, disk := slowDisk(dir)
		a := newAgentOn(t, store, Options{})
		p := &actor{name: "a"}
		p.write(good)
		a.want(p)
		time.Sleep(2 * saveAfter)
		disk <- errors.New("input/output error")
		close(disk)
		synctest.Wait()
		if all := a.c.States(); len(all) != 1 || len(files(t, dir)) != 0 {
			t.Fatalf("%v, on disk %v", all, files(t, dir))
		}
		time.Sleep(saveAgain + time.Second)
		synctest.Wait()
		if all, err := NewStore(dir).Load(); err != nil || all[p.wanted.Key()] == nil {
			t.Errorf("%v, %v", all, err)
		}
		a.stop()
	})
}

// TestFailedWriteDelaysNoOtherPod replaces the directory of a pod by a file.
func TestFailedWriteDelaysNoOtherPod(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, dir, Options{})
		defer a.stop()
		pods := []*actor{{name: "bad"}, {name: "beside"}, {name: "later"}}
		for _, p := range pods {
			p.write(good)
		}
		stored := func() string {
			all, err := NewStore(dir).Load()
			if err != nil {
				t.Error(err)
			}
			var names []string
			for key := range all {
				names = append(names, key.Name)
			}
			slices.Sort(names)
			return strings.Join(names, " ")
		}
		obstacle := filepath.Join(dir, "default", "bad")
		if err := errors.Join(os.Mkdir(filepath.Dir(obstacle), 0o700), os.WriteFile(obstacle, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		a.want(pods[:2]...)
		time.Sleep(2 * saveAfter)
		synctest.Wait()
		a.want(pods...)
		time.Sleep(2 * saveAfter)
		synctest.Wait()
		if err := os.Remove(obstacle); err != nil {
			t.Fatal(err)
		}
		if got := stored(); got != "beside later" {
			t.Errorf("stored are %q", got)
		}
		time.Sleep(saveAgain)
		synctest.Wait()
		if got := stored(); got != "bad beside later" {
			t.Errorf("at last %q are stored", got)
		}
	})
}

func TestNoWriteAndNoHandOutWithoutChange(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, dir, Options{})
		defer a.stop()
		p := &actor{name: "a"}
		p.write(good)
		a.want(p)
		a.carry()
		time.Sleep(time.Minute)
		before, hands := files(t, dir), a.times()
		for range 10 {
			a.carry()
			a.c.Observe(p.wanted.Key(), &Observed{Recorded: p.wanted})
			a.c.Observe(p.wanted.Key(), nil)
			time.Sleep(time.Hour)
		}
		synctest.Wait()
		after := files(t, dir)
		if len(before) != 1 || len(after) != 1 || !before["/default/a/state"].Equal(after["/default/a/state"]) || a.times() != hands {
			t.Errorf("%v, then %v; handed out %d times", before, after, a.times()-hands)
		}
	})
}

func TestRollbackAfterFailedTrialSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		o := Options{AutoRollback: true, ReadyDeadline: deadline, Soak: soak}
		a := newAgent(t, dir, o)
		p := &actor{name: "a"}
		p.write(good)
		a.want(p)
		a.carry()
		old := p.wanted
		p.write(neverReady)
		a.want(p)
		a.runs(p.wanted)
		if all, err := NewStore(dir).Load(); err != nil || all[old.Key()] == nil || all[old.Key()].Active != 2 {
			t.Errorf("handed out before it was written: %v, %v", all, err)
		}
		a.carry()
		time.Sleep(deadline - time.Second)
		synctest.Wait()
		a.runs(p.wanted)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		a.runs(old)
		if a.first().Origin != p.wanted.Origin {
			t.Errorf("it is from %v", a.first().Origin)
		}
		pointer := a.first()
		a.want(p)
		if a.first() != pointer {
			t.Error("the same revision is another pod now")
		}
		if v, ok := a.c.View(old.Key()); !ok || v.Active != 1 || v.Wanted != 2 || v.Rollback == nil || v.Rollback.Kind != Automatic {
			t.Errorf("%+v", v)
		}
		a.stop()
		b := newAgent(t, dir, o)
		b.want(p)
		b.runs(old)
		b.stop()
	})
}

// TestOldManifestsAreSmall edits a pod until the oldest revisions are dropped, and checks the size of the kept ones.
func TestOldManifestsAreSmall(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, dir, Options{})
		p := &actor{name: "a", notes: map[string]string{"text": strings.Repeat("the same again ", 100)}}
		var written []*manifests.Pod
		for range Kept + 2 {
			p.write(good)
			written = append(written, p.wanted)
			a.want(p)
			a.carry()
		}
		check := func(s *State) {
			t.Helper()
			if len(s.Revisions) != Kept {
				t.Fatalf("%d are kept", len(s.Revisions))
			}
			for _, r := range s.Revisions {
				if small := r.Manifest.Size() > 0 && r.Manifest.Size() < 500; small != (r.Number != s.Active) {
					t.Errorf("that of revision %d takes %d bytes", r.Number, r.Manifest.Size())
				}
				pod, err := r.Pod(p.wanted.Origin)
				if err != nil || Hash(pod.Object) != r.Hash || Hash(written[r.Number-1].Object) != r.Hash {
					t.Errorf("revision %d is another pod: %v", r.Number, err)
				}
			}
		}
		check(a.c.State(p.wanted.Key()))
		a.stop()
		all, err := NewStore(dir).Load()
		if err != nil {
			t.Fatal(err)
		}
		check(all[p.wanted.Key()])
		b, err := os.ReadFile(filepath.Join(dir, "default", "a", stateFile))
		if err != nil || strings.Count(string(b), `"the same again `) != Kept {
			t.Errorf("on disk it is not as before: %v\n%s", err, b)
		}
	})
}

// anyRevision admits every revision.
func anyRevision(*Revision) error { return nil }

func TestManualRollbackIsStoredBeforeItReturns(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, dir, Options{})
		p := &actor{name: "a"}
		p.write(good)
		a.want(p)
		a.carry()
		old := p.wanted
		if _, err := a.c.Rollback(manifests.Key{Namespace: "default", Name: "b"}, 0, anyRevision); !errors.Is(err, ErrUnknown) {
			t.Errorf("%v", err)
		}
		if _, err := a.c.Rollback(old.Key(), 0, anyRevision); err == nil {
			t.Error("there is nothing to go back to")
		}
		p.write(good)
		a.want(p)
		a.carry()
		refused := errors.New("refused")
		if _, err := a.c.Rollback(old.Key(), 0, func(r *Revision) error {
			if r.Number != 1 {
				t.Errorf("asked about %+v", r)
			}
			return refused
		}); !errors.Is(err, refused) || a.c.State(old.Key()).Active != 2 {
			t.Errorf("%v", err)
		}
		s, err := a.c.Rollback(old.Key(), 0, anyRevision)
		if err != nil || s.Active != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		if all, err := NewStore(dir).Load(); err != nil || all[old.Key()].Active != 1 {
			t.Errorf("%v, %v", all, err)
		}
		a.runs(old)
		a.stop()
	})
}

// TestImagesOfRolledBackRevisionAreKept rolls back to a revision that never ran: its images are unknown until it does.
func TestImagesOfRolledBackRevisionAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, t.TempDir(), Options{})
		defer a.stop()
		p := &actor{name: "a"}
		for range 3 {
			p.write(good)
			a.want(p)
		}
		if _, err := a.c.Rollback(p.wanted.Key(), 2, anyRevision); err != nil {
			t.Fatal(err)
		}
		if first := a.first(); first == p.wanted || len(first.Images) != 0 {
			t.Fatalf("%+v", first)
		}
		a.c.Observe(p.wanted.Key(), &Observed{Recorded: a.first(), Seen: Seen{Images: map[string]string{"c": "sha256:7"}}})
		synctest.Wait()
		if got := a.first().Images["c"]; got != "sha256:7" {
			t.Errorf("it may run something else than %q when it starts again", got)
		}
		hands := a.times()
		a.c.Observe(p.wanted.Key(), &Observed{Recorded: a.first(), Seen: Seen{Images: map[string]string{"c": "sha256:8"}}})
		synctest.Wait()
		if a.times() != hands {
			t.Error("handed out again")
		}
	})
}

func TestRollbackOnFullDiskIsStoredLater(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, dir, Options{})
		defer a.stop()
		p := &actor{name: "a"}
		p.write(good)
		a.want(p)
		a.carry()
		old := p.wanted
		p.write(good)
		a.want(p)
		a.carry()
		time.Sleep(time.Minute)
		synctest.Wait()
		pods := filepath.Join(dir, "default")
		if err := errors.Join(os.Rename(pods, pods+"-away"), os.WriteFile(pods, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := a.c.Rollback(old.Key(), 1, anyRevision); !errors.Is(err, ErrNotStored) {
			t.Errorf("%v", err)
		}
		a.runs(old)
		if err := errors.Join(os.Remove(pods), os.Rename(pods+"-away", pods)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * saveAgain)
		synctest.Wait()
		if all, err := NewStore(dir).Load(); err != nil || all[old.Key()].Active != 1 {
			t.Errorf("%v, %v", all, err)
		}
	})
}

func TestRemovedPodIsForgottenOnceKnown(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, dir, Options{})
		defer a.stop()
		p := &actor{name: "a"}
		p.write(good)
		a.want(p)
		a.carry()
		time.Sleep(time.Minute)
		a.want() // its source has not been read
		time.Sleep(time.Minute)
		if got := files(t, dir); len(got) != 1 || a.c.State(p.wanted.Key()) == nil {
			t.Errorf("forgotten too early: %v", got)
		}
		a.gone = true
		a.want()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := files(t, dir); len(got) != 0 || a.c.State(p.wanted.Key()) != nil {
			t.Errorf("not forgotten: %v", got)
		}
	})
}

func TestPodsOfJobsHaveNoRevisions(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, dir, Options{})
		p := &actor{name: "job-0"}
		p.write(good)
		p.wanted.Object.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "job"}}
		a.want(p)
		a.carry()
		if len(a.c.States()) != 0 || a.first() != p.wanted {
			t.Errorf("%v", a.c.States())
		}
		a.stop()
		if got := files(t, dir); len(got) != 0 {
			t.Errorf("%v", got)
		}
	})
}

func TestLowerSourceAddsNoRevisionWhileHigherIsUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, t.TempDir(), Options{AutoRollback: true, ReadyDeadline: time.Minute})
		defer a.stop()
		p := &actor{name: "a"}
		p.write(good)
		file := p.wanted
		file.Origin.Source = "file"
		a.want(p)
		a.carry()
		p.write(neverReady)
		applied := p.wanted
		applied.Origin.Source = "applied"
		unread := true
		update := func() {
			d := model.Desired{Pods: []*manifests.Pod{applied}, Order: []string{"file", "applied"}, Reported: map[string]bool{"applied": true, "file": !unread}}
			a.c.Update(d, func(run model.Desired) { a.last = run.Pods })
			synctest.Wait()
		}
		update()
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := a.c.State(file.Key()); s == nil || s.Wanted != 1 || len(s.Revisions) != 1 || s.Origin.Source != "file" {
			t.Errorf("unread: %+v", s)
		}
		a.runs(applied) // if it should run at all; the runner keeps running pods
		unread = false
		update()
		if s := a.c.State(file.Key()); s == nil || s.Wanted != 2 || s.Origin.Source != "applied" {
			t.Errorf("read: %+v", s)
		}
	})
}

func TestGroupProceedsWhenEarlierPodsAreReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, t.TempDir(), Options{})
		defer a.stop()
		x, y := &actor{name: "x", group: "g"}, &actor{name: "y", group: "g", order: 1}
		x.write(good)
		y.write(good)
		a.want(y, x)
		a.carry()
		oldY := y.wanted
		x.write(neverReady)
		y.write(good)
		a.want(y, x)
		a.carry()
		a.runs(oldY, x.wanted)
		if v, _ := a.c.View(oldY.Key()); v.Waits != x.wanted.Key() {
			t.Errorf("%+v", v)
		}
		a.c.Observe(x.wanted.Key(), &Observed{Recorded: x.wanted, Seen: Seen{Ready: true}})
		synctest.Wait()
		a.runs(y.wanted, x.wanted)
		a.c.Blind()
		a.want(y, x)
		a.runs(y.wanted, x.wanted)
	})
}

// TestObservationDuringDecisionIsUsed has a pod become Ready between its observation and the moment its unit becomes busy.
func TestObservationDuringDecisionIsUsed(t *testing.T) {
	p := &actor{name: "a"}
	p.write(good)
	c := controllerOf([]*manifests.Pod{p.wanted}, func(model.Desired) {})
	now := c.cfg.Clock()
	next, _ := c.empty()
	<-c.trigger
	c.wanted = *next
	c.follow()
	u := c.units["pod default/a"]
	verdicts, _, busy := Decide(now, c.members(u), c.cfg.Options)
	c.Observe(p.wanted.Key(), &Observed{Recorded: p.wanted, Seen: Seen{Ready: true}})
	select {
	case <-c.trigger:
		t.Fatal("it matters already")
	default:
	}
	c.show(p.wanted.Key(), verdicts[0], busy)
	c.states[p.wanted.Key()], u.busy, u.fresh = verdicts[0].State, busy, false
	select {
	case <-c.trigger:
	default:
		t.Fatal("nobody looks again")
	}
	c.turn()
	if r := c.State(p.wanted.Key()).Revision(1); r.Outcome != Ready {
		t.Errorf("it is %s", r.Outcome)
	}
}

// TestAgentDeathBetweenWritesKeepsGroupsConsistent edits a group of three pods, and cuts the agent off from disk and runner after
// a number of writes. The next agent finds what is on disk and what runs.
func TestAgentDeathBetweenWritesKeepsGroupsConsistent(t *testing.T) {
	for _, c := range []conduct{good, neverReady} {
		deaths := 0
		for writes := 0; deaths == writes; writes++ {
			if dieAfter(t, c, writes) {
				deaths++
			}
		}
		if deaths < 9 {
			t.Errorf("%s: all is done with %d writes", c, deaths)
		}
	}
}

// dieAfter reports whether the agent reached the write at which it dies.
func dieAfter(t *testing.T, c conduct, writes int) (died bool) {
	dir := fastDir(t)
	synctest.Test(t, func(t *testing.T) {
		store := NewStore(dir)
		o := Options{AutoRollback: true, ReadyDeadline: deadline, Soak: soak}
		a := newAgentOn(t, store, o)
		var pods []*actor
		for i, name := range []string{"z", "y", "x"} {
			pods = append(pods, &actor{name: name, group: "g", order: i})
		}
		write := func(second conduct) (written []*manifests.Pod) {
			for i, p := range pods {
				p.write([]conduct{good, second, good}[i])
				written = append(written, p.wanted)
			}
			return written
		}
		goOn := func(a *agent) {
			for range 4 * int(deadline/(5*time.Second)) {
				a.carry()
				time.Sleep(5 * time.Second)
			}
		}
		first := write(good)
		a.want(pods...)
		a.carry()
		time.Sleep(2 * saveAfter)
		synctest.Wait()

		var mu sync.Mutex
		store.fsync = func(f *os.File) error {
			mu.Lock()
			defer mu.Unlock()
			if writes--; writes < 0 {
				died = true
				a.disconnected.Store(true)
				return errors.New("it is dead")
			}
			return f.Sync()
		}
		second := write(c)
		a.want(pods...)
		goOn(a)
		a.stop()

		b := newAgent(t, dir, o)
		b.last = a.handed() // the running pods
		b.carry()
		b.want(pods...)
		goOn(b)
		want, back := second, 0
		if c != good {
			want, back = first, len(pods)
		}
		b.runs(want...)
		for _, p := range pods {
			s := b.c.State(p.wanted.Key())
			if s.Rollback != nil {
				back--
			}
			if len(s.Revisions) != 2 || s.Trial != nil || s.Base != 0 {
				t.Errorf("%s: %s: %+v", c, p.name, s)
			}
		}
		if back != 0 {
			t.Errorf("%s: %d too few are gone back with", c, back)
		}
		b.stop()
	})
	return died
}

func TestGroupsAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, fastDir(t), Options{AutoRollback: true, ReadyDeadline: deadline, Soak: soak})
		defer a.stop()
		pods := []*actor{{name: "w", group: "g"}, {name: "x", group: "g", order: 1}, {name: "y", group: "h"}, {name: "z", group: "h", order: 1}}
		var first, second []*manifests.Pod
		for _, p := range pods {
			p.write(good)
			first = append(first, p.wanted)
		}
		a.want(pods...)
		a.carry()
		for _, p := range pods {
			p.write(map[bool]conduct{true: neverReady, false: good}[p.name == "x"])
			second = append(second, p.wanted)
		}
		a.want(pods...)
		a.runs(second[0], first[1], second[2], first[3]) // the first of each
		for range 6 * int(deadline/(5*time.Second)) {
			a.carry()
			time.Sleep(5 * time.Second)
		}
		synctest.Wait()
		a.runs(first[0], first[1], second[2], second[3])
	})
}
