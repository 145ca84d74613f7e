package nodeevents

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func TestTheMachineOutOfMemoryIsAnEventOfTheNode(t *testing.T) {
	r := New(events.New(events.Config{Dir: t.TempDir()}), "node", slog.New(slog.DiscardHandler))
	r.OOM(oom.Kill{Process: "mysqld", PID: 9, System: true}, nil)
	r.OOM(oom.Kill{Process: "other", PID: 10, System: true, Group: true}, nil)
	r.OOM(oom.Kill{Process: "sh", PID: 11}, nil)
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
