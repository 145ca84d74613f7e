package mirror_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"monopod/manifests"
	"monopod/node/apiserver/mirror"
)

// there is the mirror of a pod as a server shows it.
func there(p *corev1.Pod, node types.UID) mirror.Mirror {
	l := mirror.LocalOf(p, "n1")
	return mirror.Mirror{UID: "m-" + p.UID, Hash: l.Hash, Owner: node, Digest: l.Digest, Conditions: p.Status.Conditions}
}

func TestWhatIsDoneAboutAMirror(t *testing.T) {
	now := time.Unix(1000, 0)
	web := running("web")
	key := manifests.Key{Namespace: "default", Name: "web-n1"}
	good := there(web, "node")
	change := func(f func(*mirror.Mirror)) map[manifests.Key]mirror.Mirror {
		m := good
		f(&m)
		return map[manifests.Key]mirror.Mirror{key: m}
	}
	mine := map[manifests.Key]mirror.Local{key: mirror.LocalOf(web, "n1")}
	for name, tt := range map[string]struct {
		pods    map[manifests.Key]mirror.Local
		mirrors map[manifests.Key]mirror.Mirror
		partial bool
		noNode  bool
		tries   map[manifests.Key]mirror.Try
		want    string
		next    time.Time
	}{
		"it is as it should be":                     {pods: mine, mirrors: change(func(*mirror.Mirror) {})},
		"there is none":                             {pods: mine, want: "create default/web-n1"},
		"there is no node":                          {pods: mine, noNode: true},
		"it is of another pod":                      {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Hash = "x" }), want: "delete default/web-n1"},
		"it is of another node":                     {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Owner = "x" }), want: "delete default/web-n1"},
		"somebody deletes it":                       {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Leaving = true }), want: "delete default/web-n1"},
		"its status is another one":                 {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Digest = "x" }), want: "status default/web-n1"},
		"a condition is missing":                    {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Conditions = nil }), want: "status default/web-n1"},
		"others have added a condition":             {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Conditions = append([]corev1.PodCondition{{Type: "x"}}, m.Conditions...) })},
		"a pod of that name is no mirror":           {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Other = true })},
		"the pod is gone":                           {mirrors: change(func(*mirror.Mirror) {}), want: "delete default/web-n1"},
		"it is not known whether the pod is gone":   {mirrors: change(func(*mirror.Mirror) {}), partial: true},
		"a pod of somebody else":                    {mirrors: change(func(m *mirror.Mirror) { m.Other = true })},
		"it was refused a moment ago":               {pods: mine, tries: map[manifests.Key]mirror.Try{key: {At: now.Add(time.Second)}}, next: now.Add(time.Second)},
		"it was refused a while ago":                {pods: mine, tries: map[manifests.Key]mirror.Try{key: {At: now}}, want: "create default/web-n1"},
		"the server does not keep all of a status":  {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Digest = "x" }), tries: map[manifests.Key]mirror.Try{key: accepted(mine[key], good, "x")}},
		"others have changed what was kept of it":   {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Digest = "y" }), tries: map[manifests.Key]mirror.Try{key: accepted(mine[key], good, "x")}, want: "status default/web-n1"},
		"its spec was edited":                       {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Edited = true }), want: "delete default/web-n1"},
		"its spec and its status were edited":       {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Edited, m.Digest = true, "x" }), want: "status default/web-n1"},
		"its spec was edited again":                 {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Edited = true }), tries: map[manifests.Key]mirror.Try{key: {Remade: now.Add(-time.Second)}}, next: now.Add(mirror.RemakeEvery - time.Second)},
		"it was edited, and stays for the moment":   {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Edited = true }), tries: map[manifests.Key]mirror.Try{key: {At: now.Add(time.Second)}}, next: now.Add(time.Second)},
		"a pod of somebody else was edited":         {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Edited, m.Other = true, true })},
		"it can have none, and there is an old one": {pods: map[manifests.Key]mirror.Local{key: {Pod: web, Refused: errors.New("no")}}, mirrors: change(func(*mirror.Mirror) {}), want: "delete default/web-n1"},
		"it can have none":                          {pods: map[manifests.Key]mirror.Local{key: {Pod: web, Refused: errors.New("no")}}},
	} {
		t.Run(name, func(t *testing.T) {
			v := mirror.View{Now: now, Node: "node", Pods: tt.pods, Complete: !tt.partial, Mirrors: tt.mirrors, Tries: tt.tries}
			if tt.noNode {
				v.Node = ""
			}
			got, next := mirror.Plan(v)
			var texts []string
			for _, a := range got {
				texts = append(texts, a.String())
				if a.Kind != mirror.CreateMirror && a.UID != good.UID {
					t.Errorf("it is about %q", a.UID)
				}
			}
			if strings.Join(texts, ", ") != tt.want || !next.Equal(tt.next) {
				t.Errorf("%v, next %v", texts, next)
			}
		})
	}
}

func accepted(l mirror.Local, m mirror.Mirror, digest string) mirror.Try {
	m.Digest = digest
	return mirror.Try{Sent: l.Sent(), Got: m.Got()}
}

// Whatever is there, carrying out plans ends in a plan of nothing, with a mirror of each pod and no others of ours.
func TestPlansConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := mirror.View{Now: time.Unix(1000, 0), Node: "node", Complete: true, Pods: map[manifests.Key]mirror.Local{}, Mirrors: map[manifests.Key]mirror.Mirror{}}
		others := map[manifests.Key]mirror.Mirror{}
		for i := range rapid.IntRange(0, 6).Draw(t, "names") {
			p := running(fmt.Sprint("p", i))
			key := manifests.Key{Namespace: p.Namespace, Name: mirror.Name(p.Name, "n1")}
			if rapid.Bool().Draw(t, "wanted") {
				v.Pods[key] = mirror.LocalOf(p, "n1")
			}
			if !rapid.Bool().Draw(t, "there") {
				continue
			}
			m := there(p, types.UID(rapid.SampledFrom([]string{"node", "old"}).Draw(t, "owner")))
			m.Leaving, m.Other, m.Edited = rapid.Bool().Draw(t, "leaving"), rapid.Bool().Draw(t, "other"), rapid.Bool().Draw(t, "edited")
			m.Digest = rapid.SampledFrom([]string{m.Digest, "x"}).Draw(t, "digest")
			m.Hash = rapid.SampledFrom([]string{m.Hash, "x"}).Draw(t, "hash")
			v.Mirrors[key] = m
			if m.Other {
				others[key] = m
			}
		}
		for range 4 {
			actions, _ := mirror.Plan(v)
			if again, _ := mirror.Plan(v); fmt.Sprint(again) != fmt.Sprint(actions) {
				t.Fatalf("%v, then %v", actions, again)
			}
			for _, a := range actions {
				local := v.Pods[a.Key]
				switch a.Kind {
				case mirror.DeleteMirror:
					delete(v.Mirrors, a.Key)
				default:
					m := there(local.Pod, "node")
					m.Edited = v.Mirrors[a.Key].Edited
					v.Mirrors[a.Key] = m
				}
			}
		}
		if actions, _ := mirror.Plan(v); len(actions) > 0 {
			t.Fatalf("it goes on with %v", actions)
		}
		for key, m := range v.Mirrors {
			if _, wanted := v.Pods[key]; !wanted && !m.Other {
				t.Fatalf("%s stays although no pod wants it: %+v", key, m)
			}
		}
		for key, m := range others {
			if got, ok := v.Mirrors[key]; !ok || !reflect.DeepEqual(got, m) {
				t.Fatalf("%s, which is not ours, was changed to %+v", key, got)
			}
		}
		for key := range maps.Keys(v.Pods) {
			if m, ok := v.Mirrors[key]; !ok || !m.Other && !mirror.SameStatus(v.Pods[key], m) {
				t.Fatalf("%s: %+v", key, m)
			}
		}
	})
}

func TestNamesOfMirrors(t *testing.T) {
	if got := mirror.Name("web", "Node-1"); got != "web-node-1" {
		t.Error(got)
	}
	if got, ok := mirror.LocalName("web-node-1", "Node-1"); !ok || got != "web" {
		t.Error(got, ok)
	}
	for _, name := range []string{"web", "-node-1", "node-1"} {
		if got, ok := mirror.LocalName(name, "node-1"); ok {
			t.Error(name, got)
		}
	}
	if _, err := mirror.For(running(strings.Repeat("x", 252)), "n1"); err == nil || !strings.Contains(err.Error(), "longer than the 253 characters") {
		t.Error(err)
	}
}

func TestAMirrorChangesWithItsPodAndNotWithItsStatus(t *testing.T) {
	web := mirror.LocalOf(running("web"), "n1")
	status := mirror.LocalOf(with(running("web"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed; p.Annotations[mirror.AnnotationSeen] = "now" }), "n1")
	spec := mirror.LocalOf(with(running("web"), func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other" }), "n1")
	if web.Hash != status.Hash || web.Digest == status.Digest || web.Hash == spec.Hash {
		t.Errorf("%+v %+v %+v", web, status, spec)
	}
	// An edit does not change the uid here; tools that wait for it look at config.hash.
	before, err1 := mirror.For(with(running("web"), func(p *corev1.Pod) { p.Annotations[mirror.AnnotationHash] = string(p.UID) }), "n1")
	after, err2 := mirror.For(with(spec.Pod, func(p *corev1.Pod) { p.Annotations[mirror.AnnotationHash] = string(p.UID) }), "n1")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if a, b := before.Annotations, after.Annotations; a[mirror.AnnotationHash] == b[mirror.AnnotationHash] || a[mirror.AnnotationHash] == "" || a[corev1.MirrorPodAnnotationKey] != b[corev1.MirrorPodAnnotationKey] {
		t.Errorf("%v %v", a, b)
	}
}

func TestDigestsLeaveOutWhatServersSet(t *testing.T) {
	a, b := running("a").Status, running("a").Status
	b.QOSClass, b.Conditions = "", nil
	b.StartTime = &metav1.Time{Time: b.StartTime.UTC()}
	if mirror.Digest(&a) != mirror.Digest(&b) {
		t.Error("they differ")
	}
}

func TestHowAPodEndedIsSaidBeforeItIsGone(t *testing.T) {
	key := manifests.Key{Namespace: "default", Name: "web"}
	there := leavingPod(running("web"))
	seen := func(p *corev1.Pod) mirror.Mirror { m := mirror.Of(p); m.Other = true; return m }
	last := mirror.LastLocal(there, endedPod(running("web"), 3))
	accepted := with(there, func(p *corev1.Pod) { p.Status = last.Pod.Status })
	for name, tt := range map[string]struct {
		mirror  *corev1.Pod
		try     mirror.Try
		ended   bool
		partial bool
		want    string
	}{
		"its end is not known there":          {mirror: there, ended: true, want: "[status default/web]"},
		"its end is known there":              {mirror: accepted, ended: true, want: "[delete default/web]"},
		"the server does not accept it":       {mirror: there, ended: true, try: mirror.Try{Refused: last.Sent()}, want: "[delete default/web]"},
		"another status was not accepted":     {mirror: there, ended: true, try: mirror.Try{Refused: "x"}, want: "[status default/web]"},
		"the server keeps a part of it":       {mirror: there, ended: true, try: mirror.Try{Sent: last.Sent(), Got: new(seen(there)).Got()}, want: "[delete default/web]"},
		"it may still run":                    {mirror: there, ended: true, partial: true, want: "[]"},
		"nothing is known of it, nor of ends": {mirror: there, want: "[delete default/web]"},
	} {
		v := mirror.View{Now: time.Now(), Node: "node", Bound: map[types.UID]mirror.Local{}, Complete: !tt.partial, Mirrors: map[manifests.Key]mirror.Mirror{key: seen(tt.mirror)}, Tries: map[manifests.Key]mirror.Try{key: tt.try}}
		if tt.ended {
			v.Ended = map[types.UID]mirror.Local{there.UID: last}
		}
		if got, _ := mirror.Plan(v); fmt.Sprint(got) != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestTheFinalStatusIsTerminal(t *testing.T) {
	waiting := with(running("web"), func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodPending
		p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	})
	initializing := with(waiting, func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "first"}, {Name: "second"}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{
			{Name: "first", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, Ready: true}, {Name: "second", State: waiting.Status.ContainerStatuses[0].State},
		}
	})
	for name, tt := range map[string]struct {
		there, last *corev1.Pod
		phase       corev1.PodPhase
		code        int32
		reason      string
		initCode    int32
	}{
		"it has succeeded":                          {there: running("web"), last: endedPod(running("web"), 0), phase: corev1.PodSucceeded, reason: mirror.ReasonPodCompleted},
		"it has failed":                             {there: running("web"), last: endedPod(running("web"), 3), phase: corev1.PodFailed, code: 3, reason: mirror.ReasonPodFailed},
		"nobody saw its end":                        {there: running("web"), last: running("web"), phase: corev1.PodFailed, code: 137, reason: mirror.ReasonPodFailed},
		"an agent before this one ran it":           {there: running("web"), phase: corev1.PodFailed, code: 137, reason: mirror.ReasonPodFailed},
		"the server knows its end, and nobody else": {there: endedPod(running("web"), 0), last: waiting, phase: corev1.PodSucceeded, reason: mirror.ReasonPodCompleted},
		"it has never run":                          {there: waiting, phase: corev1.PodFailed, code: 137, reason: mirror.ReasonPodFailed},
		"it was being initialized":                  {there: initializing, phase: corev1.PodFailed, code: -1, reason: mirror.ReasonPodFailed, initCode: 137},
	} {
		t.Run(name, func(t *testing.T) {
			l := mirror.LastLocal(leavingPod(tt.there), tt.last)
			s := l.Pod.Status
			if s.Phase != tt.phase || s.ObservedGeneration != 3 {
				t.Errorf("%+v", s)
			}
			for _, c := range s.Conditions {
				if c.Type == corev1.PodReady && (c.Status != corev1.ConditionFalse || c.Reason != tt.reason || c.ObservedGeneration != 3 || c.LastTransitionTime.IsZero()) {
					t.Errorf("%+v", c)
				}
			}
			c := s.ContainerStatuses[0]
			if tt.code < 0 {
				if c.State.Terminated != nil || s.InitContainerStatuses[0].State.Terminated.ExitCode != tt.initCode || s.InitContainerStatuses[1].State.Terminated != nil {
					t.Errorf("%+v", s)
				}
				return
			}
			if c.State.Terminated == nil || c.State.Terminated.ExitCode != tt.code || c.Ready || c.State.Running != nil || c.State.Waiting != nil {
				t.Errorf("%+v", c)
			}
		})
	}
}

// An API server refuses a status in which a container that has ended for good has not.
func TestAStatusNeverGoesBackFromTerminated(t *testing.T) {
	policy := func(p corev1.RestartPolicy) func(*corev1.Pod) {
		return func(q *corev1.Pod) { q.Spec.RestartPolicy = p }
	}
	for name, tt := range map[string]struct {
		there *corev1.Pod
		stays bool
	}{
		"always restarted":            {endedPod(running("web"), 0), false},
		"always restarted, deleted":   {leavingPod(endedPod(running("web"), 0)), true},
		"never restarted":             {with(endedPod(running("web"), 1), policy(corev1.RestartPolicyNever)), true},
		"failed, restarted then":      {with(endedPod(running("web"), 1), policy(corev1.RestartPolicyOnFailure)), false},
		"succeeded, not restarted":    {with(endedPod(running("web"), 0), policy(corev1.RestartPolicyOnFailure)), true},
		"a container of its own mind": {with(endedPod(running("web"), 0), func(p *corev1.Pod) { p.Spec.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever) }), true},
		"another pod of that name":    {with(endedPod(running("web"), 0), func(p *corev1.Pod) { policy(corev1.RestartPolicyNever)(p); p.UID = "x" }), false},
	} {
		now := running("web")
		got := mirror.BoundLocal(now, tt.there, nil).Pod.Status
		if stays := got.ContainerStatuses[0].State.Terminated != nil; stays != tt.stays || stays && (got.Phase != tt.there.Status.Phase || got.ContainerStatuses[0].Ready) {
			t.Errorf("%s: %+v", name, got)
		}
		if now.Status.ContainerStatuses[0].State.Running == nil {
			t.Errorf("%s: what is here was changed", name)
		}
	}
}

// ended is a pod whose container has ended.
func endedPod(p *corev1.Pod, code int32) *corev1.Pod {
	return with(p, func(p *corev1.Pod) {
		c := &p.Status.ContainerStatuses[0]
		c.Ready, c.State = false, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Completed", FinishedAt: metav1.NewTime(time.Unix(5000, 0)), ContainerID: "containerd://1"}}
		p.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			p.Status.Phase = corev1.PodFailed
		}
		p.Status.Conditions[0].Status, p.Status.Conditions[0].Reason = corev1.ConditionFalse, "PodCompleted"
	})
}

// leavingPod is a pod that the server wants gone.
func leavingPod(p *corev1.Pod) *corev1.Pod {
	return with(p, func(p *corev1.Pod) { p.DeletionTimestamp, p.Generation = &metav1.Time{Time: time.Unix(6000, 0)}, 3 })
}

// running is a pod that runs.
func running(name string) *corev1.Pod {
	at := metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-of-" + name), Annotations: map[string]string{"kubernetes.io/config.source": "file"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "monopod.test/busybox:1"}}, NodeName: "n1", RestartPolicy: corev1.RestartPolicyAlways},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.229.0.2", PodIPs: []corev1.PodIP{{IP: "10.229.0.2"}}, HostIP: "192.0.2.1", StartTime: &at, QOSClass: corev1.PodQOSBestEffort,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", Ready: true, Image: "monopod.test/busybox:1", ImageID: "sha256:1", ContainerID: "containerd://1",
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
			}},
		},
	}
}

// with is a copy of a pod, changed.
func with(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	p = p.DeepCopy()
	change(p)
	return p
}
