package pool_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/admit"
	"monopod/runner/plan"
	"monopod/runner/runtimetest"
)

func room(cpu, memory string) admit.Requests {
	return admit.RequestsOf(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)})
}

func (r *rig) phases(want string, names ...string) {
	r.t.Helper()
	var got []string
	for _, n := range names {
		s := r.status(n).Pod.Status
		text := n + ":" + string(s.Phase)
		if s.Reason != "" {
			text += "/" + s.Reason
		}
		got = append(got, text)
	}
	if strings.Join(got, " ") != want {
		r.t.Errorf("%s, want %s", strings.Join(got, " "), want)
	}
}

func TestPodThatDoesNotFitIsRetriedWhenRoomIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Room = room("4", "4Gi")
		events := &diary{count: map[string]int{}, uids: map[string]bool{}}
		r.cfg.Events = events
		r.start()
		a, b := requesting("a", "3", "", ""), requesting("b", "2", "", "")
		r.update(a, b)
		r.phases("a:Running b:Pending/OutOfcpu", "a", "b")
		const want = "OutOfcpu: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"
		if s := r.status("b"); s.Why != want || s.Trouble.Kind != model.TroubleHeld || s.Pod.CreationTimestamp.IsZero() {
			t.Errorf("why: %s; known since %s", s.Why, s.Pod.CreationTimestamp)
		}
		if said := events.String(); !strings.Contains(said, "W OutOfcpu b "+strings.TrimPrefix(want, "OutOfcpu: ")+"\n") {
			t.Errorf("no event in\n%s", said)
		}
		r.restart() // running pods are not judged again, and waiting pods still wait
		r.update(a, b)
		r.phases("a:Running b:Pending/OutOfcpu", "a", "b")
		r.update(edited(a, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
		}), b)
		r.pass(time.Minute)
		r.phases("a:Running b:Running", "a", "b")
		r.update(b, requesting("c", "3", "", ""))
		r.pass(time.Minute)
		r.phases("b:Running c:Pending/OutOfcpu", "b", "c")
		r.update(requesting("c", "3", "", ""))
		r.pass(time.Minute)
		r.phases("c:Running", "c")
	})
}

func TestCompletedPodFreesItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Room, r.cfg.MaxPods = room("4", "4Gi"), 1
		r.start()
		job := edited(requesting("job", "3", "", ""), func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
		b := requesting("b", "2", "", "")
		r.update(job, b)
		r.phases("job:Running b:Pending/OutOfpods", "job", "b")
		if err := r.fake.Exit(key("job"), "a", 0); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Minute)
		r.phases("job:Succeeded b:Running", "job", "b")
		if s := r.status("job"); s.Why != "" {
			t.Errorf("the job: %s", s.Why)
		}
	})
}

func TestPreemptedPodComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Room = room("4", "4Gi")
		r.start()
		low := edited(requesting("low", "3", "", "1"), func(p *corev1.Pod) { p.Spec.Containers[0].Command[2] = runtimetest.ScriptSlowStop })
		high, small := requesting("high", "3", "", "2"), requesting("small", "1500m", "", "")
		r.update(low)
		uid := r.status("low").Pod.UID
		r.update(low, small, high)
		if s := r.status("high"); !strings.HasSuffix(s.Why, "; preempted: default/low") && !strings.HasSuffix(s.Why, "; it fits once the pods being stopped are gone") {
			t.Errorf("why: %s", s.Why)
		}
		r.pass(time.Minute)
		r.phases("low:Failed/Preempting high:Running small:Pending/OutOfcpu", "low", "high", "small")
		if s := r.status("low"); s.Pod.Status.Message != "Preempted in order to admit critical pod default/high" || !strings.HasPrefix(s.Why, "OutOfcpu: ") {
			t.Errorf("%s; %s", s.Pod.Status.Message, s.Why)
		}
		r.restart()
		r.update(low, small, high)
		r.pass(10 * time.Minute)
		r.phases("low:Failed/Preempting high:Running small:Pending/OutOfcpu", "low", "high", "small")
		r.update(low, small)
		r.pass(time.Minute)
		r.phases("low:Running small:Pending/OutOfcpu", "low", "small")
		if now := r.status("low").Pod.UID; now == uid {
			t.Error("it is the same pod")
		}
	})
}

func TestPodsStartByPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.MaxConcurrent = 1
		r.start()
		var all []*manifests.Pod
		for i := range 9 {
			all = append(all, requesting(fmt.Sprintf("p%d", i), "", "", fmt.Sprint(i*7%9)))
		}
		r.update(all...)
		r.pass(time.Minute)
		var order []string
		for _, e := range r.fake.Journal() {
			if e.Action.Kind == runner.CreateSandbox {
				order = append(order, fmt.Sprint(*all[e.Key.Name[1]-'0'].Object.Spec.Priority))
			}
		}
		if got := strings.Join(order, " "); got != "8 7 6 5 4 3 2 1 0" {
			t.Errorf("priorities in the order of their start: %s", got)
		}
	})
}

// What a pod has written is deleted if disk space was the problem; otherwise its containers stay for inspection.
func TestDiskEvictionFreesDisk(t *testing.T) {
	for resource, left := range map[string]int{runner.ResourceDisk: 0, runner.ResourceInodes: 0, "memory": 1} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t).start()
			r.update(requesting("web", "", "", ""))
			r.pool.Barrier(func(*manifests.Pod) *runner.Held { return &runner.Held{Reason: "Evicted", Message: "m"} })
			r.pool.Evict(key("web"), plan.Eviction{
				UID: string(r.status("web").Pod.UID), Reason: runner.ReasonEvicted, Cause: cause.Cause{Kind: cause.Evicted, Resource: resource}, Message: "low on something", Grace: time.Second,
			})
			r.pass(time.Minute)
			r.phases("web:Failed/Evicted", "web")
			if n := len(r.fake.State(key("web")).Containers); n != left {
				t.Errorf("%s: %d containers are left", resource, n)
			}
			r.pool.Barrier(nil)
			r.pass(time.Minute)
			r.phases("web:Running", "web")
		})
	}
}

func TestAnEvictedPodWaitsForTheBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		web := edited(requesting("web", "", "", ""), func(p *corev1.Pod) { p.Spec.Containers[0].Command[2] = runtimetest.ScriptStubborn })
		r.update(web)
		uid := string(r.status("web").Pod.UID)
		order := plan.Eviction{UID: "another", Reason: runner.ReasonEvicted, Message: "The node was low on resource: memory.", Grace: time.Second}
		r.pool.Evict(key("web"), order)
		r.pass(time.Minute)
		r.phases("web:Running", "web")
		r.pool.Barrier(func(*manifests.Pod) *runner.Held {
			return &runner.Held{Reason: "Evicted", Message: "The node had condition: [MemoryPressure]."}
		})
		r.settle()
		r.phases("web:Running", "web") // a barrier stops no pod
		order.UID = uid
		r.pool.Evict(key("web"), order)
		r.pass(1500 * time.Millisecond)
		r.phases("web:Failed/Evicted", "web")
		r.restart()
		r.pool.Barrier(func(*manifests.Pod) *runner.Held {
			return &runner.Held{Reason: "Evicted", Message: "The node had condition: [MemoryPressure]."}
		})
		r.update(web)
		r.pass(10 * time.Minute)
		r.phases("web:Failed/Evicted", "web")
		if s := r.status("web"); s.Why != "Evicted: The node had condition: [MemoryPressure].; before that: Evicted: The node was low on resource: memory." {
			t.Errorf("why: %s", s.Why)
		}
		r.pool.Barrier(nil)
		r.pass(time.Second)
		r.phases("web:Running", "web")
	})
}

// TestPreemptionIsCanceledWhenNotNeeded has a pod that must make room and could not be stopped yet: it keeps running once the room is not
// needed.
func TestPreemptionIsCanceledWhenNotNeeded(t *testing.T) {
	high := requesting("high", "3", "", "2")
	for name, tt := range map[string]struct {
		then []*manifests.Pod
		// want is the state of all pods a minute after they can be observed again; message is that of low.
		want, message string
	}{
		"no pod needs room": {nil, "low:Running", ""},
		"it fits once": {[]*manifests.Pod{edited(high, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = requesting("high", "1", "", "2").Object.Spec.Containers[0].Resources
		})}, "low:Running high:Running", ""},
		"it waits still":       {[]*manifests.Pod{edited(high, func(p *corev1.Pod) { p.Spec.PreemptionPolicy = new(corev1.PreemptNever) })}, "low:Failed/Preempting high:Running", "high"},
		"another one needs it": {[]*manifests.Pod{requesting("other", "2", "", "3")}, "low:Failed/Preempting other:Running", "other"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.cfg.Room = room("4", "4Gi")
				r.start()
				low := requesting("low", "3", "", "1")
				r.update(low)
				uid := r.status("low").Pod.UID
				r.pool.Gate(func(p *manifests.Pod) (rule runner.Rule) {
					if p.Object.Name == "high" {
						rule.Wait = &runner.Held{Reason: runner.ReasonCordoned}
					}
					return rule
				})
				r.update(low, high)
				r.fake.Blind(runtimetest.ErrBlind)
				r.pool.Gate(nil)
				r.settle()
				if !strings.Contains(r.log.String(), `msg="preempting pod" pod=default/low for=default/high`) {
					t.Error("nobody was to make room")
				}
				all := append([]*manifests.Pod{low}, tt.then...)
				r.update(all...)
				r.fake.Blind(nil)
				r.pass(time.Minute)
				names := []string{"low"}
				for _, p := range tt.then {
					names = append(names, p.Object.Name)
				}
				r.phases(tt.want, names...)
				s := r.status("low").Pod
				if tt.message == "" && s.UID != uid || tt.message != "" && s.Status.Message != "Preempted in order to admit critical pod default/"+tt.message {
					t.Errorf("%s, %s: %s", s.UID, uid, s.Status.Message)
				}
			})
		})
	}
}

// TestPreemptionForPodThatDisappears has the pod that needs the room disappear before the room is free.
func TestPreemptionForPodThatDisappears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Room = room("4", "4Gi")
		r.start()
		low := edited(requesting("low", "3", "", "1"), func(p *corev1.Pod) { p.Spec.Containers[0].Command[2] = runtimetest.ScriptSlowStop })
		other := requesting("other", "1", "", "1")
		r.update(low, other)
		before := r.status("other").Pod.UID
		r.update(low, other, requesting("high", "3", "", "2"))
		if s := r.status("low").Pod.Status; s.Reason != runner.ReasonPreempting {
			t.Fatalf("low: %s %s", s.Phase, s.Reason)
		}
		r.update(low, other, requesting("late", "3", "", "2"))
		r.pass(time.Minute)
		r.phases("low:Failed/Preempting other:Running late:Running", "low", "other", "late")
		r.update(low, other)
		r.pass(time.Minute)
		r.phases("low:Running other:Running", "low", "other")
		if r.status("other").Pod.UID != before {
			t.Error("another one had to go, too")
		}
	})
}
