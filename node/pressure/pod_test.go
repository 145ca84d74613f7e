package pressure

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node/stats"
)

func TestNewPodSumsUpWhatIsUsed(t *testing.T) {
	usage := func(memory, pids uint64) stats.Usage {
		return stats.Usage{Memory: stats.Memory{Usage: 1000 * memory, WorkingSet: memory}, Pids: stats.Pids{Current: pids}}
	}
	priority := int32(7)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.PodSpec{Priority: &priority}}
	u := &stats.Pod{
		Place: model.Place{UID: "u"}, Usage: usage(10, 4),
		Containers: []stats.Container{{ContainerPlace: model.ContainerPlace{Name: "a"}, Usage: usage(6, 1)}, {ContainerPlace: model.ContainerPlace{Name: "b"}, Usage: usage(4, 3)}},
	}
	p := NewPod(pod, u, true)
	if p.Key != (manifests.Key{Namespace: "default", Name: "web"}) || p.UID != "u" || p.Priority.Value != 7 || p.Leaving || !p.Local || p.Use != (Use{Memory: 10, PIDs: 4}) {
		t.Errorf("without the disk: %+v", p)
	}
	u.Disk = &stats.PodDisk{
		Layers: map[string]stats.DiskUse{"a": {Bytes: 100, Inodes: 1}}, Logs: map[string]stats.DiskUse{"a": {Bytes: 20, Inodes: 2}, "ended": {Bytes: 3, Inodes: 1}},
	}
	p = NewPod(pod, u, true)
	if p.Use != (Use{Memory: 10, PIDs: 4, Disk: 123, Inodes: 4}) {
		t.Errorf("with the disk: %+v", p.Use)
	}
	for name, want := range map[string]Use{"a": {Memory: 6, PIDs: 1, Disk: 120, Inodes: 3}, "b": {Memory: 4, PIDs: 3}, "ended": {Disk: 3, Inodes: 1}} {
		if p.Containers[name] != want {
			t.Errorf("%s: %+v", name, p.Containers[name])
		}
	}
	for name, leave := range map[string]func(*corev1.Pod){
		"deleted": func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))) },
		"failed":  func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
	} {
		gone := pod.DeepCopy()
		if leave(gone); !NewPod(gone, u, true).Leaving {
			t.Errorf("%s: it may be evicted", name)
		}
	}
}

func TestOnlyHardThresholdsOfMemoryAndDiskAreReserved(t *testing.T) {
	memory, storage := HardAmounts(thresholds(t, Written{
		Hard: map[string]string{"memory.available": "5Mi", "nodefs.available": "10%", "imagefs.available": "15%", "pid.available": "7"},
		Soft: map[string]string{"memory.available": "50Mi"}, SoftGrace: map[string]string{"memory.available": "1m"},
	}))
	if memory.String() != "5Mi" || storage.String() != "10%" {
		t.Errorf("%s, %s", memory, storage)
	}
	if memory, storage := HardAmounts(nil); !memory.IsZero() || !storage.IsZero() {
		t.Errorf("without thresholds: %s, %s", memory, storage)
	}
}
