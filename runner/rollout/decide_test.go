package rollout

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"monopod/internal/boottime"
	"monopod/manifests"
)

// conduct is how a manifest behaves when it runs; it is the image of its container.
type conduct string

const (
	good       conduct = "good"
	neverReady conduct = "never-ready"
	crashes    conduct = "crashes"    // Ready at first
	unpullable conduct = "unpullable" // the previous revision keeps running
)

// world is a machine with the pods of one unit: what is written, what is stored, what runs.
type world struct {
	now     boottime.Moment
	options Options
	pods    []*actor
	memory  map[string]*State
	disk    map[string]*State
	blind   bool
	log     []Transition
	next    time.Duration
	busy    bool
}

// actor is one pod.
type actor struct {
	name   string
	order  int
	group  string
	notes  map[string]string
	edits  int
	wanted *manifests.Pod
	hash   string
	// runs is the manifest that has been applied completely, at since.
	runs     *corev1.Pod
	runsHash string
	since    time.Duration
	restarts int
	// gone reports that it is not in any source.
	gone bool
}

const (
	deadline = time.Minute
	soak     = 10 * time.Second
)

func newWorld(auto bool, pods ...*actor) *world {
	w := &world{
		now:     boottime.Moment{Boot: "boot-1", Since: time.Hour, Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
		options: Options{AutoRollback: auto, ReadyDeadline: deadline, Soak: soak},
		pods:    pods, memory: map[string]*State{}, disk: map[string]*State{},
	}
	for _, a := range pods {
		a.write(good)
	}
	return w
}

// write edits the manifest, differently each time.
func (a *actor) write(c conduct) {
	a.edits++
	a.writeAgain(c, a.edits)
}

// writeAgain writes the content of an earlier edit.
func (a *actor) writeAgain(c conduct, edit int) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: a.name, Labels: map[string]string{"edit": fmt.Sprint(edit)}, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: string(c)}}},
	}
	if a.group != "" {
		p.Annotations[manifests.AnnotationUpdateGroup] = a.group
		p.Annotations[manifests.AnnotationUpdateOrder] = fmt.Sprint(a.order)
	}
	maps.Copy(p.Annotations, a.notes)
	a.wanted = &manifests.Pod{Object: p, Origin: manifests.Origin{Source: "file", File: "/m/" + a.name + ".yaml"}}
	a.hash = Hash(p)
}

// here returns the pods that are in a source.
func (w *world) here() []*actor {
	return slices.DeleteFunc(slices.Clone(w.pods), func(a *actor) bool { return a.gone })
}

// remove removes a pod from all sources: it is forgotten.
func (w *world) remove(a *actor) {
	a.gone, a.runs = true, nil
	delete(w.memory, a.name)
	delete(w.disk, a.name)
}

// move moves the same content to another source.
func (a *actor) move() {
	p := *a.wanted
	p.Origin.Source, p.Object = p.Origin.Source+"'", p.Object.DeepCopy()
	a.wanted = &p
}

func (w *world) actor(name string) *actor {
	for _, a := range w.pods {
		if a.name == name {
			return a
		}
	}
	return nil
}

// seen returns the runner's report about a pod.
func (w *world) seen(a *actor) *Seen {
	if w.blind || a.runs == nil {
		return nil
	}
	s := &Seen{Hash: a.runsHash, Restarts: a.restarts}
	up := w.now.Since - a.since
	switch conduct(a.runs.Spec.Containers[0].Image) {
	case good:
		s.Ready = up >= time.Second
	case crashes:
		s.Ready = up >= time.Second && up < 3*time.Second
	case neverReady:
		s.Why = "its probe fails"
	}
	return s
}

func (w *world) members() []Member {
	var all []Member
	for _, a := range w.here() {
		all = append(all, Member{Wanted: a.wanted, Hash: a.hash, State: w.memory[a.name], Seen: w.seen(a)})
	}
	return all
}

// decide decides, stores and acts. It dies after cut writes; -1 means never.
func (w *world) decide(cut int) (died bool) {
	here := w.here()
	verdicts, next, busy := Decide(w.now, w.members(), w.options)
	w.next, w.busy = next, busy
	for _, changed := range []bool{false, true} {
		for i, v := range verdicts {
			if !v.First || v.Changed != changed {
				continue
			}
			if cut == 0 {
				return true
			}
			cut--
			w.disk[here[i].name] = v.State
		}
	}
	for i, v := range verdicts {
		w.memory[here[i].name] = v.State
		w.log = append(w.log, v.Transitions...)
	}
	for i, v := range verdicts {
		w.act(here[i], v.State)
	}
	for i, v := range verdicts {
		if cut == 0 {
			return true
		}
		w.disk[here[i].name] = v.State
	}
	return false
}

// act runs the active revision if possible.
func (w *world) act(a *actor, s *State) {
	target, hash := a.wanted.Object, s.Revision(s.Active).Hash
	if s.Active != s.Wanted {
		pod, err := s.Revision(s.Active).Pod(a.wanted.Origin)
		if err != nil {
			panic(err)
		}
		target = pod.Object
	}
	if conduct(target.Spec.Containers[0].Image) == unpullable && a.runs != nil {
		return
	}
	if a.runs == nil || a.runsHash != hash {
		a.runs, a.runsHash, a.since, a.restarts = target, hash, w.now.Since, 0
	}
}

func (w *world) pass(d time.Duration) {
	w.now.Since += d
	w.now.Wall = w.now.Wall.Add(d)
}

// settle advances the time until nothing changes.
func (w *world) settle() {
	began := w.now.Since
	for quiet := 0; quiet < 3*len(w.pods); w.pass(time.Second) {
		w.decide(-1)
		if quiet++; w.busy {
			quiet = 0
		}
		if w.now.Since > began+400*time.Second { // without trials some pods never settle
			return
		}
	}
}

// restart restarts the agent: only what is on disk is kept.
func (w *world) restart() {
	w.memory = maps.Clone(w.disk)
}

func (w *world) reboot() {
	w.restart()
	w.now.Boot += "'"
	w.now.Since = time.Minute
	for _, a := range w.pods {
		a.since = w.now.Since
	}
}

// runs returns the running pods as "name=conduct/edit ...".
func (w *world) runs() string {
	var all []string
	for _, a := range w.here() {
		all = append(all, fmt.Sprintf("%s=%s/%s", a.name, a.runs.Spec.Containers[0].Image, a.runs.Labels["edit"]))
	}
	return strings.Join(all, " ")
}

func (w *world) expect(t *testing.T, want string) {
	t.Helper()
	if got := w.runs(); got != want {
		t.Errorf("runs %s, want %s\n%s", got, want, w.story())
	}
}

func (w *world) story() string {
	var b strings.Builder
	for _, tr := range w.log {
		fmt.Fprintf(&b, "%s %s: %s\n", tr.Key.Name, tr.Kind, tr.Message)
	}
	return b.String()
}

func (w *world) state(name string) *State { return w.memory[name] }

func (w *world) outcomes(name string) string {
	var all []string
	for _, r := range w.state(name).Revisions {
		all = append(all, fmt.Sprintf("%d:%s", r.Number, r.Outcome))
	}
	return strings.Join(all, " ")
}

func TestPodRunsWrittenRevisionWithoutAutoRollback(t *testing.T) {
	w := newWorld(false, &actor{name: "a"})
	w.settle()
	w.pods[0].write(neverReady)
	w.settle()
	w.expect(t, "a=never-ready/2")
	w.pods[0].write(good)
	w.settle()
	w.expect(t, "a=good/3")
	if got := w.outcomes("a"); got != "1:Ready 2:Superseded 3:Ready" || w.busy || w.next != 0 {
		t.Errorf("%s, busy %v, next %s", got, w.busy, w.next)
	}
}

func TestFailedRevisionIsRolledBackAndNotRetried(t *testing.T) {
	for _, c := range []conduct{neverReady, crashes, unpullable} {
		t.Run(string(c), func(t *testing.T) {
			w := newWorld(true, &actor{name: "a"})
			w.settle()
			began := w.pods[0].since
			w.pods[0].write(c)
			w.settle()
			w.expect(t, "a=good/1")
			if got := w.outcomes("a"); got != "1:Ready 2:Failed" || w.busy {
				t.Errorf("%s, busy %v\n%s", got, w.busy, w.story())
			}
			if c == unpullable && w.pods[0].since != began {
				t.Error("what never stopped was started again")
			}
			for _, fault := range []func(){w.restart, w.reboot} {
				fault()
				w.settle()
				w.expect(t, "a=good/1")
			}
			rollback := w.state("a").Rollback
			if rollback == nil || rollback.Kind != Automatic || rollback.From != 2 || !strings.Contains(rollback.Reason, "revision 2 has failed: it ") {
				t.Errorf("%+v", rollback)
			}
			w.pods[0].write(good)
			w.settle()
			w.expect(t, "a=good/3")
			if w.state("a").Rollback != nil {
				t.Error("it is still gone back")
			}
		})
	}
}

// TestRevisionReadyJustBeforeEditCanBeRolledBackTo has a pod become Ready and its manifest change between two observations.
func TestRevisionReadyJustBeforeEditCanBeRolledBackTo(t *testing.T) {
	w := newWorld(true, &actor{name: "a"})
	w.decide(-1)
	w.pass(time.Second)
	w.pods[0].write(neverReady)
	w.settle()
	w.expect(t, "a=good/1")
	if got := w.outcomes("a"); got != "1:Ready 2:Failed" {
		t.Errorf("%s\n%s", got, w.story())
	}
}

func TestImagesOfNeverReadyRevisionAreRecorded(t *testing.T) {
	w := newWorld(true, &actor{name: "a"})
	w.settle()
	see := func(images map[string]string) map[string]string {
		m := w.members()
		m[0].Seen.Images = images
		verdicts, _, _ := Decide(w.now, m, w.options)
		w.memory["a"] = verdicts[0].State
		return w.state("a").Revision(2).Images
	}
	w.pods[0].write(neverReady)
	w.decide(-1)
	if got := see(map[string]string{"init": "1"}); len(got) != 1 || got["init"] != "1" {
		t.Errorf("%v", got)
	}
	state := w.state("a")
	if see(nil); w.state("a") != state {
		t.Error("what is seen no more was never so")
	}
	if got := see(map[string]string{"init": "8", "c": "2"}); len(got) != 2 || got["init"] != "1" || got["c"] != "2" {
		t.Errorf("%v", got)
	}
	if state.Revision(2).Images["c"] != "" {
		t.Error("a state was changed in place")
	}
	w.settle()
	w.expect(t, "a=good/1")
	if r := w.state("a").Revision(2); r.Outcome != Failed || len(r.Images) != 2 {
		t.Errorf("%+v", r)
	}
	if len(w.state("a").Revision(1).Images) != 0 {
		t.Error("those of another revision")
	}
}

func TestTrialDeadlineAndSoak(t *testing.T) {
	w := newWorld(true, &actor{name: "a"})
	w.settle()
	w.pods[0].write(neverReady)
	w.decide(-1)
	if w.next != w.now.Since+deadline {
		t.Errorf("next %s", w.next-w.now.Since)
	}
	w.pass(deadline - 1)
	w.decide(-1)
	w.expect(t, "a=never-ready/2")
	w.pass(1)
	w.decide(-1)
	w.expect(t, "a=good/1")

	w.pods[0].write(good)
	w.decide(-1)
	w.pass(time.Second)
	w.decide(-1)
	if r := w.state("a").Revision(3); r.Outcome != Progressing || w.next != w.now.Since+soak {
		t.Errorf("soaks: %+v, next %s", r.Outcome, w.next-w.now.Since)
	}
	w.pods[0].restarts++ // between two observations
	w.pass(soak)
	w.decide(-1)
	if r := w.state("a").Revision(3); r.Outcome != Failed {
		t.Errorf("restarted while it soaked: %s", r.Outcome)
	}
}

func TestUnobservedRevisionIsNotRolledBack(t *testing.T) {
	for name, away := range map[string]func(w *world){
		"the agent was down": func(w *world) {
			w.pass(10 * deadline)
			w.restart()
			w.blind = true
			w.decide(-1)
		},
		"the runtime did not answer": func(w *world) {
			w.blind = true
			for range 10 {
				w.decide(-1)
				w.pass(w.next - w.now.Since)
			}
			w.decide(-1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(true, &actor{name: "a"})
			w.settle()
			a := w.pods[0]
			a.write(good)
			w.decide(-1)
			away(w)
			w.blind = false
			a.since = w.now.Since // it starts only now
			w.decide(-1)
			w.expect(t, "a=good/2")
			w.settle()
			w.expect(t, "a=good/2")
			if r := w.state("a").Revision(2); r.Outcome != Ready {
				t.Errorf("it is %s: %s", r.Outcome, r.Reason)
			}
		})
	}
}

func TestTrialContinuesAfterRestartAndRestartsAfterReboot(t *testing.T) {
	w := newWorld(true, &actor{name: "a"})
	w.settle()
	w.pods[0].write(neverReady)
	w.decide(-1)
	w.pass(deadline / 2)
	w.restart()
	w.blind = true
	w.decide(-1)
	w.pass(deadline - 1)
	w.decide(-1)
	w.expect(t, "a=never-ready/2") // not observed
	w.blind = false
	w.decide(-1)
	w.expect(t, "a=never-ready/2") // the deadline has been restarted
	w.pass(w.next - w.now.Since - 1)
	w.decide(-1)
	w.expect(t, "a=never-ready/2")
	w.pass(1)
	w.decide(-1)
	w.expect(t, "a=good/1")

	w.pods[0].write(neverReady)
	w.decide(-1)
	w.pass(deadline - 1)
	w.reboot()
	w.decide(-1)
	w.pass(deadline - 1)
	w.decide(-1)
	w.expect(t, "a=never-ready/3")
	w.pass(1)
	w.decide(-1)
	w.expect(t, "a=good/1")
}

func TestNoTrialWithoutEarlierReadyRevision(t *testing.T) {
	w := newWorld(true, &actor{name: "a"})
	w.pods[0].writeAgain(neverReady, 1)
	w.settle()
	w.pods[0].write(crashes)
	w.settle()
	w.expect(t, "a=crashes/2")
	if w.state("a").Trial != nil || w.state("a").Rollback != nil {
		t.Errorf("%+v", w.state("a"))
	}
}

func TestAnnotationOverridesOptions(t *testing.T) {
	off := &actor{name: "a", notes: map[string]string{manifests.AnnotationAutoRollback: "false"}}
	w := newWorld(true, off)
	w.settle()
	off.write(neverReady)
	w.settle()
	w.expect(t, "a=never-ready/2")
	on := &actor{name: "a", notes: map[string]string{
		manifests.AnnotationAutoRollback: "true", manifests.AnnotationReadyDeadline: "3s", manifests.AnnotationSoak: "0s",
	}}
	w = newWorld(false, on)
	w.settle()
	on.write(crashes) // Ready for a moment, which is enough without a soak time
	w.settle()
	w.expect(t, "a=crashes/2")
	on.write(neverReady)
	w.decide(-1)
	w.pass(3 * time.Second)
	w.decide(-1)
	w.expect(t, "a=crashes/2")
}

func TestSourceRevertToRunningRevisionEndsRollback(t *testing.T) {
	w := newWorld(true, &actor{name: "a"})
	w.settle()
	w.pods[0].write(neverReady)
	w.settle()
	began := w.pods[0].since
	w.pods[0].writeAgain(good, 1)
	w.settle()
	w.expect(t, "a=good/1")
	if s := w.state("a"); s.Rollback != nil || s.Wanted != 1 || len(s.Revisions) != 2 || w.pods[0].since != began {
		t.Errorf("%+v", s)
	}
	w.pods[0].writeAgain(neverReady, 2)
	w.decide(-1)
	w.expect(t, "a=never-ready/2") // written again: tried again
}

func TestManualRollbackLastsUntilSourceChanges(t *testing.T) {
	w := newWorld(true, &actor{name: "a"})
	w.settle()
	w.pods[0].write(good)
	w.settle()
	s, err := GoBack(w.now, w.state("a"), 0)
	if err != nil {
		t.Fatal(err)
	}
	w.memory["a"], w.disk["a"] = s, s
	for _, fault := range []func(){func() {}, w.restart, w.reboot} {
		fault()
		w.settle()
		w.expect(t, "a=good/1")
	}
	w.pods[0].write(good)
	w.settle()
	w.expect(t, "a=good/3")
}

func TestOnlyLatestAndNeededRevisionsAreKept(t *testing.T) {
	w := newWorld(true, &actor{name: "a"})
	w.settle()
	for range 3 * Kept {
		w.pods[0].write(neverReady)
		w.settle()
		w.expect(t, "a=good/1")
	}
	s := w.state("a")
	if len(s.Revisions) != Kept || s.Revision(1) == nil || s.newest() != 3*Kept+1 {
		t.Errorf("%s", w.outcomes("a"))
	}
}

func TestServerManagedFieldsAreNoRevision(t *testing.T) {
	w := newWorld(false, &actor{name: "a"})
	w.settle()
	p := w.pods[0].wanted.Object.DeepCopy()
	p.ResourceVersion, p.Generation, p.ManagedFields = "17", 4, []metav1.ManagedFieldsEntry{{Manager: "x"}}
	w.pods[0].wanted = &manifests.Pod{Object: p, Origin: w.pods[0].wanted.Origin}
	before := w.state("a")
	if w.decide(-1); w.state("a") != before {
		t.Error(cmp.Diff(before, w.state("a")))
	}
}

func plane(auto bool) *world {
	return newWorld(auto,
		&actor{name: "scheduler", order: 2, group: "plane"}, &actor{name: "apiserver", order: 1, group: "plane"},
		&actor{name: "etcd", group: "plane"}, &actor{name: "controllers", order: 2, group: "plane"})
}

func TestGroupIsUpdatedOneByOneInOrder(t *testing.T) {
	w := plane(false)
	w.settle()
	w.log = nil
	for _, a := range w.pods {
		a.write(good)
	}
	var order []string
	for range 60 {
		w.decide(-1)
		if v := w.state("scheduler"); v.Active != v.Wanted {
			verdicts, _, _ := Decide(w.now, w.members(), w.options)
			order = append(order, verdicts[0].Waits.Name)
		}
		w.pass(time.Second)
	}
	w.expect(t, "scheduler=good/2 apiserver=good/2 etcd=good/2 controllers=good/2")
	if at := func(name string) time.Duration { return w.actor(name).since }; at("etcd") >= at("apiserver") || at("apiserver") >= at("controllers") || at("controllers") >= at("scheduler") {
		t.Errorf("begun at %s %s %s %s", at("etcd"), at("apiserver"), at("controllers"), at("scheduler"))
	}
	if got := strings.Join(order, " "); got != "etcd apiserver controllers" {
		t.Errorf("the last one waited for %s", got)
	}
	if w.busy {
		t.Error("it does not come to rest")
	}
}

func TestGroupStopsAtFirstPodNotReady(t *testing.T) {
	w := plane(false)
	w.settle()
	for _, a := range w.pods {
		a.write(good)
	}
	w.actor("apiserver").write(unpullable) // the old one stays Ready
	w.settle()
	w.expect(t, "scheduler=good/1 apiserver=good/1 etcd=good/2 controllers=good/1")
	w.actor("apiserver").write(good)
	w.settle()
	w.expect(t, "scheduler=good/2 apiserver=good/4 etcd=good/2 controllers=good/2")
}

// TestRevisionWrittenAgainWhileNextWaitsIsRetried reverts the source of a pod to the revision on trial while its successor
// waits for its turn.
func TestRevisionWrittenAgainWhileNextWaitsIsRetried(t *testing.T) {
	w := newWorld(true, &actor{name: "x", group: "g"}, &actor{name: "y", group: "g", order: 1})
	w.settle()
	x, y := w.pods[0], w.pods[1]
	y.write(neverReady)
	w.decide(-1)
	w.expect(t, "x=good/1 y=never-ready/2")
	x.write(good)
	y.write(good)
	w.decide(-1)
	w.expect(t, "x=good/2 y=never-ready/2")
	y.writeAgain(neverReady, 2)
	w.settle()
	w.expect(t, "x=good/1 y=good/1")
	if got := w.outcomes("x") + " / " + w.outcomes("y"); got != "1:Ready 2:Reverted / 1:Ready 2:Failed 3:Superseded" {
		t.Errorf("%s\n%s", got, w.story())
	}
}

func TestAGroupIsRevertedAsAWhole(t *testing.T) {
	w := plane(true)
	w.settle()
	for _, a := range w.pods {
		a.write(good)
	}
	w.actor("controllers").write(crashes)
	w.settle()
	w.expect(t, "scheduler=good/1 apiserver=good/1 etcd=good/1 controllers=good/1")
	if got := w.outcomes("etcd") + " / " + w.outcomes("controllers") + " / " + w.outcomes("scheduler"); got != "1:Ready 2:Reverted / 1:Ready 2:Failed / 1:Ready 2:Reverted" {
		t.Errorf("%s\n%s", got, w.story())
	}
	if r := w.state("etcd").Rollback; r == nil || !strings.HasPrefix(r.Reason, "pod controllers of its update group: revision 2 has failed: ") || r.Culprit != "controllers" {
		t.Errorf("%+v", r)
	}
	if r := w.state("controllers").Rollback; r == nil || r.Culprit != "" {
		t.Errorf("the one that failed: %+v", r)
	}
	// After the fix of the failed pod, the group is tried again as a whole.
	w.actor("controllers").write(good)
	w.settle()
	w.expect(t, "scheduler=good/2 apiserver=good/2 etcd=good/2 controllers=good/4")
}

func TestInterruptedRevertIsCompleted(t *testing.T) {
	for cut := range 5 {
		w := plane(true)
		w.settle()
		for _, a := range w.pods {
			a.write(good)
		}
		w.actor("apiserver").write(neverReady)
		for range 60 {
			if w.now.Since += time.Second; w.next != 0 && w.now.Since >= w.next && w.state("apiserver").Active == 2 && w.state("apiserver").Trial.ReadyAt == 0 {
				break
			}
			w.decide(-1)
		}
		w.decide(cut)
		w.reboot()
		w.settle()
		w.settle()
		w.expect(t, "scheduler=good/1 apiserver=good/1 etcd=good/1 controllers=good/1")
	}
}

// TestRandomStoriesEndAsWritten performs random steps at random times, with crashes between any two writes.
func TestRandomStoriesEndAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		auto := rapid.Bool().Draw(t, "auto")
		grouped := rapid.Bool().Draw(t, "grouped")
		n := 1
		if grouped {
			n = rapid.IntRange(1, 4).Draw(t, "pods")
		}
		var pods []*actor
		for i := range n {
			a := &actor{name: fmt.Sprintf("p%d", i), order: rapid.IntRange(0, 2).Draw(t, "order")}
			if grouped {
				a.group = "g"
			}
			pods = append(pods, a)
		}
		w := newWorld(auto, pods...)
		w.settle()
		failed := map[string]string{} // by pod: the written revision that has failed
		write := func(a *actor, c conduct) {
			a.write(c)
			clear(failed) // an edit of one pod is an edit of the group
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			a := rapid.SampledFrom(w.pods).Draw(t, "pod")
			if a.gone {
				a.gone = false
				a.write(rapid.SampledFrom([]conduct{good, good, neverReady}).Draw(t, "conduct"))
			}
			switch rapid.IntRange(0, 11).Draw(t, "what") {
			case 0, 1:
				write(a, good)
			case 2, 3:
				write(a, rapid.SampledFrom([]conduct{neverReady, crashes, unpullable}).Draw(t, "conduct"))
			case 4:
				w.restart()
			case 5:
				w.reboot()
			case 6:
				w.blind = !w.blind
			case 7:
				w.settle()
			case 8:
				if len(w.here()) > 1 {
					delete(failed, a.name)
					w.remove(a)
				}
			case 9:
				a.move()
			default:
				w.pass(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
			}
			w.check(t)
			if w.decide(rapid.IntRange(-1, 3).Draw(t, "cut")) {
				w.restart()
			}
			for _, a := range w.here() {
				if s := w.memory[a.name]; s != nil && s.Revision(s.Wanted).Outcome == Failed && w.disk[a.name] == s && w.accepted() {
					failed[a.name] = s.Revision(s.Wanted).Hash
				}
				if s := w.memory[a.name]; s != nil && failed[a.name] != "" && s.Revision(s.Active).Hash == failed[a.name] {
					t.Fatalf("%s runs again what has failed\n%s", a.name, w.story())
				}
			}
		}
		w.blind = false
		w.settle()
		w.ended(t, auto)
	})
}

// accepted reports whether the written manifests of all pods have been recorded.
func (w *world) accepted() bool {
	return !slices.ContainsFunc(w.here(), func(a *actor) bool {
		s := w.memory[a.name]
		return s == nil || s.Revision(s.Wanted).Hash != a.hash
	})
}

// check checks the invariants of Decide.
func (w *world) check(t *rapid.T) {
	members := w.members()
	var before []*State
	for _, m := range members {
		var c *State
		if m.State != nil {
			c = m.State.clone()
		}
		before = append(before, c)
	}
	verdicts, _, _ := Decide(w.now, members, w.options)
	for i, v := range verdicts {
		if !reflect.DeepEqual(before[i], members[i].State) {
			t.Fatalf("a state was changed in place: %s", cmp.Diff(before[i], members[i].State))
		}
		s := v.State
		if s.Revision(s.Active) == nil || s.Revision(s.Wanted) == nil || len(s.Revisions) > Kept {
			t.Fatalf("revisions are missing, or too many: %+v", s)
		}
		if s.Revision(s.Wanted).Hash != members[i].Hash {
			t.Fatalf("what is written is not what is wanted: %+v", s)
		}
		if s.Active != s.Wanted && s.Rollback == nil && v.Waits == (manifests.Key{}) {
			t.Fatalf("it waits for nobody: %+v", s)
		}
		w.checkTurn(t, members, verdicts, i)
		members[i].State = s
	}
	again, _, _ := Decide(w.now, members, w.options)
	for i, v := range again {
		if v.State != verdicts[i].State || len(v.Transitions) > 0 {
			t.Fatalf("a second look says something else: %s", cmp.Diff(verdicts[i].State, v.State))
		}
	}
}

// checkTurn checks that a pod gets its turn only when all pods before it are Ready with the revisions that they should run.
func (w *world) checkTurn(t *rapid.T, members []Member, verdicts []Verdict, i int) {
	old, s := members[i].State, verdicts[i].State
	if old == nil || s.Active != s.Wanted || old.Active == s.Active || old.Base == 0 && s.Base == 0 {
		return
	}
	here := w.here()
	for j, a := range here {
		o, st := here[i], verdicts[j].State
		if a.order > o.order || a.order == o.order && a.name >= o.name {
			continue
		}
		if seen := members[j].Seen; seen == nil || !seen.Ready || seen.Hash != st.Revision(st.Active).Hash || st.Trial != nil {
			t.Fatalf("%s got its turn before %s was Ready\n%s", o.name, a.name, w.story())
		}
	}
}

// orphaned reports whether a pod was reverted because of one that has been removed, which is no edit.
func (w *world) orphaned() bool {
	failed := map[int]bool{}
	for _, a := range w.here() {
		if s := w.state(a.name); s.Rollback != nil && s.Revision(s.Wanted).Outcome == Failed {
			failed[s.Rollback.Wave] = true
		}
	}
	return slices.ContainsFunc(w.here(), func(a *actor) bool {
		r := w.state(a.name).Rollback
		return r != nil && !failed[r.Wave]
	})
}

// ended checks the end of the story against what was written.
func (w *world) ended(t *rapid.T, auto bool) {
	allGood, anyBack, young := true, false, false
	for _, a := range w.here() {
		s := w.state(a.name)
		young = young || s.lastReady(s.newest()+1) == 0 || s.lastReady(s.Active) == 0 && a.runs.Spec.Containers[0].Image != string(good)
		allGood = allGood && a.wanted.Object.Spec.Containers[0].Image == string(good)
		anyBack = anyBack || w.state(a.name).Rollback != nil
	}
	for _, a := range w.here() {
		s := w.state(a.name)
		runs := conduct(a.runs.Spec.Containers[0].Image)
		written := a.runsHash == a.hash
		switch {
		case allGood && (!written || anyBack) && !w.orphaned():
			t.Fatalf("%s does not run what is written and good\n%s", a.name, w.story())
		case auto && runs != good && s.lastReady(s.Wanted) != 0 && len(w.pods) == 1:
			t.Fatalf("%s runs what is bad: %s\n%s", a.name, w.outcomes(a.name), w.story())
		case auto && anyBack && s.Rollback == nil && s.Wave != 0 && s.Base != 0:
			t.Fatalf("%s was left out of the revert\n%s", a.name, w.story())
		}
	}
	if auto && w.busy && !young { // a revision that never was Ready may stay so, as may the first one that was Ready only for a moment
		t.Fatalf("it does not come to rest\n%s", w.story())
	}
}

// TestRollbackToRevisionReadyMeanwhile has a pod whose first revision never was Ready; its second one becomes Ready while the third
// waits for another pod, which fails.
func TestRollbackToRevisionReadyMeanwhile(t *testing.T) {
	w := newWorld(true, &actor{name: "x", group: "g"}, &actor{name: "y", group: "g", order: 1})
	x, y := w.actor("x"), w.actor("y")
	y.gone = true
	w.settle()
	y.gone = false
	y.write(neverReady)
	w.settle()
	y.write(good)
	w.decide(-1)
	x.write(neverReady)
	y.write(good)
	w.settle()
	w.expect(t, "x=good/1 y=good/3")
}

// TestNeverReadyMemberBlocksLaterMembers adds a pod without a revision to return to to a group.
func TestNeverReadyMemberBlocksLaterMembers(t *testing.T) {
	w := newWorld(true, &actor{name: "x", group: "g"}, &actor{name: "y", group: "g", order: 1}, &actor{name: "z", group: "g", order: 2})
	y := w.actor("y")
	y.gone = true
	w.settle()
	y.gone = false
	y.write(neverReady)
	w.settle()
	w.actor("x").write(good)
	w.actor("z").write(good)
	w.settle()
	w.expect(t, "x=good/2 y=never-ready/2 z=good/1")
	verdicts, _, _ := Decide(w.now, w.members(), w.options)
	if waits := verdicts[2].Waits; waits.Name != "y" {
		t.Errorf("it waits for %q", waits.Name)
	}
	y.write(good)
	w.settle()
	w.expect(t, "x=good/2 y=good/3 z=good/2")
	// A pod that has been removed from its source holds up none.
	w.actor("x").write(good)
	y.write(neverReady)
	w.actor("z").write(good)
	w.decide(-1)
	w.remove(y)
	w.settle()
	w.expect(t, "x=good/3 z=good/3")
}
