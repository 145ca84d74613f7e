package apiserver

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/node/apiserver/client"
	"monopod/node/apiserver/mirror"
)

// gathering is a gatherer with pods that the API server has bound to this node, and what it says.
type gathering struct {
	*gatherer
	t     *testing.T
	local *board
	said  []string
	asked int
	left  map[types.UID]int64
}

// newGathering refuses pods whose first image is "no".
func newGathering(t *testing.T, pods ...*corev1.Pod) *gathering {
	t.Helper()
	g := &gathering{t: t, local: newBoard()}
	cfg := config(t, "", g.local)
	cfg.Source = true
	cfg.Check = func(p *corev1.Pod) error {
		if g.asked++; p.Spec.Containers[0].Image == "no" {
			return errors.New("spec.no: not supported:\nnever")
		}
		return nil
	}
	cfg.Refused = func(r *Refusal) {
		g.said = append(g.said, r.Reason+" "+r.Reference().Name+" "+string(r.Reference().UID)+": "+r.Message)
	}
	cfg.Leaving = func(left map[types.UID]int64) { g.left = left }
	g.gatherer = &gatherer{Agent: New(cfg), objects: map[object]*fetched{}, tokens: map[account]*token{}, checked: map[types.UID]checked{}}
	s := &podSink{store: g.store}
	s.begin()
	for _, p := range pods {
		s.add(p)
	}
	s.done()
	return g
}

// bound is a pod that waits over there.
func bound(name, image string) *corev1.Pod {
	p := running(name)
	p.Annotations, p.Status, p.Spec.Containers[0].Image = nil, corev1.PodStatus{Phase: corev1.PodPending}, image
	p.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0))
	return p
}

// word gathers once, and returns the pods, the notes about omitted ones, and the refusals reported since the last call.
func (g *gathering) word() (pods string, left, said []string) {
	g.t.Helper()
	g.said = nil
	if err := g.once(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	_, body, _, err := g.bindings.get()
	if err != nil {
		g.t.Fatal(err)
	}
	c, err := decode.Parts("api", body, decode.Options{Source: mirror.SourceName})
	if err != nil {
		g.t.Fatal(err)
	}
	var names []string
	for _, p := range c.Pods {
		names = append(names, p.Object.Name)
	}
	return strings.Join(names, " "), LeftOut(body), g.said
}

func TestAPodThatCannotRunHereIsLeftOutAndToldOnce(t *testing.T) {
	g := newGathering(t, bound("a", "yes"), bound("b", "no"), bound("c", "no"), bound("d", "yes"))
	g.local.put(with(running("d"), func(p *corev1.Pod) { p.UID = "of a file" }))
	pods, left, said := g.word()
	if pods != "a d" || fmt.Sprint(left) != "[pod default/b: spec.no: not supported: never pod default/c: spec.no: not supported: never]" || len(said) != 3 {
		t.Errorf("%q, left out %q, said %q", pods, left, said)
	}
	for _, want := range []string{"NotSupported b uid-of-b: monopod cannot run this pod: spec.no: not supported:\nnever", "NameTaken d uid-of-d: a manifest on node n1 already defines a pod of this name, which takes precedence"} {
		if !strings.Contains(strings.Join(said, "\n"), want) {
			t.Errorf("%q: no %q", said, want)
		}
	}
	asked := g.asked
	if _, _, said := g.word(); len(said) > 0 || g.asked != asked {
		t.Errorf("nothing is new, and it is said %q, and %d are looked at", said, g.asked-asked)
	}
	m := &mirrors{Agent: g.Agent, cache: map[manifests.Key]mirror.Local{}, tries: map[manifests.Key]mirror.Try{}, waits: map[manifests.Key]*client.Waits{}}
	st := m.view().Refused["uid-of-b"].Pod.Status
	if st.Phase != corev1.PodPending || st.Reason != mirror.ReasonNotSupported || !strings.Contains(st.Message, "spec.no") || len(st.Conditions) != 2 || st.Conditions[0].Status != corev1.ConditionFalse {
		t.Errorf("%+v", st)
	}

	// Of one that runs nothing is refused, whatever is wrong with it; one that is deleted is not looked at.
	g.local.put(with(running("b"), func(p *corev1.Pod) { p.Annotations[mirror.AnnotationSource] = mirror.SourceName }))
	g.store.seePod(with(bound("c", "no"), func(p *corev1.Pod) { p.DeletionTimestamp, p.ResourceVersion = &metav1.Time{}, "2" }), false)
	g.local.drop("default/d")
	if pods, left, said := g.word(); pods != "a b d" || len(left)+len(said) > 0 || len(m.view().Refused) > 0 {
		t.Errorf("%q, left out %q, said %q, refused %v", pods, left, said, m.view().Refused)
	}
}

func TestHowLongADeletedPodHasIsToldBeforeItIsLeftOut(t *testing.T) {
	g := newGathering(t, bound("a", "yes"), bound("b", "yes"))
	for _, name := range []string{"a", "b"} {
		g.local.put(with(running(name), func(p *corev1.Pod) { p.Annotations[mirror.AnnotationSource] = mirror.SourceName }))
	}
	told := func(what, pods, want string) {
		t.Helper()
		if got, _, _ := g.word(); got != pods || fmt.Sprint(g.left) != want {
			t.Errorf("%s: %q, told %v", what, got, g.left)
		}
	}
	version := 1
	leaves := func(name string, seconds int64, gone bool) {
		version++
		g.store.seePod(with(bound(name, "yes"), func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.ResourceVersion = &metav1.Time{}, &seconds, fmt.Sprint(version)
		}), gone)
	}
	told("nothing is deleted", "a b", "map[]")
	leaves("a", 60, false)
	told("one is", "b", "map[uid-of-a:60]")
	leaves("a", 5, false)
	told("in less time", "b", "map[uid-of-a:5]")
	leaves("b", 0, true)
	told("another one by force", "", "map[uid-of-a:5 uid-of-b:0]")
	g.local.drop("default/b")
	told("that has stopped", "", "map[uid-of-a:5]")
}

func TestAfterAFailureAPodThatBecomesReadyIsWorthAnotherTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newBoard(running("web"))
		cfg := config(t, "", local)
		cfg.firstWait, cfg.lastWait = time.Second, time.Minute
		a := New(cfg)
		unready := func(name string) *corev1.Pod {
			return with(running(name), func(p *corev1.Pod) { p.Status.Conditions = nil })
		}
		rests := func(what string, before map[types.UID]bool, want time.Duration, woken bool) {
			t.Helper()
			began := time.Now()
			if got := a.rest(t.Context(), time.Minute, before); got != woken || time.Since(began).Round(time.Second) != want {
				t.Errorf("%s: %v after %v", what, got, time.Since(began))
			}
		}
		before := a.ready()
		rests("nothing happens", before, time.Minute, false)
		time.AfterFunc(10*time.Second, func() { local.put(unready("db")) })
		time.AfterFunc(20*time.Second, func() { local.put(running("db")) })
		rests("one becomes ready", before, 20*time.Second, true)
		rests("it became so during the last try", before, time.Second, true)
		rests("it was so before", a.ready(), time.Minute, false)
	})
}
