package nodeevents

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/daemon/state"
	"monopod/node/events"
	"monopod/node/oom"
	"monopod/runner/podstatus"
)

func TestWhoWasKilledIsSaidOfThePod(t *testing.T) {
	now, before, other := strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)
	all := []podstatus.Status{{}, {Pod: &corev1.Pod{}}, {Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u-1"},
		Status: corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{{Name: "waits"}, {
				Name: "c", ContainerID: "containerd://" + now,
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "containerd://" + before}},
			}},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "i", ContainerID: "containerd://" + other}},
		},
	}}}
	for _, tt := range []struct{ victim, want string }{
		{"/m/podu-1/" + now, "spec.containers{c}"},
		{"/m.slice/m-podu_1.slice/monopod-" + before + ".scope/x", "spec.containers{c}"},
		{"/m/podu-1/" + other, "spec.initContainers{i}"},
		{"/m/podu-1/" + strings.Repeat("d", 64), ""},
		{"/m/podu-1", ""},
	} {
		ref, message, ok := killedIn(oom.Kill{Process: "dd", PID: 7, Victim: tt.victim}, all)
		if !ok || ref.Name != "p" || ref.Namespace != "n" || ref.UID != "u-1" || ref.FieldPath != tt.want || message != "Memory cgroup out of memory: Killed process 7 (dd)" {
			t.Errorf("%s: %+v %s", tt.victim, ref, message)
		}
	}
	if _, message, ok := killedIn(oom.Kill{Process: "dd", PID: 7, Victim: "/m/podu-1", System: true}, all); !ok || message != "Out of memory: Killed process 7 (dd)" {
		t.Error(message)
	}
	if ref, _, ok := killedIn(oom.Kill{Process: "dd", PID: 7, Victim: "/system.slice/x.service"}, all); ok {
		t.Errorf("%+v", ref)
	}
}

// somePods are Pods whose statuses appear one after the other.
type somePods struct {
	state.Changes
	mu       sync.Mutex
	statuses []podstatus.Status
}

func (p *somePods) Statuses() ([]podstatus.Status, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.statuses), errors.New("not all are known")
}

func (p *somePods) set(statuses ...podstatus.Status) {
	p.mu.Lock()
	p.statuses = statuses
	p.mu.Unlock()
	p.Notify()
}

// victims runs recordKills in a bubble, and returns the events as "reason path message".
func victims(t *testing.T, do func(pods *somePods, kills chan<- oom.Kill, recorded func() []string)) []string {
	t.Helper()
	var got []string
	synctest.Test(t, func(t *testing.T) {
		r := New(events.New(events.Config{Dir: t.TempDir()}), "node", slog.New(slog.DiscardHandler))
		recorded := func() []string {
			synctest.Wait()
			var all []string
			for _, e := range r.List(events.Filter{}) {
				all = append(all, e.Reason+" "+e.InvolvedObject.FieldPath+" "+e.Message)
			}
			return all
		}
		pods, kills := &somePods{}, make(chan oom.Kill)
		go r.recordKills(kills, pods)
		do(pods, kills, recorded)
		close(kills)
		got = recorded()
	})
	return got
}

func podWith(id string) podstatus.Status {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u-1"}}
	if id != "" {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", ContainerID: "containerd://" + id}}
	}
	return podstatus.Status{Pod: p}
}

// TestAKillWaitsForTheStatusOfItsContainer: the kernel reports it before the container, or even its pod, is in a status.
func TestAKillWaitsForTheStatusOfItsContainer(t *testing.T) {
	id := strings.Repeat("a", 64)
	kill := oom.Kill{Process: "dd", PID: 7, Victim: "/m/podu-1/" + id}
	want := "OOMKilling spec.containers{c} Memory cgroup out of memory: Killed process 7 (dd)"
	for name, before := range map[string][]podstatus.Status{"without pod": nil, "without container": {podWith("")}, "with both": {podWith(id)}} {
		got := victims(t, func(pods *somePods, kills chan<- oom.Kill, recorded func() []string) {
			pods.set(before...)
			kills <- kill
			if early := recorded(); name != "with both" && len(early) > 0 {
				t.Errorf("%s: recorded early: %q", name, early)
			}
			time.Sleep(statusTimeout / 2)
			pods.set(podWith(id))
			if got := recorded(); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %q", name, got)
			}
			time.Sleep(2 * statusTimeout)
		})
		if !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestAKillIsRecordedWithoutItsContainerInTheEnd: after a timeout, or when the agent stops.
func TestAKillIsRecordedWithoutItsContainerInTheEnd(t *testing.T) {
	kill := func(pid int) oom.Kill {
		return oom.Kill{Process: "dd", PID: pid, Victim: fmt.Sprintf("/m/podu-1/%064x", pid)}
	}
	others := oom.Kill{Process: "other", PID: 1, Victim: "/docker/" + strings.Repeat("b", 64)}
	first, second := "OOMKilling  Memory cgroup out of memory: Killed process 11 (dd)", "OOMKilling  Memory cgroup out of memory: Killed process 12 (dd)"
	got := victims(t, func(pods *somePods, kills chan<- oom.Kill, recorded func() []string) {
		pods.set(podWith(""))
		kills <- others
		kills <- kill(11)
		time.Sleep(statusTimeout - time.Nanosecond)
		if early := recorded(); len(early) > 0 {
			t.Errorf("recorded early: %q", early)
		}
		time.Sleep(time.Nanosecond)
		if got := recorded(); !slices.Equal(got, []string{first}) {
			t.Errorf("after the timeout: %q", got)
		}
		kills <- kill(12)
	})
	if !slices.Contains(got, second) || len(got) != 2 {
		t.Errorf("at the end: %q", got)
	}
}

// TestKillsThatWaitAreLimited: the oldest are recorded without their containers when there are too many.
func TestKillsThatWaitAreLimited(t *testing.T) {
	r := New(events.New(events.Config{Dir: t.TempDir()}), "node", slog.New(slog.DiscardHandler))
	var waiting []waitingKill
	now := time.Now()
	for i := range maxWaiting + 3 {
		waiting = append(waiting, waitingKill{oom.Kill{PID: i, Victim: fmt.Sprintf("/m/podu-1/%064x", i)}, now.Add(time.Second)})
	}
	left := r.settle(waiting, []podstatus.Status{podWith("")}, now)
	if len(left) != maxWaiting || left[0].PID != 3 || len(r.List(events.Filter{})) != 3 {
		t.Errorf("%d wait, %d events", len(left), len(r.List(events.Filter{})))
	}
}

func TestTheMachineOutOfMemoryIsAnEventOfTheNode(t *testing.T) {
	r := New(events.New(events.Config{Dir: t.TempDir()}), "node", slog.New(slog.DiscardHandler))
	kills := make(chan oom.Kill, 3)
	kills <- oom.Kill{Process: "mysqld", PID: 9, System: true}
	kills <- oom.Kill{Process: "other", PID: 10, System: true, Group: true}
	kills <- oom.Kill{Process: "sh", PID: 11}
	close(kills)
	r.recordKills(kills, &somePods{})
	all := r.List(events.Filter{})
	if len(all) != 1 || all[0].InvolvedObject.Kind != "Node" || all[0].Reason != "SystemOOM" || all[0].Message != "System OOM encountered, victim process: mysqld, pid: 9" {
		t.Errorf("%+v", all)
	}
}

func TestWithoutMessagesOfTheKernelThereIsOneWarning(t *testing.T) {
	var log strings.Builder
	r := New(nil, "node", slog.New(slog.NewTextHandler(&log, nil)))
	r.WatchOOM(t.Context(), filepath.Join(t.TempDir(), "kmsg"), nil)
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "kmsg: no such file") {
		t.Error(got)
	}
}
