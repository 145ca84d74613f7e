package state

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner/pool"
	"monopod/runner/runtimetest"
)

// uids returns the uids of the running pods by their names.
func uids(s *Store) map[string]types.UID {
	all := map[string]types.UID{}
	views, _ := s.Pods()
	for _, v := range views {
		all[v.Pod.Name] = v.Pod.UID
	}
	return all
}

func TestAPodIsReplacedByOneWithAnotherUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		var gone int
		open(t, s, runtimetest.NewFake(), func(c pool.Change) {
			if c.Gone {
				gone++
			}
		})
		s.Publish(fromFiles(serving("web", "other")...))
		time.Sleep(time.Minute)
		before := uids(s)
		if len(before) != 2 || before["web"] == "" {
			t.Fatalf("%v", before)
		}
		key := manifests.Key{Namespace: "default", Name: "web"}
		s.Replace(key, "of another time")
		s.Replace(manifests.Key{Namespace: "default", Name: "none"}, "x")
		time.Sleep(time.Minute)
		if now := uids(s); now["web"] != before["web"] || gone != 0 {
			t.Errorf("an order about another pod has replaced it: %v, then %v", before, now)
		}
		seconds := int64(1)
		s.Bound.SetGracePeriod(before["web"], &seconds)
		s.Replace(key, before["web"])
		time.Sleep(5 * time.Minute)
		now := uids(s)
		if len(now) != 2 || now["web"] == "" || now["web"] == before["web"] || now["other"] != before["other"] {
			t.Errorf("before %v, now %v", before, now)
		}
		s.Publish(fromFiles(serving("web")...))
		time.Sleep(5 * time.Minute)
		if last := uids(s); len(last) != 1 || last["web"] != now["web"] {
			t.Errorf("before %v, now %v", now, last)
		}
	})
}

// fakePool records what it is to run.
type fakePool struct {
	uids map[manifests.Key]types.UID
	got  []model.Desired
}

func (p *fakePool) Update(d model.Desired) { p.got = append(p.got, d) }

func (p *fakePool) has(key manifests.Key, uid types.UID) bool { return p.uids[key] == uid }

func TestAReplacementEndsWhenThePodIsGone(t *testing.T) {
	key := manifests.Key{Namespace: "default", Name: "web"}
	status := func(uid types.UID) *corev1.Pod {
		p := &corev1.Pod{}
		p.UID = uid
		return p
	}
	changeTo := func(p *corev1.Pod, gone bool) pool.Change {
		c := pool.Change{Key: key, Gone: gone}
		c.Status.Pod = p
		return c
	}
	for name, c := range map[string]struct {
		then func(r *replacements, p *fakePool)
		want int
	}{
		"it still stops":     {func(r *replacements, _ *fakePool) { r.observed(changeTo(status("u"), false)) }, 0},
		"nothing is known":   {func(r *replacements, _ *fakePool) { r.observed(changeTo(nil, false)) }, 0},
		"it is gone":         {func(r *replacements, _ *fakePool) { r.observed(changeTo(status("u"), true)) }, 1},
		"there is another":   {func(r *replacements, _ *fakePool) { r.observed(changeTo(status("v"), false)) }, 1},
		"the pool gets more": {func(r *replacements, p *fakePool) { r.feed(p)(fromFiles(serving("web", "x")...)) }, 1},
		"another pool is there": {func(r *replacements, _ *fakePool) {
			r.feed(&fakePool{})(fromFiles(serving("web")...))
			r.pool.Update(r.last)
		}, 0},
	} {
		r, p := &replacements{}, &fakePool{uids: map[manifests.Key]types.UID{key: "u"}}
		r.add(key, "u") // no pool yet
		r.feed(p)(fromFiles(serving("web")...))
		r.add(key, "u")
		if len(p.got) != 2 || len(p.got[0].Pods) != 1 || len(p.got[1].Pods) != 0 {
			t.Fatalf("%s: %+v", name, p.got)
		}
		c.then(r, p)
		if last := p.got[len(p.got)-1]; len(last.Pods) != c.want {
			t.Errorf("%s: the pool got %d pods, want %d", name, len(last.Pods), c.want)
		}
	}
}

// bothSeen records what a pool gets.
type bothSeen struct {
	graces     map[string]time.Duration
	conditions map[string][]corev1.PodCondition
}

func (p *bothSeen) Graces(g map[string]time.Duration)             { p.graces = g }
func (p *bothSeen) Conditions(c map[string][]corev1.PodCondition) { p.conditions = c }

func TestAPoolGetsWhatBothAPIsSayAboutPods(t *testing.T) {
	var b Bound
	seconds := func(n int64) *int64 { return &n }
	gate := []corev1.PodCondition{{Type: "g"}}
	b.SetGracePeriod("own", seconds(0))
	b.SetOwnConditions(map[types.UID][]corev1.PodCondition{"own": gate})
	p := &bothSeen{}
	b.attach(p)
	b.SetGracePeriods(map[types.UID]int64{"bound": 7, "long": 1 << 40, "past": -3})
	b.SetConditions(map[types.UID][]corev1.PodCondition{"bound": gate})
	if len(p.graces) != 4 || p.graces["bound"] != 7*time.Second || p.graces["past"] != 0 || len(p.conditions) != 2 {
		t.Errorf("%+v", p)
	}
	if own, found := p.graces["own"]; !found || own != 0 {
		t.Errorf("%+v", p)
	}
	if len(b.OwnConditions("own")) != 1 || len(b.OwnConditions("bound")) != 0 {
		t.Error("the own conditions")
	}
	b.SetGracePeriod("own", nil)
	b.SetOwnConditions(nil)
	b.SetGracePeriods(nil)
	if len(p.graces) != 0 || len(p.conditions) != 1 {
		t.Errorf("%+v", p)
	}
	for i := range 3 * maxOwnGraces {
		b.SetGracePeriod(types.UID(time.Duration(i).String()), seconds(1))
	}
	if len(p.graces) > maxOwnGraces {
		t.Errorf("%d grace periods are kept", len(p.graces))
	}
	b.attach(nil)
	b.SetGracePeriod("later", seconds(1)) // no pool is updated
	if p.graces["later"] != 0 {
		t.Error("a detached pool is told")
	}
}

// TestTheExpanderLearnsOfDeletedPods: once, and only of pods that exist.
func TestTheExpanderLearnsOfDeletedPods(t *testing.T) {
	s := newStore()
	s.Workloads.Enable()
	<-s.Workloads.Due()
	key := manifests.Key{Namespace: "default", Name: "web"}
	s.replaced.feed(&fakePool{uids: map[manifests.Key]types.UID{key: "u"}})(model.Desired{})
	s.Replace(key, "another")
	if got := s.Workloads.TakeDeleted(); len(got) != 0 {
		t.Errorf("%v", got)
	}
	s.Replace(key, "u")
	<-s.Workloads.Due()
	if got := s.Workloads.TakeDeleted(); len(got) != 1 || got[0] != key || len(s.Workloads.TakeDeleted()) != 0 {
		t.Errorf("%v", got)
	}
}

// TestTheExpanderRemovesPodsOfJobs: what was handed to the pool last must not create one again that has done its work.
func TestTheExpanderRemovesPodsOfJobs(t *testing.T) {
	for _, kind := range []string{"Job", "CronJob"} {
		s := newStore()
		key := manifests.Key{Namespace: "default", Name: "web"}
		pod := serving("web")[0]
		pod.Object.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "j", Controller: new(true)}}
		p := &fakePool{uids: map[manifests.Key]types.UID{key: "u"}}
		s.replaced.feed(p)(fromFiles(pod))
		s.Replace(key, "u")
		if len(p.got) != 1 || len(s.Workloads.TakeDeleted()) != 1 {
			t.Errorf("%s: the pool was told %+v", kind, p.got)
		}
	}
}
