package pool_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// TestEvictedPodComesBack checks that the pod comes back without its data, after a back-off that grows.
func TestEvictedPodComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := diskPod()
		r.update(pod)
		r.pass(time.Minute)
		r.wantPhase(corev1.PodRunning)
		waits := []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second}
		for i, wait := range waits {
			began, uid := time.Now(), r.status("web").Pod.UID
			r.fake.ClearJournal()
			r.fake.UseDisk(key("web"), runner.DiskUsage{EmptyDirs: map[string]int64{"v": 2 << 20}})
			r.pass(wait - time.Second)
			p := r.wantPhase(corev1.PodFailed)
			if p.Status.Reason != "Evicted" || p.Status.Message != `Usage of EmptyDir volume "v" exceeds the limit "1Mi".` {
				t.Errorf("%s: %s", p.Status.Reason, p.Status.Message)
			}
			if why := r.status("web").Why; !strings.Contains(why, "recreated at "+began.Add(wait).Format(time.RFC3339)) {
				t.Errorf("why: %s", why)
			}
			if i == 1 { // the agent restarts in between
				r.restart()
				r.update(pod)
			}
			r.pass(2 * time.Second)
			p = r.wantPhase(corev1.PodRunning)
			all := r.fake.Journal()
			if p.UID == uid || p.Status.Reason != "" || times(all, runner.FailPod, began) != "0" || strings.Count(r.began(), "side a b") != 1 {
				t.Errorf("time %d: %s, failed at %s, started %s", i, p.Status.Reason, times(all, runner.FailPod, began), r.began())
			}
			r.pass(time.Minute)
		}
		r.pass(15 * time.Minute)
		r.fake.UseDisk(key("web"), runner.DiskUsage{Containers: map[string]int64{"a": 3 << 20}})
		r.settle()
		r.wantPhase(corev1.PodFailed)
		r.pass(11 * time.Second)
		r.wantPhase(corev1.PodRunning)
	})
}

// TestEvictionIgnoresGracePeriodOfPod checks that the pod's own grace period is ignored.
func TestEvictionIgnoresGracePeriodOfPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := edited(diskPod(), func(p *corev1.Pod) {
			p.Spec.InitContainers = nil
			p.Spec.Containers[0].Command[2] = runtimetest.ScriptStubborn
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
		})
		r.update(pod)
		began := time.Now()
		r.fake.ClearJournal()
		r.fake.UseDisk(key("web"), runner.DiskUsage{Containers: map[string]int64{"b": 3 << 20}})
		r.pass(time.Hour)
		if got := times(r.fake.Journal(), runner.KillContainer, began); got != "1" {
			t.Errorf("killed at %s", got)
		}
		p := r.wantPhase(corev1.PodFailed) // permanently: its policy is Never
		if p.Status.Message != `Container b exceeded its local ephemeral storage limit "2Mi".` {
			t.Errorf("%s", p.Status.Message)
		}
		r.fake.Reboot()
		r.restart()
		r.update(pod)
		r.pass(time.Hour)
		r.wantPhase(corev1.PodFailed)
		r.fake.ClearJournal()
		r.update(edited(pod, func(p *corev1.Pod) {
			p.Spec.Containers[1].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("20Mi")}
		}))
		r.settle()
		r.wantPhase(corev1.PodRunning)
		if got := r.began(); got != "a b" {
			t.Errorf("another limit started %q", got)
		}
	})
}

// TestCompletedPodIsNotEvicted covers completed pods, which the kubelet does not evict either.
func TestCompletedPodIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.update(edited(diskPod(), func(p *corev1.Pod) {
			p.Spec.InitContainers, p.Spec.RestartPolicy = nil, corev1.RestartPolicyNever
			p.Spec.Containers = p.Spec.Containers[:1]
			p.Spec.Containers[0].Command[2] = runtimetest.ScriptSucceed
		}))
		r.pass(time.Minute)
		r.wantPhase(corev1.PodSucceeded)
		r.fake.UseDisk(key("web"), runner.DiskUsage{Containers: map[string]int64{"a": 3 << 20}})
		r.pass(time.Minute)
		r.wantPhase(corev1.PodSucceeded)
	})
}

// TestEvictedBoundPodStaysFailed: the API server has recorded it as Failed, and its controllers have replaced it.
func TestEvictedBoundPodStaysFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := bound(diskPod(), func(*corev1.Pod) {})
		r.update(pod)
		r.pass(time.Minute)
		uid := r.wantPhase(corev1.PodRunning).UID
		r.fake.ClearJournal()
		r.fake.UseDisk(key("web"), runner.DiskUsage{EmptyDirs: map[string]int64{"v": 2 << 20}})
		r.pass(time.Hour)
		r.wantPhase(corev1.PodFailed)
		began := r.began()
		r.restart()
		r.update(pod)
		r.pass(time.Hour)
		r.update(bound(diskPod(), func(p *corev1.Pod) { p.Spec.Containers[0].Image = "another" }))
		r.pass(time.Hour)
		if p := r.wantPhase(corev1.PodFailed); p.UID != uid || p.Status.Reason != "Evicted" {
			t.Errorf("pod %s failed for %q", p.UID, p.Status.Reason)
		}
		if began += r.began(); began != "" {
			t.Errorf("started %q", began)
		}
		if why := r.status("web").Why; strings.Contains(why, "recreated") {
			t.Errorf("why: %s", why)
		}
		next := bound(diskPod(), func(p *corev1.Pod) { p.UID = "1c9d6a5e-0000-4000-8000-000000000002" })
		r.update(next)
		r.pass(time.Minute)
		if p := r.wantPhase(corev1.PodRunning); p.UID != next.Object.UID {
			t.Errorf("%s runs, not the pod that replaces it", p.UID)
		}
	})
}

// TestCompletedBoundPodTakesNoPlace: it does not run again, whatever is edited.
func TestCompletedBoundPodTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.MaxPods = 1
		r.start()
		job := edited(testPod("web", testContainer("a", runtimetest.ScriptSucceed)), func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
		r.update(bound(job, func(*corev1.Pod) {}))
		r.pass(time.Minute)
		r.wantPhase(corev1.PodSucceeded)
		r.update(bound(job, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "another" }), testPod("xyz", testContainer("a", runtimetest.ScriptServe)))
		r.pass(time.Minute)
		if s := r.status("xyz"); s.Pod.Status.Phase != corev1.PodRunning {
			t.Errorf("the pod after it is %s: %s", s.Pod.Status.Phase, s.Why)
		}
	})
}

// TestCompletedBoundPodIsNotRestarted: an edit restarts a completed pod from a file, but an API server does not accept a phase after the
// final one.
func TestCompletedBoundPodIsNotRestarted(t *testing.T) {
	for script, phase := range map[string]corev1.PodPhase{runtimetest.ScriptSucceed: corev1.PodSucceeded, runtimetest.ScriptFail: corev1.PodFailed} {
		t.Run(string(phase), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				job := edited(testPod("web", testContainer("a", script)), func(p *corev1.Pod) {
					p.Spec.RestartPolicy = corev1.RestartPolicyNever
				})
				edit := func(p *corev1.Pod) { p.Spec.Containers[0].Image = "another" }
				for _, from := range []string{"file", manifests.SourceAPIServer} {
					r := newRig(t).start()
					pod, next := job, edited(job, edit)
					if from == manifests.SourceAPIServer {
						pod, next = bound(job, func(*corev1.Pod) {}), bound(job, edit)
					}
					r.update(pod)
					r.pass(2 * time.Minute)
					r.wantPhase(phase)
					r.fake.ClearJournal()
					r.update(next)
					r.pass(time.Hour)
					began := r.began()
					r.restart()
					r.update(next)
					r.pass(time.Hour)
					r.wantPhase(phase)
					if began += r.began(); (from == "file") != (began == "a") {
						t.Errorf("%s: started %q", from, began)
					}
					r.update()
					r.pass(time.Hour)
					r.stop()
				}
			})
		})
	}
}
